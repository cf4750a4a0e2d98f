//! The description of the API: operations from the handlers, schemas from the types that are read and written.

use sandboxer_core::environment::{SandboxCreateRequest, SandboxStatus, Snapshot};
use sandboxer_core::service::UsageReport;
use sandboxer_documents::events::EventsDocument;
use sandboxer_documents::{
    CheckpointDocument, CheckpointsDocument, CommitDocument, DiffDocument, ExtensionsDocument, HostsDocument,
    ProfilesDocument, RollbackDocument, UndoDocument,
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::problem::{PROBLEM_JSON, ProblemDocument};
use crate::routes;
use crate::routes::about::Health;
use crate::routes::changes::{CommitBody, PathsBody};
use crate::routes::checkpoints::{CheckpointBody, RestoreBody, SnapshotsDocument};
use crate::routes::exec::{ExecBody, ExecLine};
use crate::routes::files::WrittenDocument;
use crate::routes::sandboxes::{EndedDocument, ExtendBody, RecreateBody, SandboxesDocument};

/// Every operation.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "sandboxer",
        description = "The place where agents and automation change real things safely.",
        license(name = "Apache-2.0")
    ),
    paths(
        routes::about::health,
        routes::about::metrics,
        routes::about::openapi,
        routes::sandboxes::list,
        routes::sandboxes::create,
        routes::sandboxes::get,
        routes::sandboxes::destroy,
        routes::sandboxes::extend,
        routes::sandboxes::recreate,
        routes::changes::diff,
        routes::changes::commit,
        routes::changes::undo,
        routes::changes::rollback,
        routes::checkpoints::take,
        routes::checkpoints::list,
        routes::checkpoints::restore,
        routes::checkpoints::snapshot,
        routes::checkpoints::snapshots,
        routes::checkpoints::restore_snapshot,
        routes::files::read,
        routes::files::write,
        routes::exec::exec,
        routes::events::of_all,
        routes::events::of_sandbox,
        routes::catalogue::profiles,
        routes::catalogue::extensions,
        routes::catalogue::hosts,
        routes::usage::usage,
    )
)]
struct Operations;

/// What any operation may be answered with instead.
const PROBLEMS: [(&str, &str); 15] = [
    ("400", "The request makes no sense"),
    ("401", "No token, or one that is not taken"),
    ("403", "Somebody may not, or a rule says no"),
    ("404", "There is no such thing, or not for whoever asks"),
    ("405", "Not with this method"),
    ("408", "The body did not come in time"),
    ("409", "The original has changed meanwhile"),
    ("413", "The body is too long"),
    ("414", "The address is too long"),
    ("415", "A body of another type"),
    ("422", "It makes sense, and cannot be done here"),
    ("431", "The headers are too long"),
    ("500", "The server failed; its log says more"),
    ("502", "A plugin failed"),
    ("503", "Somebody else is at it; try again"),
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
    let mut document = serde_json::to_value(Operations::openapi()).unwrap_or_default();
    document["components"] = json!({
        "schemas": schemas(),
        "responses": PROBLEMS.iter().map(|(status, what)| (format!("Problem{status}"), problem(what))).collect::<Map<_, _>>(),
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "`sandbox token create` makes one; needed over TCP"}},
    });
    document["security"] = json!([{"token": []}, {}]);
    add_problems(&mut document);
    document
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
        CommitBody, PathsBody, CheckpointBody, RestoreBody, ExecBody, ExtendBody, RecreateBody,
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

/// Every operation may fail; what its own handler says of a status goes before.
fn add_problems(document: &mut Value) {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    let operations = paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    for operation in operations {
        if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
            for (status, _) in PROBLEMS {
                let reference = || json!({"$ref": format!("#/components/responses/Problem{status}")});
                responses.entry(status).or_insert_with(reference);
            }
        }
    }
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
