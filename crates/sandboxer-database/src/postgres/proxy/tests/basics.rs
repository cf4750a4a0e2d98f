use std::io::{Read, Write};
use std::process::Stdio;

use super::fixture::Fixture;

const TABLE: &str = "create table t (a int primary key, b text)";

#[test]
fn psql_works_and_nothing_is_seen_outside() {
    let Some(fixture) = Fixture::new(TABLE) else { return };
    assert_eq!(fixture.ask("select 1").unwrap(), "1");
    fixture.ask("insert into t values (1, 'x'), (2, 'y')").unwrap();
    assert_eq!(fixture.ask("select count(*) from t").unwrap(), "2");
    assert_eq!(fixture.outside("select count(*) from t"), "0");
    fixture.ask("begin; insert into t values (3, 'z'); commit").unwrap();
    fixture.ask("begin; insert into t values (4, 'z'); rollback").unwrap();
    assert_eq!(fixture.ask("select count(*) from t").unwrap(), "3");
    assert_eq!(fixture.outside("select count(*) from t"), "0");
    let error = fixture.ask("insert into t values (5, ''); select 1/0").unwrap_err();
    assert!(error.contains("22012"), "{error}");
    assert_eq!(fixture.inside("select count(*) from t").unwrap(), "3");
    let output = fixture.psql(&["-c", "\\d t"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("a|integer"));
}

#[test]
fn a_script_of_transactions_runs_as_on_a_server() {
    let Some(fixture) = Fixture::new(TABLE) else { return };
    let script = "
        begin; insert into t values (1, 'a'); savepoint s; insert into t values (1, 'again');
        rollback to s; insert into t values (2, 'b'); release s; commit;
        begin; select 1/0; select 2; commit;
        begin; begin; commit; commit;
        start transaction read only; insert into t values (9, 'no'); end;
        insert into t values (3, 'c'); select count(*) from t;";
    let mut psql = fixture.program("psql");
    psql.args(["-XAt"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = psql.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (told, complained) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let tags: Vec<&str> = told.lines().collect();
    assert_eq!(
        tags,
        [
            "BEGIN",
            "INSERT 0 1",
            "SAVEPOINT",
            "ROLLBACK",
            "INSERT 0 1",
            "RELEASE",
            "COMMIT",
            "BEGIN",
            "ROLLBACK",
            "BEGIN",
            "BEGIN",
            "COMMIT",
            "COMMIT",
            "START TRANSACTION",
            "ROLLBACK",
            "INSERT 0 1",
            "3"
        ],
        "{complained}"
    );
    for words in [
        "duplicate key",
        "division by zero",
        "is aborted",
        "already a transaction",
        "no transaction in progress",
        "read-only",
    ] {
        assert!(complained.contains(words), "{words}: {complained}");
    }
}

#[test]
fn copy_works_both_ways() {
    let Some(fixture) = Fixture::new(TABLE) else { return };
    let mut psql = fixture.program("psql");
    psql.args(["-Xq", "-c", "\\copy t from pstdin"]).stdin(Stdio::piped());
    let mut child = psql.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for row in 0..20_000 {
        writeln!(input, "{row}\trow {row}").unwrap();
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    let output = fixture.psql(&["-c", "\\copy t to stdout"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 20_000);
    assert!(
        fixture.ask("copy t from stdin").is_err()
            || fixture.ask("select count(*) from t").unwrap() == "20000"
    );
    let mut client = fixture.connect();
    let mut writer = client.copy_in("copy t from stdin").unwrap();
    writer.write_all(b"100000\tby the crate\n").unwrap();
    assert_eq!(writer.finish().unwrap(), 1);
    let mut text = String::new();
    client
        .copy_out("copy (select * from t where a = 100000) to stdout")
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "100000\tby the crate\n");
    let mut writer = client.copy_in("copy t from stdin").unwrap();
    writer.write_all(b"100000\ttwice\n").unwrap();
    assert_eq!(writer.finish().unwrap_err().code().unwrap().code(), "23505");
    let mut writer = client.copy_in("copy t from stdin").unwrap();
    writer.write_all(b"not a number\n").unwrap();
    assert!(writer.finish().is_err());
    assert_eq!(client.query_one("select count(*) from t", &[]).unwrap().get::<_, i64>(0), 20_001);
    assert_eq!(fixture.outside("select count(*) from t"), "0");
}

#[test]
fn pg_dump_dumps_what_the_sandbox_has() {
    let Some(fixture) = Fixture::new(TABLE) else { return };
    fixture.ask("insert into t values (1, 'only inside')").unwrap();
    let output = fixture.program("pg_dump").output().unwrap();
    let (dump, complaints) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{complaints}");
    assert!(dump.contains("1\tonly inside"), "{dump}");
    assert_eq!(fixture.ask("select a from t").unwrap(), "1");
}

#[test]
fn the_crate_prepares_and_runs_transactions() {
    let Some(fixture) = Fixture::new(TABLE) else { return };
    let (mut one, mut two) = (fixture.connect(), fixture.connect());
    let insert = one.prepare("insert into t values ($1, $2)").unwrap();
    let other = two.prepare("select b from t where a = $1").unwrap();
    one.execute(&insert, &[&1, &"one"]).unwrap();
    assert_eq!(two.query_one(&other, &[&1]).unwrap().get::<_, &str>(0), "one");
    let mut transaction = one.transaction().unwrap();
    transaction.execute(&insert, &[&2, &"two"]).unwrap();
    let mut nested = transaction.transaction().unwrap();
    nested.execute(&insert, &[&3, &"three"]).unwrap();
    nested.rollback().unwrap();
    let portal = transaction.bind("select generate_series(1, 10)", &[]).unwrap();
    assert_eq!(transaction.query_portal(&portal, 4).unwrap().len(), 4);
    assert_eq!(transaction.query_portal(&portal, 40).unwrap().len(), 6);
    transaction.commit().unwrap();
    assert_eq!(two.query_one("select count(*) from t", &[]).unwrap().get::<_, i64>(0), 2);
    let error = one.execute(&insert, &[&2, &"again"]).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23505");
    let mut dropped = one.transaction().unwrap();
    dropped.execute(&insert, &[&4, &"four"]).unwrap();
    drop(dropped);
    assert_eq!(two.query_one("select count(*) from t", &[]).unwrap().get::<_, i64>(0), 2);
    assert_eq!(fixture.outside("select count(*) from t"), "0");
}
