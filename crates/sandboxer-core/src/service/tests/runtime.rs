//! What runs in a sandbox holds still while its content is looked at and replaced, and ends with it.

use std::sync::Mutex;

use super::*;
use crate::contract::{Quiet, Runtime};
use crate::model::{CommitRequest, SandboxId};

/// Writes down what is asked of it, and when what it held still goes on.
#[derive(Default)]
struct Witness {
    seen: Arc<Mutex<Vec<String>>>,
    refuses: bool,
}

/// Says so when it is dropped.
struct Still(Arc<Mutex<Vec<String>>>);

impl Drop for Still {
    fn drop(&mut self) {
        self.0.lock().unwrap().push("go on".to_owned());
    }
}

impl Runtime for Witness {
    fn quiesce(&self, _: &SandboxId) -> Result<Option<Quiet>> {
        if self.refuses {
            return Err(Error::refused("it does not hold still"));
        }
        self.seen.lock().unwrap().push("hold still".to_owned());
        Ok(Some(Box::new(Still(self.seen.clone()))))
    }

    fn end(&self, _: &SandboxId) -> Result<()> {
        self.seen.lock().unwrap().push("end".to_owned());
        Ok(())
    }

    fn sweep(&self) -> Result<Vec<String>> {
        self.seen.lock().unwrap().push("sweep".to_owned());
        Ok(Vec::new())
    }
}

/// A manager with a witness, over a sandbox in which something has changed.
fn witnessed(world: &World, refuses: bool) -> (SandboxManager, Target, Arc<Mutex<Vec<String>>>) {
    let (manager, target) = world.one();
    change_all(&manager, &target);
    let seen = Arc::default();
    let runtime = Arc::new(Witness { seen: Arc::clone(&seen), refuses });
    let manager = SandboxManager::open(ManagerParts { runtime, ..world.parts() }).unwrap();
    (manager, target, seen)
}

#[test]
fn everything_that_replaces_content_asks_for_quiet_and_gives_it_back() {
    let world = World::new();
    let (manager, target, seen) = witnessed(&world, false);
    let once = || {
        let told = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(told, ["hold still", "go on"]);
    };
    manager.checkpoint(&target, Some("one")).unwrap();
    once();
    manager.restore(&target, "one").unwrap();
    once();
    let done = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    once();
    manager.undo(&manager.find_operation(done.op_id.as_str()).unwrap()).unwrap();
    once();
    manager.rollback(&target, &[]).unwrap();
    once();
    manager.diff(&target, &[]).unwrap();
    assert!(seen.lock().unwrap().is_empty(), "looking disturbs nobody");
}

#[test]
fn nothing_is_committed_while_something_goes_on_moving() {
    let world = World::new();
    let (manager, target, _) = witnessed(&world, true);
    let refused = manager.commit(&target, &CommitRequest::default(), &CommitRules::default());
    assert!(refused.is_err_and(|error| error.to_string().contains("hold still")));
    assert_eq!(world.content("proj"), "old");
}

#[test]
fn what_runs_ends_before_its_sandbox_goes() {
    let world = World::new();
    let (manager, target, seen) = witnessed(&world, false);
    manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), ["sweep"]);
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!(*seen.lock().unwrap(), ["end"]);
    assert_eq!(world.leftovers(), Vec::<String>::new());
}
