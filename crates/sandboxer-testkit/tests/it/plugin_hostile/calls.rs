//! Death and silence in each of the nine methods.

use std::time::{Duration, Instant};

use sandboxer_core::contract::METHODS;
use sandboxer_core::service::{SandboxState, Target};
use serde_json::{Value, json};

use super::world::{LOGGED, LONG, SHORT, World, assert_plugin_error};

/// Does it wrong once, in one method, at one moment; then everything is looked at, and done again.
fn once(evil: &str, method: &'static str, when: &str, timeout: Duration, words: &[&str]) {
    let options = json!({"evil": evil, "in": method, "when": when, "times": 1});
    let world = World::new(options, timeout);
    let target = (method != "create").then(|| world.worked_in());
    let began = Instant::now();
    let quoted = format!("`{method}`");
    let reason =
        assert_plugin_error(began, world.call(method, target.as_ref()), &[&[&*quoted], words].concat());
    assert_logged_as_failed(&world, method, &reason);
    match &target {
        None => assert_cleaned_up(&world),
        Some(target) => assert_still_there(&world, target, method, when),
    }
    world.assert_others_work();
    world.call(method, target.as_ref()).unwrap_or_else(|error| panic!("{method} once more: {error}"));
    assert!(world.noted("pids").len() >= 2, "it was started again");
    world.assert_nobody_left();
}

fn assert_logged_as_failed(world: &World, method: &str, reason: &str) {
    let Some((_, kind)) = LOGGED.iter().find(|(logged, _)| *logged == method) else { return };
    let operation = world.last_logged(kind);
    assert_eq!(operation.state, "failed", "{operation:?}");
    assert!(operation.finished_at.is_some() && operation.summary.contains(reason), "{operation:?}");
}

fn assert_cleaned_up(world: &World) {
    world.assert_nothing_made();
    let states: Vec<_> = world.manager().list(true).unwrap().iter().map(|sandbox| sandbox.state).collect();
    assert_eq!(states, [SandboxState::Failed]);
    assert_eq!(world.noted("calls").last().map(String::as_str), Some("cleanup"));
}

/// What was not done yet is still to be done.
fn assert_still_there(world: &World, target: &Target, method: &str, when: &str) {
    let found = world.manager().find_any(target.sandbox.id.as_str()).unwrap();
    if method == "cleanup" {
        assert_eq!(found.sandbox.state, SandboxState::Destroying);
        assert_eq!(world.workspaces().len(), 1);
        return;
    }
    assert!(found.sandbox.state.is_open(), "{:?}", found.sandbox.state);
    if when == "taken" {
        assert_eq!(world.changes(target), 1);
        assert_eq!(std::fs::read_to_string(world.original().join("a.txt")).unwrap(), "first");
    }
}

fn in_all_methods(one: impl Fn(&'static str) + Sync) {
    let one = &one;
    for some in METHODS.chunks(3) {
        std::thread::scope(|scope| {
            for method in some {
                scope.spawn(move || one(method));
            }
        });
    }
}

const LAST_WORDS: [&str; 2] = ["exited with status 3", "goodbye, cruel world"];

#[test]
fn death_before_the_work() {
    in_all_methods(|method| once("die", method, "taken", LONG, &LAST_WORDS));
}

#[test]
fn death_after_the_work() {
    in_all_methods(|method| once("die", method, "worked", LONG, &LAST_WORDS));
}

#[test]
fn death_in_the_middle_of_an_answer() {
    in_all_methods(|method| {
        once("die", method, "half", LONG, &[&["in the middle of a frame"], &LAST_WORDS[..]].concat())
    });
}

#[test]
fn death_before_all_of_the_request_is_read() {
    in_all_methods(|method| once("die", method, "headed", LONG, &LAST_WORDS));
}

#[test]
fn silence() {
    in_all_methods(|method| once("hang", method, "taken", SHORT, &["no answer within"]));
}

#[test]
fn silence_in_the_middle_of_an_answer() {
    in_all_methods(|method| once("hang", method, "half", SHORT, &["no answer within"]));
}

#[test]
fn a_large_write_that_is_not_taken() {
    let options = json!({"evil": "hang", "in": "write", "when": "headed", "times": 1});
    let world = World::new(options, SHORT);
    let target = world.worked_in();
    let content = vec![7; 32 << 20];
    let began = Instant::now();
    let write = || world.manager().write(&target, &super::world::path("large"), &content);
    let reason = assert_plugin_error(began, write(), &["`write`", "no answer within"]);
    assert_logged_as_failed(&world, "write", &reason);
    assert_eq!(write().unwrap().new_size, content.len() as u64);
    assert_eq!(world.manager().read(&target, &super::world::path("large")).unwrap(), content);
    world.assert_nobody_left();
}

#[test]
fn a_plugin_that_dies_between_calls_is_started_again() {
    let world = World::new(json!({}), LONG);
    let target = world.worked_in();
    for _ in 0..3 {
        world.kill_plugin();
        // Whether its end is known before the next call or in it is chance; after that it is known.
        let _ = world.manager().diff(&target, &[]);
        assert_eq!(world.changes(&target), 1);
    }
    world.assert_nobody_left();
}

/// Callers have chosen by what the first one said.
#[test]
fn a_plugin_that_is_another_one_when_it_is_started_again() {
    let less = json!({"capabilities": {"file_tree": true}});
    let world = World::new(json!({"evil": "merge", "in": "initialize", "start": 2, "result": less}), LONG);
    let target = world.worked_in();
    world.kill_plugin();
    wait_until_started_again(&world, &target);
    assert_eq!(world.changes(&target), 1, "the third is like the first");
    world.assert_nobody_left();
}

/// The first call after a death may find out about it; the next one starts another process.
fn wait_until_started_again(world: &World, target: &Target) {
    let errors: Vec<String> =
        (0..2).filter_map(|_| world.call("diff", Some(target)).err()).map(|e| e.to_string()).collect();
    assert!(errors.iter().any(|error| error.contains("another one")), "{errors:?}");
}

#[test]
fn a_failed_cleanup_after_a_failed_create_is_not_what_is_told() {
    let options = |times: Value| json!({"evil": "die", "in": "create", "when": "taken", "times": times});
    let world = World::new(options(json!(2)), LONG);
    for _ in 0..2 {
        assert_plugin_error(Instant::now(), world.call("create", None), &["`create`"]);
        world.assert_nothing_made();
    }
    world.call("create", None).unwrap();
    world.assert_nobody_left();
}
