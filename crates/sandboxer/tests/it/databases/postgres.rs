//! PostgreSQL as a person types it, and plans of files and databases together.

use sandboxer_testkit::databases::Production;
use sandboxer_testkit::servers::Postgres;
use sandboxer_testkit::skip;

use crate::common::databases::{WORK, filled, names, sqlite};
use crate::common::{Ran, World};

fn on(server: &'static Postgres) -> Production {
    filled(Production::Postgres(server, server.database()))
}

fn url(database: &Production) -> String {
    let Production::Postgres(server, name) = database else { panic!("no PostgreSQL") };
    server.socket_url(name)
}

/// The URL with a password, by TCP.
fn with_password(database: &Production, password: &str) -> String {
    let Production::Postgres(server, name) = database else { panic!("no PostgreSQL") };
    server.url(name).replacen('@', &format!(":{}@", password.replace(' ', "%20").replace(',', "%2C")), 1)
}

fn world() -> Option<(World, Production)> {
    let server = Postgres::shared()?;
    let (world, database) = (World::new(), on(server));
    world.ok(&["create", &url(&database), "--name", "db"]);
    Some((world, database))
}

#[test]
fn a_transaction_from_beginning_to_end() {
    let Some((world, database)) = world() else { return };
    let Production::Postgres(server, _) = &database else { return };
    let connection = world.ok(&["path", "db"]);
    assert!(connection.starts_with("postgres"), "{connection}");
    let psql = std::process::Command::new(server.program("psql"))
        .args([connection.trim(), "-XqAtc", WORK])
        .output()
        .unwrap();
    assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
    assert_eq!((world.names("db"), names(&database)), ("eve,cy,dan".into(), "ann,bob,cy".into()));
    insta::assert_snapshot!("postgres_diff", world.run(&["diff", "db"]).transcript(&world));
    insta::assert_snapshot!("postgres_diff_stat", world.run(&["diff", "db", "--stat"]).transcript(&world));
    let json = world.json(&["diff", "db"]);
    assert_eq!(json["entries"][0]["row"]["table"], "public.users");
    world.ok(&["checkpoint", "db", "first"]);
    world.sql_ok("db", "DELETE FROM users");
    world.ok(&["restore", "db", "first"]);
    world.ok(&["commit", "db", "--dry-run"]);
    assert_eq!(names(&database), "ann,bob,cy");
    world.ok(&["commit", "db", "--digest", json["digest"].as_str().unwrap()]);
    assert_eq!(names(&database), "eve,cy,dan");
    let ways = world.run(&["commit", "db", "--on-conflict", "skip"]);
    assert!(ways.stderr.contains("cannot resolve conflicts"), "{}", ways.stderr);
    world.ok(&["destroy", "db"]);
    assert!(world.keepers().is_empty());
}

#[test]
fn a_password_is_nowhere() {
    let Some(server) = Postgres::shared() else { return };
    let (world, database) = (World::new(), on(server));
    let typed = with_password(&database, server.password());
    let refused = world.run(&["create", &typed]);
    assert_ne!(refused.code, 0);
    assert!(
        !refused.stderr.contains("of%20the%20test") && !refused.stderr.contains(server.password()),
        "{}",
        refused.stderr
    );
    let mut command = world.command(&["create", "env:DATABASE_URL", "--name", "db"]);
    let made = Ran::of(command.env("DATABASE_URL", &typed).output().unwrap());
    assert_eq!(made.code, 0, "{}", made.stderr);
    world.sql_ok("db", WORK);
    for secret in [server.password(), "of%20the%20test"] {
        world.assert_nowhere(secret);
    }
    world.ok(&["commit", "db"]);
    assert_eq!(names(&database), "eve,cy,dan");
}

#[test]
fn wrong_ways_in_are_told() {
    let Some(server) = Postgres::shared() else { return };
    let (world, database) = (World::new(), on(server));
    let Production::Postgres(_, name) = &database else { return };
    world.file("user/wrong", "not-it");
    let file = format!("file:{}", world.path("user/wrong").display());
    let wrong = world.run(&["create", &server.url(name), "--credentials", &file]);
    assert_ne!(wrong.code, 0);
    assert!(wrong.stderr.contains("password") && !wrong.stderr.contains("not-it"), "{}", wrong.stderr);
    let away = world.run(&["create", "postgres://postgres@127.0.0.1:1/x"]);
    assert_ne!(away.code, 0);
    assert!(away.stderr.contains("127.0.0.1") && away.stderr.contains("refused"), "{}", away.stderr);
    let unset = world.json_error(&["create", &server.url(name), "--credentials", "env:NOT_SET"], 2);
    assert!(unset["message"].as_str().unwrap().contains("NOT_SET"), "{unset}");
    let odd = world.json_error(&["create", &server.url(name), "--credentials", "hunter2"], 2);
    assert!(!odd.to_string().contains("hunter2"), "{odd}");
    assert_eq!(world.json(&["list"])["sandboxes"].as_array().map_or(0, Vec::len), 0);
    assert!(world.keepers().is_empty());
}

#[test]
fn strong_locks_are_refused_unless_they_are_allowed() {
    let Some((world, database)) = world() else { return };
    let refused = world.sql("db", "ALTER TABLE users ADD COLUMN extra INTEGER");
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--allow-ddl") || refused.stderr.contains("allow_ddl"),
        "{}",
        refused.stderr
    );
    world.ok(&["destroy", "db", "--discard"]);
    world.ok(&["create", &url(&database), "--name", "db", "--allow-ddl", "ALTER TABLE"]);
    world.sql_ok("db", "ALTER TABLE users ADD COLUMN extra INTEGER; UPDATE users SET extra = 1 WHERE id = 1");
    let diff = world.ok(&["diff", "db"]);
    assert!(diff.contains("users") && diff.contains("extra"), "{diff}");
    world.ok(&["commit", "db"]);
    assert_eq!(database.ask("SELECT extra FROM users WHERE id = 1"), "1");
}

#[test]
fn a_contained_command_connects_by_its_variables() {
    let Some(server) = Postgres::shared() else { return };
    let (world, database) = (World::new(), on(server));
    let psql = server.program("psql").display().to_string();
    let ran = world.run(&[
        "run",
        "--name",
        "r",
        "--database",
        &url(&database),
        "--keep",
        "--",
        &psql,
        "-XqAtc",
        WORK,
    ]);
    if ran.code == 6 {
        return skip(&ran.stderr);
    }
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(names(&database), "ann,bob,cy");
    let listed = world.json(&["get", "r"]);
    let workspace = listed["workspaces"]
        .as_array()
        .unwrap()
        .iter()
        .find(|w| w["resource"]["type"] == "postgres" || w["type"] == "postgres");
    assert!(workspace.is_some(), "{listed}");
    let diff = world.ok(&["diff", "r"]);
    assert!(diff.contains("\"ann\" → \"eve\""), "{diff}");
    world.ok(&["commit", "r"]);
    assert_eq!(names(&database), "eve,cy,dan");
}

#[test]
fn a_server_that_restarts_loses_the_transaction_and_says_so() {
    let Some(server) = Postgres::start() else { return };
    let server: &'static Postgres = Box::leak(Box::new(server));
    let (world, database) = (World::new(), on(server));
    world.ok(&["create", &url(&database), "--name", "db"]);
    world.sql_ok("db", WORK);
    server.restart();
    let refused = world.run(&["commit", "db"]);
    assert_ne!(refused.code, 0);
    assert!(world.ok(&["get", "db"]).contains("lost"));
    assert_eq!(names(&database), "ann,bob,cy");
    world.ok(&["rollback", "db"]);
    world.sql_ok("db", WORK);
    world.ok(&["commit", "db"]);
    assert_eq!(names(&database), "eve,cy,dan");
}

/// A directory, a PostgreSQL and an SQLite database in plan `fix`, each with work in it.
fn plan(world: &World, postgres: &Production, plan: &str) -> Production {
    let sqlite = sqlite(world, &format!("{plan}.db"));
    let Production::Sqlite(path) = &sqlite else { panic!("no SQLite") };
    world.file(&format!("{plan}/a"), "old\n");
    let names = ["files", "pg", "lite"].map(|name| format!("{plan}-{name}"));
    world.ok(&["create", world.path(plan).to_str().unwrap(), "--plan", plan, "--name", &names[0]]);
    world.ok(&["create", &url(postgres), "--plan", plan, "--name", &names[1]]);
    world.ok(&["create", path.to_str().unwrap(), "--plan", plan, "--name", &names[2]]);
    std::fs::write(world.inside(&names[0]).join("a"), "new\n").unwrap();
    world.sql_ok(&names[1], WORK);
    world.sql_ok(&names[2], WORK);
    sqlite
}

#[test]
fn files_and_two_databases_are_committed_as_one() {
    let Some(server) = Postgres::shared() else { return };
    let (world, postgres) = (World::new(), on(server));
    let lite = plan(&world, &postgres, "fix");
    assert_eq!(world.json(&["diff", "--plan", "fix"])["summary"]["total"], 7);
    world.ok(&["commit", "--plan", "fix", "--dry-run"]);
    assert_eq!(
        (names(&postgres), names(&lite), world.text("fix/a")),
        ("ann,bob,cy".into(), "ann,bob,cy".into(), "old\n".into())
    );
    world.ok(&["commit", "--plan", "fix"]);
    assert_eq!(
        (names(&postgres), names(&lite), world.text("fix/a")),
        ("eve,cy,dan".into(), "eve,cy,dan".into(), "new\n".into())
    );
    assert_eq!(world.json(&["diff", "--plan", "fix"])["summary"]["total"], 0);
    assert_eq!(postgres.prepared(), "");
}

#[test]
fn a_conflict_of_one_commits_none_and_no_work_is_lost() {
    let Some(server) = Postgres::shared() else { return };
    let (world, postgres) = (World::new(), on(server));
    let lite = plan(&world, &postgres, "fix");
    lite.run("UPDATE users SET name = 'theirs' WHERE id = 1");
    assert_eq!(world.run(&["commit", "--plan", "fix"]).code, 3);
    assert_eq!(
        (names(&postgres), names(&lite), world.text("fix/a")),
        ("ann,bob,cy".into(), "theirs,bob,cy".into(), "old\n".into())
    );
    assert_eq!(postgres.prepared(), "");
    assert_eq!((world.names("fix-pg"), world.names("fix-lite")), ("eve,cy,dan".into(), "eve,cy,dan".into()));
    world.ok(&["commit", "fix-lite", "--on-conflict", "accept"]);
    world.ok(&["commit", "--plan", "fix"]);
    assert_eq!((names(&postgres), names(&lite)), ("eve,cy,dan".into(), "eve,cy,dan".into()));
}

#[test]
fn a_plan_is_rolled_back_as_one_and_goes_on() {
    let Some(server) = Postgres::shared() else { return };
    let (world, postgres) = (World::new(), on(server));
    let lite = plan(&world, &postgres, "fix");
    world.ok(&["rollback", "--plan", "fix"]);
    assert_eq!(world.json(&["diff", "--plan", "fix"])["summary"]["total"], 0);
    assert_eq!((world.names("fix-pg"), world.names("fix-lite")), ("ann,bob,cy".into(), "ann,bob,cy".into()));
    assert_eq!(std::fs::read_to_string(world.inside("fix-files").join("a")).unwrap(), "old\n");
    // Production was never touched, and nothing of it is locked any more.
    postgres.run("UPDATE users SET name = name");
    lite.run("UPDATE users SET name = name");
    assert_eq!(
        (names(&postgres), names(&lite), world.text("fix/a")),
        ("ann,bob,cy".into(), "ann,bob,cy".into(), "old\n".into())
    );
    assert_eq!(postgres.prepared(), "");
    world.sql_ok("fix-pg", WORK);
    world.sql_ok("fix-lite", WORK);
    world.ok(&["commit", "--plan", "fix"]);
    assert_eq!((names(&postgres), names(&lite)), ("eve,cy,dan".into(), "eve,cy,dan".into()));
}

#[test]
fn a_plan_with_a_lost_transaction_is_rolled_back() {
    let Some(server) = Postgres::shared() else { return };
    let (world, postgres) = (World::new(), on(server));
    let lite = plan(&world, &postgres, "fix");
    let Production::Postgres(_, database) = &postgres else { return };
    server.sql(
        "postgres",
        &format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}' and backend_xid is not null"
        ),
    );
    assert_ne!(world.run(&["commit", "--plan", "fix"]).code, 0);
    world.ok(&["rollback", "--plan", "fix"]);
    assert_eq!(world.json(&["diff", "--plan", "fix"])["summary"]["total"], 0);
    assert_eq!(
        (names(&postgres), names(&lite), world.text("fix/a")),
        ("ann,bob,cy".into(), "ann,bob,cy".into(), "old\n".into())
    );
}

#[test]
fn a_server_that_cannot_prepare_says_so_beforehand() {
    let Some(server) = Postgres::with_settings(&[("max_prepared_transactions", "0")]) else { return };
    let server: &'static Postgres = Box::leak(Box::new(server));
    let (world, postgres) = (World::new(), on(server));
    let lite = plan(&world, &postgres, "fix");
    let tried = world.run(&["commit", "--plan", "fix", "--dry-run"]);
    assert_eq!(tried.code, 0, "{}", tried.stderr);
    let told = format!("{}{}", tried.stdout, tried.stderr);
    assert!(told.contains("max_prepared_transactions"), "{told}");
    world.ok(&["commit", "--plan", "fix"]);
    assert_eq!(
        (names(&postgres), names(&lite), world.text("fix/a")),
        ("eve,cy,dan".into(), "eve,cy,dan".into(), "new\n".into())
    );
}

#[test]
fn two_plans_at_once() {
    let Some(server) = Postgres::shared() else { return };
    let (world, one, other) = (World::new(), on(server), on(server));
    let (lite_one, lite_other) = (plan(&world, &one, "one"), plan(&world, &other, "other"));
    let mut children =
        ["one", "other"].map(|plan| world.command(&["commit", "--plan", plan]).spawn().unwrap());
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    for database in [&one, &other, &lite_one, &lite_other] {
        assert_eq!(names(database), "eve,cy,dan");
    }
    assert_eq!((world.text("one/a"), world.text("other/a")), ("new\n".into(), "new\n".into()));
}
