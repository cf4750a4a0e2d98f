//! The strategy in the hands of the manager that the `sandbox` command uses.

use crate::common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use common::{NAME, btrfs, declared, make_subvolume, subvolumes};
use sandboxer::wiring::{self, Setup};
use sandboxer_core::config::{CustomStrategy, Settings};
use sandboxer_core::model::CommitRequest;
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{Consumer, CreateRequest, Input, SandboxManager, Target, Uncommitted};
use sandboxer_core::{Error, Result};
use sandboxer_testkit::mounts::{Mounted, mounts_below};
use sandboxer_testkit::skip;
use tempfile::TempDir;

/// The state directory is on another filesystem, as it mostly is.
struct World {
    manager: SandboxManager,
    mounted: Mounted,
    _home: TempDir,
}

impl World {
    fn new() -> Option<Self> {
        Self::with(declared())
    }

    fn with(strategy: CustomStrategy) -> Option<Self> {
        let mounted = Mounted::btrfs(256 << 20).inspect_err(|reason| skip(reason)).ok()?;
        let home = tempfile::tempdir().unwrap();
        let settings = Settings {
            custom_strategies: BTreeMap::from([(NAME.to_owned(), strategy)]),
            ..Settings::default()
        };
        let manager = wiring::open(Setup { settings, ..Setup::quiet(home.path().join("home")) }).unwrap();
        Some(Self { manager, mounted, _home: home })
    }

    fn resource(&self) -> PathBuf {
        let resource = self.mounted.path().join("project");
        make_subvolume(&resource);
        fs::create_dir(resource.join("src")).unwrap();
        fs::write(resource.join("src/main.rs"), "one\n").unwrap();
        fs::write(resource.join("notes"), "notes\n").unwrap();
        resource
    }

    fn try_open(&self, resource: &Path) -> Result<Target> {
        let location = resource.to_str().unwrap().to_owned();
        let sandbox = self.manager.get_or_create_sandbox(&CreateRequest {
            inputs: vec![Input { name: None, location, properties: BTreeMap::new() }],
            strategy: Some(NAME.to_owned()),
            no_fallback: true,
            plan: None,
            name: None,
            ttl: None,
            consumer: Consumer { actor_type: "atm".to_owned(), project: "test".to_owned() },
            disposable: false,
            environment: None,
        });
        let sandbox = sandbox?.sandbox;
        Ok(Target { workspaces: sandbox.workspaces.clone(), sandbox })
    }

    fn changes(&self, target: &Target) -> Vec<String> {
        let diff = self.manager.diff(target, &[]).unwrap();
        diff.workspaces.iter().flat_map(|w| &w.entries).map(|e| e.path.to_string()).collect()
    }

    fn commit(&self, target: &Target) {
        let rules = CommitRules { accept_flags: true, ..CommitRules::default() };
        self.manager.commit(target, &CommitRequest::default(), &rules).unwrap();
    }

    fn destroy(&self, target: &Target) {
        self.manager.destroy(target, Uncommitted::Discard).unwrap();
    }

    /// Neither a snapshot nor a mount nor a workspace.
    fn assert_nothing_left(&self, resources: &[PathBuf]) {
        let mount = self.mounted.path();
        assert_eq!(subvolumes(mount), resources);
        assert_eq!(mounts_below(mount), [mount]);
        let scratch = fs::read_dir(mount.join(".sandboxer-0"));
        assert_eq!(scratch.into_iter().flatten().count(), 0);
    }
}

fn tree(target: &Target) -> PathBuf {
    target.workspaces[0].sandbox_ref.sandbox_path().unwrap()
}

fn scratch(target: &Target) -> PathBuf {
    tree(target).parent().unwrap().to_path_buf()
}

#[test]
fn a_whole_life() {
    let Some(world) = World::new() else { return };
    let resource = world.resource();
    let target = world.try_open(&resource).unwrap();
    let odd = OsStr::from_bytes(b"odd \n\xff");
    fs::write(tree(&target).join(odd), "odd\n").unwrap();
    fs::rename(tree(&target).join("src"), tree(&target).join("source")).unwrap();
    world.manager.checkpoint(&target, Some("before")).unwrap();
    fs::remove_file(tree(&target).join("notes")).unwrap();
    assert_eq!(world.changes(&target).len(), 4, "{:?}", world.changes(&target));
    world.manager.restore(&target, "before").unwrap();
    assert_eq!(world.changes(&target).len(), 3, "{:?}", world.changes(&target));
    assert!(!resource.join(odd).exists());
    world.commit(&target);
    assert_eq!(fs::read_to_string(resource.join(odd)).unwrap(), "odd\n");
    assert!(resource.join("source/main.rs").exists() && !resource.join("src").exists());
    assert!(resource.join("notes").exists() && world.changes(&target).is_empty());
    fs::write(tree(&target).join("notes"), "thrown away\n").unwrap();
    world.manager.rollback(&target, &[]).unwrap();
    assert_eq!(fs::read_to_string(tree(&target).join("notes")).unwrap(), "notes\n");
    world.destroy(&target);
    world.assert_nothing_left(&[resource]);
}

#[test]
fn a_directory_that_is_no_subvolume_is_refused() {
    let Some(world) = World::new() else { return };
    let resource = world.mounted.path().join("plain");
    fs::create_dir(&resource).unwrap();
    let error = world.try_open(&resource).err().unwrap();
    let Error::Unavailable { reason, .. } = error.root() else { panic!("{error:?}") };
    assert!(reason.contains("btrfs subvolume create"), "{reason}");
    world.assert_nothing_left(&[]);
}

#[test]
fn another_filesystem_is_refused() {
    let Some(world) = World::new() else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let error = world.try_open(elsewhere.path()).err().unwrap();
    let Error::Unavailable { reason, .. } = error.root() else { panic!("{error:?}") };
    assert!(reason.contains("not on a btrfs"), "{reason}");
}

#[test]
fn a_missing_command_is_told() {
    let options = [("btrfs".to_owned(), "/no/btrfs".into())].into();
    let Some(world) = World::with(CustomStrategy { options, ..declared() }) else { return };
    let resource = world.resource();
    let error = world.try_open(&resource).err().unwrap();
    let Error::Unavailable { reason, .. } = error.root() else { panic!("{error:?}") };
    assert!(reason.contains("install btrfs-progs"), "{reason}");
    world.assert_nothing_left(&[resource]);
}

#[test]
fn what_a_killed_call_left_goes_with_the_sandbox() {
    let Some(world) = World::new() else { return };
    let resource = world.resource();
    let target = world.try_open(&resource).unwrap();
    let left = scratch(&target).join("frozen-1-1");
    fs::create_dir(&left).unwrap();
    let words = ["subvolume", "snapshot", "-r", resource.to_str().unwrap()];
    btrfs(&words, &left.join("old"));
    // And what a program in the sandbox has made.
    make_subvolume(&tree(&target).join("src/inner"));
    fs::write(tree(&target).join("src/inner/file"), "x").unwrap();
    world.destroy(&target);
    world.assert_nothing_left(&[resource]);
}

/// Killed between the two renames that make the next base the base.
#[test]
fn an_interrupted_change_of_the_base_is_finished() {
    let Some(world) = World::new() else { return };
    let resource = world.resource();
    let target = world.try_open(&resource).unwrap();
    fs::write(tree(&target).join("notes"), "mine\n").unwrap();
    let home = scratch(&target);
    btrfs(&["subvolume", "snapshot", tree(&target).to_str().unwrap()], &home.join("base.next"));
    fs::rename(home.join("base"), home.join("base.last")).unwrap();
    assert!(world.changes(&target).is_empty());
    assert_eq!(fs::read_to_string(home.join("base/notes")).unwrap(), "mine\n");
    world.destroy(&target);
    world.assert_nothing_left(&[resource]);
}
