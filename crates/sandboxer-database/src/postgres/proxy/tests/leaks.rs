//! Everything that could end the held transaction, seen from outside.

use std::time::Duration;

use postgres::SimpleQueryMessage;

use super::super::super::held::Defences;
use super::super::Options;
use super::fixture::Fixture;

const SCHEMA: &str = "
    create table t (a int);
    create procedure committing() language plpgsql as $$ begin insert into t values (1); commit; end $$;
    create procedure rolling() language plpgsql as $$ begin rollback; insert into t values (1); end $$;
    create function inserting() returns int language sql as 'insert into t values (1) returning 1'";

/// Tricks, each after an insert and before one.
const TRICKS: &[&str] = &[
    "commit",
    "COMMIT WORK",
    "commit and chain",
    "end",
    "END TRANSACTION AND CHAIN",
    "/* a /* b */ c */ commit",
    "/**/commit/**/",
    "-- x\ncommit",
    "--\rcommit",
    ";;commit;;",
    "select 1; commit",
    "select 1;commit;select 2",
    "begin; commit",
    "begin; begin; commit; commit",
    "begin; savepoint a; release a; commit; commit",
    "start transaction; end; end",
    "rollback; insert into t values (7); commit",
    "abort; commit",
    "select '\\'; commit; --'",
    "select E'\\''; commit",
    "select E'a'\n'\\'; commit; --'; commit",
    "select U&'\\0027'; commit",
    "select $$'$$; commit",
    "select $a$ $b$ $a$; commit; select $b$ $b$",
    "select \"a\"\"; --\" from (select 1 as \"a\"\"; --\") x; commit",
    "select 'a' /* ' */; commit /* '*/",
    "set standard_conforming_strings = off; select 'a\\'; commit; --'",
    "set standard_conforming_strings = off; select 'a\\''; commit; select '",
    "set backslash_quote = on; commit",
    "do $$ begin commit; end $$",
    "do $$ begin execute 'commit'; end $$",
    "do $$ begin execute 'com' || 'mit'; end $$",
    "do $$ begin perform inserting(); rollback; end $$",
    "call committing()",
    "call rolling()",
    "begin; call committing(); commit",
    "prepare x as insert into t values (1); execute x; commit",
    "prepare transaction 'gone'",
    "begin; insert into t values (1); prepare transaction 'gone'",
    "commit prepared 'gone'",
    "rollback prepared 'gone'",
    "vacuum",
    "create database leaked",
    "alter system set work_mem = '1MB'",
    "create index concurrently i on t (a)",
    "create extension dblink",
    "copy t to program 'cat > /dev/null'",
    "set session_replication_role = replica; commit",
    "set constraints all immediate; commit",
    "begin; set constraints all immediate; commit",
    "do $$ begin set constraints all immediate; end $$",
    "discard all",
    "reset all; commit",
    "set session authorization postgres; commit",
    "release sandboxer_unit",
    "begin; release sandboxer_unit; commit",
    "begin; rollback to sandboxer_unit; commit",
    "begin; release U&\"sandboxer\\005Funit\"; commit",
    "begin; release U&\"sandboxer!005Funit\" uescape '!'; commit",
    "create function f() returns int begin atomic select 1 begin; select 2 case; end; end; commit",
    "create function g() returns int begin atomic select 1; end; commit",
    "create rule r as on insert to t do also (select 1; select 2); commit",
    "create schema s create table u (a int); commit",
    "\u{feff}commit",
    "commit\u{a0}",
    "ＣＯＭＭＩＴ",
    "explain analyze insert into t values (1); commit",
    "with x as (insert into t values (1) returning a) select * from x; commit",
    "lock table t; commit",
    "declare c cursor with hold for select inserting(); commit",
    "select pg_terminate_backend(pg_backend_pid())",
    "select pg_export_snapshot(); commit",
    "load 'plpgsql'; commit",
    "set transaction isolation level serializable; commit",
    "begin isolation level serializable; insert into t values (1); commit",
    "set local search_path = ''; commit",
    "truncate t; commit",
    "set U&\"standard!005Fconforming_strings\" uescape '!' = off; begin; select '\\'; commit; --'",
    "begin; select set_config('standard_conforming' || '_strings', 'off', false); select '\\''; commit; --'",
    "do $x$ declare s text; begin select nspname into s from pg_namespace where nspname like 'sandboxer%';
        execute format('alter table %I.sandboxer_armed drop constraint sandboxer_guard', s); end $x$; commit",
    "do $x$ declare s text; begin select nspname into s from pg_namespace where nspname like 'sandboxer%';
        execute format('drop schema %I cascade', s); end $x$; commit",
];

/// Some tricks leave a transaction open, which others would wait for.
fn impatient() -> Options {
    Options { turn_timeout: Duration::from_millis(20), ..Options::default() }
}

/// How many rows are seen outside: none where the table is locked, since whoever has locked it has not committed.
fn seen(fixture: &Fixture) -> String {
    let count = "set lock_timeout = 20; select count(*) from t where a in (0, 2, 3)";
    fixture.outside_maybe(count).unwrap_or_else(|error| {
        assert!(error.contains("lock timeout"), "{error}");
        "0".to_owned()
    })
}

/// Nothing is to be seen outside, and the sandbox goes on or says that it is lost.
fn sealed(fixture: &Fixture, trick: &str) {
    assert_eq!(seen(fixture), "0", "{trick}");
    assert_eq!(
        fixture.outside("select count(*) from pg_prepared_xacts where database = current_database()"),
        "0",
        "{trick}"
    );
    let lost = fixture.held.lock().unwrap().lost().map(str::to_owned);
    if lost.is_none() {
        let status = fixture.held.lock().unwrap().connection().status();
        assert_ne!(status, b'I', "{trick}");
    }
}

fn go_on(fixture: &Fixture, trick: &str) {
    let again = |held: &mut super::super::super::held::Held| held.begin_again();
    fixture.proxy.with_session(Duration::from_secs(60), again).unwrap();
    assert_eq!(fixture.inside("select count(*) from t").unwrap(), "0", "{trick}");
}

#[test]
fn no_simple_query_leaks() {
    let Some(fixture) = Fixture::with(SCHEMA, Defences::default(), impatient()) else { return };
    for trick in TRICKS {
        let mut client = fixture.connect();
        client.simple_query("insert into t values (0)").unwrap();
        let _ = client.simple_query(trick);
        sealed(&fixture, trick);
        let _ = client.simple_query("insert into t values (2)");
        let _ = fixture.connect_maybe().map(|mut client| client.simple_query("insert into t values (3)"));
        sealed(&fixture, trick);
        drop(client);
        go_on(&fixture, trick);
    }
}

#[test]
fn no_prepared_statement_leaks() {
    let Some(fixture) = Fixture::with(SCHEMA, Defences::default(), impatient()) else { return };
    for trick in TRICKS {
        let mut client = fixture.connect();
        client.execute("insert into t values (0)", &[]).unwrap();
        if let Ok(statement) = client.prepare(trick) {
            let _ = client.execute(&statement, &[]);
            let _ = client.query(&statement, &[]);
        }
        let _ = client.query_typed(trick, &[]);
        let _ = client.execute("insert into t values (2)", &[]);
        sealed(&fixture, trick);
        drop(client);
        go_on(&fixture, trick);
    }
}

/// Takes the guard away by dynamic SQL, as far as that goes.
const EVIL: &str = "create or replace function evil() returns int language plpgsql as $x$
    declare s text; begin
        select nspname into s from pg_namespace where nspname like 'sandboxer_guard_%';
        execute format($y$ delete from %I.sandboxer_armed where ctid = '(0,1)' $y$, s);
        execute format('set constraints %I.sandboxer_guard immediate', s);
        execute format('set constraints %I.sandboxer_guard deferred', s);
        return 1; end $x$";

#[test]
fn a_function_that_disarms_the_guard_is_undone() {
    let schema = format!("{SCHEMA}; {}", EVIL.replace("evil", "evil_before"));
    let Some(fixture) = Fixture::with(&schema, Defences::default(), impatient()) else { return };
    let mut client = fixture.connect();
    client.simple_query("insert into t values (0)").unwrap();
    for error in [
        client.simple_query("select evil_before()").unwrap_err(),
        client.execute("select evil_before()", &[]).unwrap_err(),
        client.simple_query("begin; select 1; select evil_before(); commit").unwrap_err(),
    ] {
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{error}");
    }
    client.simple_query(EVIL).unwrap();
    let role = format!("ordinary_{}", fixture.database);
    client
        .simple_query(&format!("create view v as select evil() as x; create role {role}; set role {role}"))
        .unwrap();
    client.simple_query("do $$ begin perform 1; end $$; reset role").unwrap();
    for sql in [
        "select evil()",
        "select x from v",
        "begin; select 1; select evil(); insert into t values (1); commit",
    ] {
        let error = client.simple_query(sql).unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{sql}: {error}");
    }
    assert_eq!(client.query_one("select count(*) from t", &[]).unwrap().get::<_, i64>(0), 1);
    client.execute("select evil()", &[]).unwrap_err();
    assert_eq!(fixture.held.lock().unwrap().lost(), None);
    sealed(&fixture, "evil");
}

/// How strings are read decides where statements end: it cannot be changed.
#[test]
fn strings_are_always_read_in_one_manner() {
    let Some(fixture) = Fixture::with(SCHEMA, Defences::default(), impatient()) else { return };
    let mut client = fixture.connect();
    client.simple_query("insert into t values (0)").unwrap();
    for sql in [
        "set standard_conforming_strings = off",
        "set local standard_conforming_strings to 'off'",
        "set \"standard_conforming_strings\" = 0",
        "set U&\"standard!005Fconforming_strings\" uescape '!' = off",
        "select set_config('standard_conforming' || '_strings', 'off', false)",
        "begin; select set_config('standard_conforming' || '_strings', 'off', true); select '\\''; commit; --'",
        "alter role postgres set standard_conforming_strings = off",
        "create temp table w (a int); create function off() returns trigger language plpgsql as $$ begin
         perform set_config('standard_conforming' || '_strings', 'off', false); return null; end $$;
         create constraint trigger off after insert on w deferrable initially deferred for each row execute function off();
         insert into w values (1)",
    ] {
        let error = client.simple_query(sql).unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("0A000"), "{sql}: {error}");
        let _ = client.simple_query("rollback");
        let shown = client.query_one("show standard_conforming_strings", &[]).unwrap();
        assert_eq!(shown.get::<_, &str>(0), "on", "{sql}");
    }
    client.simple_query("set standard_conforming_strings = on; reset standard_conforming_strings").unwrap();
    let url = format!("{}?options=-c%20standard_conforming_strings%3Doff", fixture.proxy.url());
    assert!(postgres::Client::connect(&url, postgres::NoTls).is_err());
    sealed(&fixture, "strings");
}

#[test]
fn what_is_refused_says_why_and_what_is_allowed_goes_on() {
    let Some(fixture) = Fixture::with(SCHEMA, Defences::default(), impatient()) else { return };
    for (sql, code) in [
        ("vacuum", "25001"),
        ("create database x", "25001"),
        ("create index concurrently i on t (a)", "25001"),
        ("prepare transaction 'x'", "0A000"),
        ("commit prepared 'x'", "0A000"),
        ("create extension dblink", "0A000"),
        ("call committing()", "2D000"),
        ("set session authorization postgres", "0A000"),
        ("savepoint a", "25P01"),
        ("rollback to a", "25P01"),
        ("commit and chain", "25P01"),
        ("copy t to program 'true'", "0A000"),
    ] {
        let error = fixture.ask(sql).unwrap_err();
        assert!(error.contains(code), "{sql}: {error}");
        assert_eq!(fixture.ask("select 1").unwrap(), "1", "{sql}");
    }
}

/// With the lexer alone, every statement that ends a transaction is found before the server sees it.
#[test]
fn the_lexer_alone_keeps_every_commit_from_the_server() {
    let defences = Defences { lexer: true, status: false, guard: false };
    let Some(fixture) = Fixture::with(SCHEMA, defences, impatient()) else { return };
    for trick in TRICKS {
        let Some(mut client) = fixture.connect_maybe() else { continue };
        let _ = client.simple_query("insert into t values (0)");
        let _ = client.simple_query(trick);
        let _ = client.execute(*trick, &[]);
        let _ = client.simple_query("insert into t values (2)");
        sealed(&fixture, trick);
        drop(client);
        go_on(&fixture, trick);
    }
}

/// With the guard alone, the server itself makes a rollback of every commit.
#[test]
fn the_guard_alone_makes_rollbacks_of_commits() {
    let defences = Defences { lexer: false, status: false, guard: true };
    let Some(fixture) = Fixture::with(SCHEMA, defences, impatient()) else { return };
    for trick in TRICKS.iter().filter(|trick| trick.contains("commit")) {
        let mut client = fixture.connect();
        client.simple_query("insert into t values (0)").unwrap();
        let _ = client.simple_query(trick);
        assert_eq!(seen(&fixture), "0", "{trick}");
        drop(client);
        fixture.outside("delete from t");
        let again = |held: &mut super::super::super::held::Held| held.begin_again();
        fixture.proxy.with_session(Duration::from_secs(60), again).unwrap();
    }
}

/// With the status alone, a commit is seen when it has happened: nothing that comes after it leaks.
#[test]
fn the_status_alone_cuts_the_session_off() {
    let defences = Defences { lexer: false, status: true, guard: false };
    let Some(fixture) = Fixture::with(SCHEMA, defences, impatient()) else { return };
    let mut client = fixture.connect();
    let error = client.simple_query("commit").unwrap_err();
    // The end of the connection may be noticed before its reason.
    assert!(error.code().is_none_or(|code| code.code() == "57P01"), "{error}");
    assert!(client.simple_query("insert into t values (1)").is_err());
    assert!(fixture.connect_maybe().is_none());
    assert!(fixture.held.lock().unwrap().lost().unwrap().contains("ended by somebody"));
    assert_eq!(fixture.outside("select count(*) from t"), "0");
    go_on(&fixture, "after the loss");
    let rows = fixture.connect().simple_query("select 1").unwrap();
    assert!(rows.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))));
}
