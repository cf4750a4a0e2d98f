//! What the store says compared with what an extension finds.

use super::environment::{Hosted, kinds};
use super::*;

#[test]
fn reconcile_removes_what_nobody_knows_and_tells_what_is_lost() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    let lost = manager.get_or_create_sandbox(&hosted.request(None)).unwrap().sandbox;
    hosted.room.there.lock().unwrap().remove(lost.id.as_str());
    hosted.room.there.lock().unwrap().insert("sbx_unknown".into());
    let dry = manager.reconcile(Duration::from_secs(60), true).unwrap();
    assert_eq!((dry.removed.len(), &dry.lost, dry.sound), (1, &vec![lost.id.clone()], 1));
    assert_eq!(hosted.there(), 2, "a dry run only says");
    let young = manager.reconcile(Duration::from_secs(3600), true).unwrap();
    assert_eq!((young.removed.len(), young.young.len()), (0, 1));
    let report = manager.reconcile(Duration::from_secs(60), false).unwrap();
    assert_eq!((report.removed.len(), report.failed.len()), (1, 0));
    assert_eq!(hosted.there(), 1);
    let told = |manager: &SandboxManager| kinds(manager, &lost).iter().filter(|k| *k == "lost").count();
    manager.reconcile(Duration::from_secs(60), false).unwrap();
    assert_eq!(told(&manager), 1, "once");
    let again = manager.find(lost.id.as_str()).unwrap();
    manager.recreate(&again, None).unwrap();
    assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap().sound, 2);
    assert_eq!(kinds(&manager, &target.sandbox).last().unwrap(), "ready");
}

#[test]
fn nothing_is_concluded_from_an_extension_that_does_not_answer() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    hosted.room.there.lock().unwrap().clear();
    *hosted.room.sick.lock().unwrap() = Some("the daemon is down".into());
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.lost.is_empty() && report.failed[0].contains("the daemon is down"), "{report:?}");
    assert_eq!(kinds(&manager, &target.sandbox).last().unwrap(), "ready");
}

#[test]
fn what_is_made_while_the_list_is_on_its_way_is_not_lost() {
    let hosted = Hosted::new();
    let (manager, request) = (hosted.manager(), hosted.request(None));
    let made = Arc::new(std::sync::Mutex::new(None));
    let (maker, answer) = (hosted.manager(), made.clone());
    // The list is empty by then; the row is there when the store is read.
    *hosted.room.meanwhile.lock().unwrap() = Some(Box::new(move || {
        *answer.lock().unwrap() = Some(maker.get_or_create_sandbox(&request).unwrap().sandbox);
    }));
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert_eq!((report.lost.len(), report.sound), (0, 1), "{report:?}");
    let sandbox = made.lock().unwrap().take().unwrap();
    assert_eq!(kinds(&manager, &sandbox).last().unwrap(), "ready");
    let target = manager.find(sandbox.id.as_str()).unwrap();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    hosted.assert_nothing_left("its handle was not forgotten");
}

#[test]
fn one_of_several_things_that_runs_is_enough() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    *hosted.room.cables.lock().unwrap() = true;
    assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap().sound, 1);
    hosted.room.stopped.lock().unwrap().insert(target.sandbox.id.to_string());
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert_eq!((report.lost, report.sound), (vec![target.sandbox.id.clone()], 0));
    let found = manager.find(target.sandbox.id.as_str()).unwrap().sandbox.environment.unwrap();
    assert!(found.handle.is_some(), "what is there can still be taken down by its handle");
}

/// Whoever comes next does not start a plugin that it has nothing to do with, so that is for `reconcile`.
#[test]
fn reconcile_puts_right_what_only_a_plugin_can() {
    for (step, left) in [("provisioned", 1), ("provision", 0)] {
        let hosted = Hosted::by_plugin();
        hosted.world.script.at(step, Fault::Die);
        dies(|| hosted.manager().get_or_create_sandbox(&hosted.request(None)));
        let manager = hosted.manager();
        let told = manager.recover().unwrap().remove(0);
        assert!(told.failed && told.message.contains("takes a plugin"), "{told:?}");
        manager.reconcile(Duration::ZERO, true).unwrap();
        assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Provisioning, "a dry run only says");
        assert_eq!(hosted.there(), left);
        let report = manager.reconcile(Duration::ZERO, false).unwrap();
        assert!(
            report.recovered.len() == 1 && report.recovered[0].contains("removed half-made"),
            "{report:?}"
        );
        hosted.assert_nothing_left(step);
        assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Failed);
        assert!(manager.reconcile(Duration::ZERO, false).unwrap().recovered.is_empty());
        assert!(manager.recover().unwrap().is_empty());
    }
}

#[test]
fn reconcile_says_what_it_could_not_put_right() {
    let hosted = Hosted::by_plugin();
    let (manager, target) = hosted.made();
    hosted.world.script.at("teardown", Fault::AlwaysFail);
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.failed[0].starts_with(target.sandbox.id.as_str()), "{report:?}");
    hosted.world.script.calm();
    manager.reconcile(Duration::ZERO, false).unwrap();
    hosted.assert_nothing_left("at last");
}

/// Killed when its state was written and its directory not yet removed: that takes no plugin.
#[test]
fn any_command_removes_what_is_left_of_a_plugins_sandbox_that_is_gone() {
    let hosted = Hosted::by_plugin();
    let (manager, target) = hosted.made();
    let id = &target.sandbox.id;
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    let operation = super::super::manager::new_operation(id, "destroy", serde_json::json!({}));
    manager.store.begin(&operation).unwrap();
    fs::create_dir_all(manager.sandbox_dir(id)).unwrap();
    hosted.world.script.at("teardown", Fault::AlwaysFail);
    assert!(manager.recover().unwrap().is_empty());
    hosted.assert_nothing_left("it was gone already");
    assert_eq!(last(&manager, "destroy").0, "done");
}

#[test]
fn gc_asks_only_those_who_ever_made_something() {
    let hosted = Hosted::new();
    hosted.room.there.lock().unwrap().insert("sbx_unknown".into());
    *hosted.room.sick.lock().unwrap() = Some("the daemon is down".into());
    let manager = hosted.manager();
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default(), "it has made nothing");
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.failed.is_empty() && report.unasked[0].contains("the daemon is down"), "{report:?}");
    *hosted.room.sick.lock().unwrap() = None;
    let (manager, target) = hosted.made();
    hosted.room.there.lock().unwrap().remove(target.sandbox.id.as_str());
    let report = manager.gc(Uncommitted::Park, false).unwrap().environments;
    assert_eq!((&report.lost[..], report.young.len()), (&[target.sandbox.id.clone()][..], 1), "{report:?}");
    assert_eq!(kinds(&manager, &target.sandbox).last().unwrap(), "lost");
    *hosted.room.sick.lock().unwrap() = Some("the daemon is down".into());
    assert!(manager.gc(Uncommitted::Park, false).unwrap().failed[0].contains("the daemon is down"));
}

#[test]
fn an_extension_that_is_not_here_or_not_known_any_more_is_named() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    *hosted.room.absent.lock().unwrap() = true;
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.lost.is_empty() && report.failed == ["ext.fake: it is not installed"], "{report:?}");
    let without = hosted.manager_knowing(&["ext.local"]);
    let report = without.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.failed[0].contains("not in the catalogue any more"), "{report:?}");
    assert!(without.runs_here(&target.sandbox).is_err() && !manager.runs_here(&target.sandbox).unwrap());
}

#[test]
fn what_is_lost_is_still_taken_down_and_may_come_back() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    let id = target.sandbox.id.to_string();
    hosted.room.there.lock().unwrap().remove(&id);
    assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap().lost.len(), 1);
    hosted.room.there.lock().unwrap().insert(id.clone());
    // It has begun to start, and is reached elsewhere when it has.
    hosted.world.script.at("wait_ready", Fault::Fail);
    *hosted.room.port.lock().unwrap() = 1;
    assert_eq!(manager.reconcile(Duration::ZERO, true).unwrap().sound, 1, "a dry run waits for nothing");
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert_eq!((report.lost, report.sound), (vec![target.sandbox.id.clone()], 0));
    assert!(manager.find(&id).unwrap().sandbox.environment.unwrap().failure.is_some());
    assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap().sound, 1);
    let told = kinds(&manager, &target.sandbox);
    assert!(told.ends_with(&["lost".to_owned(), "recreated".to_owned()]), "{told:?}");
    let found = manager.find(&id).unwrap().sandbox.environment.unwrap();
    assert_eq!((found.failure.is_none(), found.endpoints[0].port), (true, 8081));
    // Whoever was asked did not see it, and it is there all the same.
    hosted.room.there.lock().unwrap().remove(&id);
    manager.reconcile(Duration::ZERO, false).unwrap();
    hosted.room.there.lock().unwrap().insert(id.clone());
    manager.destroy(&manager.find(&id).unwrap(), Uncommitted::Discard).unwrap();
    hosted.assert_nothing_left("it was looked for once more");
}

/// Whoever was cut off on a host goes on, and makes things for a sandbox whose environment was taken down.
#[test]
fn what_survived_its_environment_is_removed() {
    for parked in [false, true] {
        let hosted = Hosted::new();
        let (manager, target) = hosted.made();
        change_all(&manager, &target);
        let id = target.sandbox.id.to_string();
        if parked {
            manager.destroy(&target, Uncommitted::Park).unwrap();
        } else {
            hosted.world.script.at("provision", Fault::Fail);
            manager.recreate(&target, None).unwrap_err();
        }
        assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap(), ReconcileReport::default());
        hosted.room.there.lock().unwrap().insert(id.clone());
        let young = manager.reconcile(Duration::from_secs(3600), false).unwrap();
        assert_eq!((young.removed.len(), young.young.len(), hosted.there()), (0, 1, 1), "{young:?}");
        let dry = manager.reconcile(Duration::from_secs(60), true).unwrap();
        assert_eq!((dry.removed.len(), hosted.there()), (1, 1), "{dry:?}");
        let lock = manager.lock(&target.sandbox.id).unwrap();
        assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap(), ReconcileReport::default());
        drop(lock);
        let report = manager.reconcile(Duration::from_secs(60), false).unwrap();
        assert_eq!((&report.removed[..], hosted.there()), (&[format!("thing of {id} (ext.fake)")][..], 0));
        assert!(report.lost.is_empty() && manager.list(false).unwrap().len() == usize::from(!parked));
    }
}

#[test]
fn what_survived_and_cannot_be_removed_is_told() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    change_all(&manager, &target);
    manager.destroy(&target, Uncommitted::Park).unwrap();
    hosted.room.there.lock().unwrap().insert(target.sandbox.id.to_string());
    hosted.world.script.at("teardown", Fault::Fail);
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.failed[0].contains("scripted failure at teardown"), "{report:?}");
    let script = hosted.world.script.clone();
    *hosted.room.meanwhile.lock().unwrap() = Some(Box::new(move || script.at("inspect", Fault::Fail)));
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.failed[0].contains("scripted failure at inspect"), "{report:?}");
    assert_eq!((report.removed.len(), hosted.there()), (0, 1));
}

#[test]
fn what_waits_to_be_adopted_is_left_alone() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    drop(manager);
    for file in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(hosted.world.home().join(file));
    }
    let report = hosted.manager().reconcile(Duration::ZERO, false).unwrap();
    assert_eq!((report.removed.len(), report.young.len(), hosted.there()), (0, 1, 1), "{report:?}");
    assert!(report.young[0].contains(target.sandbox.id.as_str()));
}
