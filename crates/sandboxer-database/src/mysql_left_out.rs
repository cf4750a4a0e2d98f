//! Stands in for the `mysql` module in a build without its driver: every call is refused.

use sandboxer_core::{Error, Result};

use crate::credentials::Account;
use crate::engine::{Engine, Outcome, Prepared, Setup};
use crate::transaction;

pub fn account(_location: &str, _user: &str) -> Result<Account> {
    Err(left_out())
}

pub fn open(_setup: &Setup) -> Result<Box<dyn Engine>> {
    Err(left_out())
}

pub fn settle(_setup: &Setup, _prepared: &Prepared, _decision: Option<bool>) -> Result<Outcome> {
    Err(left_out())
}

fn left_out() -> Error {
    Error::Unsupported {
        strategy: transaction::NAME.to_owned(),
        what: "open MySQL or MariaDB",
        reason: "this build of sandbox has no driver for them; build it with the cargo feature \"mysql\""
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_feature() {
        let refused = account("mysql://h/d", "me").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("\"mysql\""), "{refused}");
    }
}
