//! The JSON Schemas in `schemas/` are those of the types, the shipped files keep to them, and so does what the command prints.
//!
//! `SANDBOXER_UPDATE_SCHEMAS=1 cargo test -p sandboxer --test it schemas` writes them anew.

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_core::environment::{SandboxCreateRequest, SandboxStatus, schemas};
use serde_json::{Value, json};

use crate::common::World;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema(name: &str) -> Value {
    schemas().into_iter().find(|(file, _)| *file == name).unwrap().1.to_value()
}

/// Every file in `schemas/`: its name, and what it has to hold.
fn files() -> Vec<(&'static str, String)> {
    let text = |schema| serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let types = schemas().into_iter().map(|(name, schema)| (name, text(schema)));
    types.chain([("openapi.json", World::new().ok(&["serve", "--openapi"]))]).collect()
}

#[test]
fn the_files_are_those_of_the_types() {
    let directory = repository().join("schemas");
    let files = files();
    for (name, text) in &files {
        if std::env::var_os("SANDBOXER_UPDATE_SCHEMAS").is_some() {
            fs::write(directory.join(name), text).unwrap();
        }
        let there = fs::read_to_string(directory.join(name)).unwrap_or_default();
        assert!(there == *text, "schemas/{name} is stale: run this with SANDBOXER_UPDATE_SCHEMAS=1");
    }
    let known: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name.as_str()), "schemas/{name} is of no type");
    }
}

/// What of `value` is not as `schema` has it, with the path to it: as much of JSON Schema as our types use.
fn faults(schema: &Value, value: &Value, root: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.strip_prefix('#').unwrap()).unwrap();
        return faults(target, value, root, at);
    }
    let mut found = Vec::new();
    for word in ["anyOf", "oneOf"] {
        let ways = schema[word].as_array();
        if ways.is_some_and(|ways| !ways.iter().any(|way| faults(way, value, root, at).is_empty())) {
            found.push(format!("{at}: none of {word} fits {value}"));
        }
    }
    let types = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|kind| is_of(value, kind)) {
        found.push(format!("{at}: {value} is not of type {types:?}"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        found.push(format!("{at}: {value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        found.push(format!("{at}: {value} is none of {}", schema["enum"]));
    }
    found.extend(faults_below(schema, value, root, at));
    found
}

fn faults_below(schema: &Value, value: &Value, root: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(
            schema.get("items").into_iter().flat_map(|s| faults(s, item, root, &format!("{at}/{index}"))),
        );
    }
    let Some(fields) = value.as_object() else { return found };
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(required) {
            found.push(format!("{at}: {required} is missing"));
        }
    }
    for (key, value) in fields {
        let at = format!("{at}/{key}");
        match (schema["properties"].get(key), schema.get("additionalProperties")) {
            (Some(schema), _) => found.extend(faults(schema, value, root, &at)),
            (None, Some(Value::Bool(false))) => found.push(format!("{at}: not known")),
            (None, Some(schema)) => found.extend(faults(schema, value, root, &at)),
            (None, None) => (),
        }
    }
    found
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}

fn faults_of(schema: &Value, value: &Value) -> Vec<String> {
    faults(schema, value, schema, "")
}

#[test]
fn every_shipped_file_keeps_to_its_schema() {
    let kinds = [
        ("profiles", "profile.json"),
        ("extensions", "extension.json"),
        ("hosts", "host.json"),
        ("resource-types", "resource-type.json"),
    ];
    for (directory, name) in kinds {
        let schema = schema(name);
        let mut seen = 0;
        for entry in fs::read_dir(repository().join(directory)).unwrap() {
            let file = entry.unwrap().path();
            // An entry may have a page beside it.
            if file.extension().is_some_and(|extension| extension == "md") {
                continue;
            }
            let value: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(faults_of(&schema, &value), Vec::<String>::new(), "{}", file.display());
            seen += 1;
        }
        assert!(seen > 0, "{directory} is empty");
    }
}

#[test]
fn a_schema_finds_what_is_wrong() {
    let schema = schema("profile.json");
    let wrong = json!({
        "id": "profile.x",
        "isolaton": "strict",
        "isolation": "strickt",
        "reachability": {"ports": ["80"]},
        "network": {"allow": "a"},
    });
    let found = faults_of(&schema, &wrong).join("\n");
    for path in [
        ": summary is missing",
        "/isolaton: not known",
        "/isolation: ",
        "/reachability/ports/0: ",
        "/network: ",
    ] {
        assert!(found.contains(path), "{path}\n{found}");
    }
    let right = json!({"id": "profile.x", "summary": "X", "network": {"allow": ["a"]}, "ttl": "2h"});
    assert_eq!(faults_of(&schema, &right), Vec::<String>::new());
}

#[test]
fn what_create_and_get_print_is_a_status() {
    let world = World::new();
    world.file("other/file", "x");
    let other = world.path("other");
    let one = world.json(&["create", "--name", "one", "-s", "filesystem_copy", "--ttl", "2h"]);
    let two = world.json(&["create", "--name", "two", "-s", "filesystem_copy", ".", other.to_str().unwrap()]);
    let schema = schema("sandbox-status.json");
    for document in [one, two, world.json(&["get", "one"]), world.json(&["get", "two"])] {
        assert_eq!(faults_of(&schema, &document), Vec::<String>::new(), "{document:#}");
        let status: SandboxStatus = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(status.sandbox_id, document["sandbox_id"]);
        assert_eq!(status.workspaces.len(), document["workspaces"].as_array().unwrap().len());
    }
}

#[test]
fn a_request_is_read_as_its_schema_says() {
    let request = json!({
        "profile": "profile.container",
        "inputs": {"code": "/srv/shop"},
        "consumer": {"actor_type": "agt", "project": "shop"},
        "ttl": "2h",
        "labels": {"run": "17"},
    });
    assert_eq!(faults_of(&schema("sandbox-create-request.json"), &request), Vec::<String>::new());
    let read: SandboxCreateRequest = serde_json::from_value(request.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), request);
    let secret =
        json!({"profile": "p", "inputs": {"a": "/a"}, "consumer": request["consumer"], "secret": "x"});
    assert_eq!(faults_of(&schema("sandbox-create-request.json"), &secret), ["/secret: not known"]);
    assert!(serde_json::from_value::<SandboxCreateRequest>(secret).is_err());
}
