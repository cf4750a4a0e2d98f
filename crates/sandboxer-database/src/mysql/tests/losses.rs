//! What loses a held transaction: it is said, nothing leaks, and it can begin anew.
use mysql::prelude::Queryable;
use sandboxer_core::Error;

use super::{World, connect};
use crate::engine::{Engine, Options, Status};

fn reason(engine: &mut Box<dyn Engine>) -> String {
    match engine.status() {
        Status::Lost { reason } => reason,
        held => panic!("{held:?}"),
    }
}

#[test]
fn a_killed_connection_is_lost_with_everything_in_it() {
    let Some(mut world) = World::new() else { return };
    let mut engine = world.open();
    engine.execute("UPDATE users SET name = 'sandbox' WHERE id = 1").unwrap();
    engine.checkpoint("a").unwrap();
    let id = world.held();
    world.run(&format!("KILL {id}"));
    assert!(reason(&mut engine).contains("connection to the server broke"));
    let error = engine.execute("SELECT 1").unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { reason, .. } if reason.contains("nothing was committed")),
        "{error}"
    );
    assert!(engine.changes().is_err() && engine.commit("o").is_err() && engine.prepare("o").is_err());
    assert_eq!(world.see("SELECT name FROM users WHERE id = 1"), ["ann"]);
    engine.rollback().unwrap();
    assert!(engine.restore("a").unwrap_err().to_string().contains("is gone"));
    engine.execute("UPDATE users SET name = 'again' WHERE id = 1").unwrap();
    engine.commit("o").unwrap();
    assert_eq!(world.see("SELECT name FROM users WHERE id = 1"), ["again"]);
}

#[test]
fn a_restarted_server_has_lost_it() {
    let Some(mut world) = World::new() else { return };
    let mut engine = world.open();
    engine.execute("DELETE FROM notes").unwrap();
    world.server.stop();
    assert!(matches!(engine.status(), Status::Lost { .. }));
    assert!(engine.rollback().is_err());
    world.server.start_again();
    world.outside = connect(&world.server.url("shop"));
    assert!(matches!(engine.status(), Status::Lost { .. }));
    assert_eq!(world.see("SELECT COUNT(*) FROM notes"), ["3"]);
    engine.rollback().unwrap();
    assert!(matches!(engine.status(), Status::Held { .. }));
    engine.execute("DELETE FROM notes").unwrap();
}

fn is_anybody_waiting(world: &mut World) -> bool {
    let status: Option<(String, String, String)> =
        world.outside.query_first("SHOW ENGINE INNODB STATUS").unwrap();
    status.unwrap().2.contains("LOCK WAIT")
}

#[test]
fn a_deadlock_loses_it_and_a_lock_of_production_does_not() {
    let Some(mut world) = World::new() else { return };
    let mut engine = world.open();
    engine.execute("UPDATE users SET age = 1 WHERE id = 2").unwrap();
    world.run("BEGIN; UPDATE users SET age = 9 WHERE id = 1");
    let error = engine
        .execute("INSERT INTO notes VALUES (9, 'z'); UPDATE users SET age = 2 WHERE id = 1")
        .unwrap_err();
    assert!(
        matches!(&error, Error::Busy { holder: Some(holder), .. } if holder.contains("statement 2")),
        "{error:?}"
    );
    let kept = engine.query("SELECT age FROM users WHERE id = 2").unwrap();
    assert_eq!(kept[0].get("age").unwrap(), 1);
    assert_eq!(engine.query("SELECT * FROM notes WHERE a = 9").unwrap(), []);

    // Production gets heavier, so that the server chooses the sandbox.
    world.run("INSERT INTO notes SELECT seq, 'w' FROM seq_1_to_1000; SET innodb_lock_wait_timeout = 30");
    let mut production = std::mem::replace(&mut world.outside, connect(&world.server.url("shop")));
    let waiting = std::thread::spawn(move || {
        let done = production.query_drop("UPDATE users SET age = 9 WHERE id = 2");
        (production, done)
    });
    // Not from the information schema: that shows those who ask without a pause what they saw before.
    while !is_anybody_waiting(&mut world) {
        std::thread::yield_now();
    }
    let error = engine.execute("UPDATE users SET age = 2 WHERE id = 1").unwrap_err();
    assert!(error.to_string().contains("deadlock"), "{error}");
    assert!(reason(&mut engine).contains("deadlock"));
    let (mut production, done) = waiting.join().unwrap();
    done.unwrap();
    production.query_drop("COMMIT").unwrap();
    assert_eq!(world.see("SELECT age FROM users ORDER BY id"), ["9", "9", "50"]);
    engine.rollback().unwrap();
    engine.execute("UPDATE users SET age = 2 WHERE id = 1").unwrap();
}

#[test]
fn a_server_that_rolls_back_on_timeout_has_lost_it() {
    let Some(mut world) = World::with(&["--innodb-rollback-on-timeout"]) else { return };
    let mut engine = world.open();
    engine.execute("UPDATE users SET age = 1 WHERE id = 2").unwrap();
    world.run("BEGIN; UPDATE users SET age = 9 WHERE id = 1");
    engine.execute("UPDATE users SET age = 2 WHERE id = 1").unwrap_err();
    reason(&mut engine);
    world.run("ROLLBACK");
    assert_eq!(world.see("SELECT age FROM users WHERE id = 2"), ["40"]);
    engine.rollback().unwrap();
}

#[test]
fn who_keeps_production_waiting_for_too_long_is_rolled_back() {
    let Some(mut world) = World::new() else { return };
    let mut setup = world.setup();
    setup.options = Options { block_limit: Some(std::time::Duration::from_secs(1)), ..setup.options };
    let mut engine = super::super::open(&setup).unwrap();
    engine.execute("UPDATE users SET age = 1 WHERE id = 1").unwrap();
    world.run("SET innodb_lock_wait_timeout = 50");
    // Goes on as soon as the sandbox is out of its way.
    world.run("UPDATE users SET age = 9 WHERE id = 1");
    assert!(reason(&mut engine).contains("kept production waiting"));
    assert!(engine.execute("SELECT 1").unwrap_err().to_string().contains("kept production waiting"));
    engine.rollback().unwrap();
    assert!(matches!(engine.status(), Status::Held { .. }));
    assert_eq!(world.see("SELECT age FROM users WHERE id = 1"), ["9"]);
}

#[test]
fn a_user_who_cannot_see_triggers_is_told() {
    let Some(mut world) = World::new() else { return };
    world
        .run("CREATE USER app IDENTIFIED BY 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO app");
    let mut setup = world.setup();
    setup.location = setup.location.replace("root@", "app@");
    assert!(super::super::open(&setup).is_err());
    setup.password = Some("secret".to_owned());
    let mut engine = super::super::open(&setup).unwrap();
    engine.execute("UPDATE users SET age = 1").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 3);
    let Status::Held { notices } = engine.status() else { panic!() };
    assert!(notices.iter().any(|notice| notice.contains("TRIGGER privilege")), "{notices:?}");
    world.run("GRANT ALL PRIVILEGES ON shop.* TO app");
    engine.rollback().unwrap();
    let Status::Held { notices } = engine.status() else { panic!() };
    assert!(!notices.iter().any(|notice| notice.contains("TRIGGER privilege")), "{notices:?}");
}
