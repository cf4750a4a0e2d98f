//! The engine with clients beside it.

use std::time::Duration;

use super::super::target::Host;
use super::tests::{World, world, world_with};
use super::*;
use crate::engine::Options;

fn client(engine: &PostgresEngine) -> Connection {
    let target = Target {
        host: Host::Tcp("127.0.0.1".to_owned()),
        port: engine.proxy.port(),
        user: engine.proxy.user().to_owned(),
        database: engine.inner.target.database.clone(),
    };
    Connection::connect(&target, Some(engine.proxy.password())).unwrap()
}

fn impatient() -> Options {
    Options { turn_timeout: Duration::from_millis(200), ..Options::default() }
}

fn count(world: &World<'_>) -> String {
    world.sql("select count(*) from users")
}

#[test]
fn clients_and_the_engine_share_one_transaction() {
    let Some(world) = world_with(impatient()) else { return };
    let mut engine = world.open();
    let mut client = client(&engine);
    client.query("set timezone = 'Asia/Tokyo'; set search_path = pg_temp, public").unwrap();
    client.query("insert into users values (10)").unwrap();
    engine.execute("insert into users values (11)").unwrap();
    assert_eq!(client.query("select count(*) from users").unwrap().single(), Some("7"));
    engine.checkpoint("seven").unwrap();
    client.query("begin; delete from users where id > 5").unwrap();
    let error = engine.changes().unwrap_err();
    assert!(matches!(&error, Error::Busy { holder: Some(_), .. }), "{error}");
    assert!(matches!(engine.status(), Status::Held { .. }));
    client.query("commit").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 0);
    engine.restore("seven").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 2);
    assert_eq!(client.query("show timezone").unwrap().single(), Some("Asia/Tokyo"));
    assert_eq!(count(&world), "5");
    engine.commit("op").unwrap();
    assert_eq!(count(&world), "7");
    client.query("insert into users values (12)").unwrap();
    engine.rollback().unwrap();
    assert_eq!(client.query("select count(*) from users").unwrap().single(), Some("7"));
    engine.close();
    assert!(client.query("select 1").is_err());
}

#[test]
fn a_rollback_sends_away_who_has_a_transaction_open() {
    let Some(world) = world_with(impatient()) else { return };
    let mut engine = world.open();
    for sql in ["select 1", "copy users from stdin"] {
        let mut idle = client(&engine);
        idle.query("begin; insert into users values (10)").unwrap();
        if sql.starts_with("copy") {
            let mut message = Vec::new();
            super::super::wire::put_query(&mut message, sql);
            idle.send(&message).unwrap();
            assert_eq!(idle.frame().unwrap().tag, b'G');
        } else {
            idle.query(sql).unwrap();
        }
        let error = engine.checkpoint("x").unwrap_err().to_string();
        assert!(
            error.contains("has had a transaction open for") && error.contains("roll the sandbox back"),
            "{error}"
        );
        engine.rollback().unwrap();
        let told = if sql.starts_with("copy") { idle.answer() } else { idle.query("select 1") }.unwrap_err();
        assert!(told.code().is_none_or(|code| code == "57P01"), "{told:?}");
        assert_eq!(engine.changes().unwrap().rows.len(), 0);
    }
    assert_eq!(client(&engine).query("select count(*) from users").unwrap().single(), Some("5"));
}

#[test]
fn a_rollback_ends_what_a_client_runs() {
    let Some(world) = world_with(impatient()) else { return };
    let mut engine = world.open();
    let mut busy = client(&engine);
    let mut message = Vec::new();
    super::super::wire::put_query(&mut message, "begin; insert into users values (10); select pg_sleep(600)");
    busy.send(&message).unwrap();
    while engine.proxy.holder().is_none() {
        std::thread::yield_now();
    }
    engine.rollback().unwrap();
    let told = busy.answer().unwrap_err();
    assert!(told.code().is_none_or(|code| code == "57P01"), "{told:?}");
    assert_eq!(engine.changes().unwrap().rows.len(), 0);
}

#[test]
fn clients_wait_while_it_is_prepared() {
    let Some(world) = world_with(impatient()) else { return };
    let mut engine = world.open();
    let mut client = client(&engine);
    for (id, script) in [(10, "select 1"), (11, "create temporary table if not exists t (x int)")] {
        client.query(&format!("{script}; insert into users values ({id})")).unwrap();
        let prepared = engine.prepare(&format!("op{id}")).unwrap();
        assert_eq!(matches!(prepared, Prepared::Durable(_)), id == 10, "{prepared:?}");
        let error = client.query("insert into users values (99)").unwrap_err();
        assert_eq!(error.code(), Some("55P03"), "{error:?}");
        engine.finish(&prepared).unwrap();
        client.query("select 1").unwrap();
    }
    client.query("insert into users values (12)").unwrap();
    client.query("begin").unwrap();
    client.query("insert into users values (13)").unwrap();
    assert!(engine.prepare("busy").is_err());
    client.query("rollback").unwrap();
    let prepared = engine.prepare("aborted").unwrap();
    engine.abort(&prepared).unwrap();
    client.query("select 1").unwrap();
    assert_eq!(count(&world), "7");
}

#[test]
fn notifications_of_clients_are_not_prepared() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    let mut client = client(&engine);
    for sql in ["notify news", "select pg_notify('a', 'b')"] {
        client.query(sql).unwrap();
        let prepared = engine.prepare("op").unwrap();
        assert!(matches!(prepared, Prepared::AtDecision { .. }), "{sql}: {prepared:?}");
        assert!(engine.abort(&prepared).unwrap());
        engine.rollback().unwrap();
    }
}

#[test]
fn clients_do_not_lock_production_out() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    let mut client = client(&engine);
    for sql in [
        "alter table users add x int",
        "create index on users (age)",
        "do $$ begin alter table users add x int; end $$",
        "create table referring (id int references users)",
        "select 1; truncate log",
    ] {
        let error = client.query(sql).unwrap_err();
        assert_eq!(error.code(), Some("42501"), "{sql}: {error:?}");
        if sql.starts_with("create table") {
            assert!(format!("{error:?}").contains("CREATE TABLE"), "{error:?}");
        }
    }
    client.query("create type spot as (x int, y int)").unwrap();
    client.query("create table mine (id int primary key); create index on mine (id); truncate mine").unwrap();
    client.query("begin").unwrap();
    client.query("insert into mine values (1)").unwrap();
    client.query("do $$ begin execute 'truncate ' || 'log'; end $$").unwrap();
    assert_eq!(client.query("commit").unwrap_err().code(), Some("42501"));
    assert_eq!(client.query("select count(*) from mine").unwrap().single(), Some("0"));
    assert_eq!(
        world.sql("set lock_timeout = '1s'; begin; lock table users, log in exclusive mode; select 1"),
        "1"
    );
    assert_eq!(engine.changes().unwrap().schema.len(), 3);
}

#[test]
fn nor_do_the_functions_that_they_call() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    let mut client = client(&engine);
    client
        .query(
            "create function locking() returns int language plpgsql as $$ begin
             execute 'lock table ' || 'users in access exclusive mode'; return 1; end $$;
             create function altering() returns int language plpgsql as $$ begin
             execute 'alter table ' || 'users add x int'; return 1; end $$",
        )
        .unwrap();
    let lockable = "set lock_timeout = '1s'; begin; lock table users in exclusive mode; select 1";
    for sql in ["select locking()", "select altering()", "begin; select 1; select locking(); commit"] {
        assert_eq!(client.query(sql).unwrap_err().code(), Some("42501"), "{sql}");
        assert_eq!(world.sql(lockable), "1", "{sql}");
    }
    assert!(matches!(engine.execute("select locking()").unwrap_err(), Error::Refused { .. }));
    assert_eq!(world.sql(lockable), "1");
}

#[test]
fn scripts_cannot_change_how_they_are_read() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    engine.execute("insert into users values (10)").unwrap();
    for script in [
        "set standard_conforming_strings = off; select '\\'' ; commit; --'",
        "select set_config('standard_' || 'conforming_strings', 'off', false); select '\\'' ; commit; --'",
    ] {
        assert!(matches!(engine.execute(script).unwrap_err(), Error::Refused { .. }), "{script}");
        assert_eq!(engine.query("show standard_conforming_strings").unwrap().len(), 1);
    }
    assert_eq!(engine.changes().unwrap().rows.len(), 1);
    assert_eq!(count(&world), "5");
}

#[test]
fn what_is_allowed_by_name_clients_may() {
    let Some(world) = world_with(Options { allow_ddl: vec!["alter table".to_owned()], ..Options::default() })
    else {
        return;
    };
    let mut engine = world.open();
    let mut client = client(&engine);
    client.query("alter table users add x int").unwrap();
    client.query("create table mine (id int)").unwrap();
    assert_eq!(client.query("truncate log").unwrap_err().code(), Some("42501"));
    let names: Vec<_> = engine.changes().unwrap().schema.into_iter().map(|change| change.name).collect();
    assert_eq!(names, ["public.mine", "public.users"]);
}

#[test]
fn a_reference_to_a_table_of_production_is_allowed_by_the_statements_name() {
    let options = Options { allow_ddl: vec!["create table".to_owned()], ..Options::default() };
    let Some(world) = world_with(options) else { return };
    let engine = world.open();
    let mut client = client(&engine);
    client.query("create table referring (id int references users)").unwrap();
    client.query("select count(*) from referring").unwrap();
    assert_eq!(client.query("do $$ begin lock table log; end $$").unwrap_err().code(), Some("42501"));
}

#[test]
fn a_loss_is_told_as_it_is_also_by_the_engine() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    engine.execute("insert into users values (10)").unwrap();
    let pid = lock(&engine.held).backend_pid();
    world.sql(&format!("select pg_terminate_backend({pid})"));
    let error = engine.changes().unwrap_err().to_string();
    assert!(error.contains("nothing of it was committed"), "{error}");
    assert_eq!(count(&world), "5");
}
