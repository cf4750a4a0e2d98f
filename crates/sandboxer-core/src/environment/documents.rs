//! What a program sends to get a sandbox, and what it is told of one.
//!
//! The status is the document that `sandbox create --json` and `sandbox get --json` print. Both refuse what they do not know, so that a
//! test which reads the one as the other finds out when they part.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Endpoint, IsolationLevel, NetworkNeed, Route, Scope, Setup};
use crate::service::{Consumer, SandboxState};

/// A request for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxCreateRequest {
    /// The profile, such as `profile.local`.
    pub profile: String,
    /// What is isolated, each a path or a URL, by the name that the profile declares; the first is where commands begin.
    #[schemars(with = "BTreeMap<String, String>", extend("minProperties" = 1))]
    pub inputs: Inputs,
    /// Who asks.
    pub consumer: Consumer,
    /// How long it lives, such as `2h`; without it, as long as the profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// The plan that it belongs to; without one, a new plan is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// What it is called; without it, a name is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Words of the caller's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl SandboxCreateRequest {
    /// A digest of all that is asked for: a key stands for one request.
    pub fn digest(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        blake3::hash(&text).to_hex().to_string()
    }
}

/// Names and places, in the order in which they were given: a JSON object whose order counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs(pub Vec<(String, String)>);

impl Serialize for Inputs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, place)| (name, place)))
    }
}

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Inputs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and places")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Inputs, A::Error> {
                let mut inputs = Vec::new();
                while let Some((name, place)) = map.next_entry::<String, String>()? {
                    if inputs.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format_args!(
                            "the input {name:?} is given twice"
                        )));
                    }
                    inputs.push((name, place));
                }
                Ok(Inputs(inputs))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// What is told of a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxStatus {
    /// `sbx_` and a ULID.
    pub sandbox_id: String,
    /// What it is called.
    pub name: String,
    /// The plan that it belongs to.
    pub plan_id: String,
    /// Where it is in its life.
    pub state: SandboxState,
    /// Whether this request made it.
    pub created: bool,
    /// One sentence on what was done, or on how it stands.
    pub message: String,
    /// When it was made.
    #[schemars(extend("format" = "date-time"))]
    pub created_at: String,
    /// When it ends, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub expires_at: Option<String>,
    /// Who asked for it.
    pub consumer: Consumer,
    /// Who that was by name, where a server knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The profile that it was made from.
    pub profile_id: String,
    /// The extension that makes its environment.
    pub extension_id: String,
    /// The host that it is on.
    pub host: String,
    /// What a profile had made around the workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<StatusEnvironment>,
    /// The path to work in, of the only workspace.
    #[serde(default)]
    pub sandbox_path: Option<String>,
    /// The strategy of the only workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The strategy that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_strategy: Option<String>,
    /// The resource of the only workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<StatusResource>,
    /// Where the only workspace stands in its git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Value>,
    /// All workspaces.
    pub workspaces: Vec<StatusWorkspace>,
}

/// What a profile had made around the workspaces of a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusEnvironment {
    /// Which extension on which host, and why.
    pub route: Route,
    /// How much is kept from what runs inside.
    pub isolation: IsolationLevel,
    /// What of the network is reached from inside.
    pub network: NetworkNeed,
    /// Who may see and use it.
    pub scope: Scope,
    /// Where workspaces appear inside, by name; others appear at their resources' own paths.
    pub mounts: BTreeMap<String, String>,
    /// Words of the caller's.
    pub labels: BTreeMap<String, String>,
    /// What the caller's own tooling does with it.
    pub setup: Setup,
    /// Where it is reached.
    pub endpoints: Vec<Endpoint>,
    /// What was made otherwise than it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// A word for those who pay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_class: Option<String>,
    /// Why it could not be made, or was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<StatusFailure>,
}

/// Why an environment could not be made, or was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusFailure {
    /// In which step.
    pub step: String,
    /// What went wrong.
    pub reason: String,
    /// When.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
}

/// One workspace of a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusWorkspace {
    /// What it is called.
    pub name: String,
    /// The path to work in; none of what is reached otherwise, such as a database.
    pub sandbox_path: Option<String>,
    /// The strategy.
    pub strategy: String,
    /// The strategy that was asked for.
    pub requested_strategy: String,
    /// What it isolates.
    pub resource: StatusResource,
    /// Which rule chose the strategy, or why it is another than was asked for.
    pub reason: String,
    /// What to know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notices: Option<Vec<String>>,
    /// Where it stands in its git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Value>,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusResource {
    /// Its id.
    pub id: String,
    /// Its type, such as `fs-directory`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// A path or a URL.
    pub location: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn request(inputs: &str) -> serde_json::Result<SandboxCreateRequest> {
        let consumer = r#"{"actor_type": "agt", "project": "web"}"#;
        serde_json::from_str(&format!(
            r#"{{"profile": "profile.local", "inputs": {inputs}, "consumer": {consumer}}}"#
        ))
    }

    #[test]
    fn inputs_keep_their_order_and_come_once() {
        let read = request(r#"{"z": "/z", "a": "/a"}"#).unwrap();
        assert_eq!(read.inputs.0, [("z".into(), "/z".into()), ("a".into(), "/a".into())]);
        assert!(serde_json::to_string(&read).unwrap().contains(r#""inputs":{"z":"/z","a":"/a"}"#));
        assert!(request(r#"{"a": "/a", "a": "/b"}"#).is_err() && request("[]").is_err());
    }

    #[test]
    fn another_request_has_another_digest() {
        let digest = |inputs| request(inputs).unwrap().digest();
        assert_eq!(digest(r#"{"a": "/a"}"#), digest(r#"{ "a" : "/a" }"#));
        assert_ne!(digest(r#"{"a": "/a"}"#), digest(r#"{"a": "/b"}"#));
    }
}
