//! Create, read, write, and what a path can reach.

use std::fs;
use std::os::unix::fs::symlink;

use sandboxer_core::Error;
use sandboxer_core::model::{DiffKind, RelPath, Resource};
use serde_json::json;

use super::fixture::{Fixture, rel};

pub(super) fn round_trip(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    assert_eq!(open.read("a.txt"), "alpha\n");
    open.write("a.txt", "changed\n");
    assert_eq!(open.read("a.txt"), "changed\n");
    fixture.assert_untouched(&before);
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "changed\n");
    open.strategy.cleanup(&open.sandbox).unwrap();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "changed\n");
}

pub(super) fn reads_what_was_written(fixture: &Fixture) {
    let open = fixture.open();
    for content in ["one\n", "", "a much longer text than before\n"] {
        open.write("dir/c.txt", content);
        assert_eq!(open.read("dir/c.txt"), content);
    }
    let bytes: Vec<u8> = (0..=255).collect();
    open.strategy.write(&open.sandbox, &rel("bytes"), &bytes).unwrap();
    assert_eq!(open.strategy.read(&open.sandbox, &rel("bytes")).unwrap(), bytes);
}

pub(super) fn a_ref_is_valid_in_another_process(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    let (before, digest) = (open.sandbox.clone(), open.diff().digest);
    let open = open.reopened();
    assert_eq!(open.sandbox, before);
    assert_eq!(open.read("a.txt"), "changed\n");
    assert_eq!(open.diff().digest, digest);
    open.rollback();
    assert_eq!(open.read("a.txt"), "alpha\n");
}

pub(super) fn write_makes_parents(fixture: &Fixture) {
    let open = fixture.open();
    open.write("new/deeper/deepest/file", "x\n");
    assert_eq!(open.read("new/deeper/deepest/file"), "x\n");
    let kinds = open.kinds();
    assert_eq!(kinds.get("new/deeper/deepest/file"), Some(&DiffKind::Created), "{kinds:?}");
    assert!(kinds.values().all(|kind| *kind == DiffKind::Created));
}

pub(super) fn write_tells_what_it_did(fixture: &Fixture) {
    let open = fixture.open();
    let change = open.strategy.write(&open.sandbox, &rel("a.txt"), b"longer than before\n").unwrap();
    assert_eq!((change.path, change.kind), (rel("a.txt"), DiffKind::Modified));
    assert_eq!((change.old_size, change.new_size), (Some(6), 19));
    let change = open.strategy.write(&open.sandbox, &rel("new"), b"12").unwrap();
    assert_eq!((change.kind, change.old_size, change.new_size), (DiffKind::Created, None, 2));
}

pub(super) fn missing_is_not_found(fixture: &Fixture) {
    let open = fixture.open();
    for path in ["nowhere", "dir/nowhere", "no/such/directory"] {
        let error = open.strategy.read(&open.sandbox, &rel(path)).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{path}: {error:?}");
    }
}

pub(super) fn a_directory_cannot_be_read(fixture: &Fixture) {
    let open = fixture.open();
    assert!(open.strategy.read(&open.sandbox, &rel("dir")).is_err());
    assert!(open.strategy.write(&open.sandbox, &rel("dir"), b"x").is_err());
    assert_eq!(open.read("dir/c.txt"), "gamma\n");
}

/// D10: what cannot be said cannot be asked of a strategy.
pub(super) fn paths_cannot_leave_by_type(fixture: &Fixture) {
    let absolute = fixture.outside().join("secret");
    let proc_root = format!("/proc/self/root{}", absolute.display());
    for bad in
        ["", "..", "../x", "a/../../x", "a//b", "/", ".", "a\0b", absolute.to_str().unwrap(), &proc_root]
    {
        assert!(RelPath::parse(bad).is_err(), "{bad:?} was accepted");
        assert!(serde_json::from_value::<RelPath>(json!(bad)).is_err(), "{bad:?} was accepted from JSON");
    }
}

pub(super) fn read_follows_no_link(fixture: &Fixture) {
    let open = fixture.open();
    symlink(fixture.outside().join("secret"), open.path("leak")).unwrap();
    symlink(fixture.outside(), open.path("leaks")).unwrap();
    symlink("/", open.path("root")).unwrap();
    let below_root = format!("root{}/secret", fixture.outside().display());
    for path in ["leak", "leaks/secret", &below_root] {
        let found = open.strategy.read(&open.sandbox, &rel(path));
        assert!(found.is_err(), "{path} was followed: {found:?}");
    }
    assert!(!serde_json::to_string(&open.diff()).unwrap().contains("secret\\n"));
}

pub(super) fn write_follows_no_link(fixture: &Fixture) {
    let open = fixture.open();
    symlink(fixture.outside().join("secret"), open.path("leak")).unwrap();
    symlink(fixture.outside(), open.path("leaks")).unwrap();
    let _replaced_or_refused = open.strategy.write(&open.sandbox, &rel("leak"), b"overwritten");
    assert!(open.strategy.write(&open.sandbox, &rel("leaks/planted"), b"x").is_err());
    assert!(open.strategy.write(&open.sandbox, &rel("leaks/secret"), b"x").is_err());
    assert_eq!(fs::read_to_string(fixture.outside().join("secret")).unwrap(), "secret\n");
    assert!(!fixture.outside().join("planted").exists());
}

pub(super) fn patterns_choose_what_is_isolated(fixture: &Fixture) {
    fs::create_dir(fixture.original("target")).unwrap();
    fs::write(fixture.original("target/big"), "build output\n").unwrap();
    fs::write(fixture.original("dir/c.log"), "log\n").unwrap();
    let mut resource = fixture.resource();
    resource.properties.insert("exclude".into(), json!(["target", "**/*.log"]));
    let open = fixture.open_resource(&resource);
    let tree = open.manifest();
    assert!(tree.has("dir/c.txt") && !tree.has("target/big") && !tree.has("dir/c.log"), "{:?}", tree.names());
    open.assert_clean();
    open.write("a.txt", "changed\n");
    open.commit();
    assert!(fixture.original("target/big").exists() && fixture.original("dir/c.log").exists());

    let mut resource = fixture.resource();
    resource.properties.insert("include".into(), json!(["dir/**"]));
    let tree = fixture.open_resource(&resource).manifest();
    assert!(tree.has("dir/c.txt") && tree.has("dir/sub/d.txt") && !tree.has("a.txt"), "{:?}", tree.names());
}

pub(super) fn a_single_file_is_a_resource(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open_resource(&Resource::at_path("fs-file", &fixture.original("a.txt")));
    fixture.assert_untouched(&before);
    assert_eq!(open.read("a.txt"), "alpha\n");
    open.write("a.txt", "changed\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "changed\n");
    open.assert_clean();
    let after = fixture.manifest();
    assert_eq!(before.names(), after.names());
}
