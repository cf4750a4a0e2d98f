use sandboxer_testkit::servers::Postgres;

use super::super::target::Target;
use super::*;

fn session(server: &Postgres, database: &str, user: &str) -> Connection {
    let url = server.socket_url(database).replace("postgres@", &format!("{user}@"));
    let mut connection = Connection::connect(&Target::parse(&url, user).unwrap(), None).unwrap();
    connection.query("begin").unwrap();
    connection
}

fn database(server: &Postgres) -> String {
    let name = server.database();
    server.sql(&name, "create table t (a int); grant all on t to public");
    name
}

#[test]
fn a_commit_that_nobody_asked_for_is_a_rollback() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    for trick in [
        "commit",
        "/* a /* b */ c */ commit",
        "end and chain",
        "prepare transaction 'x'",
        "set constraints all immediate; commit",
        "select set_config('sandboxer.token', 'guess', false); commit",
        "set session_replication_role = replica; commit",
    ] {
        let mut connection = session(server, &name, "postgres");
        let guard = Guard::arm(&mut connection).unwrap();
        connection.query("insert into t values (1)").unwrap();
        assert!(guard.intact(&mut connection).unwrap());
        assert_eq!(connection.query(trick).unwrap_err().code(), Some("55000"), "{trick}");
        assert_eq!(server.sql(&name, "select count(*) from t"), "0", "{trick}");
    }
}

#[test]
fn it_cannot_be_taken_away_while_it_is_armed() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    for trick in [
        "drop schema SCHEMA cascade",
        "alter table SCHEMA.sandboxer_armed disable trigger all",
        "truncate SCHEMA.sandboxer_armed",
        "drop table SCHEMA.sandboxer_armed",
        "delete from SCHEMA.sandboxer_armed",
        "update SCHEMA.sandboxer_armed set fires = 0",
    ] {
        let mut connection = session(server, &name, "postgres");
        let guard = Guard::arm(&mut connection).unwrap();
        connection.query("insert into t values (1); savepoint s").unwrap();
        if connection.query(&trick.replace("SCHEMA", guard.schema().unwrap())).is_err() {
            connection.query("rollback to savepoint s").unwrap();
        }
        let committed = connection.query("commit");
        assert_eq!(committed.as_ref().map_err(Failure::code), Err(Some("55000")), "{trick}");
        assert_eq!(server.sql(&name, "select count(*) from t"), "0", "{trick}");
    }
}

#[test]
fn a_trigger_that_was_dropped_or_replaced_is_noticed() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    for trick in [
        "create or replace function SCHEMA.sandboxer_fire() returns trigger language plpgsql
         as $$ begin return null; end $$",
        "drop trigger sandboxer_guard on SCHEMA.sandboxer_armed",
        "drop function SCHEMA.sandboxer_fire() cascade",
    ] {
        let mut connection = session(server, &name, "postgres");
        let guard = Guard::arm(&mut connection).unwrap();
        connection.query(&trick.replace("SCHEMA", guard.schema().unwrap())).unwrap();
        assert!(!guard.intact(&mut connection).unwrap(), "{trick}");
    }
}

#[test]
fn the_commit_that_was_asked_for_leaves_nothing_of_it() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    for (statement, after) in
        [("commit", "select 1"), ("prepare transaction 'asked'", "commit prepared 'asked'")]
    {
        let mut connection = session(server, &name, "postgres");
        let guard = Guard::arm(&mut connection).unwrap();
        connection.query("truncate t; insert into t values (1)").unwrap();
        guard.disarm(&mut connection).unwrap();
        connection.query(statement).unwrap();
        connection.query(after).unwrap();
        assert_eq!(server.sql(&name, "select count(*) from t"), "1");
        let left = format!("select count(*) from pg_namespace where nspname like '{PREFIX}%'");
        assert_eq!(server.sql(&name, &left), "0");
    }
}

#[test]
fn a_role_that_may_not_make_schemas_has_a_temporary_one() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    let role = format!("plain_{name}");
    server.sql(&name, &format!("create role {role} login"));
    let mut connection = session(server, &name, &role);
    let guard = Guard::arm(&mut connection).unwrap();
    assert_eq!(guard.schema(), None);
    assert!(guard.intact(&mut connection).unwrap());
    connection.query("insert into t values (1)").unwrap();
    assert_eq!(connection.query("commit").unwrap_err().code(), Some("55000"));
    let mut connection = session(server, &name, &role);
    let guard = Guard::arm(&mut connection).unwrap();
    connection.query("insert into t values (1)").unwrap();
    guard.disarm(&mut connection).unwrap();
    connection.query("commit").unwrap();
    assert_eq!(server.sql(&name, "select count(*) from t"), "1");
}
