//! Processes that do not end when they should.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::world::{LONG, SHORT, World, assert_plugin_error, is_gone};

/// The pipe stays open, but its owner is dead, and that is what is told. Children in its group end with it.
#[test]
fn a_child_that_holds_the_pipes_open() {
    let world = World::new(json!({"evil": "orphan", "in": "diff", "when": "taken", "times": 1}), SHORT * 2);
    let target = world.worked_in();
    assert_plugin_error(Instant::now(), world.call("diff", Some(&target)), &["`diff`"]);
    assert_eq!(world.changes(&target), 1);
    assert_eq!(world.noted("children").len(), 1);
    world.assert_nobody_left();
}

#[test]
fn children_of_a_plugin_that_ends_in_order_end_with_it() {
    let world = World::new(json!({"evil": "orphan", "in": "diff", "times": 1, "dies": false}), LONG);
    let target = world.worked_in();
    assert_eq!(world.changes(&target), 1);
    assert_eq!(world.noted("children").len(), 1);
    world.assert_nobody_left();
}

/// A process that left the group is out of reach: it stays. What it holds open delays nobody beyond the deadline.
#[test]
fn a_child_that_left_the_group() {
    let options = json!({"evil": "orphan", "in": "diff", "when": "taken", "times": 1, "daemon": true});
    let mut world = World::new(options, SHORT * 2);
    let target = world.worked_in();
    assert_plugin_error(Instant::now(), world.call("diff", Some(&target)), &["`diff`"]);
    assert_eq!(world.changes(&target), 1);
    world.open();
    let daemon = world.noted("children").pop().unwrap();
    assert!(!is_gone(&daemon), "it was killed after all: say so in the documents");
    kill_process(Pid::from_raw(daemon.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    world.assert_nobody_left();
}

#[test]
fn a_plugin_that_does_not_end_with_its_input_is_killed() {
    let world = World::new(json!({"stays": true}), LONG);
    world.worked_in();
    world.assert_nobody_left();
}

#[test]
fn a_plugin_that_was_stopped_is_killed() {
    let world =
        World::new(json!({"evil": "die", "in": "diff", "when": "taken", "times": 1, "signal": 19}), SHORT);
    let target = world.worked_in();
    assert_plugin_error(Instant::now(), world.call("diff", Some(&target)), &["`diff`", "no answer within"]);
    assert_eq!(world.changes(&target), 1);
    world.assert_nobody_left();
}

#[test]
fn one_process_serves_every_sandbox_and_ends_with_the_manager() {
    let world = World::new(json!({}), LONG);
    for target in [world.worked_in(), world.worked_in()] {
        assert_eq!(world.changes(&target), 1);
    }
    assert_eq!(world.noted("pids").len(), 1);
    world.assert_nobody_left();
}

#[test]
fn a_strategy_that_nobody_uses_is_never_started() {
    let mut world = World::new(json!({}), LONG);
    world.assert_others_work();
    world.open();
    world.manager().recover().unwrap();
    world.manager().list(true).unwrap();
    assert!(world.noted("pids").is_empty());
    assert!(!world.home().join("plugins").exists());
}
