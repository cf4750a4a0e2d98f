//! Several clients: whose turn it is, who has gone, who cancels.

use std::thread;
use std::time::Duration;

use super::super::super::held::Defences;
use super::super::Options;
use super::fixture::Fixture;

fn impatient() -> Options {
    Options { turn_timeout: Duration::from_millis(200), ..Options::default() }
}

fn code(error: postgres::Error) -> String {
    error.code().map(|code| code.code().to_owned()).unwrap_or_else(|| error.to_string())
}

#[test]
fn whoever_waits_too_long_is_told_for_whom() {
    let Some(fixture) = Fixture::with("create table t (a int)", Defences::default(), impatient()) else {
        return;
    };
    let url = format!("{}?application_name=the%20first", fixture.proxy.url());
    let mut one = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    let mut two = fixture.connect();
    one.batch_execute("begin; insert into t values (1)").unwrap();
    let error = two.batch_execute("select 1").unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("the first"), "{error:?}");
    assert_eq!(code(error), "55P03");
    two.batch_execute("begin").unwrap();
    assert_eq!(code(two.execute("select 1", &[]).unwrap_err()), "55P03");
    assert_eq!(code(two.batch_execute("select 1").unwrap_err()), "25P02");
    let busy = fixture.proxy.with_session(Duration::ZERO, |_| Ok(())).unwrap_err().to_string();
    assert!(busy.contains("the first"), "{busy}");
    one.batch_execute("commit").unwrap();
    two.batch_execute("rollback; insert into t values (2)").unwrap();
    assert_eq!(fixture.inside("select count(*) from t").unwrap(), "2");
}

#[test]
fn a_client_that_was_killed_leaves_nothing_and_blocks_nobody() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    for script in [
        "insert into t values (1); select pg_sleep(600)",
        "begin; insert into t values (1); select pg_sleep(600)",
    ] {
        let mut psql = fixture.program("psql");
        let mut child = psql.args(["-Xqc", script]).spawn().unwrap();
        while fixture.outside(
            "select count(*) from pg_stat_activity where query like '%pg_sleep(600)%' and state = 'active'
            and pid <> pg_backend_pid() and datname = current_database()",
        ) == "0"
        {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(fixture.ask("select count(*) from t").unwrap(), "0");
    }
    let mut idle = fixture.connect();
    idle.batch_execute("begin; insert into t values (1)").unwrap();
    drop(idle);
    assert_eq!(fixture.ask("select count(*) from t").unwrap(), "0");
}

#[test]
fn only_the_query_of_whoever_cancels_is_cancelled() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    let (mut sleeper, bystander) = (fixture.connect(), fixture.connect());
    let (own, other) = (sleeper.cancel_token(), bystander.cancel_token());
    let sleeping = thread::spawn(move || {
        let error = sleeper.batch_execute("select pg_sleep(600)").unwrap_err();
        (code(error), sleeper.batch_execute("select 1").is_ok())
    });
    while fixture.outside(
        "select count(*) from pg_stat_activity where query like '%pg_sleep(600)%' and state = 'active'
        and pid <> pg_backend_pid() and datname = current_database()",
    ) == "0"
    {
        thread::yield_now();
    }
    other.cancel_query(postgres::NoTls).unwrap();
    assert!(!sleeping.is_finished());
    own.cancel_query(postgres::NoTls).unwrap();
    assert_eq!(sleeping.join().unwrap(), ("57014".to_owned(), true));
}

#[test]
fn many_clients_take_turns() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    thread::scope(|scope| {
        for client in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                let mut connection = fixture.connect();
                for _ in 0..20 {
                    let mut transaction = connection.transaction().unwrap();
                    transaction.execute("insert into t values ($1)", &[&client]).unwrap();
                    transaction.commit().unwrap();
                    connection.execute("insert into t values (100)", &[]).unwrap();
                }
            });
        }
    });
    assert_eq!(fixture.inside("select count(*) from t").unwrap(), "320");
    assert_eq!(fixture.outside("select count(*) from t"), "0");
}

#[test]
fn a_stopped_proxy_lets_nobody_in_and_keeps_the_session() {
    let Some(mut fixture) = Fixture::new("create table t (a int)") else { return };
    let mut client = fixture.connect();
    client.batch_execute("insert into t values (1)").unwrap();
    client.batch_execute("begin; insert into t values (2)").unwrap();
    fixture.proxy.stop();
    assert!(client.batch_execute("select 1").is_err());
    assert!(fixture.connect_maybe().is_none());
    let mut held = fixture.held.lock().unwrap();
    assert_eq!(held.query("select count(*) from t").unwrap().single(), Some("1"));
}

#[test]
fn a_wrong_password_or_database_is_refused() {
    let Some(fixture) = Fixture::new("create table t (a int)") else { return };
    let url = fixture.proxy.url();
    let wrong = url.replace(fixture.proxy.password(), "wrong");
    let Err(error) = postgres::Client::connect(&wrong, postgres::NoTls) else { panic!("let in") };
    assert_eq!(code(error), "28P01");
    let Err(error) = postgres::Client::connect(&url.replace(&fixture.database, "other"), postgres::NoTls)
    else {
        panic!("let in")
    };
    assert_eq!(code(error), "3D000");
}
