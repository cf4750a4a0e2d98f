use super::*;

fn kinds(sql: &str) -> Vec<Kind> {
    statements(sql.as_bytes(), true).into_iter().map(|statement| statement.kind).collect()
}

fn set(name: &str) -> Kind {
    Kind::Set { local: false, name: name.to_owned() }
}

#[test]
fn transaction_statements_are_found_in_every_spelling() {
    let (commit, rollback) = (Kind::Commit { chain: false }, Kind::Rollback { chain: false });
    for (sql, kind) in [
        ("begin", Kind::Begin { tag: "BEGIN", read_only: false }),
        ("BEGIN/**/WORK", Kind::Begin { tag: "BEGIN", read_only: false }),
        (
            "start transaction isolation level serializable, read only",
            Kind::Begin { tag: "START TRANSACTION", read_only: true },
        ),
        ("commit", commit.clone()),
        ("COMMIT TRANSACTION", commit.clone()),
        ("end work", commit.clone()),
        ("commit and no chain", commit),
        ("commit work and chain", Kind::Commit { chain: true }),
        ("rollback", rollback.clone()),
        ("abort", rollback),
        ("ROLLBACK AND CHAIN", Kind::Rollback { chain: true }),
        ("rollback to a", Kind::RollbackTo),
        ("rollback work to savepoint \"a\"", Kind::RollbackTo),
        ("savepoint a", Kind::Savepoint),
        ("release a", Kind::Release),
        ("set transaction read only", Kind::SetTransaction { read_only: true }),
        ("set transaction isolation level repeatable read", Kind::SetTransaction { read_only: false }),
        ("set constraints all immediate", Kind::AllConstraints { immediate: true }),
        ("SET CONSTRAINTS ALL DEFERRED", Kind::AllConstraints { immediate: false }),
        ("set constraints a.b immediate", Kind::Other),
        ("discard all", Kind::DiscardAll),
        ("deallocate prepare all", Kind::DeallocateAll),
        ("reset all", Kind::ResetAll),
        ("select 'commit'", Kind::Other),
        ("do $$ begin commit; end $$", Kind::Definition),
    ] {
        assert_eq!(kinds(sql), [kind], "{sql}");
    }
}

#[test]
fn settings_have_their_names() {
    for (sql, kind) in [
        ("set search_path = a, b", set("search_path")),
        ("set session Search_Path to a", set("search_path")),
        ("set time zone 'UTC'", set("timezone")),
        ("set app.user = 'x'", set("app.user")),
        ("reset \"app\".user", set("app.user")),
        ("set role x", set("role")),
        ("set local role x", Kind::Set { local: true, name: "role".into() }),
        ("set local app.a.b to 1", Kind::Set { local: true, name: "app.a.b".into() }),
        ("set session characteristics as transaction read only", set("default_transaction_isolation")),
    ] {
        assert_eq!(kinds(sql), [kind], "{sql}");
    }
    let calls =
        statements(b"select pg_catalog.set_config('A.b', 'c', false), set_config($1, 'x', true)", true);
    assert_eq!(calls[0].configures, [("a.b".to_owned(), false), (String::new(), true)]);
}

#[test]
fn what_cannot_be_undone_is_refused() {
    for sql in [
        "vacuum",
        "create database x",
        "drop database x",
        "alter system set a = 1",
        "create index concurrently i on t (a)",
        "drop index concurrently i",
        "reindex table concurrently t",
        "alter table p detach partition c concurrently",
        "prepare transaction 'x'",
        "commit prepared 'x'",
        "rollback prepared 'x'",
        "create extension dblink",
        "CREATE EXTENSION IF NOT EXISTS \"postgres_fdw\"",
        "select dblink_exec('a', 'b')",
        "select public.\"dblink\"('a')",
        "copy t to program 'x'",
        "copy (select 1) to '/tmp/x'",
        "copy t from program 'x'",
        "set session authorization x",
        "set session_replication_role = replica",
        "set local \"session_replication_role\" to replica",
        "set sandboxer.token = 'x'",
        "drop schema sandboxer_guard_x cascade",
        "savepoint sandboxer_unit",
        "rollback to U&\"sandboxer\\005funit\"",
        "release sandboxer_unit",
        "release U&\"sandboxer!005funit\" uescape '!'",
        "set constraints sandboxer_guard_x.sandboxer_guard immediate",
        "do language plpython3u $$ $$",
        "create function f() returns int language 'plperlu' as ''",
        "create tablespace x location 'y'",
        "set transaction snapshot 'x'",
    ] {
        assert!(matches!(kinds(sql).as_slice(), [Kind::Refused(_)]), "{sql}: {:?}", kinds(sql));
    }
    for sql in [
        "select 'vacuum'",
        "copy t to stdout",
        "copy t from stdin",
        "copy (select a to from t) to stdout",
        "create table concurrently_x (a int)",
        "lock table sandboxer_guard_x.sandboxer_armed in access share mode",
        "create extension hstore",
        "select dblinked from t",
        "copy t from '/tmp/x'",
        "set role none",
    ] {
        assert!(!matches!(kinds(sql).as_slice(), [Kind::Refused(_)]), "{sql}: {:?}", kinds(sql));
    }
}

#[test]
fn prepared_statements_are_found_by_name() {
    for (sql, name) in [
        ("prepare Foo (int) as select $1", Some("foo")),
        ("execute \"Foo\" (1)", Some("Foo")),
        ("deallocate foo", Some("foo")),
        ("deallocate prepare foo", Some("foo")),
        ("explain (analyze) execute foo(1)", Some("foo")),
        ("create table t as execute foo", Some("foo")),
        ("create trigger t before insert on x execute function f()", None),
        ("deallocate all", None),
        ("grant execute on function f() to x", None),
    ] {
        let statement = &statements(sql.as_bytes(), true)[0];
        let found = statement.prepared.first().map(|range| name_at(sql.as_bytes(), range));
        assert_eq!(found.as_deref(), name, "{sql}");
    }
}
