//! What is kept stays within its budget, and what goes is told.

use super::*;
use crate::config::MinFree;
use crate::model::CommitRequest;

fn manager_with(world: &World, max_size: u64, min_free: MinFree) -> SandboxManager {
    let mut parts = world.parts();
    parts.settings = Settings { max_size, min_free, ..parts.settings };
    SandboxManager::open(parts).unwrap()
}

fn commit(manager: &SandboxManager, target: &Target, content: &str) -> Operation {
    manager.write(target, &path("a"), content.as_bytes()).unwrap();
    let done = manager.commit(target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    manager.find_operation(done.op_id.as_str()).unwrap()
}

fn kept(manager: &SandboxManager) -> Vec<String> {
    manager.disk_report().unwrap().kept.into_iter().map(|k| format!("{} {}", k.kind, k.item)).collect()
}

#[test]
fn the_oldest_goes_first_and_is_told_and_logged() {
    let world = World::new();
    let (_, target) = world.one();
    // Each commit of the fake keeps 7 bytes.
    let manager = manager_with(&world, 20, MinFree::Bytes(0));
    let first = commit(&manager, &target, "one");
    let second = commit(&manager, &target, "two");
    assert!(world.removals().is_empty());
    let third = commit(&manager, &target, "three");
    let told = world.removals();
    let expected = format!(
        "removed what takes back {} of sandbox proj (7 bytes) to keep within `state.max_size`",
        first.id
    );
    assert_eq!(told, [expected.as_str()]);
    assert!(world.removals().is_empty(), "told once");
    assert_eq!(kept(&manager), [format!("undo {}", second.id), format!("undo {}", third.id)]);
    assert_eq!(last(&manager, "drop"), ("done".into(), expected));
    assert!(matches!(manager.undo(&first), Err(Error::Refused { .. })));
    manager.undo(&third).unwrap();
}

#[test]
fn what_takes_a_commit_back_goes_where_nothing_fits_and_the_commit_stands() {
    let world = World::new();
    let (_, target) = world.one();
    let manager = manager_with(&world, 0, MinFree::Bytes(0));
    let done = commit(&manager, &target, "one");
    assert_eq!((world.content("proj").as_str(), world.removals().len()), ("one", 1));
    assert!(matches!(manager.undo(&done), Err(Error::Refused { .. })));
}

#[test]
fn pinned_stays_and_a_checkpoint_that_does_not_fit_is_refused() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.checkpoint(&target, Some("pinned")).unwrap();
    manager.checkpoint_service().pin(&target, "pinned", true).unwrap();
    manager.checkpoint(&target, Some("other")).unwrap();
    let bytes = manager.disk_report().unwrap().kept_bytes;
    assert!(bytes > 0);
    let manager = manager_with(&world, bytes, MinFree::Bytes(0));
    manager.checkpoint(&target, Some("newest")).unwrap();
    assert_eq!(world.removals().len(), 1);
    assert_eq!(kept(&manager), ["checkpoint pinned", "checkpoint newest"]);
    let names = |manager: &SandboxManager| -> Vec<String> {
        manager.checkpoints(&target).unwrap().into_iter().map(|c| c.id.to_string()).collect()
    };
    assert_eq!(names(&manager), ["pinned", "newest"]);
    let manager = manager_with(&world, 1, MinFree::Bytes(0));
    let refused = manager.checkpoint(&target, Some("too much")).unwrap_err();
    assert!(matches!(refused, Error::Usage { .. }), "{refused:?}");
    let refused = manager.checkpoint(&target, Some("toomuch")).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    assert_eq!(names(&manager), ["pinned"]);
}

#[test]
fn parked_work_goes_last() {
    let world = World::new();
    let (manager, target) = world.two();
    let (_, other) = world.one();
    manager.write(&other, &path("a"), b"mine").unwrap();
    manager.destroy(&other, Uncommitted::Park).unwrap();
    change_all(&manager, &target);
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    let bytes = manager.disk_report().unwrap().kept_bytes;
    let manager = manager_with(&world, bytes - 1, MinFree::Bytes(0));
    manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(
        kept(&manager),
        [format!("parked {}", other.sandbox.id)],
        "newer undo data goes before older work"
    );
    let parked = manager.find_parked("proj").unwrap();
    let smaller = manager_with(&world, 1, MinFree::Bytes(0));
    smaller.pin_parked(&parked, true).unwrap();
    smaller.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(kept(&smaller).len(), 1, "pinned");
    smaller.pin_parked(&parked, false).unwrap();
    smaller.gc(Uncommitted::Park, false).unwrap();
    assert!(kept(&smaller).is_empty() && smaller.parked().unwrap().is_empty());
    let told = world.removals();
    assert!(told.iter().any(|t| t.starts_with("removed the parked work of sandbox proj")), "{told:?}");
}

#[test]
fn what_is_being_parked_is_not_removed_to_make_room_for_itself() {
    let world = World::new();
    let (_, target) = world.one();
    let manager = manager_with(&world, 0, MinFree::Bytes(0));
    manager.write(&target, &path("a"), b"mine").unwrap();
    manager.destroy(&target, Uncommitted::Park).unwrap();
    assert_eq!(manager.parked().unwrap().len(), 1);
}

#[test]
fn a_full_filesystem_takes_no_checkpoint() {
    let world = World::new();
    let (_, target) = world.one();
    let manager = manager_with(&world, u64::MAX, MinFree::Percent(100));
    let refused = manager.checkpoint(&target, None).unwrap_err().to_string();
    assert!(refused.contains("state.min_free"), "{refused}");
    assert!(manager.checkpoints(&target).unwrap().is_empty());
}

#[test]
fn what_is_in_use_is_passed_over() {
    let world = World::new();
    let (manager, target) = world.one();
    commit(&manager, &target, "one");
    let small = manager_with(&world, 0, MinFree::Bytes(0));
    let held = manager.lock(&target.sandbox.id).unwrap();
    small.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(kept(&small).len(), 1);
    drop(held);
    small.gc(Uncommitted::Park, false).unwrap();
    assert!(kept(&small).is_empty());
}

#[test]
fn the_report_says_where_the_space_is() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.checkpoint(&target, None).unwrap();
    let report = manager.disk_report().unwrap();
    let disk = &report.sandboxes[0];
    assert_eq!((disk.name.as_str(), disk.state), ("proj", SandboxState::Ready));
    assert!(disk.copies > 0 && disk.checkpoints > 0 && disk.total >= disk.copies + disk.checkpoints);
    assert!(report.database > 0 && report.free > 0);
    assert_eq!(report.max_size, 20 << 30);
}

/// Parks changed work over a resource of that name.
fn park(world: &World, name: &str) -> Sandbox {
    let (manager, target) = world.over(&[&world.resource(name)]);
    manager.write(&target, &path("a"), b"mine").unwrap();
    manager.destroy(&target, Uncommitted::Park).unwrap();
    manager.find_parked(name).unwrap()
}

#[test]
fn what_is_taken_up_or_pinned_meanwhile_stays() {
    let world = World::new();
    let (_first, taken_up, pinned) = (park(&world, "x"), park(&world, "y"), park(&world, "z"));
    let (other, id) = (world.manager(), pinned.id.clone());
    world.script.meanwhile("cleanup x", move || {
        other.unpark(&taken_up, None).unwrap();
        other.pin_parked(&pinned, true).unwrap();
    });
    let small = manager_with(&world, 0, MinFree::Bytes(0));
    small.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(kept(&small), [format!("parked {id}")]);
    assert_eq!(small.read(&small.find("y").unwrap(), &path("a")).unwrap(), b"mine");
    assert_eq!(world.removals().len(), 1);
}

#[test]
fn what_was_begun_in_a_sandbox_is_put_right_before_anything_of_it_goes() {
    let world = World::new();
    let parked = park(&world, "x");
    world.script.at("create", Fault::Die);
    let manager = world.manager();
    dies(|| manager.unpark(&parked, None));
    let small = manager_with(&world, 0, MinFree::Bytes(0));
    small.keep_within_budget(None).unwrap();
    assert_eq!(last(&small, "unpark").0, "failed");
    assert_eq!((kept(&small), world.leftovers()), (vec![], vec![]));
}

#[test]
fn a_checkpoint_costs_nobody_their_parked_work() {
    let world = World::new();
    park(&world, "x");
    let (manager, target) = world.one();
    let done = commit(&manager, &target, "one");
    let report = manager.disk_report().unwrap();
    let before = kept(&manager);
    // Beside the parked work, there is no room for a checkpoint, whatever else goes.
    let manager = manager_with(&world, report.kept_bytes + 1, MinFree::Bytes(0));
    let refused = manager.checkpoint(&target, None).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    assert_eq!((kept(&manager), world.removals()), (before, vec![]));
    assert!(manager.checkpoints(&target).unwrap().is_empty());
    let full = manager_with(&world, u64::MAX, MinFree::Percent(100));
    full.checkpoint(&target, None).unwrap_err();
    assert_eq!(full.parked().unwrap().len(), 1);
    assert!(matches!(full.undo(&done), Err(Error::Refused { .. })), "this may go to make room");
}

#[test]
fn what_cannot_fit_goes_before_what_is_older() {
    let world = World::new();
    let (manager, target) = world.one();
    let (_, other) = world.two();
    let first = commit(&manager, &target, "one");
    change_all(&manager, &other);
    // That of two workspaces takes 14 bytes.
    let small = manager_with(&world, 13, MinFree::Bytes(0));
    small.commit(&other, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(kept(&small), [format!("undo {}", first.id)]);
    assert_eq!(world.removals().len(), 1);
}

#[test]
fn what_cannot_go_does_not_keep_the_rest_from_going() {
    let world = World::new();
    let (manager, stuck) = world.over(&[&world.resource("x")]);
    let (_, other) = world.over(&[&world.resource("y")]);
    let first = commit(&manager, &stuck, "one");
    commit(&manager, &other, "one");
    world.script.at("drop x", Fault::AlwaysFail);
    let small = manager_with(&world, 0, MinFree::Bytes(0));
    small.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(kept(&small), [format!("undo {}", first.id)]);
    let drops: Vec<_> = small.log(None, 100).unwrap().into_iter().filter(|op| op.kind == "drop").collect();
    let states: Vec<_> = drops.iter().map(|op| op.state.as_str()).collect();
    assert_eq!(states, ["done", "failed"], "newest first");
    small.write(&other, &path("a"), b"mine").unwrap();
    assert_eq!(small.destroy(&other, Uncommitted::Park).unwrap(), Ended::Parked { changes: 1 });
    world.script.calm();
    small.gc(Uncommitted::Park, false).unwrap();
    assert!(kept(&small).is_empty());
}

fn free_at(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).unwrap();
    found.f_bavail * found.f_frsize
}

#[test]
fn a_filesystem_that_is_short_costs_nothing_on_another() {
    let world = World::new();
    // Another filesystem, where there is one with clearly more or less room.
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else { return };
    let (here, there) = (free_at(world.temp.path()), free_at(elsewhere.path()));
    if here.abs_diff(there) < 64 << 20 {
        return;
    }
    let near = park(&world, "x");
    *world.script.scratch.lock().unwrap() = Some(elsewhere.path().to_path_buf());
    let far = park(&world, "y");
    let manager = manager_with(&world, u64::MAX, MinFree::Bytes(here.midpoint(there)));
    manager.gc(Uncommitted::Park, false).unwrap();
    let stays = if here < there { far } else { near };
    assert_eq!(kept(&manager), [format!("parked {}", stays.id)]);
}

/// What is on record for checkpoints, one by one, and what they take on disk.
fn checkpoint_sizes(manager: &SandboxManager) -> (Vec<u64>, u64) {
    let report = manager.disk_report().unwrap();
    let is_checkpoint = |item: &&KeptItem| item.kind == "checkpoint";
    let recorded = report.kept.iter().filter(is_checkpoint).map(|item| item.bytes).collect();
    (recorded, report.sandboxes.iter().map(|disk| disk.checkpoints).sum())
}

#[test]
fn what_checkpoints_share_is_counted_as_long_as_one_of_them_holds_it() {
    let world = World::new();
    let (manager, target) = world.two();
    manager.checkpoint(&target, Some("first")).unwrap();
    // What both hold is kept once, and was put on the account of the first.
    let homes: Vec<_> =
        target.workspaces.iter().map(|w| PathBuf::from(w.sandbox_ref.text("dir").unwrap())).collect();
    fs::write(homes[0].join("checkpoints/shared"), vec![7; 100_000]).unwrap();
    manager.store.keep(&target.sandbox.id, "checkpoint", "first", 150_000).unwrap();
    for name in ["second", "third"] {
        // Of one workspace alone, too.
        let one = Target { workspaces: target.workspaces[1..].to_vec(), ..target.clone() };
        manager.checkpoint(&one, Some(name)).unwrap();
        let (recorded, on_disk) = checkpoint_sizes(&manager);
        assert_eq!(recorded.iter().sum::<u64>(), on_disk, "{name}");
    }
    let small = manager_with(&world, checkpoint_sizes(&manager).1 - 1, MinFree::Bytes(0));
    small.gc(Uncommitted::Park, false).unwrap();
    let (recorded, on_disk) = checkpoint_sizes(&small);
    assert_eq!((recorded.len(), recorded.iter().sum::<u64>()), (2, on_disk));
    assert!(recorded[1] > 100_000, "{recorded:?}");
    small.checkpoint_service().prune(&target, 1).unwrap();
    let (recorded, on_disk) = checkpoint_sizes(&small);
    assert_eq!(recorded, [on_disk]);
}

#[test]
fn nobodys_work_goes_because_somebody_else_keeps_putting_things_away() {
    use crate::access::{Caller, ProjectAccess, TokenScope};
    let world = World::new();
    let manager = manager_with(&world, 20, MinFree::Bytes(0));
    let by = |principal: &str, name: &str| {
        let caller = Caller {
            principal: principal.into(),
            consumer: Consumer { actor_type: "agt".into(), project: "web".into() },
            scopes: TokenScope::Commit.closure(),
            resources: vec!["/".into()],
            token: "t".into(),
        };
        let consumer = caller.consumer.clone();
        let own = manager.permitted_by(Arc::new(ProjectAccess::new(Arc::new(caller))));
        let wanted = CreateRequest { consumer, ..request(&[&world.resource(name)]) };
        let made = own.get_or_create_sandbox(&wanted).unwrap().sandbox;
        let target = own.find(made.id.as_str()).unwrap();
        (own, target)
    };
    let (ann, bob) = (by("ann", "x"), by("bob", "y"));
    // Each commit of the fake keeps 7 bytes: the oldest is ann's, and the most is bob's.
    let anns = commit(&ann.0, &ann.1, "one");
    let [first, second] = ["one", "two"].map(|content| commit(&bob.0, &bob.1, content));
    assert_eq!(kept(&manager), [format!("undo {}", anns.id), format!("undo {}", second.id)]);
    assert!(matches!(bob.0.undo(&first), Err(Error::Refused { .. })));
    ann.0.undo(&anns).unwrap();
}
