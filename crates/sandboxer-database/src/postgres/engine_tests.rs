use std::time::{Duration, Instant};

use sandboxer_testkit::servers::Postgres;
use serde_json::json;
use tempfile::TempDir;

use super::super::settle::{committed, settle};
use super::*;
use crate::engine::{Options, Outcome};

const SCHEMA: &str = "create table users (id int primary key, name text not null default 'nobody', age int); \
    insert into users select n, 'u' || n, n from generate_series(1, 5) n; \
    create table posts (id int primary key, author int references users deferrable initially deferred); \
    create table log (what text)";

pub(super) struct World<'s> {
    server: &'s Postgres,
    database: String,
    setup: Setup,
    _dir: TempDir,
}

fn world_on<'s>(server: &'s Postgres, options: Options) -> World<'s> {
    let database = server.database();
    server.sql(&database, SCHEMA);
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup {
        kind: "postgres".to_owned(),
        location: server.socket_url(&database),
        workspace: format!("w_{database}"),
        dir: dir.path().to_path_buf(),
        user: "postgres".to_owned(),
        password: None,
        options,
    };
    World { server, database, setup, _dir: dir }
}

pub(super) fn world() -> Option<World<'static>> {
    world_with(Options::default())
}

pub(super) fn world_with(options: Options) -> Option<World<'static>> {
    Some(world_on(Postgres::shared()?, options))
}

impl World<'_> {
    pub(super) fn open(&self) -> PostgresEngine {
        PostgresEngine::open(&self.setup).unwrap()
    }

    pub(super) fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.database, sql)
    }

    fn count(&self) -> String {
        self.sql("select count(*) from users")
    }

    fn production(&self) -> Connection {
        Connection::connect(&Target::parse(&self.setup.location, "").unwrap(), None).unwrap()
    }
}

fn row(value: serde_json::Value) -> Row {
    serde_json::from_value(value).unwrap()
}

fn plain(row: Option<Row>) -> serde_json::Value {
    serde_json::to_value(row).unwrap()
}

/// Waits for something that another process does, for as long as a slow machine takes.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn rows_are_read_and_written_and_nothing_is_seen_outside() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    assert_eq!(engine.tables().unwrap(), ["public.log", "public.posts", "public.users"]);
    assert_eq!(plain(engine.row("users", "2").unwrap()), json!({"id": 2, "name": "u2", "age": 2}));
    assert_eq!(engine.row("public.users", "77").unwrap(), None);
    let page = Page { limit: Some(2), after: Some("2".to_owned()) };
    let names: Vec<_> =
        engine.rows("users", &page).unwrap().iter().map(|r| r.get("name").cloned().unwrap()).collect();
    assert_eq!(names, ["u3", "u4"]);
    assert!(!engine.put_row("users", "9", Some(&row(json!({"age": 90})))).unwrap());
    assert!(engine.put_row("users", "2", Some(&row(json!({"id": 2, "name": "it's"})))).unwrap());
    assert!(engine.put_row("users", "3", None).unwrap());
    assert!(!engine.put_row("users", "33", None).unwrap());
    assert_eq!(plain(engine.row("users", "9").unwrap()), json!({"id": 9, "name": "nobody", "age": 90}));
    assert_eq!(plain(engine.row("users", "2").unwrap()), json!({"id": 2, "name": "it's", "age": null}));
    for (table, key, value) in [
        ("users", "1,2", json!({})),
        ("users", "1", json!({"nme": "x"})),
        ("users", "1", json!({"id": 5})),
        ("users", "one", json!({})),
        ("log", "1", json!({})),
        ("nothing", "1", json!({})),
    ] {
        assert!(engine.put_row(table, key, Some(&row(value))).is_err(), "{table} {key}");
    }
    let rows = engine.query("select count(*) as n, sum(age) as s from users").unwrap();
    assert_eq!(rows, [row(json!({"n": 5, "s": 100}))]);
    assert_eq!(world.count(), "5");
    assert_eq!(world.sql("select name from users where id = 2"), "u2");
    let changes = engine.changes().unwrap();
    let keys: Vec<_> = changes.rows.iter().map(|change| change.key.0[0].1.clone()).collect();
    assert_eq!(keys, [2, 3, 9]);
    assert!(changes.schema.is_empty() && changes.notices.is_empty(), "{changes:?}");
}

#[test]
fn a_query_changes_nothing_and_a_script_is_all_or_nothing() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    let rows = engine.query("delete from users where id = 1 returning name").unwrap();
    assert_eq!(rows, [row(json!({"name": "u1"}))]);
    assert!(engine.row("users", "1").unwrap().is_some());
    let done = engine.execute("insert into log values ('a'), ('b; c'); -- x\nupdate users set age = 0; set timezone = 'Asia/Tokyo'").unwrap();
    assert_eq!((done.statements, done.rows), (3, 7));
    let error = engine.execute("insert into log values ('never'); insert into users values (1)").unwrap_err();
    assert!(error.to_string().contains("statement 2 (insert into users values (1))"), "{error}");
    assert_eq!(engine.query("select * from log").unwrap().len(), 2);
    for escape in [
        "commit",
        "/* a /* b */ c */ commit",
        "select 1; rollback",
        "begin; select 1",
        "prepare transaction 'x'",
    ] {
        assert!(engine.execute(escape).is_err(), "{escape}");
    }
    assert!(engine.query("select 1; select 2").is_err());
    assert_eq!(engine.status(), Status::Held { notices: engine.inner.preflight.notices.clone() });
    assert_eq!(world.sql("select count(*) from log"), "0");
}

#[test]
fn checkpoints_come_back() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    let count = |engine: &mut PostgresEngine| engine.query("select 1 from users").unwrap().len();
    engine.execute("insert into users values (10)").unwrap();
    engine.checkpoint("ten").unwrap();
    engine.execute("insert into users values (11)").unwrap();
    engine.checkpoint("eleven").unwrap();
    engine.execute("delete from users").unwrap();
    engine.restore("eleven").unwrap();
    assert_eq!(count(&mut engine), 7);
    engine.restore("ten").unwrap();
    assert_eq!(count(&mut engine), 6);
    let error = engine.restore("eleven").unwrap_err();
    assert!(error.to_string().contains("ended"), "{error}");
    engine.execute("delete from users where id = 10").unwrap();
    engine.restore("ten").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 1);
    engine.rollback().unwrap();
    assert!(engine.restore("ten").is_err());
    assert_eq!(engine.changes().unwrap().rows.len(), 0);
}

#[test]
fn a_commit_is_real_and_begins_anew() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    engine.execute("insert into users values (10); create table fresh (id int primary key); insert into fresh values (1)").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 2);
    engine.commit("op1").unwrap();
    assert_eq!(world.count(), "6");
    assert_eq!(world.sql("select nspname from pg_namespace where nspname like 'sandboxer%'"), "");
    assert_eq!(committed(&world.setup, "op1").unwrap(), Outcome::Committed);
    assert_eq!(committed(&world.setup, "op2").unwrap(), Outcome::Aborted);
    assert_eq!(engine.changes().unwrap(), Changes::default());
    engine.execute("insert into users values (11)").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 1);
    drop(engine);
    assert_eq!(world.count(), "6");
}

#[test]
fn what_must_fail_at_commit_fails_and_leaves_the_work() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    engine.execute("insert into posts values (1, 999)").unwrap();
    let error = engine.commit("op").unwrap_err();
    assert!(error.to_string().contains("23503"), "{error}");
    assert!(engine.prepare("op").is_err());
    assert_eq!(engine.changes().unwrap().rows.len(), 1);
    engine.execute("insert into users values (999)").unwrap();
    engine.commit("op").unwrap();
    assert_eq!(world.sql("select count(*) from posts"), "1");
}

#[test]
fn prepared_is_finished_aborted_or_settled_by_somebody_else() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    let prepare = |engine: &mut PostgresEngine, id: u32| {
        engine.execute(&format!("insert into users values ({id})")).unwrap();
        let prepared = engine.prepare(&format!("op{id}")).unwrap();
        assert!(matches!(prepared, Prepared::Durable(_)), "{prepared:?}");
        assert!(engine.execute("select 1").is_err());
        prepared
    };
    let prepared = prepare(&mut engine, 10);
    assert_eq!(world.count(), "5");
    engine.finish(&prepared).unwrap();
    engine.finish(&prepared).unwrap();
    assert!(engine.abort(&prepared).is_err());
    assert_eq!(world.count(), "6");
    let prepared = prepare(&mut engine, 11);
    assert!(!engine.abort(&prepared).unwrap());
    assert!(engine.finish(&prepared).is_err());
    assert_eq!(engine.changes().unwrap().rows.len(), 0);

    let prepared = prepare(&mut engine, 12);
    drop(engine);
    assert_eq!(settle(&world.setup, &prepared, None).unwrap(), Outcome::Waiting);
    assert_eq!(settle(&world.setup, &prepared, Some(true)).unwrap(), Outcome::Committed);
    assert_eq!(settle(&world.setup, &prepared, Some(true)).unwrap(), Outcome::Committed);
    assert_eq!(settle(&world.setup, &prepared, None).unwrap(), Outcome::Committed);
    assert_eq!(world.count(), "7");
    let prepared = prepare(&mut world.open(), 13);
    assert_eq!(settle(&world.setup, &prepared, Some(false)).unwrap(), Outcome::Aborted);
    assert_eq!(settle(&world.setup, &prepared, None).unwrap(), Outcome::Aborted);
    assert_eq!(world.count(), "7");
}

#[test]
fn what_cannot_be_prepared_is_committed_at_the_decision() {
    let Some(server) = Postgres::with_settings(&[("max_prepared_transactions", "0")]) else { return };
    let world = world_on(&server, Options::default());
    let mut engine = world.open();
    let Status::Held { notices } = engine.status() else { panic!("lost") };
    assert!(notices[0].contains("max_prepared_transactions"), "{notices:?}");
    engine.execute("insert into users values (10)").unwrap();
    let prepared = engine.prepare("a").unwrap();
    assert!(
        matches!(&prepared, Prepared::AtDecision { reason, .. } if reason.contains("max_prepared")),
        "{prepared:?}"
    );
    assert!(engine.execute("insert into users values (11)").is_err());
    assert!(engine.abort(&prepared).unwrap());
    engine.execute("insert into users values (11)").unwrap();
    let prepared = engine.prepare("b").unwrap();
    engine.finish(&prepared).unwrap();
    engine.finish(&prepared).unwrap();
    assert_eq!(world.count(), "7");
    assert_eq!(settle(&world.setup, &prepared, None).unwrap(), Outcome::Committed);

    engine.execute("insert into users values (12)").unwrap();
    let prepared = engine.prepare("c").unwrap();
    drop(engine);
    assert_eq!(settle(&world.setup, &prepared, None).unwrap(), Outcome::Aborted);
    let mut engine = world.open();
    engine.execute("insert into users values (12)").unwrap();
    let prepared = engine.prepare("d").unwrap();
    assert_eq!(settle(&world.setup, &prepared, Some(false)).unwrap(), Outcome::Aborted);
    assert!(engine.finish(&prepared).is_err());
    assert_eq!(world.count(), "7");
}

#[test]
fn temporary_objects_and_notifications_are_not_prepared() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    for script in ["notify news", "create temporary table t (x int); insert into users values (10)"] {
        engine.execute(script).unwrap();
        let prepared = engine.prepare("a").unwrap();
        assert!(matches!(prepared, Prepared::AtDecision { .. }), "{prepared:?}");
        assert!(engine.abort(&prepared).unwrap());
        engine.commit("b").unwrap();
    }
    assert_eq!(world.count(), "6");
}

#[test]
fn a_lost_session_says_so_and_leaks_nothing() {
    let Some(server) = Postgres::start() else { return };
    let world = world_on(&server, Options::default());
    let mut engine = world.open();
    engine.execute("insert into users values (10)").unwrap();
    world.sql(&format!(
        "select pg_terminate_backend({})",
        engine.proxy.with_session(Duration::ZERO, |held| Ok(held.backend_pid())).unwrap()
    ));
    until("it is lost", || matches!(engine.status(), Status::Lost { .. }));
    for result in [engine.execute("select 1").err(), engine.commit("x").err(), engine.changes().err()] {
        assert!(result.unwrap().to_string().contains("lost"));
    }
    engine.rollback().unwrap();
    engine.execute("insert into users values (11)").unwrap();
    server.restart();
    let Status::Lost { reason } = engine.status() else { panic!("still held") };
    assert!(!reason.is_empty());
    engine.rollback().unwrap();
    assert_eq!(engine.changes().unwrap(), Changes::default());
    engine.execute("insert into users values (12)").unwrap();
    engine.commit("y").unwrap();
    assert_eq!(world.sql("select string_agg(id::text, ',') from users where id > 5"), "12");
}

#[test]
fn whoever_is_blocked_is_named_and_set_free_in_time() {
    let Some(server) = Postgres::shared() else { return };
    let limit = Some(Duration::from_secs(10));
    let world = world_on(server, Options { block_limit: limit, ..Options::default() });
    let mut engine = world.open();
    engine.execute("update users set age = 0 where id = 1").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| world.sql("update users set age = 99 where id = 1"));
        let mut named = false;
        until("it is rolled back", || match engine.status() {
            Status::Held { notices } => {
                named |= notices.iter().any(|notice| notice.contains("update users set age = 99"));
                false
            }
            Status::Lost { reason } => {
                assert!(reason.contains("update users set age = 99") && reason.contains("limit"), "{reason}");
                true
            }
        });
        assert!(named);
    });
    assert_eq!(world.sql("select age from users where id = 1"), "99");
    engine.rollback().unwrap();
    assert!(matches!(engine.status(), Status::Held { .. }));
}

#[test]
fn conflicts_with_production_are_errors_and_the_work_stays() {
    let Some(server) = Postgres::shared() else { return };
    let world = world_on(server, Options { lock_timeout: Duration::from_millis(100), ..Options::default() });
    let mut engine = world.open();
    engine.execute("insert into log values ('kept')").unwrap();
    let mut production = world.production();
    production.query("begin; update users set age = -1 where id = 1; delete from users where id = 2; insert into users values (10)").unwrap();
    for sql in [
        "update users set age = 1 where id = 1",
        "update users set age = 2 where id = 2",
        "insert into users values (10)",
    ] {
        let error = engine.execute(sql).unwrap_err();
        assert!(error.to_string().contains("55P03"), "{error}");
    }
    production.query("commit").unwrap();
    let error = engine.execute("insert into users values (10)").unwrap_err();
    assert!(error.to_string().contains("23505"), "{error}");
    assert_eq!(engine.execute("update users set age = 2 where id = 2").unwrap().rows, 0);
    engine.execute("update users set age = 1 where id = 1").unwrap();
    let changes = engine.changes().unwrap();
    assert_eq!(changes.rows.len(), 2);
    assert_eq!(changes.rows[1].old.as_ref().unwrap().get("age"), Some(&json!(-1)));
}

#[test]
fn what_locks_production_out_is_refused_unless_allowed() {
    let Some(mut world) = world() else { return };
    let mut engine = world.open();
    for sql in [
        "alter table users add x int",
        "truncate log",
        "create index on public.users (age)",
        "do $$ begin alter table users add x int; end $$",
        "create table referring (id int references users)",
        "drop table if exists nothing, users cascade",
        "lock table users",
    ] {
        let error = engine.execute(sql).unwrap_err();
        assert!(error.to_string().contains("lock out everybody"), "{sql}: {error}");
    }
    engine.execute("create table mine (id int primary key); create index on mine (id); alter table mine add x int; truncate mine; drop table mine").unwrap();
    engine
        .execute("lock table users in access share mode; create view v as select * from users; drop view v")
        .unwrap();
    // Nothing of what was refused is left: neither the change nor the lock.
    assert_eq!(
        world.sql("set lock_timeout = '1s'; begin; lock table users in exclusive mode; select 1"),
        "1"
    );
    drop(engine);
    world.setup.options.allow_ddl = vec!["alter table".to_owned()];
    let mut engine = world.open();
    engine.execute("alter table users add x int").unwrap();
    engine.execute("create function f() returns int language sql as 'select 1'").unwrap();
    assert!(engine.execute("truncate log").is_err());
    let changes = engine.changes().unwrap();
    let kinds: Vec<_> =
        changes.schema.iter().map(|change| (change.kind.as_str(), change.name.as_str())).collect();
    assert_eq!(kinds, [("function", "public.f()"), ("table", "public.users")]);
    assert!(changes.schema[1].new.as_ref().unwrap().contains("x integer"));
    assert!(!changes.schema[1].old.as_ref().unwrap().contains("x integer"));
}

const RICH: &str = "create schema app; create type app.mood as enum ('sad', 'it''s ok'); create domain app.age as int check (value > 0); \
    create table app.people (id bigint generated always as identity primary key, mood app.mood default 'sad', age app.age, \
      name text collate \"C\" not null unique, twice int generated always as (length(name) * 2) stored); \
    create index people_age on app.people (age) where age > 5; \
    create table app.pets (id serial primary key, owner bigint references app.people on delete cascade, check (id > 0)); \
    create view app.old as select name from app.people where age > 60; create view app.a_older as select * from app.old; \
    create function app.f(x int) returns int language plpgsql as $$ begin return x + 1; end $$; \
    create function app.t() returns trigger language plpgsql as $$ begin return new; end $$; \
    create trigger pets_t before insert on app.pets for each row execute function app.t(); \
    create table app.m (day date not null, v int) partition by range (day); \
    create table app.m1 partition of app.m for values from ('2026-01-01') to ('2026-02-01'); \
    comment on table app.people is 'who'; grant select on app.people to public";

#[test]
fn the_schema_can_be_run_and_is_then_the_same() {
    let Some(world) = world() else { return };
    world.sql(RICH);
    let text = world.open().schema().unwrap();
    let mut copy = World { database: world.server.database(), ..world_on(world.server, Options::default()) };
    copy.setup.location = world.server.socket_url(&copy.database);
    copy.sql(&text);
    assert_eq!(copy.open().schema().unwrap().replace(&copy.database, ""), text.replace(&world.database, ""));
}

#[test]
fn every_kind_of_definition_is_in_the_difference() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    engine.execute(RICH).unwrap();
    let mut kinds: Vec<_> =
        engine.changes().unwrap().schema.iter().map(|change| change.kind.clone()).collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "schema",
            "type",
            "sequence",
            "function",
            "table",
            "index",
            "constraint",
            "view",
            "trigger",
            "privileges",
            "comment"
        ]
    );
    engine.commit("x").unwrap();
    assert_eq!(engine.changes().unwrap(), Changes::default());
    let mut production = world.production();
    production.query("create table app.theirs (id int); drop view app.a_older").unwrap();
    engine.execute("create or replace function app.f(x int) returns int language sql as 'select 2'").unwrap();
    let schema = engine.changes().unwrap().schema;
    assert_eq!(schema.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["app.f(x integer)"]);
}

#[test]
fn a_server_or_role_that_will_not_do_is_refused() {
    let Some(world) = world() else { return };
    if world.server.try_sql(&world.database, "create extension dblink").is_err() {
        sandboxer_testkit::skip("the extension dblink is not installed");
        return;
    }
    let error = PostgresEngine::open(&world.setup).err().unwrap();
    assert!(error.to_string().contains("dblink"), "{error}");
    let mut setup = world.setup.clone();
    setup.options.allow_ddl = vec!["dblink".to_owned()];
    assert!(PostgresEngine::open(&setup).is_ok());
    setup.location = "postgres://postgres@/nothing?host=/nowhere".to_owned();
    assert!(PostgresEngine::open(&setup).err().unwrap().to_string().contains("cannot be reached"));
}

#[test]
fn a_role_that_may_little_is_enough() {
    let Some(mut world) = world() else { return };
    let role = format!("app_{}", world.database);
    world.sql(&format!(
        "revoke create on schema public from public; create role {role} login; \
         grant select, insert, update, delete on users, log to {role}"
    ));
    world.setup.location = world.setup.location.replace("postgres@", &format!("{role}@"));
    let mut engine = world.open();
    assert_eq!(engine.status(), Status::Held { notices: Vec::new() });
    engine.execute("update users set age = 0 where id = 1; delete from users where id = 2; insert into log values ('x')").unwrap();
    let changes = engine.changes().unwrap();
    assert_eq!(changes.rows.len(), 3, "{changes:?}");
    assert!(changes.schema.is_empty());
    let prepared = engine.prepare("op").unwrap();
    assert!(
        matches!(&prepared, Prepared::AtDecision { reason, .. } if reason.contains("schemas")),
        "{prepared:?}"
    );
    engine.finish(&prepared).unwrap();
    assert_eq!(world.count(), "4");
    assert_eq!(engine.changes().unwrap(), Changes::default());
    assert!(engine.execute("delete from posts").unwrap_err().to_string().contains("42501"));
}

/// Locks that connections of this test's database wait for.
const WAITING: &str = "select count(*) from pg_locks where not granted
    and pid in (select pid from pg_stat_activity where datname = current_database())";

#[test]
fn production_that_waits_to_alter_a_table_is_named() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    engine.execute("delete from users where id = 1").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| world.sql("alter table users add waiting int"));
        until("somebody waits", || world.sql(&format!("{WAITING} and mode = 'AccessExclusiveLock'")) != "0");
        let error = engine.changes().unwrap_err();
        assert!(error.to_string().contains("waits to lock"), "{error}");
        assert!(engine.row("users", "2").unwrap().is_some());
        engine.rollback().unwrap();
    });
    assert_eq!(engine.changes().unwrap(), Changes::default());
    assert!(engine.schema().unwrap().contains("waiting integer"));
}

#[test]
fn what_cannot_be_shown_is_shown_to_be_there() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    assert!(engine.changes().unwrap().schema.is_empty());
    let role = format!("r_{}", world.database);
    engine
        .execute(&format!("create role {role}; alter default privileges grant select on tables to public"))
        .unwrap();
    let names: Vec<String> = engine.changes().unwrap().schema.into_iter().map(|change| change.name).collect();
    assert!(
        names.contains(&"pg_authid".to_owned()) && names.contains(&"pg_default_acl".to_owned()),
        "{names:?}"
    );
}

#[test]
fn counters_that_were_switched_off_hide_nothing() {
    let Some(world) = world() else { return };
    let mut engine = world.open();
    engine.execute("set track_counts = off; update users set age = 99 where id = 1").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 1);
}

/// A login role of the test's own that may write to `users` and `log`, and the world as it sees it.
fn as_role(world: &mut World<'_>, rights: &str) -> String {
    let role = format!("app_{}", world.database);
    world.sql(&format!(
        "create role {role} login; grant select, insert, update, delete on users, log to {role}; {}",
        rights.replace("ROLE", &role)
    ));
    world.setup.location = world.setup.location.replace("postgres@", &format!("{role}@"));
    role
}

#[test]
fn a_row_that_its_role_may_not_see_is_not_committed_unseen() {
    let Some(mut world) = world() else { return };
    let rules = "alter table users enable row level security; \
        create policy sees on users for select to ROLE using (age < 100); \
        create policy adds on users for insert to ROLE with check (true)";
    let role = as_role(&mut world, rules);
    let mut engine = world.open();
    engine.execute("insert into log values ('plain')").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 1);
    engine.execute("insert into users values (9, 'hidden', 500)").unwrap();
    let error = engine.changes().unwrap_err().to_string();
    assert!(error.contains("row-level security") && error.contains("BYPASSRLS"), "{error}");
    // What is only read is read as the role reads it.
    assert_eq!(engine.row("users", "9").unwrap(), None);
    assert_eq!(engine.rows("users", &Page::default()).unwrap().len(), 5);
    assert_eq!(engine.query("select count(*) as n from users").unwrap(), [row(json!({"n": 5}))]);
    world.sql(&format!("alter role {role} bypassrls"));
    engine.rollback().unwrap();
    engine.execute("insert into users values (9, 'hidden', 500)").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 1);
}

#[test]
fn counters_that_a_role_switched_off_for_a_while_hide_nothing() {
    let mut unseen = Vec::new();
    for (rights, before, after) in [
        (
            "grant postgres to ROLE",
            "set role postgres; set track_counts = off",
            "reset track_counts; reset role",
        ),
        // That it could is taken back, too.
        (
            "grant postgres to ROLE",
            "set role postgres; set track_counts = off",
            "revoke postgres from ROLE; reset track_counts; reset role",
        ),
        (
            "create function hush(f text) returns text language sql security definer as $$select set_config('track_counts', f, false)$$",
            "select hush('off')",
            "select hush('on')",
        ),
        ("grant set on parameter track_counts to ROLE", "set track_counts = off", "set track_counts = on"),
    ] {
        let Some(mut world) = world() else { return };
        let grants_parameters = world.sql("show server_version_num").parse::<u32>().unwrap() >= 150_000;
        if rights.contains("parameter") && !grants_parameters {
            continue;
        }
        let role = as_role(&mut world, rights);
        let mut engine = world.open();
        let after = after.replace("ROLE", &role);
        engine.execute(&format!("{before}; update users set age = 99 where id = 1; {after}")).unwrap();
        if engine.changes().unwrap().rows.len() != 1 {
            unseen.push(rights);
        }
    }
    assert_eq!(unseen, [""; 0]);
}

#[test]
fn a_deadlock_fails_one_statement_and_the_sandbox_goes_on() {
    let Some(world) = world_with(Options { lock_timeout: Duration::from_secs(60), ..Options::default() })
    else {
        return;
    };
    let mut engine = world.open();
    engine.execute("update users set age = 10 where id = 1").unwrap();
    let mut production = world.production();
    // Production waits for longer than the sandbox does before it looks, so that the sandbox finds the deadlock.
    production.query("set deadlock_timeout = '60s'; begin; update users set age = 20 where id = 2").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| production.query("update users set age = 20 where id = 1").map(drop));
        until("production waits", || world.sql(WAITING) != "0");
        let error = engine
            .execute("insert into log values ('x'); update users set age = 10 where id = 2")
            .unwrap_err();
        assert!(error.to_string().contains("40P01") && error.to_string().contains("deadlock"), "{error}");
        assert!(matches!(engine.status(), Status::Held { .. }));
        // All of the script is taken back, and nothing of what was before it.
        let changes = engine.changes().unwrap();
        assert_eq!(changes.rows.len(), 1, "{changes:?}");
        engine.rollback().unwrap();
        waiting.join().unwrap().unwrap();
    });
    production.query("commit").unwrap();
    assert_eq!(world.sql("select string_agg(age::text, ',' order by id) from users where id < 3"), "20,20");
    engine.execute("update users set age = 30 where id = 1").unwrap();
    engine.commit("x").unwrap();
    assert_eq!(world.sql("select age from users where id = 1"), "30");
}
