//! What a profile can set.

use std::collections::BTreeMap;

use sandboxer_core::environment::Provision;
use sandboxer_core::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

/// The options of one environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// The compose file, relative to the workspace; else the first of the usual names in `e2e/`, then beside it.
    pub compose_file: Option<String>,
    /// The input that the compose file is in; else the first.
    pub input: Option<String>,
    /// The service that commands run in unless they name one.
    pub service: Option<String>,
    /// Values for `${…}` in the compose file.
    pub variables: BTreeMap<String, String>,
}

impl Wanted {
    /// Those of a request, over those of the definition.
    pub fn of(defined: &BTreeMap<String, Value>, request: &Provision) -> Result<Self> {
        let mut options = defined.clone();
        options.extend(request.options.clone());
        let options: serde_json::Map<String, Value> = options.into_iter().collect();
        serde_json::from_value(Value::Object(options)).map_err(|error| Error::Usage {
            message: format!("profile {}: options: {error}", request.profile_id),
            hint: Some("the options of a stack are compose_file, input, service and variables".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::container::tests::request as container_request;

    #[test]
    fn a_profile_goes_before_the_definition() {
        let mut request = container_request("sbx_1");
        request.options = BTreeMap::from([("service".to_owned(), json!("web"))]);
        let defined = BTreeMap::from([
            ("service".to_owned(), json!("db")),
            ("compose_file".to_owned(), json!("ci/stack.yaml")),
        ]);
        let wanted = Wanted::of(&defined, &request).unwrap();
        assert_eq!(wanted.service.as_deref(), Some("web"));
        assert_eq!(wanted.compose_file.as_deref(), Some("ci/stack.yaml"));
    }

    #[test]
    fn odd_options_are_refused_by_name() {
        let mut request = container_request("sbx_1");
        for (key, value) in
            [("composefile", json!("x")), ("variables", json!({"A": 1})), ("service", json!(1))]
        {
            request.options = BTreeMap::from([(key.to_owned(), value)]);
            let refused = Wanted::of(&BTreeMap::new(), &request).unwrap_err();
            assert!(matches!(&refused, Error::Usage { hint: Some(_), .. }), "{refused}");
        }
    }
}
