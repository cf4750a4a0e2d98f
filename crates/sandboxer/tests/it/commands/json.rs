//! What programs see: the documents of every command.

use std::fs;

use serde_json::Value;

use crate::common::World;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

macro_rules! document {
    ($world:expr, $name:literal, $arguments:expr) => {{
        let text = serde_json::to_string_pretty(&$world.json(&$arguments)).unwrap();
        insta::assert_snapshot!($name, $world.redact(&text))
    }};
}

#[test]
fn the_documents_of_a_day() {
    let world = World::new();
    document!(world, "json_list_empty", ["list"]);
    document!(
        world,
        "json_create",
        ["create", "--name", "try", "-s", "filesystem_copy", "--plan", "p1", "--ttl", "1h"]
    );
    let again = world.json(&["create", "--plan", "p1"]);
    assert_eq!((&again["created"], &again["name"]), (&Value::Bool(false), &Value::from("try")));
    document!(world, "json_get", ["get", "try"]);
    document!(world, "json_path", ["path", "try"]);
    fs::write(world.inside("try").join("hello.txt"), "changed\n").unwrap();
    fs::write(world.inside("try").join("new\u{e9}.txt"), "new\n").unwrap();
    fs::rename(world.inside("try").join("src/main.rs"), world.inside("try").join("main.rs")).unwrap();
    document!(world, "json_diff", ["diff", "try"]);
    document!(world, "json_read", ["read", "try", "hello.txt"]);
    document!(world, "json_checkpoint", ["checkpoint", "try", "one"]);
    document!(world, "json_checkpoints", ["checkpoints", "try"]);
    document!(world, "json_restore", ["restore", "try", "one"]);
    document!(world, "json_commit", ["commit", "try", "hello.txt", "-m", "why"]);
    document!(world, "json_rollback", ["rollback", "try"]);
    document!(world, "json_log", ["log", "try", "-n", "2"]);
    document!(world, "json_gc", ["gc"]);
    document!(world, "json_destroy", ["destroy", "try"]);
    document!(world, "json_adopt", ["adopt"]);
}

#[test]
fn create_has_the_promised_fields() {
    let world = World::new();
    let one = world.json(&["create", "--actor-type", "agt", "--project", "acme"]);
    for field in ["sandbox_id", "name", "plan_id", "state", "created", "message", "consumer", "workspaces"] {
        assert!(one.get(field).is_some(), "{field} is missing");
    }
    assert_eq!(one["consumer"], serde_json::json!({ "actor_type": "agt", "project": "acme" }));
    let workspace = &one["workspaces"][0];
    for field in ["sandbox_path", "strategy", "requested_strategy", "resource"] {
        assert_eq!(one[field], workspace[field], "the top level does not repeat {field}");
    }
    assert!(workspace["reason"].is_string() && workspace["name"] == "project");
    world.json(&["create", "-s", "filesystem_copy", "--exclude", "src"]);
    assert!(!world.inside("@last").join("src").exists(), "--exclude was not heard");
    let resource = &one["resource"];
    assert_eq!(keys(resource), ["id", "location", "type"]);
}

#[test]
fn several_workspaces_have_no_top_level() {
    let world = World::new();
    world.file("other/a", "a");
    let both = world.json(&["create", ".", "../other"]);
    assert!(both.get("sandbox_path").is_none() && both.get("resource").is_none());
    assert_eq!(both["workspaces"].as_array().unwrap().len(), 2);
    let checkpoint = world.json(&["checkpoint", "@last", "c"]);
    assert_eq!(checkpoint["workspaces"].as_array().unwrap().len(), 2);
    assert!(checkpoint["snapshot_path"].is_null());
}

#[test]
fn an_only_file_is_a_resource_too() {
    let world = World::new();
    world.json(&["create", "hello.txt", "--name", "one"]);
    let wrote = world.run_with_input(&["write", "one", "hello.txt", "--json"], b"x\n");
    assert_eq!(wrote.code, 0, "{}", wrote.stderr);
    let change: Value = serde_json::from_str(&wrote.stdout).unwrap();
    assert_eq!(
        (&change["kind"], &change["old_size"], &change["new_size"]),
        (&"modified".into(), &12.into(), &2.into())
    );
    assert!(world.ok(&["diff", "one", "--patch"]).contains("+x\n"));
    world.json(&["commit", "one"]);
    assert_eq!(world.text("project/hello.txt"), "x\n");
}

#[test]
fn a_digest_holds_a_commit_to_what_was_reviewed() {
    let world = World::with_sandbox();
    let file = world.inside("try").join("hello.txt");
    fs::write(&file, "reviewed\n").unwrap();
    let digest = world.json(&["diff", "try"])["digest"].as_str().unwrap().to_owned();
    fs::write(&file, "sneaked in\n").unwrap();
    let error = world.json_error(&["commit", "try", "--digest", &digest], 5);
    assert_eq!(error["kind"], "refused");
    fs::write(&file, "reviewed\n").unwrap();
    world.json(&["commit", "try", "--digest", &digest]);
    assert_eq!(world.text("project/hello.txt"), "reviewed\n");
}

#[test]
fn a_conflict_is_a_document() {
    let world = World::with_sandbox();
    for name in ["hello.txt", "run.sh"] {
        fs::write(world.inside("try").join(name), "mine\n").unwrap();
        world.file(&format!("project/{name}"), "theirs\n");
    }
    let error = serde_json::to_string_pretty(&world.json_error(&["commit", "try"], 3)).unwrap();
    insta::assert_snapshot!("json_conflict", world.redact(&error));
}

#[test]
fn diff_can_carry_its_patch() {
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("hello.txt"), b"\xff\n").unwrap();
    let diff = world.json(&["diff", "try", "--patch"]);
    assert!(diff["patch"].as_str().unwrap().starts_with("diff --git a/hello.txt b/hello.txt\n"));
    assert_eq!(world.run(&["diff", "try", "--json", "--exit-code"]).code, 1);
    world.ok(&["rollback", "try"]);
    assert_eq!(world.run(&["diff", "try", "--exit-code"]).code, 0);
}

#[test]
fn content_that_is_not_text_is_base64() {
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("b"), b"\xff").unwrap();
    let read = world.json(&["read", "try", "b"]);
    assert_eq!((&read["encoding"], &read["content"]), (&"base64".into(), &"/w==".into()));
}

#[test]
fn catalogues_and_diagnosis_are_documents() {
    let world = World::with_sandbox();
    let strategies = world.json(&["strategies"]);
    let none = strategies["strategies"].as_array().unwrap().iter().find(|s| s["name"] == "none").unwrap();
    assert_eq!(none["capabilities"]["isolates"], false);
    assert!(world.json(&["types"])["types"].as_array().unwrap().iter().any(|t| t["name"] == "fs-directory"));
    let doctor = world.json(&["doctor"]);
    assert_eq!(doctor["usable"], true);
    assert!(doctor["settings"].as_array().unwrap().iter().all(|s| s["decided_by"].is_string()));
    world.file("project/sandboxer.yaml", "project: x\n");
    assert!(world.json(&["trust"])["trusted"]["digest"].is_string());
    assert_eq!(world.json(&["trust", "--list"])["projects"].as_array().unwrap().len(), 1);
    assert_eq!(world.json(&["trust", "--revoke"])["revoked"], true);
    assert!(world.json(&["man"])["page"].is_string());
}

#[test]
fn status_counts_what_is_pending() {
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("new"), "x").unwrap();
    fs::remove_file(world.inside("try").join("run.sh")).unwrap();
    let status = world.json(&["status"]);
    let pending = &status["sandboxes"][0]["pending"];
    assert_eq!(
        (&pending["created"], &pending["deleted"], &pending["total"]),
        (&1.into(), &1.into(), &2.into())
    );
    assert_eq!(status["sandboxes"][0]["last_operation"]["kind"], "create");
    assert!(status["sandboxes"][0]["warnings"].as_array().unwrap().is_empty());
}
