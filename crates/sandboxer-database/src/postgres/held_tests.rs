use sandboxer_testkit::servers::Postgres;

use super::*;

fn held(server: &Postgres, database: &str, defences: Defences) -> Held {
    let target = Target::parse(&server.socket_url(database), "postgres").unwrap();
    Held::begin(Settings { defences, ..Settings::new(target, None) }).unwrap()
}

fn database(server: &Postgres) -> String {
    let name = server.database();
    server.sql(&name, "create table t (a int)");
    name
}

fn outside(server: &Postgres, database: &str) -> String {
    server.sql(database, "select count(*) from t")
}

#[test]
fn nothing_is_seen_outside_before_the_commit() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    let mut held = held(server, &name, Defences::default());
    held.query("insert into t values (1)").unwrap();
    assert_eq!(outside(server, &name), "0");
    held.commit().unwrap();
    assert_eq!(outside(server, &name), "1");
    held.begin_again().unwrap();
    held.query("insert into t values (2)").unwrap();
    held.begin_again().unwrap();
    assert_eq!(held.query("select count(*) from t").unwrap().single(), Some("1"));
    held.query("insert into t values (3)").unwrap();
    held.prepare("it's prepared").unwrap();
    held.begin_again().unwrap();
    assert_eq!(outside(server, &name), "1");
    server.sql(&name, "commit prepared 'it''s prepared'");
    assert_eq!(outside(server, &name), "2");
}

#[test]
fn a_unit_is_kept_or_undone_and_survives_errors() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    let mut held = held(server, &name, Defences::default());
    held.unit(true, |held| held.query("insert into t values (1)")).unwrap();
    held.unit(false, |held| held.query("insert into t values (2)")).unwrap();
    held.unit(true, |held| held.query("insert into t values (3); select 1/0")).unwrap_err();
    assert_eq!(held.query("select count(*) from t").unwrap().single(), Some("1"));
    held.verify().unwrap();
    assert_eq!(held.lost(), None);
    held.query("select 1/0").unwrap_err();
    assert!(held.lost().unwrap().contains("outside of any savepoint"));
}

/// This defence sees the end of a transaction when it has happened: what comes after it does not leak.
#[test]
fn the_status_alone_cuts_off_a_session_whose_transaction_was_ended() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    let mut held = held(server, &name, Defences { lexer: false, status: true, guard: false });
    let error = held.query("commit").unwrap_err().to_string();
    assert!(error.contains("ended by somebody"), "{error}");
    assert!(held.query("insert into t values (1)").is_err());
    assert!(held.lost().is_some());
    assert_eq!(outside(server, &name), "0");
    held.begin_again().unwrap();
    assert_eq!(held.generation(), 1);
    held.query("insert into t values (1)").unwrap();
    assert_eq!(outside(server, &name), "0");
}

/// With every other defence down, what was committed is at least told.
#[test]
fn whether_it_was_committed_is_told_as_it_is() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    for (end, told) in [("commit", "WAS committed"), ("rollback", "nothing of it was committed")] {
        let mut held = held(server, &name, Defences { lexer: false, status: true, guard: false });
        held.query("delete from t; insert into t values (1)").unwrap();
        let error = held.query(end).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        assert_eq!(error.contains("nothing"), end == "rollback", "{error}");
        assert_eq!(outside(server, &name), "1");
        held.begin_again().unwrap();
        assert!(!held.leaked());
    }
}

#[test]
fn the_guard_alone_makes_a_rollback_of_a_commit() {
    let Some(server) = Postgres::shared() else { return };
    let name = database(server);
    let mut held = held(server, &name, Defences { lexer: false, status: false, guard: true });
    held.query("insert into t values (1)").unwrap();
    let error = held.query("commit").unwrap_err().to_string();
    assert!(error.contains("23505"), "{error}");
    assert_eq!(outside(server, &name), "0");
}

#[test]
fn a_server_that_was_restarted_has_lost_it() {
    let Some(server) = Postgres::start() else { return };
    let name = database(&server);
    let mut held = held(&server, &name, Defences::default());
    held.query("insert into t values (1)").unwrap();
    server.restart();
    held.query("select 1").unwrap_err();
    while held.lost().is_none() {
        held.query("select 1").unwrap_err();
    }
    held.begin_again().unwrap();
    assert_eq!(held.query("select count(*) from t").unwrap().single(), Some("0"));
}
