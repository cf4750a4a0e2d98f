//! The OpenAPI document: operations from a table, schemas from the types of requests and responses.

use sandboxer_core::environment::{SandboxCreateRequest, SandboxStatus, Snapshot};
use sandboxer_core::service::UsageReport;
use sandboxer_documents::events::EventsDocument;
use sandboxer_documents::{
    CheckpointDocument, CheckpointsDocument, CommitDocument, DiffDocument, ExtensionsDocument, HostsDocument,
    ProfilesDocument, RollbackDocument, UndoDocument,
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

mod operations;

use self::operations::{OPERATIONS, Operation};
use crate::problem::{PROBLEM_JSON, ProblemDocument};
use crate::routes::about::Health;
use crate::routes::changes::{CommitBody, PathsBody};
use crate::routes::checkpoints::{CheckpointBody, RestoreBody, SnapshotsDocument};
use crate::routes::exec::{ExecBody, ExecLine};
use crate::routes::files::WrittenDocument;
use crate::routes::sandboxes::{EndedDocument, ExtendBody, RecreateBody, SandboxesDocument, UnparkBody};

/// Problems that an operation may answer with.
const PROBLEMS: [(&str, &str); 15] = [
    ("400", "The request is invalid"),
    ("401", "The token is missing or not accepted"),
    ("403", "The caller lacks permission, or a rule refuses"),
    ("404", "Not found, or not visible to the caller"),
    ("405", "The method is not allowed"),
    ("408", "The body was not received in time"),
    ("409", "The original has changed"),
    ("413", "The body is too long"),
    ("414", "The URL is too long"),
    ("415", "The media type is not supported"),
    ("422", "The request is valid but cannot be carried out on this server"),
    ("431", "The headers are too long"),
    ("500", "The server failed; its log says more"),
    ("502", "A plugin failed"),
    ("503", "The sandbox is in use; try again"),
];

macro_rules! schemas {
    ($generator:ident: $($type:ty),* $(,)?) => { $( let _ = $generator.subschema_for::<$type>(); )* };
}

/// The document, indented, as it is committed.
pub fn text() -> String {
    serde_json::to_string_pretty(&document()).unwrap_or_default() + "\n"
}

/// The document.
pub fn document() -> Value {
    let schemas = schemas();
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let methods = paths.entry(operation.path).or_insert_with(|| json!({}));
        methods[operation.method] = describe(operation, &schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sandboxer",
            "description": "The place where agents and automation change real things safely.",
            "license": {"name": "Apache-2.0"},
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": PROBLEMS.iter().map(|(status, what)| (format!("Problem{status}"), problem(what))).collect::<Map<_, _>>(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "Created by `sandbox token create`; required over TCP"}},
        },
        "security": [{"token": []}, {}],
    })
}

/// An operation with the problems that it may answer with. A response that the operation describes itself wins.
fn describe(operation: &Operation, schemas: &Map<String, Value>) -> Value {
    let mut described = operation.render(|name| schemas[name].get("required").is_some());
    if operation.path == "/health" {
        described["security"] = json!([]);
    }
    if let Some(responses) = described["responses"].as_object_mut() {
        for status in problems_of(operation) {
            let reference = || json!({"$ref": format!("#/components/responses/Problem{status}")});
            responses.entry(status).or_insert_with(reference);
        }
    }
    described
}

fn problem(what: &str) -> Value {
    json!({"description": what, "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}})
}

fn schemas() -> Map<String, Value> {
    let placed = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut read = placed.clone().into_generator();
    schemas!(read:
        SandboxCreateRequest,
        CommitBody, PathsBody, CheckpointBody, RestoreBody, ExecBody, ExtendBody, RecreateBody, UnparkBody,
    );
    let mut written = placed.for_serialize().into_generator();
    schemas!(written:
        SandboxStatus, Snapshot, ProblemDocument<'_>, CheckpointDocument<'_>, CheckpointsDocument<'_>,
        CommitDocument<'_>, DiffDocument<'_>, EventsDocument<'_>, ExtensionsDocument<'_>, HostsDocument<'_>,
        ProfilesDocument<'_>, RollbackDocument<'_>, UndoDocument<'_>,
        UsageReport, Health, SnapshotsDocument, ExecLine, WrittenDocument, EndedDocument, SandboxesDocument,
    );
    let mut schemas = read.take_definitions(true);
    schemas.extend(written.take_definitions(true));
    schemas.insert("OpenApi".to_owned(), json!({"type": "object", "description": "An OpenAPI document"}));
    schemas
}

fn problems_of(operation: &Operation) -> Vec<&'static str> {
    let Operation { path, method, body, .. } = operation;
    let names_sandbox = path.contains("{id}");
    let changes = names_sandbox && (*method != "get" || path.ends_with("/diff") || path.contains("/files/"));
    let creates = *path == "/v1/sandboxes" && *method == "post";
    let is_possible = |status: &str| match status {
        "401" => *path != "/health",
        "404" => names_sandbox || *path == "/v1/sandboxes",
        "408" | "413" | "415" => body.is_some(),
        "409" | "422" | "502" => changes || creates,
        _ => true,
    };
    PROBLEMS.iter().map(|(status, _)| *status).filter(|status| is_possible(status)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
