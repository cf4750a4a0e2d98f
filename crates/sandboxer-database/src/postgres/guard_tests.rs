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
        "set session_replication_role = replica; commit",
    ] {
        let mut connection = session(server, &name, "postgres");
        let guard = Guard::arm(&mut connection).unwrap();
        connection.query("insert into t values (1)").unwrap();
        assert!(guard.intact(&mut connection).unwrap());
        assert_eq!(connection.query(trick).unwrap_err().code(), Some("23505"), "{trick}");
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
        "update SCHEMA.sandboxer_armed set says = says",
        "alter table SCHEMA.sandboxer_armed drop constraint sandboxer_guard",
        "drop index SCHEMA.sandboxer_guard",
    ] {
        let mut connection = session(server, &name, "postgres");
        let guard = Guard::arm(&mut connection).unwrap();
        connection.query("insert into t values (1); savepoint s").unwrap();
        if connection.query(&trick.replace("SCHEMA", guard.schema().unwrap())).is_err() {
            connection.query("rollback to savepoint s").unwrap();
        }
        let committed = connection.query("commit");
        assert_eq!(committed.as_ref().map_err(Failure::code), Err(Some("23505")), "{trick}");
        assert_eq!(server.sql(&name, "select count(*) from t"), "0", "{trick}");
    }
}

/// What a function of the same role could do: nothing that stays unseen, or else the commit fails.
#[test]
fn a_function_that_takes_it_away_and_puts_it_back_is_noticed() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    let fire = "set constraints SCHEMA.sandboxer_guard immediate; set constraints all deferred";
    let made = "create table SCHEMA.sandboxer_armed (says text, constraint sandboxer_guard unique (says) deferrable initially deferred)";
    let consumed = format!("delete from SCHEMA.sandboxer_armed where ctid = '(0,2)'; {fire}");
    for trick in [
        consumed.clone(),
        format!("update SCHEMA.sandboxer_armed set says = 'x' where ctid = '(0,1)'; {fire}"),
        format!("{consumed}; insert into SCHEMA.sandboxer_armed select says from SCHEMA.sandboxer_armed"),
        format!(
            "{consumed}; drop table SCHEMA.sandboxer_armed; {made}; insert into SCHEMA.sandboxer_armed values ('a'), ('a')"
        ),
        format!("{consumed}; truncate SCHEMA.sandboxer_armed"),
        format!("{consumed}; drop schema SCHEMA cascade"),
        format!("{consumed}; drop schema SCHEMA cascade; create schema SCHEMA; {made}"),
        format!(
            "{consumed}; alter table SCHEMA.sandboxer_armed disable trigger all;
                 insert into SCHEMA.sandboxer_armed select says from SCHEMA.sandboxer_armed;
                 alter table SCHEMA.sandboxer_armed enable trigger all"
        ),
        format!(
            "{consumed}; set session_replication_role = replica;
                 insert into SCHEMA.sandboxer_armed select says from SCHEMA.sandboxer_armed;
                 set session_replication_role = origin"
        ),
        "set session_replication_role = replica".to_owned(),
    ] {
        let mut connection = session(server, &name, "postgres");
        let guard = Guard::arm(&mut connection).unwrap();
        let trick = trick.replace("SCHEMA", guard.schema().unwrap());
        connection.query("savepoint unit").unwrap();
        connection
            .query(&format!(
                "create function pg_temp.evil() returns void language plpgsql as $x$ begin execute $y${trick}$y$; end $x$;
                 set search_path = pg_temp, pg_catalog; select pg_temp.evil()"
            ))
            .unwrap();
        assert!(!guard.intact(&mut connection).unwrap(), "{trick}");
        connection.query("rollback to unit; insert into public.t values (1)").unwrap();
        assert!(guard.intact(&mut connection).unwrap(), "{trick}");
        assert_eq!(connection.query("commit").unwrap_err().code(), Some("23505"), "{trick}");
        assert_eq!(server.sql(&name, "select count(*) from t"), "0", "{trick}");
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
    assert_eq!(connection.query("commit").unwrap_err().code(), Some("23505"));
    let mut connection = session(server, &name, &role);
    let guard = Guard::arm(&mut connection).unwrap();
    connection.query("insert into t values (1)").unwrap();
    guard.disarm(&mut connection).unwrap();
    connection.query("commit").unwrap();
    assert_eq!(server.sql(&name, "select count(*) from t"), "1");
}
