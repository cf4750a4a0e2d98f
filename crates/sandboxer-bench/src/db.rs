//! The table `db`: databases in a sandbox, against the same database without one.

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::rows::db::{self, Scale};
use crate::tree::TreeSpec;

/// Databases: statements through the proxy, differences, recording and clones, against the same done directly.
#[derive(Args)]
pub struct DbArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: postgres-select, postgres-transactions, postgres-diff, sqlite-diff,
    /// sqlite-record, sqlite-clone. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
}

fn group(word: &str) -> Result<String, String> {
    beginning(db::GROUPS.into_iter(), word)
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &DbArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let bench = options.bench(TreeSpec::tiny(1), interrupt)?;
    let rows = db::rows(&bench, &scale, |group| is_wanted(&arguments.only, group))?;
    options.publish(&rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        db: DbArguments,
    }

    #[test]
    fn groups_are_chosen_by_the_beginning_of_their_names() {
        let wanted = |words: &[&str]| {
            let line = Line::try_parse_from([&["db"], words].concat()).unwrap();
            db::GROUPS.into_iter().filter(|group| is_wanted(&line.db.only, group)).collect::<Vec<_>>()
        };
        assert_eq!(wanted(&[]), db::GROUPS);
        assert_eq!(
            wanted(&["--only", "sqlite-c", "--only", "postgres-d"]),
            ["postgres-diff", "sqlite-clone"]
        );
        assert!(Line::try_parse_from(["db", "--only", "mysql"]).is_err());
    }
}
