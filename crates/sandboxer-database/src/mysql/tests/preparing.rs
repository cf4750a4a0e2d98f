//! Two phases, and what another process can do after a crash.
use std::time::Duration;

use mysql::prelude::Queryable;
use serde_json::json;

use super::{World, connect};
use crate::engine::{Engine, Options, Outcome, Prepared, Status};
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

/// The same work, as on a server that keeps nothing prepared.
fn at_decision(engine: &mut Box<dyn Engine>) -> Prepared {
    let Prepared::Durable(token) = engine.intent("op").unwrap() else { panic!("not durable") };
    Prepared::AtDecision { reason: "as an old server".to_owned(), token }
}

#[test]
fn a_mark_that_is_lost_after_the_commit_does_not_undo_it() {
    let Some(mut world) = World::new() else { return };
    let mut setup = world.setup();
    setup.options = Options { lock_timeout: Duration::from_secs(300), ..setup.options };
    let mut engine = super::super::open(&setup).unwrap();
    engine.execute("UPDATE users SET name = 'real' WHERE id = 1").unwrap();
    let prepared = at_decision(&mut engine);
    // Commits wait for this lock, so that the directory can go between the commit and its mark.
    world.run("FLUSH TABLES WITH READ LOCK");
    let finished = std::thread::scope(|scope| {
        let finishing = scope.spawn(|| engine.finish(&prepared));
        while is_committing(&mut world) == Some(false) && !finishing.is_finished() {
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(&setup.dir).unwrap();
        world.run("UNLOCK TABLES");
        finishing.join().unwrap()
    });
    assert_eq!(world.see(LOOK), ["real"]);
    finished.unwrap();
    let Status::Held { notices } = engine.status() else { panic!("lost") };
    assert!(notices.iter().any(|notice| notice.contains("was committed")), "{notices:?}");
}

/// Whether somebody's commit waits for a lock.
fn is_committing(world: &mut World) -> Option<bool> {
    let sql = "SELECT COUNT(*) > 0 FROM information_schema.processlist WHERE info LIKE 'XA COMMIT%' AND state LIKE 'Waiting%'";
    world.outside.query_first(sql).unwrap()
}

#[test]
fn a_decision_that_cannot_be_written_down_leaves_nothing_prepared() {
    let Some(mut world) = World::new() else { return };
    let setup = world.setup();
    let mut engine = world.open();
    engine.execute("UPDATE users SET name = 'never' WHERE id = 1").unwrap();
    std::fs::remove_dir_all(&setup.dir).unwrap();
    engine.commit("op").unwrap_err();
    assert_eq!(world.see("XA RECOVER"), Vec::<String>::new());
    assert!(matches!(engine.status(), Status::Lost { .. }), "{:?}", engine.status());
    std::fs::create_dir(&setup.dir).unwrap();
    engine.rollback().unwrap();
    world.run("UPDATE users SET name = 'free' WHERE id = 1");
    engine.execute("UPDATE users SET name = 'then' WHERE id = 1").unwrap();
    engine.commit("op").unwrap();
    assert_eq!(world.see(LOOK), ["then"]);
}
