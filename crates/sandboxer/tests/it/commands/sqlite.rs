//! SQLite databases on the command line: clones and transactions.

use sandboxer_testkit::databases::Production;
use sandboxer_testkit::skip;

use crate::common::databases::{WORK, filled, names, sqlite};
use crate::common::{World, remains};

fn snapshot() -> (World, Production) {
    let world = World::new();
    let database = sqlite(&world, "app.db");
    world.ok(&["create", "app.db", "--name", "snap"]);
    (world, database)
}

fn transaction() -> (World, Production) {
    let world = World::new();
    let database = sqlite(&world, "app.db");
    world.ok(&["create", "app.db", "--name", "tx", "-s", "transaction_rollback"]);
    (world, database)
}

#[test]
fn a_snapshot_from_beginning_to_end() {
    let world = World::new();
    let database = sqlite(&world, "app.db");
    let created = world.run(&["create", "app.db", "--name", "snap"]);
    insta::assert_snapshot!("database_create_snapshot", created.transcript(&world));
    assert!(world.inside("snap").is_file());
    world.sql_ok("snap", WORK);
    assert_eq!((world.names("snap"), names(&database)), ("eve,cy,dan".into(), "ann,bob,cy".into()));
    insta::assert_snapshot!("database_diff", world.run(&["diff", "snap"]).transcript(&world));
    insta::assert_snapshot!("database_diff_stat", world.run(&["diff", "snap", "--stat"]).transcript(&world));
    insta::assert_snapshot!(
        "database_diff_patch",
        world.run(&["diff", "snap", "--patch"]).transcript(&world)
    );
    insta::assert_snapshot!("database_diff_json", world.run(&["diff", "snap", "--json"]).transcript(&world));
    insta::assert_snapshot!(
        "database_dry_run",
        world.run(&["commit", "snap", "--dry-run"]).transcript(&world)
    );
    assert_eq!(names(&database), "ann,bob,cy");
    insta::assert_snapshot!("database_commit", world.run(&["commit", "snap"]).transcript(&world));
    assert_eq!(names(&database), "eve,cy,dan");
    assert_eq!(world.json(&["diff", "snap"])["summary"]["total"], 0);
    world.ok(&["destroy", "snap"]);
    assert_eq!(std::fs::read_dir(world.path("home/scratch")).map_or(0, Iterator::count), 0);
}

#[test]
fn programs_work_in_the_clone_at_its_path() {
    let (world, database) = snapshot();
    Production::Sqlite(world.inside("snap")).run(WORK);
    let diff = world.json(&["diff", "snap"]);
    assert_eq!(diff["summary"]["total"], 3);
    let row = &diff["entries"][0]["row"];
    assert_eq!(
        (&row["key"]["id"], &row["old"]["name"], &row["new"]["name"]),
        (&1.into(), &"ann".into(), &"eve".into())
    );
    world.ok(&["commit", "snap", "--digest", diff["digest"].as_str().unwrap()]);
    assert_eq!(names(&database), "eve,cy,dan");
}

#[test]
fn every_path_is_read_and_written_by_name() {
    for (world, name) in [(snapshot().0, "snap"), (transaction().0, "tx")] {
        assert_eq!(world.ok(&["read", name, "tables"]), "users\n");
        assert!(world.ok(&["read", name, "schema.sql"]).contains("CREATE TABLE users"));
        assert_eq!(
            world.ok(&["read", name, "tables/users.jsonl?limit=1"]),
            "{\"id\":1,\"name\":\"ann\",\"age\":10}\n"
        );
        let wrote = world
            .run_with_input(&["write", name, "tables/users/rows/9.json"], b"{\"name\": \"zoe\", \"age\": 1}");
        assert_eq!(wrote.code, 0, "{}", wrote.stderr);
        assert_eq!(world.names(name), "ann,bob,cy,zoe");
        assert!(world.ok(&["read", name, "changes.jsonl"]).contains("zoe"));
        assert_eq!(world.run_with_input(&["write", name, "tables/users/rows/9.json"], b"").code, 0);
        assert_eq!(world.json_error(&["read", name, "tables/users/rows/9.json"], 4)["kind"], "not_found");
        let odd = world.json_error(&["read", name, "nothing"], 2);
        assert!(odd.to_string().contains("schema.sql"), "{odd}");
        assert!(world.sql(name, "DELETE FROM users; SELEC").stderr.contains("statement 2"));
        assert_eq!(world.names(name), "ann,bob,cy");
    }
}

#[test]
fn checkpoints_and_rollbacks() {
    for ((world, database), name) in [(snapshot(), "snap"), (transaction(), "tx")] {
        world.sql_ok(name, "DELETE FROM users WHERE id = 1");
        world.ok(&["checkpoint", name, "first"]);
        world.sql_ok(name, "DELETE FROM users");
        world.ok(&["restore", name, "first"]);
        assert_eq!(world.names(name), "bob,cy");
        assert_eq!(world.json_error(&["restore", name, "never"], 4)["kind"], "not_found");
        world.ok(&["rollback", name]);
        assert_eq!((world.names(name), names(&database)), ("ann,bob,cy".into(), "ann,bob,cy".into()));
        world.sql_ok(name, WORK);
        world.ok(&["commit", name]);
        assert_eq!(names(&database), "eve,cy,dan");
    }
}

#[test]
fn conflicts_are_told_skipped_or_accepted() {
    let (world, database) = snapshot();
    world.sql_ok("snap", WORK);
    database.run("UPDATE users SET name = 'theirs' WHERE id = 1");
    let refused = world.run(&["commit", "snap"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("tables/users/rows/1.json: changed in the original"),
        "{}",
        refused.stderr
    );
    assert_eq!(names(&database), "theirs,bob,cy");
    let skipped = world.run(&["commit", "snap", "--on-conflict", "skip"]);
    assert_eq!(skipped.code, 0, "{}", skipped.stderr);
    assert!(
        format!("{}{}", skipped.stdout, skipped.stderr).contains("left pending"),
        "{}{}",
        skipped.stdout,
        skipped.stderr
    );
    assert_eq!(names(&database), "theirs,cy,dan");
    assert_eq!(world.json(&["diff", "snap"])["summary"]["total"], 1);
    world.ok(&["commit", "snap", "--on-conflict", "accept"]);
    assert_eq!(names(&database), "eve,cy,dan");
}

#[test]
fn a_transaction_is_lost_and_begun_anew() {
    let (world, database) = transaction();
    world.sql_ok("tx", WORK);
    let keepers = world.keepers();
    assert_eq!(keepers.len(), 1);
    remains::end(keepers[0]);
    let get = world.ok(&["get", "tx"]);
    assert!(get.contains("lost") && get.contains("sandbox rollback"), "{get}");
    for command in [["diff", "tx"], ["commit", "tx"]] {
        let error = world.run(&command);
        assert_eq!(error.code, 5, "{}", error.stderr);
        assert!(
            error.stderr.contains("nothing of it was committed") && error.stderr.contains("rollback"),
            "{}",
            error.stderr
        );
    }
    world.ok(&["rollback", "tx"]);
    assert!(!world.ok(&["get", "tx"]).contains("lost"));
    assert_eq!((world.names("tx"), names(&database)), ("ann,bob,cy".into(), "ann,bob,cy".into()));
    world.ok(&["destroy", "tx"]);
    assert!(world.keepers().is_empty());
}

#[test]
fn destroying_ends_the_keeper_and_frees_production() {
    let (world, database) = transaction();
    world.sql_ok("tx", WORK);
    assert!(database.try_run("DELETE FROM users").is_err());
    world.ok(&["destroy", "tx", "--discard"]);
    assert!(world.keepers().is_empty());
    database.run("DELETE FROM users WHERE id = 1");
    assert_eq!(names(&database), "bob,cy");
    assert_eq!(std::fs::read_dir(world.path("home/scratch")).map_or(0, Iterator::count), 0);
}

/// Python that opens a database at its usual path, whatever its journal is.
const PROGRAM: &str = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
    c.execute(\"update users set name = 'eve' where id = 1\"); c.commit(); \
    print(c.execute('pragma journal_mode').fetchone()[0])";

/// Runs a program on the database at its usual path, in a sandbox of the project, and commits.
fn run_on(directory: &str) {
    for journal in ["delete", "wal"] {
        let world = World::new();
        std::fs::create_dir_all(world.path(directory)).unwrap();
        let path = world.path(directory).join("app.db");
        let database = filled(Production::Sqlite(path.clone()));
        database.run(&format!("PRAGMA journal_mode = {journal}"));
        let path = path.to_str().unwrap();
        let command = ["/usr/bin/python3", "-c", PROGRAM, path];
        let ran =
            world.run(&[&["run", "--name", "r", "--database", path, "--keep", "--"], &command[..]].concat());
        if ran.code == 6 || ran.code == 127 {
            return skip(&ran.stderr);
        }
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(names(&database), "ann,bob,cy", "{journal}");
        assert!(ran.stdout.contains(journal), "{}", ran.stdout);
        let diff = world.ok(&["diff", "r"]);
        assert!(diff.contains("\"ann\" → \"eve\"") && !diff.contains("app.db-wal"), "{diff}");
        world.ok(&["commit", "r"]);
        assert_eq!(names(&database), "eve,bob,cy", "{journal}");
    }
}

#[test]
fn a_command_finds_the_clone_at_its_usual_path() {
    run_on("data");
}

#[test]
fn a_command_finds_the_clone_within_its_directory() {
    run_on("project");
}

/// Puts a link to a database of somebody else where its own is.
const REPLACE: &str = "p=$(readlink -f \"$1\"); rm \"$p\" && ln -s \"$2\" \"$p\"";

#[test]
fn a_command_that_replaces_the_clone_by_a_link_reaches_nothing_by_it() {
    let world = World::new();
    let database = sqlite(&world, "app.db");
    let other = filled(Production::Sqlite(world.path("other.db")));
    other.run("UPDATE users SET name = 'secret'");
    let (path, elsewhere) = (world.path("project/app.db"), world.path("other.db"));
    let (path, elsewhere) = (path.to_str().unwrap(), elsewhere.to_str().unwrap());
    let command = ["/bin/sh", "-c", REPLACE, "sh", path, elsewhere];
    let ran =
        world.run(&[&["run", "--name", "r", "--database", path, "--keep", "--"], &command[..]].concat());
    if ran.code == 6 || ran.code == 127 {
        return skip(&ran.stderr);
    }
    for command in
        [&["diff", "r"][..], &["commit", "r", "--on-conflict", "accept"], &["checkpoint", "r:app.db", "c"]]
    {
        let refused = world.run(command);
        assert_ne!(refused.code, 0, "{command:?}");
        let told = format!("{}{}", refused.stdout, refused.stderr);
        assert!(told.contains("is a symbolic link") && !told.contains("secret"), "{command:?}: {told}");
    }
    world.ok(&["rollback", "r"]);
    assert_eq!(names(&other), "secret,secret,secret");
    assert_eq!(names(&database), "ann,bob,cy");
    assert_eq!(world.json(&["diff", "r"])["summary"]["total"], 0);
}

#[test]
fn what_is_no_database_is_told() {
    let world = World::new();
    world.file("project/text.db", "this is a text");
    let error = world.run(&["create", "text.db", "-s", "database_snapshot"]);
    assert_ne!(error.code, 0);
    assert!(error.stderr.contains("database_snapshot"), "{}", error.stderr);
    let error = world.run(&["create", ".", "-s", "transaction_rollback"]);
    assert_ne!(error.code, 0, "{}", error.stdout);
    let missing = world.json_error(&["create", "env:NO_SUCH_DATABASE"], 2);
    assert!(missing["message"].as_str().unwrap().contains("NO_SUCH_DATABASE"), "{missing}");
    let missing = world.run(&["create", "sqlite:///nowhere/x.db"]);
    assert_ne!(missing.code, 0);
}
