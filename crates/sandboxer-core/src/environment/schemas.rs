//! The JSON Schemas of what is read and told, generated from the types that read and tell it. The files in `schemas/` are copies;
//! a test says when one is stale.

use schemars::{Schema, schema_for};

use super::{ExtensionDefinition, Host, Profile, SandboxCreateRequest, SandboxStatus};
use crate::types::ResourceType;

/// Each schema with the name of its file in `schemas/`.
pub fn schemas() -> [(&'static str, Schema); 6] {
    [
        ("extension.json", schema_for!(ExtensionDefinition)),
        ("host.json", schema_for!(Host)),
        ("profile.json", schema_for!(Profile)),
        ("resource-type.json", schema_for!(ResourceType)),
        ("sandbox-create-request.json", schema_for!(SandboxCreateRequest)),
        ("sandbox-status.json", schema_for!(SandboxStatus)),
    ]
}
