//! MariaDB databases on the command line: transactions.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use sandboxer_testkit::databases::Production;
use sandboxer_testkit::servers::mariadb::MariaDb;
use sandboxer_testkit::skip;

use crate::common::databases::{WORK, filled, names};
use crate::common::{Ran, World};

fn mariadb() -> Option<Arc<MariaDb>> {
    match MariaDb::missing() {
        Some(reason) => {
            skip(&reason);
            None
        }
        None => Some(Arc::new(MariaDb::start())),
    }
}

const SECRET: &str = "s3cret-of-the-test";

fn on_mariadb(server: &Arc<MariaDb>) -> Production {
    let outside = Production::MariaDb(server.clone(), "mysql".to_owned());
    outside.run("CREATE DATABASE app");
    outside.run(&format!(
        "CREATE USER app@'127.0.0.1' IDENTIFIED BY '{SECRET}'; GRANT ALL ON *.* TO app@'127.0.0.1'"
    ));
    filled(Production::MariaDb(server.clone(), "app".to_owned()))
}

#[test]
fn mariadb_from_beginning_to_end() {
    let Some(server) = mariadb() else { return };
    let (world, database) = (World::new(), on_mariadb(&server));
    let url = format!("mysql://app@127.0.0.1:{}/app", server.port());
    let file = password_file(&world, "password", SECRET);
    world.ok(&["create", &url, "--credentials", &file, "--name", "db"]);
    world.sql_ok("db", WORK);
    let diff = world.ok(&["diff", "db"]);
    assert!(diff.contains("users") && diff.contains("\"ann\" → \"eve\""), "{diff}");
    assert_eq!((world.names("db"), names(&database)), ("eve,cy,dan".into(), "ann,bob,cy".into()));
    world.ok(&["checkpoint", "db", "first"]);
    world.sql_ok("db", "DELETE FROM users");
    world.ok(&["restore", "db", "first"]);
    world.assert_nowhere(SECRET);
    world.ok(&["commit", "db"]);
    assert_eq!(names(&database), "eve,cy,dan");
    world.sql_ok("db", "DELETE FROM users");
    world.ok(&["rollback", "db"]);
    assert_eq!(world.names("db"), "eve,cy,dan");
    assert_ne!(world.run(&["path", "db"]).code, 0);
    world.ok(&["destroy", "db"]);
    assert!(world.keepers().is_empty());
    wrong_ways_in(&world, &server, &url);
}

/// A reference to a file that holds a password, and is its owner's alone.
fn password_file(world: &World, name: &str, password: &str) -> String {
    let path = world.path("user").join(name);
    std::fs::write(&path, password).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("file:{}", path.display())
}

fn wrong_ways_in(world: &World, server: &MariaDb, url: &str) {
    let file = password_file(world, "wrong", "not-it");
    let error = world.run(&["create", url, "--credentials", &file]);
    assert_ne!(error.code, 0);
    assert!(
        error.stderr.to_lowercase().contains("denied") && !error.stderr.contains("not-it"),
        "{}",
        error.stderr
    );
    let typed = format!("mysql://app:{SECRET}@127.0.0.1:{}/app", server.port());
    let error = world.run(&["create", &typed]);
    assert_ne!(error.code, 0);
    assert!(!error.stderr.contains(SECRET), "{}", error.stderr);
    let mut command = world.command(&["create", "env:APP_DATABASE", "--name", "by-variable"]);
    let made = Ran::of(command.env("APP_DATABASE", &typed).output().unwrap());
    assert_eq!(made.code, 0, "{}", made.stderr);
    world.assert_nowhere(SECRET);
    world.ok(&["destroy", "by-variable"]);
    let error = world.run(&["create", "mysql://app@127.0.0.1:1/app"]);
    assert_ne!(error.code, 0);
    assert!(error.stderr.contains("127.0.0.1:1") || error.stderr.contains("refused"), "{}", error.stderr);
    assert!(world.keepers().is_empty());
}
