//! Reading, writing, diffing, rolling back.

use super::*;
use crate::model::DiffKind;

#[test]
fn what_is_written_is_read_diffed_logged_and_isolated() {
    let world = World::new();
    let (manager, target) = world.one();
    let change = manager.write(&target, &path("b"), b"12").unwrap();
    assert_eq!((change.kind, change.new_size), (DiffKind::Created, 2));
    manager.write(&target, &path("a"), b"n").unwrap();
    assert_eq!(manager.read(&target, &path("b")).unwrap(), b"12");
    let diff = manager.diff(&target, &[]).unwrap();
    let kinds: Vec<_> = diff.workspaces[0].entries.iter().map(|e| (e.path.to_string(), e.kind)).collect();
    assert_eq!(kinds, [("a".into(), DiffKind::Modified), ("b".into(), DiffKind::Created)]);
    assert_eq!(world.content("proj"), "old");
    let log = manager.log(Some(&target.sandbox), 10).unwrap();
    let summaries: Vec<_> = log.iter().map(|operation| operation.summary.as_str()).collect();
    assert_eq!(summaries[..2], ["wrote a (1 byte)", "created b (2 bytes)"]);
    assert_eq!(manager.log(Some(&target.sandbox), 1).unwrap().len(), 1);
    assert_eq!(manager.find("proj").unwrap().sandbox.state, SandboxState::Active);
}

#[test]
fn a_file_goes_through_in_pieces() {
    let world = World::new();
    let (manager, target) = world.one();
    let piece: usize = 4 << 20;
    // Of what has more than one, it is looked once whether there is an end.
    for (size, pieces) in [(0, 1), (3, 1), (piece, 2), (piece + 1, 3)] {
        let content: Vec<u8> = (0..size).map(|n| n as u8).collect();
        manager.write(&target, &path("big"), &content).unwrap();
        let (before, mut sink) = (reads(&world), Vec::new());
        assert_eq!(manager.read_to(&target, &path("big"), &mut sink).unwrap(), size as u64);
        assert!(sink == content, "{size} bytes arrived as others");
        assert_eq!(reads(&world) - before, pieces, "{size} bytes");
    }
}

fn reads(world: &World) -> usize {
    world.script.calls().iter().filter(|call| call.starts_with("read ")).count()
}

#[test]
fn without_ranges_a_file_is_read_whole() {
    let world = World::new();
    let (manager, resource) = (world.manager(), world.resource("proj"));
    let asked = CreateRequest { strategy: Some("none".into()), ..request(&[&resource]) };
    let sandbox = manager.get_or_create_sandbox(&asked).unwrap().sandbox;
    let target = manager.find(sandbox.id.as_str()).unwrap();
    let mut sink = Vec::new();
    assert_eq!(manager.read_to(&target, &path("a"), &mut sink).unwrap(), 3);
    assert_eq!((sink.as_slice(), reads(&world)), (&b"old"[..], 1));
}

#[test]
fn more_than_was_asked_for_is_the_strategys_mistake() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.write(&target, &path("big"), &vec![7; (4 << 20) + 1]).unwrap();
    world.script.ignores_ranges.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut sink = Vec::new();
    let error = manager.read_to(&target, &path("big"), &mut sink).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { strategy, .. } if strategy == "overlay"), "{error:?}");
    assert!(sink.is_empty());
}

#[test]
fn a_strategy_that_does_not_look_at_the_offset_is_not_read_for_ever() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.write(&target, &path("big"), &vec![7; 4 << 20]).unwrap();
    assert_eq!(manager.read_to(&target, &path("big"), &mut Vec::new()).unwrap(), 4 << 20);
    world.script.ignores_ranges.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = manager.read_to(&target, &path("big"), &mut Vec::new()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { reason, .. } if reason.contains("offset")), "{error:?}");
}

#[test]
fn what_cannot_be_read_writes_nothing() {
    let world = World::new();
    let (manager, target) = world.one();
    let mut sink = Vec::new();
    assert!(manager.read_to(&target, &path("missing"), &mut sink).is_err());
    world.script.at("read", Fault::Fail);
    assert!(manager.read_to(&target, &path("a"), &mut sink).is_err());
    assert!(sink.is_empty());
    let full = manager.read_to(&target, &path("a"), &mut [0; 1].as_mut_slice()).unwrap_err();
    assert!(matches!(&full, Error::Io { step: "pass on", .. }), "{full:?}");
    let (manager, both) = world.two();
    assert!(matches!(manager.read_to(&both, &path("a"), &mut sink), Err(Error::Usage { .. })));
}

#[test]
fn first_use_makes_a_sandbox_active_and_nothing_else_does() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.diff(&target, &[]).unwrap();
    assert_eq!(manager.find("proj").unwrap().sandbox.state, SandboxState::Ready);
    manager.mark_active(&target).unwrap();
    assert_eq!(manager.find("proj").unwrap().sandbox.state, SandboxState::Active);
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    manager.mark_active(&target).unwrap();
    assert_eq!(manager.find_any("proj").unwrap().sandbox.state, SandboxState::Destroyed);
}

#[test]
fn a_part_of_the_difference_has_a_digest_of_its_own() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.write(&target, &path("a"), b"n").unwrap();
    let only_a = manager.diff(&target, &[]).unwrap();
    manager.write(&target, &path("b"), b"n").unwrap();
    let part = manager.diff(&target, &[path("a")]).unwrap();
    assert_eq!(part, only_a);
    assert_ne!(manager.diff(&target, &[]).unwrap().digest, part.digest);
}

#[test]
fn the_digest_of_several_workspaces_covers_each_of_them() {
    let world = World::new();
    let (manager, target) = world.two();
    let empty = manager.diff(&target, &[]).unwrap();
    manager.write(&manager.find("x:x").unwrap(), &path("a"), b"n").unwrap();
    let in_x = manager.diff(&target, &[]).unwrap();
    assert_eq!(in_x.workspaces.iter().map(|w| w.entries.len()).collect::<Vec<_>>(), [1, 0]);
    manager.rollback(&manager.find("x:x").unwrap(), &[]).unwrap();
    manager.write(&manager.find("x:y").unwrap(), &path("a"), b"n").unwrap();
    let in_y = manager.diff(&target, &[]).unwrap();
    assert_ne!(in_x.digest, in_y.digest, "the same change elsewhere is another difference");
    assert_ne!(in_x.digest, empty.digest);
}

#[test]
fn several_workspaces_need_one_named() {
    let world = World::new();
    let (manager, target) = world.two();
    let hint = |result: Result<()>| match result {
        Err(Error::Usage { hint: Some(hint), .. }) => hint,
        other => panic!("{other:?}"),
    };
    let some = [path("a")];
    assert_eq!(hint(manager.read(&target, &some[0]).map(drop)), "name one: x:x, x:y");
    hint(manager.write(&target, &some[0], b"").map(drop));
    hint(manager.sandbox_path(&target).map(drop));
    hint(manager.diff(&target, &some).map(drop));
    hint(manager.rollback(&target, &some).map(drop));
    let y = manager.find("x:y").unwrap();
    assert!(manager.sandbox_path(&y).unwrap().ends_with("tree"));
    assert_eq!(manager.read(&y, &some[0]).unwrap(), b"old");
    assert_eq!(manager.diff(&y, &some).unwrap().workspaces.len(), 1);
}

#[test]
fn rollback_throws_away_everything_or_the_chosen_paths() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.write(&target, &path("a"), b"n").unwrap();
    manager.write(&target, &path("b"), b"n").unwrap();
    let results = manager.rollback(&target, &[path("b")]).unwrap();
    assert_eq!((results[0].0.as_str(), results[0].1.restored_files), ("proj", 1));
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"n");
    manager.rollback(&target, &[]).unwrap();
    assert!(manager.diff(&target, &[]).unwrap().workspaces[0].entries.is_empty());
    assert_eq!(last(&manager, "rollback"), ("done".into(), "rolled back 1 path".into()));
}

#[test]
fn what_a_strategy_cannot_do_is_unsupported() {
    let world = World::new();
    let resource = world.resource("proj");
    let manager = world.manager();
    manager
        .get_or_create_sandbox(&CreateRequest { strategy: Some("none".into()), ..request(&[&resource]) })
        .unwrap();
    let mut target = manager.find("proj").unwrap();
    let unsupported = |result: Result<()>| {
        assert!(
            matches!(&result, Err(Error::Unsupported { strategy, .. }) if strategy == "none"),
            "{result:?}"
        );
    };
    unsupported(manager.rollback(&target, &[path("a")]).map(drop));
    unsupported(manager.checkpoint(&target, None).map(drop));
    target.workspaces[0].sandbox_ref.metadata.remove("path");
    unsupported(manager.sandbox_path(&target).map(drop));
}

#[test]
fn a_failure_is_logged_and_names_its_workspace() {
    let world = World::new();
    let (manager, target) = world.two();
    world.script.at("rollback y", Fault::Fail);
    let error = manager.rollback(&target, &[]).unwrap_err();
    assert!(matches!(&error, Error::Workspace { workspace, .. } if workspace == "y"));
    let (state, summary) = last(&manager, "rollback");
    assert_eq!(state, "failed");
    assert!(summary.contains("workspace y") && summary.contains("scripted failure"), "{summary}");
    for method in ["read", "write", "diff"] {
        world.script.at(method, Fault::AlwaysFail);
    }
    let y = manager.find("x:y").unwrap();
    assert!(matches!(manager.read(&y, &path("a")), Err(Error::Workspace { .. })));
    assert!(matches!(manager.write(&y, &path("a"), b""), Err(Error::Workspace { .. })));
    assert!(matches!(manager.diff(&y, &[]), Err(Error::Workspace { .. })));
    assert_eq!(last(&manager, "write").0, "failed");
}

#[test]
fn one_writer_at_a_time_but_readers_go_on() {
    let world = World::new();
    let (manager, target) = world.one();
    let _held = manager.lock(&target.sandbox.id).unwrap();
    let error = world.manager().write(&target, &path("a"), b"").unwrap_err();
    let pid = format!("pid {}", std::process::id());
    assert!(matches!(&error, Error::Busy { holder: Some(h), .. } if *h == pid), "{error}");
    world.manager().diff(&target, &[]).unwrap();
    world.manager().read(&target, &path("a")).unwrap();
}

#[test]
fn a_sandbox_that_went_away_is_not_found_and_not_made_again() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.destroy(&manager.find("proj").unwrap(), Uncommitted::Discard).unwrap();
    assert!(matches!(manager.write(&target, &path("a"), b""), Err(Error::NotFound { .. })));
    assert_eq!(world.leftovers(), [""; 0]);
    let gone = manager.find_any("proj").unwrap();
    assert!(matches!(manager.read(&gone, &path("a")), Err(Error::NotFound { .. })));
}

#[test]
fn a_sandbox_that_is_being_made_or_removed_says_so() {
    let world = World::new();
    let (manager, target) = world.one();
    world.script.at("cleanup", Fault::Fail);
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    let leaving = manager.find("proj").unwrap();
    let error = manager.diff(&leaving, &[]).unwrap_err();
    assert!(error.to_string().contains("sandbox proj is half removed"), "{error}");
    assert!(
        matches!(error, Error::Refused { hint: Some(hint), .. } if hint.contains("destroy proj --discard"))
    );
    assert!(matches!(manager.write(&leaving, &path("a"), b""), Err(Error::NotFound { .. })));
}

#[test]
fn every_use_case_asks_for_permission() {
    let world = World::new();
    let (_, target) = world.one();
    type Use = fn(&SandboxManager, &Target) -> Result<()>;
    let cases: [(&str, Use); 9] = [
        ("read", |m, t| m.read(t, &path("a")).map(drop)),
        ("write", |m, t| m.write(t, &path("a"), b"x").map(drop)),
        ("diff", |m, t| m.diff(t, &[]).map(drop)),
        ("commit", |m, t| m.commit(t, &Default::default(), &CommitRules::default()).map(drop)),
        ("rollback", |m, t| m.rollback(t, &[]).map(drop)),
        ("checkpoint", |m, t| m.checkpoint(t, None).map(drop)),
        ("checkpoint", |m, t| m.checkpoint_service().prune(t, 0).map(drop)),
        ("restore", |m, t| m.restore(t, "cp-1").map(drop)),
        ("destroy", |m, t| m.destroy(t, Uncommitted::Discard).map(drop)),
    ];
    for (action, use_case) in cases {
        let parts = ManagerParts { permissions: Arc::new(AllBut(action)), ..world.parts() };
        let manager = SandboxManager::open(parts).unwrap();
        let error = use_case(&manager, &target).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{action}: {error}");
    }
    assert_eq!(world.manager().log(None, 10).unwrap().len(), 1, "nothing but the creation happened");
}

#[test]
fn a_path_that_is_nowhere_is_not_found_and_one_without_a_difference_is_fine() {
    use crate::model::CommitRequest;
    let world = World::new();
    let (manager, target) = world.one();
    let commit = |paths: &[RelPath]| {
        let request = CommitRequest { paths: paths.to_vec(), ..CommitRequest::default() };
        manager.commit(&target, &request, &CommitRules::default()).map(drop)
    };
    let all = |paths: &[RelPath]| {
        [manager.diff(&target, paths).map(drop), commit(paths), manager.rollback(&target, paths).map(drop)]
    };
    let operations = manager.log(None, 100).unwrap().len();
    for result in all(&[path("a"), path("tpyo")]) {
        assert_eq!(result.unwrap_err().to_string(), "no file \"tpyo\"");
    }
    assert_eq!(manager.log(None, 100).unwrap().len(), operations, "nothing was begun");
    all(&[path("a")]).into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_path_that_is_only_a_difference_is_found() {
    let world = World::new();
    let (manager, target) = world.one();
    fs::remove_file(manager.sandbox_path(&target).unwrap().join("a")).unwrap();
    assert_eq!(manager.diff(&target, &[path("a")]).unwrap().workspaces[0].entries.len(), 1);
    assert!(matches!(manager.diff(&target, &[path("a/b")]), Err(Error::NotFound { what: "file", .. })));
}
