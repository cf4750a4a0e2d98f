//! What is no strategy is not registered: one error says everything that is wrong.

use std::time::Instant;

use serde_json::{Value, json};

use super::world::{LONG, SHORT, World, assert_plugin_error};

/// The first look at it fails with these words; nothing is made, nobody else minds, and a plugin that was mended is taken.
fn refused(options: Value, words: &[&str]) -> String {
    refused_within(options, words, LONG)
}

fn refused_within(mut options: Value, words: &[&str], timeout: std::time::Duration) -> String {
    options["in"] = json!("initialize");
    options["times"] = json!(1);
    let world = World::new(options, timeout);
    let reason = assert_plugin_error(Instant::now(), world.call("create", None), words);
    world.assert_nothing_made();
    assert!(world.manager().list(true).unwrap().is_empty(), "a row was written for what is no strategy");
    world.assert_others_work();
    world.call("create", None).unwrap();
    world.assert_nobody_left();
    reason
}

#[test]
fn it_never_answers() {
    refused_within(json!({"evil": "hang"}), &["`initialize`", "no answer within", "evil.py"], SHORT);
}

#[test]
fn it_exits_at_once() {
    let words = &["`initialize`", "exited with status 7", "no module named bucket", "evil.py"];
    refused(json!({"evil": "die", "status": 7, "words": "no module named bucket"}), words);
}

#[test]
fn it_is_killed_at_once() {
    refused(json!({"evil": "die", "signal": 9}), &["`initialize`", "killed by signal 9", "goodbye"]);
}

#[test]
fn it_speaks_another_version() {
    refused(json!({"evil": "merge", "result": {"protocol": 2}}), &["version 2", "this is 1"]);
}

#[test]
fn it_has_another_role() {
    refused(json!({"evil": "merge", "result": {"role": "extension"}}), &["\"extension\"", "\"strategy\""]);
}

#[test]
fn it_says_something_else() {
    for result in [json!(null), json!([]), json!("hello"), json!({"protocol": "one"})] {
        refused(json!({"evil": "result", "result": result}), &[]);
    }
}

#[test]
fn it_prints_what_is_no_frame() {
    refused(
        json!({"evil": "raw", "text": "Starting bucket 1.0\n"}),
        &["`initialize`", "Starting bucket 1.0"],
    );
}

#[test]
fn it_refuses() {
    let error = json!({"code": -32000, "message": "there is no bucket", "data": {"kind": "failed"}});
    refused(json!({"evil": "error", "error": error}), &["there is no bucket"]);
}

#[test]
fn everything_that_it_lacks_is_named_at_once() {
    let shapes = json!({
        "diff": {"parameters": [], "required": 0},
        "commit": {"wrong": "is a coroutine"},
        "write": {"parameters": ["ref", "path", "content", "mode"], "required": 4},
    });
    let options = json!({"evil": "lack", "methods": ["read", "rollback"], "shapes": shapes});
    let all = [
        "`read` is missing",
        "`rollback` is missing",
        "`commit` is a coroutine",
        "`diff` takes nothing",
        "`write` takes",
    ];
    let reason = refused(options, &all);
    for fine in ["create", "checkpoint", "restore_checkpoint", "cleanup"] {
        assert!(!reason.contains(&format!("`{fine}`")), "{reason}");
    }
}

#[test]
fn it_declares_what_nobody_knows() {
    let result = json!({"capabilities": {"teleports": true, "levitates": false}});
    refused(json!({"evil": "merge", "result": result}), &["teleports", "levitates", "capability"]);
}

#[test]
fn it_prepares_what_it_does_not_commit_in_phases() {
    let declared = json!({"capabilities": {"prepare_ends": true}});
    refused(json!({"evil": "merge", "result": declared}), &["`prepare_ends`", "not `two_phase`"]);
}

#[test]
fn it_declares_what_is_no_capability_at_all() {
    for capabilities in [json!("all"), json!(["checkpoints"]), json!({"checkpoints": "yes"})] {
        refused(json!({"evil": "merge", "result": {"capabilities": capabilities}}), &["capabilities"]);
    }
}

#[test]
fn a_program_that_is_not_there() {
    let mut world = World::new(json!({}), LONG);
    world.use_program("/nowhere/plugin");
    assert_plugin_error(Instant::now(), world.call("create", None), &["/nowhere/plugin", "No such file"]);
    world.assert_nothing_made();
    world.assert_others_work();
}
