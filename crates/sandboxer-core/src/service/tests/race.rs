//! Several managers over one state directory at the same time, as several processes would be.

use super::*;
use std::collections::HashSet;
use std::sync::Barrier;

/// Runs `work` in several threads at once, each with a manager of its own.
pub(super) fn all_at_once<T: Send>(
    world: &World,
    threads: usize,
    work: impl Fn(usize, SandboxManager) -> T + Sync,
) -> Vec<T> {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let run = |number: usize| {
            let (barrier, work) = (&barrier, &work);
            let mut parts = world.parts();
            parts.settings.lock_wait = Duration::from_secs(30);
            scope.spawn(move || {
                barrier.wait();
                work(number, SandboxManager::open(parts).unwrap())
            })
        };
        let handles: Vec<_> = (0..threads).map(run).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

#[test]
fn one_plan_gets_one_sandbox() {
    let world = World::new();
    let x = world.resource("x");
    let answers = all_at_once(&world, 6, |_, manager| {
        manager.recover().unwrap();
        manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap()
    });
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    let ids: HashSet<_> = answers.iter().map(|answer| answer.sandbox.id.clone()).collect();
    assert_eq!(ids.len(), 1);
    assert!(answers.iter().all(|answer| answer.sandbox.state.is_open()));
    assert_eq!(world.leftovers().len(), 2);
}

#[test]
fn names_are_unique_and_nobody_is_taken_for_dead() {
    let world = World::new();
    let x = world.resource("x");
    let names = all_at_once(&world, 6, |_, manager| {
        manager.recover().unwrap();
        let sandbox = manager.get_or_create_sandbox(&request(&[&x])).unwrap().sandbox;
        manager.gc(Uncommitted::Park, false).unwrap();
        sandbox.name
    });
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 6);
    let manager = world.manager();
    assert_eq!(manager.list(false).unwrap().len(), 6);
    for name in names {
        assert_eq!(manager.read(&manager.find(&name).unwrap(), &path("a")).unwrap(), b"old");
    }
}

#[test]
fn changes_of_one_sandbox_take_turns() {
    let world = World::new();
    let (_, target) = world.one();
    all_at_once(&world, 4, |number, manager| {
        for _ in 0..3 {
            manager.write(&target, &path(&format!("f{number}")), b"x").unwrap();
            manager.checkpoint(&target, None).unwrap();
        }
    });
    let records = world.manager().checkpoints(&target).unwrap();
    assert_eq!(records.iter().map(|r| r.sequence).collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
    assert_eq!(world.manager().log(None, 100).unwrap().iter().filter(|o| o.state == "done").count(), 25);
}

#[test]
fn destroying_at_once_is_fine() {
    let world = World::new();
    let (_, target) = world.one();
    all_at_once(&world, 4, |_, manager| manager.destroy(&target, Uncommitted::Discard).unwrap());
    assert_eq!(world.leftovers(), [""; 0]);
    let log = world.manager().log(None, 100).unwrap();
    assert_eq!(log.iter().filter(|o| o.kind == "destroy").count(), 1);
}

#[test]
fn recovery_happens_once() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    world.script.at("commit.apply", Fault::Die);
    dies(|| manager.commit(&target, &Default::default(), &CommitRules::default()));
    let recovered = all_at_once(&world, 4, |_, manager| manager.recover().unwrap().len());
    assert_eq!(recovered.iter().sum::<usize>(), 1);
    assert_eq!(world.content("proj"), "new");
}

#[test]
fn a_plan_made_and_destroyed_in_turns_never_overlaps() {
    let world = World::new();
    let x = world.resource("x");
    all_at_once(&world, 4, |_, manager| {
        for _ in 0..4 {
            let sandbox = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap().sandbox;
            assert!(manager.store.live_of_plan(&PlanId::from_string("p")).unwrap().len() <= 1);
            manager
                .destroy(&Target { workspaces: sandbox.workspaces.clone(), sandbox }, Uncommitted::Discard)
                .unwrap();
        }
    });
    let manager = world.manager();
    manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(manager.list(false).unwrap(), []);
    assert_eq!(world.leftovers(), [""; 0]);
}
