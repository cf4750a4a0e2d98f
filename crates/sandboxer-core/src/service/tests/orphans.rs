//! Directories that nobody owns, and those that only look like it.

use super::*;
use serde_json::json;
use std::fs::{File, FileTimes};
use std::time::SystemTime;

fn ws(root: &Path, name: &str, owner: Option<serde_json::Value>) -> PathBuf {
    let path = root.join(name);
    fs::create_dir_all(&path).unwrap();
    if let Some(owner) = owner {
        fs::write(path.join("owner.json"), owner.to_string()).unwrap();
    }
    path
}

fn owned_by(home: &Path) -> Option<serde_json::Value> {
    Some(json!({"plan_id": "p", "resource_id": "path:/x", "home": home}))
}

fn age(path: &Path) {
    let old = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(old)).unwrap();
}

/// A scratch root outside the state directory, as on another filesystem.
fn foreign_root(world: &World) -> PathBuf {
    let root = world.temp.path().join("mnt/.sandboxer-0");
    fs::create_dir_all(&root).unwrap();
    fs::create_dir_all(world.home()).unwrap();
    fs::write(world.home().join("scratch-roots"), format!("{}\n\n/no/such/root\n", root.display())).unwrap();
    root
}

#[test]
fn only_what_is_ours_and_unlocked_and_unnamed_is_removed() {
    let world = World::new();
    let root = foreign_root(&world);
    *world.script.scratch.lock().unwrap() = Some(root.clone());
    let (manager, target) = world.one();
    let named = PathBuf::from(target.workspaces[0].sandbox_ref.text("dir").unwrap());
    let ours = ws(&root, "ws_ours", owned_by(&world.home()));
    let theirs = ws(&root, "ws_theirs", owned_by(Path::new("/somebody/else")));
    let locked = ws(&root, "ws_locked", owned_by(&world.home()));
    let young = ws(&root, "ws_young", None);
    let old = ws(&root, "ws_old", None);
    let garbled = ws(&root, "ws_garbled", Some(json!("what")));
    let other = ws(&root, "precious", owned_by(&world.home()));
    std::os::unix::fs::symlink(&other, root.join("ws_link")).unwrap();
    [&old, &garbled].iter().for_each(|path| age(path));
    let held = File::open(&locked).unwrap();
    held.lock().unwrap();
    let report = manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(report.removed, [garbled, old, ours]);
    assert_eq!(report.failed, [""; 0]);
    for kept in [named, theirs, locked.clone(), young, other, root.join("ws_link")] {
        assert!(kept.exists(), "{}", kept.display());
    }
    drop(held);
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap().removed, [locked]);
}

#[test]
fn a_live_workspace_is_safe_when_the_state_directory_is_reached_by_another_path() {
    let world = World::new();
    let (_, target) = world.one();
    let alias = world.temp.path().join("alias");
    std::os::unix::fs::symlink(world.home(), &alias).unwrap();
    let manager = SandboxManager::open(ManagerParts { home: alias, ..world.parts() }).unwrap();
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default());
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"old");
}

#[test]
fn a_workspace_in_the_making_is_left_alone() {
    let world = World::new();
    let x = world.resource("x");
    world.script.at("create.half", Fault::Die);
    dies(|| world.manager().get_or_create_sandbox(&request(&[&x])));
    let manager = world.manager();
    let id = manager.list(false).unwrap()[0].id.clone();
    let alive = lock::SandboxLock::try_acquire(&manager.sandbox_dir(&id)).unwrap().unwrap();
    let ownerless = ws(&world.home().join("scratch"), "ws_ownerless", None);
    assert_eq!(
        manager.gc(Uncommitted::Park, false).unwrap(),
        GcReport::default(),
        "its maker may be about to name it"
    );
    drop(alive);
    manager.gc(Uncommitted::Park, false).unwrap();
    assert!(!ownerless.exists());
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn work_whose_database_was_lost_is_not_garbage() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.write(&target, &path("a"), b"mine").unwrap();
    drop(manager);
    fs::remove_file(world.home().join("state.db")).unwrap();
    let manager = world.manager();
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default());
    assert_eq!(manager.adopt().unwrap().len(), 1);
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"mine");
}

#[test]
fn a_damaged_descriptor_of_an_unknown_sandbox_stops_the_collector() {
    let world = World::new();
    let (manager, target) = world.one();
    let descriptor = manager.sandbox_dir(&target.sandbox.id).join("sandbox.json");
    fs::write(&descriptor, "{").unwrap();
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default(), "the store knows it");
    drop(manager);
    fs::remove_file(world.home().join("state.db")).unwrap();
    let error = world.manager().gc(Uncommitted::Park, false).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path, .. } if *path == descriptor), "{error}");
    assert_eq!(world.manager().adopt().unwrap(), []);
    assert_eq!(world.leftovers().len(), 2);
}

#[test]
fn sandbox_directories_without_a_sandbox_go() {
    let world = World::new();
    let (manager, _) = world.one();
    let stray = manager.sandboxes_dir().join("sbx_stray");
    fs::create_dir_all(&stray).unwrap();
    let held = lock::SandboxLock::try_acquire(&stray).unwrap().unwrap();
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default());
    drop(held);
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap().removed, [stray]);
    assert_eq!(world.leftovers().len(), 2);
}

#[test]
fn what_cannot_be_removed_or_listed_is_reported() {
    let world = World::new();
    let orphan = ws(&world.home().join("scratch"), "ws_orphan", owned_by(&world.home()));
    fs::create_dir_all(world.home()).unwrap();
    let long = "x".repeat(300);
    fs::write(world.home().join("scratch-roots"), format!("/{long}\n")).unwrap();
    let fail = |path: &Path| Err(Error::io("remove", path, std::io::Error::other("stuck")));
    let manager = SandboxManager::open(ManagerParts { remove_tree: fail, ..world.parts() }).unwrap();
    let report = manager.gc(Uncommitted::Park, false).unwrap();
    assert!(report.removed.is_empty());
    assert!(report.failed[0].starts_with("cannot list"), "{report:?}");
    assert_eq!(report.failed[1], format!("cannot remove {}: stuck", orphan.display()));
    fs::remove_file(world.home().join("scratch-roots")).unwrap();
    fs::create_dir(world.home().join("scratch-roots")).unwrap();
    assert!(matches!(manager.gc(Uncommitted::Park, false), Err(Error::Io { step: "read", .. })));
}

#[test]
fn live_and_parked_workspaces_are_in_use_and_a_parked_one_is_not_in_the_making() {
    let world = World::new();
    let (manager, parked) = world.one();
    manager.write(&parked, &path("a"), b"mine").unwrap();
    manager.destroy(&parked, Uncommitted::Park).unwrap();
    let (_, live) = world.two();
    let (_, gone) = world.one();
    manager.destroy(&gone, Uncommitted::Discard).unwrap();
    let present: Vec<_> = manager.store.present().unwrap().into_iter().map(|s| s.id).collect();
    assert_eq!(present, [live.sandbox.id, parked.sandbox.id]);
    let ownerless = ws(&world.home().join("scratch"), "ws_ownerless", None);
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap().removed, [ownerless]);
}
