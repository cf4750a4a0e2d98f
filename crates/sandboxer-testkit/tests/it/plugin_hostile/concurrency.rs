//! Several calls at once, one of which does wrong.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use sandboxer_core::Error;
use serde_json::json;

use super::world::{SHORT, World, assert_plugin_error, path, wait_until};

/// The one that hangs is told when its time is up. The others are served by the same process meanwhile, and by the next one after.
#[test]
fn a_hang_in_one_call_fails_no_other() {
    let world = World::new(
        json!({"evil": "hang", "in": "read", "when": "taken", "times": 1, "concurrency": 4}),
        SHORT,
    );
    let target = world.worked_in();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| world.manager().read(&target, &path("a.txt")));
        wait_until(|| !world.noted("evils").is_empty(), || "nobody hangs".to_owned());
        while !hanging.is_finished() {
            assert_eq!(world.changes(&target), 1);
        }
        assert_plugin_error(began, hanging.join().unwrap(), &["`read`", "no answer within"]);
    });
    assert_eq!(world.manager().read(&target, &path("a.txt")).unwrap(), b"changed");
    assert_eq!(world.noted("pids").len(), 2);
    world.assert_nobody_left();
}

/// What waited behind a call that hangs was never sent: it is asked of the next process, in the time that it has left.
#[test]
fn what_waits_behind_a_hang_is_served_by_the_next_process() {
    let world = World::new(json!({"evil": "hang", "in": "read", "when": "taken", "times": 1}), SHORT * 4);
    let target = world.worked_in();
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| world.manager().read(&target, &path("a.txt")));
        wait_until(|| !world.noted("evils").is_empty(), || "nobody hangs".to_owned());
        std::thread::sleep(SHORT * 3);
        let behind = scope.spawn(|| world.manager().diff(&target, &[]));
        assert!(hanging.join().unwrap().is_err());
        assert_eq!(behind.join().unwrap().unwrap().workspaces[0].entries.len(), 1);
    });
    assert_eq!(world.noted("pids").len(), 2);
    world.assert_nobody_left();
}

/// Calls that are under way on a process that was given up may end there: only then is it killed.
#[test]
fn calls_under_way_end_on_the_process_they_began_on() {
    let options = json!({"evil": "hang", "in": "read", "when": "taken", "times": 1, "concurrency": 4, "slow": {"diff": 10}});
    let world = World::new(options, SHORT * 4);
    let target = world.worked_in();
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| world.manager().read(&target, &path("a.txt")));
        wait_until(|| !world.noted("evils").is_empty(), || "nobody hangs".to_owned());
        // Begun while the other still hangs, ended after it was given up.
        std::thread::sleep(Duration::from_secs(16));
        let slow = scope.spawn(|| world.manager().diff(&target, &[]));
        assert!(hanging.join().unwrap().is_err());
        assert_eq!(slow.join().unwrap().unwrap().workspaces[0].entries.len(), 1);
    });
    world.assert_nobody_left();
}

#[test]
fn a_death_fails_what_is_under_way_and_nothing_after() {
    let world = World::new(
        json!({"evil": "die", "in": "read", "when": "taken", "times": 1, "concurrency": 4}),
        SHORT * 5,
    );
    let target = world.worked_in();
    let together = Barrier::new(4);
    let failed = std::thread::scope(|scope| {
        let read = || {
            together.wait();
            world.manager().read(&target, &path("a.txt"))
        };
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        let results: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        results
            .into_iter()
            .filter(Result::is_err)
            .inspect(|failed| assert!(matches!(failed, Err(Error::Plugin { .. }))))
            .count()
    });
    assert!(failed >= 1);
    assert_eq!(world.manager().read(&target, &path("a.txt")).unwrap(), b"changed");
    assert_eq!(world.noted("pids").len(), 2);
    world.assert_nobody_left();
}

/// Looking can be given up at any time; a commit that has begun is waited for.
#[test]
fn who_wants_to_stop_does_not_wait_for_a_look() {
    let world = World::new(json!({"evil": "hang", "in": "read", "when": "taken"}), Duration::from_secs(3000));
    let target = world.worked_in();
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| world.manager().read(&target, &path("a.txt")));
        wait_until(|| !world.noted("evils").is_empty(), || "nobody hangs".to_owned());
        world.cancel.cancel();
        assert!(matches!(hanging.join().unwrap(), Err(Error::Cancelled)));
    });
    world.assert_nobody_left();
}

#[test]
fn who_wants_to_stop_waits_for_a_commit_that_has_begun() {
    let world = World::new(json!({"slow": {"commit": 2}}), SHORT * 5);
    let target = world.worked_in();
    std::thread::scope(|scope| {
        let committing = scope.spawn(|| world.call("commit", Some(&target)));
        wait_until(|| world.noted("calls").contains(&"commit".to_owned()), || "nobody commits".to_owned());
        world.cancel.cancel();
        committing.join().unwrap().unwrap();
    });
    assert_eq!(world.last_logged("commit").state, "done");
    assert_eq!(std::fs::read_to_string(world.original().join("a.txt")).unwrap(), "changed");
    world.assert_nobody_left();
}
