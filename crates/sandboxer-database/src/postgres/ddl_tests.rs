use super::*;

fn found(statement: &str) -> Option<(&'static str, Vec<String>)> {
    strong(statement).map(|strong| (strong.name, strong.targets))
}

#[test]
fn strong_statements_are_found_with_what_they_name() {
    for (statement, name, targets) in [
        ("ALTER TABLE users ADD x int", "alter table", vec!["users"]),
        (
            "alter/* a /* b */ c */table if exists only \"My\".\"T x\" drop y",
            "alter table",
            vec!["\"My\".\"T x\""],
        ),
        ("-- no\nDROP TABLE IF EXISTS a, public.b CASCADE", "drop table", vec!["a", "public.b"]),
        ("truncate only a, only b *, c restart identity", "truncate", vec!["a", "b", "c"]),
        (
            "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON ONLY s.t (lower(x))",
            "create index",
            vec!["s.t"],
        ),
        ("create index on t(x)", "create index", vec!["t"]),
        (
            "CREATE OR REPLACE TRIGGER a BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()",
            "create trigger",
            vec!["t"],
        ),
        ("LOCK TABLE a, b IN EXCLUSIVE MODE", "lock table", vec!["a", "b"]),
        ("REFRESH MATERIALIZED VIEW CONCURRENTLY m", "refresh materialized view", vec!["m"]),
        ("REINDEX (VERBOSE) TABLE t", "reindex", vec![]),
        ("drop owned by me", "drop owned", vec![]),
    ] {
        let targets: Vec<_> = targets.into_iter().map(ToOwned::to_owned).collect();
        assert_eq!(found(statement), Some((name, targets)), "{statement}");
    }
}

#[test]
fn others_are_not() {
    for statement in [
        "",
        "select 'alter table users'",
        "CREATE TABLE t (a int)",
        "create or replace function f() returns int language sql as 'select 1'",
        "\"alter\" table",
        "insert into truncate values (1)",
        "LOCK TABLE public.users IN ACCESS SHARE MODE",
        "lock users in row exclusive mode nowait",
    ] {
        assert_eq!(found(statement), None, "{statement}");
    }
}

#[test]
fn only_what_was_there_before_is_protected_and_only_without_permission() {
    let mut options = Options::default();
    let refused = check("alter table users add x int", &options, &mut |name| name == "users").unwrap_err();
    assert!(refused.message.starts_with("ALTER TABLE on users"), "{}", refused.message);
    assert!(refused.hint.contains("alter table"));
    assert_eq!(check("alter table mine add x int", &options, &mut |name| name == "users"), Ok(()));
    assert!(check("drop table mine, users", &options, &mut |name| name == "users").is_err());
    assert!(check("cluster", &options, &mut |_| false).is_err());
    options.allow_ddl = vec!["Alter  Table".to_owned()];
    assert_eq!(check("alter table users add x int", &options, &mut |_| true), Ok(()));
    assert!(check("truncate users", &options, &mut |_| true).is_err());
    options.allow_ddl = vec!["all".to_owned()];
    assert_eq!(check("truncate users", &options, &mut |_| true), Ok(()));
}

#[test]
fn locks_are_looked_at_after_whatever_is_not_plain() {
    for (statement, looks) in [
        ("select 1", false),
        ("(select 1) union select 2", false),
        ("/* x */ update t set a = 1", false),
        ("do $$ begin end $$", true),
        ("call p()", true),
        ("create table t (a int references users)", true),
        ("", false),
    ] {
        assert_eq!(wants_look(statement), looks, "{statement}");
    }
}
