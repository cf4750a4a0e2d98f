//! From the making of a sandbox to the end of it.

use std::path::Path;

use sandboxer_core::model::{Phase, PlanId, Resource};

use super::{Fixture, Production, in_words, is_gone, until};

pub(super) fn a_ref_is_valid_in_another_process(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1");
    let other = sandbox.elsewhere();
    assert_eq!(other.reference, sandbox.reference);
    assert_eq!((other.names(), other.diff().digest), (sandbox.names(), sandbox.diff().digest));
    other.exec("DELETE FROM users WHERE id = 2");
    assert_eq!(sandbox.names(), "eve,cy");
    other.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "eve,cy");
}

/// The workspaces below the state directory.
fn workspaces(fixture: &Fixture) -> Vec<String> {
    fn files(dir: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => files(&entry.path(), found),
                false => found.push(entry.path().display().to_string()),
            }
        }
    }
    let mut found = Vec::new();
    files(&fixture.home(), &mut found);
    found.retain(|path| !path.ends_with(".lock") && !path.contains("/locks/"));
    found
}

pub(super) fn cleanup_leaves_nothing(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM users");
    sandbox.checkpoint("c1");
    let keeper = fixture.has_keepers().then(|| sandbox.keeper());
    let dir = sandbox.dir();
    assert!(dir.exists());
    sandbox.strategy.cleanup(&sandbox.reference).unwrap();
    assert!(!dir.exists());
    assert_eq!(workspaces(fixture), [""; 0]);
    if let Some(keeper) = keeper {
        until("the keeper is gone", || is_gone(keeper));
    }
    assert_eq!(fixture.production.ask("SELECT name FROM users ORDER BY id"), "ann,bob,cy");
}

pub(super) fn cleanup_twice(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.strategy.cleanup(&sandbox.reference).unwrap();
    sandbox.strategy.cleanup(&sandbox.reference).unwrap();
    fixture.strategy().cleanup(&sandbox.reference).unwrap();
}

pub(super) fn cleanup_of_work_lets_production_go_on(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'x'");
    fixture.strategy().cleanup(&sandbox.reference).unwrap();
    fixture.production.run("UPDATE users SET name = 'free' WHERE id = 1");
    assert_eq!(sandbox.names_outside(), "free,bob,cy");
    let again = fixture.sandbox();
    assert_eq!(again.names(), "free,bob,cy");
}

pub(super) fn cleanup_of_what_is_prepared(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'x'");
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    sandbox.strategy.cleanup(&sandbox.reference).unwrap();
    assert_eq!(fixture.production.prepared(), "");
    assert_eq!(sandbox.names_outside(), "ann,bob,cy");
    fixture.production.run("UPDATE users SET name = 'free' WHERE id = 1");
}

/// Each sees its own work. Two transactions on one SQLite database are one too many, and that is said at once.
pub(super) fn two_sandboxes(fixture: &mut Fixture) {
    let one = fixture.sandbox();
    let other = match fixture.try_sandbox() {
        Ok(other) => other,
        Err(error) => {
            assert!(fixture.has_keepers() && matches!(fixture.production, Production::Sqlite(_)), "{error}");
            return assert!(in_words(&error).contains("in use"), "{}", in_words(&error));
        }
    };
    one.exec("UPDATE users SET name = 'one' WHERE id = 1");
    other.exec("UPDATE users SET name = 'other' WHERE id = 2");
    assert_eq!((one.names(), other.names()), ("one,bob,cy".into(), "ann,other,cy".into()));
    one.commit().unwrap();
    other.commit().unwrap();
    assert_eq!(one.names_outside(), "one,other,cy");
    assert!(one.diff().entries.is_empty() && other.diff().entries.is_empty());
}

pub(super) fn a_database_that_is_not_there(fixture: &mut Fixture) {
    let resource = fixture.production.resource();
    let location = match &fixture.production {
        Production::Postgres(_, name) | Production::MariaDb(_, name) | Production::Given(_, name) => {
            resource.location.replace(name.as_str(), "nowhere")
        }
        Production::Sqlite(path) => path.with_file_name("nowhere").display().to_string(),
    };
    let elsewhere = match resource.path() {
        Some(_) => Resource::at_path("sqlite", Path::new(&location)),
        None => Resource::at_url(resource.type_name, &location),
    };
    let error = in_words(&fixture.strategy().create(&PlanId::generate(), &elsewhere).unwrap_err());
    assert!(error.contains("nowhere"), "{error}");
    assert!(!Path::new(&location).exists());
    assert_eq!(workspaces(fixture), [""; 0]);
}

pub(super) fn a_failed_create_leaves_nothing(fixture: &mut Fixture) {
    let mut resource = fixture.production.resource();
    resource.location = match &fixture.production {
        Production::Sqlite(path) => {
            let text = path.with_file_name("no-database");
            std::fs::write(&text, "this is a text, and no database at all").unwrap();
            text.display().to_string()
        }
        // Nobody listens there.
        other if other.is_postgres() => "postgres://nobody@127.0.0.1:1/nothing".to_owned(),
        _ => "mysql://nobody@127.0.0.1:1/nothing".to_owned(),
    };
    let resource = match resource.path() {
        Some(_) => Resource::at_path("sqlite", Path::new(&resource.location)),
        None => Resource::at_url(resource.type_name, &resource.location),
    };
    assert!(fixture.strategy().create(&PlanId::generate(), &resource).is_err());
    assert_eq!(workspaces(fixture), [""; 0]);
}
