//! What makes a savepoint look like a transaction.

use super::super::super::wire;
use super::fixture::Fixture;

const DEFERRED: &str = "
    create table parent (a int primary key);
    create table child (a int references parent deferrable initially deferred);
    create table now (a int unique deferrable initially immediate)";

fn code(error: postgres::Error) -> String {
    error.code().map(|code| code.code().to_owned()).unwrap_or_else(|| error.to_string())
}

#[test]
fn deferred_constraints_are_looked_at_when_a_transaction_ends() {
    let Some(fixture) = Fixture::new(DEFERRED) else { return };
    let mut client = fixture.connect();
    assert_eq!(code(client.batch_execute("insert into child values (1)").unwrap_err()), "23503");
    assert_eq!(code(client.execute("insert into child values (1)", &[]).unwrap_err()), "23503");
    client
        .batch_execute("begin; insert into child values (1); insert into parent values (1); commit")
        .unwrap();
    for _ in 0..2 {
        let mut transaction = client.transaction().unwrap();
        transaction.execute("insert into child values (2)", &[]).unwrap();
        assert_eq!(code(transaction.commit().unwrap_err()), "23503");
    }
    let early = "begin; set constraints all immediate; insert into child values (3)";
    assert_eq!(code(client.batch_execute(early).unwrap_err()), "23503");
    client.batch_execute("rollback").unwrap();
    client.batch_execute("begin; set constraints all deferred; insert into now values (1), (1)").unwrap();
    assert_eq!(code(client.batch_execute("set constraints all immediate").unwrap_err()), "23505");
    client.batch_execute("rollback").unwrap();
    assert_eq!(fixture.inside("select count(*) from child").unwrap(), "1");
    client
        .batch_execute("create table late (a int references parent deferrable initially deferred)")
        .unwrap();
    assert_eq!(code(client.batch_execute("insert into late values (9)").unwrap_err()), "23503");
}

#[test]
fn settings_are_each_clients_own() {
    let Some(fixture) = Fixture::new("create schema s; create table s.only_there (a int)") else { return };
    let (mut one, mut two) = (fixture.connect(), fixture.connect());
    let show = |client: &mut postgres::Client, name: &str| -> String {
        client
            .query_one(&format!("select coalesce(current_setting('{name}', true), '')"), &[])
            .unwrap()
            .get(0)
    };
    one.batch_execute("set search_path = s; set app.who = 'one'").unwrap();
    two.query("select set_config('search_path', '', false)", &[]).unwrap();
    two.batch_execute("set timezone = 'Asia/Tokyo'").unwrap();
    for _ in 0..2 {
        assert_eq!(show(&mut one, "search_path"), "s");
        assert_eq!(show(&mut two, "search_path"), "");
        assert_eq!(show(&mut one, "app.who"), "one");
        assert_eq!(show(&mut two, "app.who"), "");
        assert_eq!(show(&mut two, "timezone"), "Asia/Tokyo");
        assert_ne!(show(&mut one, "timezone"), "Asia/Tokyo");
    }
    one.query("select * from only_there", &[]).unwrap();
    one.batch_execute("begin; set local search_path = public; set local app.who = 'local'").unwrap();
    assert_eq!(show(&mut one, "search_path"), "public");
    one.batch_execute("commit").unwrap();
    assert_eq!(show(&mut one, "search_path"), "s");
    assert_eq!(show(&mut one, "app.who"), "one");
    one.batch_execute("begin; set search_path = public; rollback").unwrap();
    assert_eq!(show(&mut two, "search_path"), "");
    assert_eq!(show(&mut one, "search_path"), "s");
    one.batch_execute("discard all").unwrap();
    assert_ne!(show(&mut one, "search_path"), "s");
    assert_eq!(show(&mut two, "search_path"), "");
    assert_ne!(fixture.inside("show search_path").unwrap(), "");
}

#[test]
fn a_client_comes_with_settings_and_keeps_its_role() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    let role = format!("reader_{}", fixture.database);
    fixture.outside(&format!("create role {role}"));
    let url =
        format!("{}?application_name=the%20app&options=-c%20statement_timeout%3D4321", fixture.proxy.url());
    let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    let show =
        |client: &mut postgres::Client, sql: &str| -> String { client.query_one(sql, &[]).unwrap().get(0) };
    assert_eq!(show(&mut client, "select current_setting('application_name')"), "the app");
    assert_eq!(show(&mut client, "select current_setting('statement_timeout')"), "4321ms");
    client.batch_execute(&format!("set role {role}")).unwrap();
    assert_eq!(fixture.ask("select current_user").unwrap(), "postgres");
    assert_eq!(show(&mut client, "select current_user::text"), role);
    assert_eq!(code(client.batch_execute("insert into t values (1)").unwrap_err()), "42501");
    assert_eq!(fixture.inside("select current_user").unwrap(), "postgres");
    assert_eq!(show(&mut client, "select current_setting('statement_timeout')"), "4321ms");
}

#[test]
fn prepared_statements_and_cursors_are_each_clients_own() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    let (mut one, mut two) = (fixture.connect(), fixture.connect());
    one.batch_execute("prepare p as select 1 as x").unwrap();
    two.batch_execute("prepare p as select 2 as x").unwrap();
    let run = |client: &mut postgres::Client| match &client.simple_query("execute p").unwrap()[1] {
        postgres::SimpleQueryMessage::Row(row) => row.get(0).unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!((run(&mut one), run(&mut two)), ("1".to_owned(), "2".to_owned()));
    two.batch_execute("deallocate all").unwrap();
    assert_eq!(run(&mut one), "1");
    assert_eq!(code(two.batch_execute("execute p").unwrap_err()), "26000");
    one.batch_execute("deallocate p; prepare p as select 3; deallocate prepare p").unwrap();
    for client in [&mut one, &mut two] {
        for _ in 0..2 {
            client.batch_execute("begin; declare c cursor for select 1; fetch c; commit").unwrap();
        }
    }
    // Statements outlive the session that knew them.
    let known = one.prepare("select $1::int + 1").unwrap();
    let lose = |held: &mut super::super::super::held::Held| {
        held.query("select 1/0").unwrap_err();
        held.begin_again()
    };
    fixture.proxy.with_session(std::time::Duration::from_secs(60), lose).unwrap();
    assert_eq!(one.query_one(&known, &[&1]).unwrap().get::<_, i32>(0), 2);
}

#[test]
fn constraints_that_others_drop_or_rename_do_no_harm() {
    let Some(fixture) = Fixture::new(DEFERRED) else { return };
    let mut client = fixture.connect();
    client.batch_execute("create table mine (a int); insert into mine values (1)").unwrap();
    for sql in [
        "alter table child rename constraint child_a_fkey to other",
        "alter table child drop constraint other",
        "drop table now",
        "drop table child",
    ] {
        fixture.outside(sql);
        client.batch_execute("insert into mine values (1)").unwrap();
    }
    assert_eq!(fixture.inside("select count(*) from mine").unwrap(), "5");
    assert_eq!(fixture.held.lock().unwrap().lost(), None);
}

#[test]
fn no_client_leaves_a_timeout_behind_that_ends_the_transaction() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    let url = format!("{}?options=-c%20idle_in_transaction_session_timeout%3D1", fixture.proxy.url());
    let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    for sql in [
        "select 1",
        "set idle_in_transaction_session_timeout = 1",
        "set session transaction_timeout = 1",
        "begin; set local idle_in_transaction_session_timeout = 1; commit",
        "select set_config('idle_in_transaction' || '_session_timeout', '1s', false)",
    ] {
        client.batch_execute(sql).unwrap();
        client.execute("insert into t values (1)", &[]).unwrap();
        let shown = client.query_one("show idle_in_transaction_session_timeout", &[]).unwrap();
        assert_eq!(shown.get::<_, &str>(0), "0", "{sql}");
    }
    assert_eq!(fixture.inside("select count(*) from t").unwrap(), "5");
}

#[test]
fn advisory_locks_end_with_their_client() {
    let Some(fixture) = Fixture::new("select 1") else { return };
    let free = "select pg_try_advisory_lock(42) and pg_advisory_unlock(42)";
    let mut client = fixture.connect();
    client.batch_execute("select pg_advisory_lock(42)").unwrap();
    assert_eq!(fixture.outside(free), "f");
    client.batch_execute("discard all").unwrap();
    assert_eq!(fixture.outside(free), "t");
    client.execute("select pg_advisory_lock(42)", &[]).unwrap();
    assert_eq!(fixture.outside(free), "f");
    client.close().unwrap();
    // Its thread ends on its own; a lock of the session is waited for.
    fixture.outside("select pg_advisory_lock(42)");
}

#[test]
fn what_a_client_came_with_outlives_a_reset() {
    let Some(fixture) = Fixture::new("select 1") else { return };
    let url = format!("{}?options=-c%20work_mem%3D7MB&application_name=shop", fixture.proxy.url());
    let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    for reset in ["reset all", "discard all", "begin; reset all; commit"] {
        client.batch_execute("set work_mem = '8MB'; set application_name = 'other'").unwrap();
        client.batch_execute(reset).unwrap();
        for (name, value) in [("work_mem", "7MB"), ("application_name", "shop")] {
            let shown = client.query_one(&format!("show {name}"), &[]).unwrap();
            assert_eq!(shown.get::<_, &str>(0), value, "{reset}");
        }
    }
}

/// A long message of data and the end of it, at once.
#[test]
fn a_copy_whose_end_has_arrived_is_not_waited_for() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    let mut client = super::doors::plain_client(&fixture);
    let mut messages = Vec::new();
    wire::put_query(&mut messages, "copy t from stdin");
    for _ in 0..2 {
        wire::put(&mut messages, b'd', |body| body.extend_from_slice(&b"1\n".repeat(100_000)));
    }
    wire::put(&mut messages, b'c', |_| {});
    client.send(&messages).unwrap();
    // The data is refused by the helper that reads answers, so they are read here.
    while client.frame().unwrap().tag != b'Z' {}
    assert_eq!(client.query("select count(*) from t").unwrap().single(), Some("200000"));
}
