//! The JSON Schemas of what is told.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// The schema of a document as it is written: what is left out where there is nothing to tell is not required.
pub fn schema_of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::environment::{Host, SandboxStatus};
    use serde_json::{Value, json};

    use super::*;
    use crate::*;

    fn keys(schema: &Schema) -> Vec<&String> {
        schema.get("properties").and_then(Value::as_object).unwrap().keys().collect()
    }

    #[test]
    fn a_sandbox_has_the_fields_of_its_status() {
        let (told, status) = (schema_of::<SandboxDocument>(), schema_of::<SandboxStatus>());
        let (mut told_keys, mut status_keys) = (keys(&told), keys(&status));
        told_keys.sort();
        status_keys.sort();
        assert_eq!(told_keys, status_keys);
        assert_eq!(told.pointer("/properties/created_at/format").unwrap(), "date-time");
        let required = told.get("required").unwrap().as_array().unwrap();
        assert!(required.contains(&json!("created_at")) && !required.contains(&json!("expires_at")));
    }

    #[test]
    fn every_document_has_a_schema() {
        let of = [
            ("checkpoint", schema_of::<CheckpointDocument>()),
            ("checkpoints", schema_of::<CheckpointsDocument>()),
            ("commit", schema_of::<CommitDocument>()),
            ("commit --abort", schema_of::<AbortDocument>()),
            ("diff", schema_of::<DiffDocument>()),
            ("diff --patch", schema_of::<PatchedDiffDocument>()),
            ("error", schema_of::<ErrorDocument>()),
            ("events", schema_of::<events::EventsDocument>()),
            ("extensions", schema_of::<ExtensionsDocument>()),
            ("hosts", schema_of::<HostsDocument>()),
            ("host", schema_of::<WithOrigin<Host>>()),
            ("list", schema_of::<SandboxesDocument>()),
            ("log", schema_of::<OperationDocument>()),
            ("profiles", schema_of::<ProfilesDocument>()),
            ("rollback", schema_of::<RollbackDocument>()),
            ("show", schema_of::<ShowDocument>()),
            ("status", schema_of::<StatusDocument>()),
            ("undo", schema_of::<UndoDocument>()),
        ];
        for (name, schema) in &of {
            assert!(!keys(schema).is_empty(), "{name}: {}", serde_json::to_string(schema).unwrap());
        }
    }

    #[test]
    fn an_error_is_told_as_its_schema_says() {
        let schema = schema_of::<ErrorDocument>();
        let kinds = schema.pointer("/$defs/Kind").unwrap().to_string();
        assert!(kinds.contains("not_found") && kinds.contains("newer_state"), "{kinds}");
        let told = Told::new(Kind::Busy, "x").on("/y".as_ref());
        let document = serde_json::to_value(told.document()).unwrap();
        let fields = schema.pointer("/$defs/Told/properties").unwrap();
        for key in document["error"].as_object().unwrap().keys() {
            assert!(fields.get(key).is_some(), "{key} is not in {fields}");
        }
    }
}
