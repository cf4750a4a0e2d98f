//! Identifiers. Each is a string with a recognisable prefix, so that a stray one explains itself in a log.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps an identifier that was stored or typed before.
            pub fn from_string(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The identifier as it is printed and stored.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

macro_rules! generated_id {
    ($name:ident, $prefix:literal) => {
        impl $name {
            /// A new identifier, later than all earlier ones of this process in sort order.
            pub fn generate() -> Self {
                Self(format!(concat!($prefix, "{}"), Ulid::generate().to_string().to_lowercase()))
            }
        }
    };
}

string_id! {
    /// One sandbox: `sbx_` and a ULID.
    SandboxId
}
generated_id!(SandboxId, "sbx_");

string_id! {
    /// One piece of work that groups sandboxes. Generated ones start with `pln_`; callers may choose their own.
    PlanId
}
generated_id!(PlanId, "pln_");

string_id! {
    /// One entry of the operation log: `op_` and a ULID.
    OpId
}
generated_id!(OpId, "op_");

string_id! {
    /// What is isolated: derived from a canonical path, or from a URL without its credentials.
    ResourceId
}

string_id! {
    /// A named state of a workspace, unique within its sandbox.
    CheckpointId
}
generated_id!(CheckpointId, "cp_");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_carry_their_prefix_and_differ() {
        let (first, second) = (SandboxId::generate(), SandboxId::generate());
        assert!(first.as_str().starts_with("sbx_"));
        assert_eq!(first.as_str().len(), 30);
        assert_ne!(first, second);
        assert!(PlanId::generate().as_str().starts_with("pln_"));
    }
}
