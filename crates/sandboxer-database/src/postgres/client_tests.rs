use std::thread;

use sandboxer_testkit::servers::Postgres;

use super::*;

fn connect(server: &Postgres, url: &str, password: Option<&str>) -> Result<Connection> {
    Connection::connect(&Target::parse(url, server.user()).unwrap(), password)
}

fn by_socket(server: &Postgres) -> Connection {
    connect(server, &server.socket_url("postgres"), None).unwrap()
}

#[test]
fn it_logs_in_by_each_method() {
    let Some(server) = Postgres::shared() else { return };
    for (method, encryption) in [("scram-sha-256", "scram-sha-256"), ("md5", "md5"), ("password", "md5")] {
        let role = format!("by_{}", method.replace('-', "_"));
        let create = format!("create role {role} login password 'pässwort'");
        server.sql("postgres", &format!("set password_encryption = '{encryption}'; {create}"));
        let hba = server.socket_dir().join("data/pg_hba.conf");
        let rules = std::fs::read_to_string(&hba).unwrap();
        std::fs::write(&hba, format!("host all {role} all {method}\n{rules}")).unwrap();
        server.sql("postgres", "select pg_reload_conf()");
        let url = format!("postgres://{role}@127.0.0.1:{}/postgres", server.port());
        // The reload is on its way: the old rules ask for SCRAM, which the role's password may not be fit for.
        let mut connection = loop {
            match connect(server, &url, Some("pässwort")) {
                Ok(connection) => break connection,
                Err(error) => assert!(error.to_string().contains("28P01"), "{method}: {error}"),
            }
        };
        assert_eq!(connection.query("select current_user").unwrap().single(), Some(role.as_str()));
        let error = connect(server, &url, Some("wrong")).unwrap_err().to_string();
        assert!(error.contains("28P01"), "{method}: {error}");
        let error = connect(server, &url, None).unwrap_err().to_string();
        assert!(error.contains("wants a password"), "{method}: {error}");
    }
}

#[test]
fn what_is_asked_is_answered() {
    let Some(server) = Postgres::shared() else { return };
    let mut connection = by_socket(server);
    let rows = connection.query("select 1 as a, null::text as \"b c\"; select 'ä' as x, 2 as y").unwrap();
    assert_eq!(rows.rows, [[Some("ä".to_owned()), Some("2".to_owned())]]);
    assert_eq!(rows.columns[1], Column { name: "y".into(), type_oid: 23 });
    assert_eq!(rows.tags, ["SELECT 1", "SELECT 1"]);
    assert_eq!(connection.query("select null").unwrap().single(), None);
    assert_eq!(connection.query("").unwrap().tag, "");
    let noted = connection.query("do $$ begin raise notice 'hear, hear'; end $$").unwrap();
    assert_eq!(noted.notices[0].message, "hear, hear");
    assert_eq!(connection.query("select g from generate_series(1, 100000) g").unwrap().rows.len(), 100_000);
    let long = connection.query("select repeat('x', 3000000)").unwrap();
    assert_eq!(long.single().map(str::len), Some(3_000_000));
    assert!(connection.parameters().contains_key("server_version"));
}

#[test]
fn an_error_has_its_code_and_the_session_goes_on() {
    let Some(server) = Postgres::shared() else { return };
    let mut connection = by_socket(server);
    assert_eq!(connection.status(), b'I');
    connection.query("begin").unwrap();
    assert_eq!(connection.status(), b'T');
    let failure = connection.query("select nothing").unwrap_err();
    assert_eq!(failure.code(), Some("42703"));
    assert_eq!(failure.server().unwrap().position, Some(8));
    assert_eq!(connection.status(), b'E');
    let error = Error::from(failure).to_string();
    assert!(error.contains("\"nothing\" does not exist (42703)"), "{error}");
    connection.query("rollback").unwrap();
    connection.query("create temp table t (a int)").unwrap();
    assert_eq!(connection.query("copy t from stdin").unwrap_err().code(), Some("57014"));
    assert_eq!(connection.query("select 1").unwrap().single(), Some("1"));
}

#[test]
fn a_query_can_be_cancelled_from_elsewhere() {
    let Some(server) = Postgres::shared() else { return };
    let mut connection = by_socket(server);
    let canceller = connection.canceller();
    let waiting = thread::spawn(move || connection.query("select pg_sleep(600)"));
    // The request is in vain as long as the query has not begun.
    while !waiting.is_finished() {
        canceller.cancel().unwrap();
    }
    assert_eq!(waiting.join().unwrap().unwrap_err().code(), Some("57014"));
}

#[test]
fn a_server_that_went_away_is_a_lost_connection() {
    let Some(server) = Postgres::start() else { return };
    let mut connection = by_socket(&server);
    server.restart();
    let failure = loop {
        match connection.query("select 1") {
            Err(failure @ Failure::Lost { .. }) => break failure,
            Err(failure) => assert_eq!(failure.code(), Some("57P02")),
            Ok(_) => panic!("the server is another one"),
        }
    };
    assert!(Error::from(failure).to_string().contains("the connection is lost"));
    let url = server.socket_url("postgres");
    drop(server);
    let target = Target::parse(&url, "x").unwrap();
    let error = Connection::connect(&target, None).unwrap_err().to_string();
    assert!(error.contains("cannot be reached"), "{error}");
}
