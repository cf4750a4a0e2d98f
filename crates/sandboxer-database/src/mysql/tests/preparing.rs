//! Two phases, and what another process can do after a crash.
use serde_json::json;

use super::{World, connect};
use crate::engine::{Outcome, Prepared, Status};
use crate::mysql::settle;

const LOOK: &str = "SELECT name FROM users WHERE id = 1";

#[test]
fn what_is_prepared_is_finished_or_aborted() {
    let Some(mut world) = World::new() else { return };
    let setup = world.setup();
    let mut engine = world.open();
    engine.execute("UPDATE users SET name = 'one' WHERE id = 1").unwrap();
    let prepared = engine.prepare("op").unwrap();
    assert!(matches!(prepared, Prepared::Durable(_)));
    assert!(engine.execute("SELECT 1").unwrap_err().to_string().contains("in use"));
    assert!(engine.rollback().is_err());
    assert!(matches!(engine.status(), Status::Held { .. }));
    assert_eq!(world.see(LOOK), ["ann"]);
    assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Waiting);
    engine.finish(&prepared).unwrap();
    engine.finish(&prepared).unwrap();
    assert_eq!(world.see(LOOK), ["one"]);
    assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Committed);
    assert_eq!(settle(&setup, &prepared, Some(true)).unwrap(), Outcome::Committed);
    assert!(settle(&setup, &prepared, Some(false)).is_err());

    engine.execute("UPDATE users SET name = 'two' WHERE id = 1").unwrap();
    let prepared = engine.prepare("op").unwrap();
    assert!(!engine.abort(&prepared).unwrap());
    assert!(!engine.abort(&prepared).unwrap());
    assert_eq!(world.see(LOOK), ["one"]);
    assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Aborted);
    engine.execute("UPDATE users SET name = 'three' WHERE id = 1").unwrap();
    engine.commit("op").unwrap();
    assert_eq!(world.see(LOOK), ["three"]);
}

#[test]
fn another_process_settles_what_a_dead_one_prepared() {
    let Some(mut world) = World::new() else { return };
    let setup = world.setup();
    for (commit, outcome, name) in
        [(true, Outcome::Committed, "crashed"), (false, Outcome::Aborted, "crashed")]
    {
        let mut engine = world.open();
        engine.execute("UPDATE users SET name = 'crashed' WHERE id = 1").unwrap();
        let prepared = engine.prepare("op").unwrap();
        drop(engine);
        assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Waiting);
        assert_eq!(settle(&setup, &prepared, Some(commit)).unwrap(), outcome);
        assert_eq!(settle(&setup, &prepared, None).unwrap(), outcome);
        assert_eq!(settle(&setup, &prepared, Some(commit)).unwrap(), outcome);
        assert_eq!(world.see(LOOK), [name]);
        assert_eq!(world.see("XA RECOVER"), Vec::<String>::new());
    }
}

#[test]
fn what_is_prepared_outlives_the_server() {
    let Some(mut world) = World::new() else { return };
    let mut engine = world.open();
    engine.execute("UPDATE users SET name = 'kept' WHERE id = 1").unwrap();
    let prepared = engine.prepare("op").unwrap();
    world.server.stop();
    world.server.start_again();
    world.outside = connect(&world.server.url("shop"));
    assert_eq!(world.see(LOOK), ["ann"]);
    engine.finish(&prepared).unwrap();
    assert_eq!(world.see(LOOK), ["kept"]);
    engine.execute("UPDATE users SET name = 'on' WHERE id = 1").unwrap();
}

#[test]
fn nothing_is_prepared_too() {
    let Some(mut world) = World::new() else { return };
    let mut engine = world.open();
    let prepared = engine.prepare("op").unwrap();
    engine.finish(&prepared).unwrap();
    engine.commit("op").unwrap();
    let unheard = Prepared::Durable(json!({ "global": "sandboxer_x", "branch": "y" }));
    assert_eq!(settle(&world.setup(), &unheard, None).unwrap(), Outcome::Aborted);
    assert!(settle(&world.setup(), &Prepared::Durable(json!({ "global": "a'b" })), None).is_err());
    drop(engine);
    // Dropped without a word: rolled back.
    let mut engine = world.open();
    engine.execute("DELETE FROM users").unwrap();
    drop(engine);
    world.run("UPDATE users SET age = 1");
    assert_eq!(world.see("SELECT COUNT(*) FROM users"), ["3"]);
}
