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
use crate::routes::sandboxes::{EndedDocument, ExtendBody, RecreateBody, SandboxesDocument, UnparkBody};

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
        routes::sandboxes::unpark,
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

/// Every operation may fail in its own ways; what its handler says of a status goes before.
fn add_problems(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    for (path, operations) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            tighten(path, operation, &schemas);
            let statuses = problems_of(path, method, operation.get("requestBody").is_some());
            let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else {
                continue;
            };
            for status in statuses {
                let reference = || json!({"$ref": format!("#/components/responses/Problem{status}")});
                responses.entry(status).or_insert_with(reference);
            }
        }
    }
}

/// What an operation may be answered with instead.
fn problems_of(path: &str, method: &str, has_body: bool) -> Vec<&'static str> {
    let of_one = path.contains("{id}");
    let changes = of_one && (method != "get" || path.ends_with("/diff") || path.contains("/files/"));
    let makes = path == "/v1/sandboxes" && method == "post";
    let is_met = |status: &str| match status {
        "401" => path != "/health",
        "404" => of_one || makes || path == "/v1/sandboxes",
        "408" | "413" | "415" => has_body,
        "409" | "422" | "502" => changes || makes,
        _ => true,
    };
    PROBLEMS.iter().map(|(status, _)| *status).filter(|status| is_met(status)).collect()
}

/// What the attributes of a handler cannot say.
fn tighten(path: &str, operation: &mut Value, schemas: &Value) {
    if path == "/health" {
        operation["security"] = json!([]);
    }
    let reference =
        operation.pointer("/requestBody/content/application~1json/schema/$ref").and_then(Value::as_str);
    let name = reference.and_then(|reference| reference.rsplit('/').next()).map(str::to_owned);
    if let Some(name) = name {
        let fields = schemas[&name]["required"].as_array().map_or(0, Vec::len);
        operation["requestBody"]["required"] = json!(fields > 0);
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let schema = match (parameter["in"].as_str(), parameter["name"].as_str()) {
            (_, Some("state")) => json!({"$ref": "#/components/schemas/SandboxState"}),
            (_, Some("by")) => json!({"$ref": "#/components/schemas/UsageBy"}),
            (_, Some("format")) => json!({"enum": ["json", "patch"]}),
            (_, Some("Idempotency-Key")) => json!({"type": "string", "minLength": 1, "maxLength": 255}),
            (Some("header"), _) => json!({"type": "string"}),
            _ => continue,
        };
        parameter["schema"] = schema;
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
