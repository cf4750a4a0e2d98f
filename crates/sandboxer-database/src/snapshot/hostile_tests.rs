//! What a contained command can put in the place of its clone, and beside it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode as FileMode, mknodat};
use sandboxer_core::model::{CheckpointId, OnConflict};

use super::tests::{Fixture, fixture, run};
use super::*;

/// One of another's databases, with a name that nobody in the sandbox may read.
fn private(fixture: &Fixture) -> PathBuf {
    let other = fixture.dir.path().join("other.db");
    run(
        &other,
        "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1,'secret')",
    );
    other
}

type Plant = fn(&Path, &Path);

/// Ways of leading whoever opens `at` to `other`, or of making them wait for ever.
const PLANTS: [(&str, Plant); 4] = [
    ("a symbolic link", |at, other| symlink(other, at).unwrap()),
    ("a file that has another name elsewhere", |at, other| std::fs::hard_link(other, at).unwrap()),
    ("a FIFO", |at, _| mknodat(CWD, at, FileType::Fifo, FileMode::RUSR | FileMode::WUSR, 0).unwrap()),
    ("a directory", |at, _| std::fs::create_dir_all(at.join("in/it")).unwrap()),
];

fn refused<T: std::fmt::Debug>(result: Result<T>, what: &str) {
    match result {
        Err(Error::Refused { reason, hint: Some(hint) }) => {
            assert!(reason.contains(what) && hint.contains("roll the sandbox back"), "{reason} ({hint})");
        }
        other => panic!("{what}: {other:?}"),
    }
}

fn everything_but_rollback_refuses(fixture: &Fixture, what: &str) {
    let checkpoint = CheckpointId::from_string("later");
    refused(fixture.strategy.diff(&fixture.sandbox), what);
    refused(fixture.commit(OnConflict::Theirs), what);
    refused(fixture.strategy.checkpoint(&fixture.sandbox, &checkpoint), what);
    refused(fixture.read("tables/users/rows/1.json"), what);
    refused(fixture.read("query?sql=SELECT * FROM users"), what);
    refused(fixture.write("tables/users/rows/1.json", r#"{"name": "new"}"#), what);
    refused(fixture.write("exec", "DELETE FROM users"), what);
}

#[test]
fn a_link_in_the_place_of_the_clone_leads_nowhere() {
    let kept = CheckpointId::from_string("kept");
    for (what, plant) in PLANTS {
        let fixture = fixture();
        let (clone, other) = (fixture.clone(), private(&fixture));
        fixture.strategy.checkpoint(&fixture.sandbox, &kept).unwrap();
        for comes_back in ["rollback", "restore"] {
            std::fs::remove_file(&clone).unwrap();
            plant(&clone, &other);
            everything_but_rollback_refuses(&fixture, what);
            match comes_back {
                "rollback" => fixture.strategy.rollback(&fixture.sandbox).unwrap(),
                _ => fixture.strategy.restore_checkpoint(&fixture.sandbox, &kept).unwrap(),
            };
            assert_eq!(fixture.names(&clone), "ann,bob,cy", "{what}");
            assert_eq!(fixture.names(&other), "secret", "{what}");
            assert!(fixture.paths().is_empty());
        }
        assert_eq!(fixture.names(&fixture.original), "ann,bob,cy", "{what}");
    }
}

#[test]
fn nor_does_one_in_the_place_of_what_is_kept_beside_it() {
    for (what, plant) in PLANTS {
        let fixture = fixture();
        let (clone, other) = (fixture.clone(), private(&fixture));
        fixture.work("UPDATE users SET name='mine' WHERE id=1");
        let before = std::fs::read(&other).unwrap();
        for beside in sandboxer_sqlite::companions(&clone) {
            plant(&beside, &other);
            everything_but_rollback_refuses(&fixture, what);
            fixture.strategy.rollback(&fixture.sandbox).unwrap();
            assert!(beside.symlink_metadata().is_err(), "{}", beside.display());
            assert_eq!(fixture.names(&clone), "ann,bob,cy", "{what}");
            assert_eq!(std::fs::read(&other).unwrap(), before, "{what}");
        }
    }
}
