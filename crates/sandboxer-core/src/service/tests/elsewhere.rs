//! Workspaces that are copied to where their environment is, over hosts that are directories: nothing that was done there is lost, whatever
//! fails in between.

use std::sync::Mutex;

use jiff::Timestamp;
use serde_json::json;

use super::environment::{Hosted, definition, profile};
use super::*;
use crate::contract::{EnvironmentExtension, Quiet};
use crate::environment::{
    Environments, ExtensionContext, ExtensionRegistry, Found, Handle, Health, Host, Known, Mount, Provider,
    Provision, Ready, Way, WorkspaceAccess,
};
use crate::model::{CommitRequest, SandboxId};

/// Every host is a directory, every sandbox on it one below that, every workspace a file in it that holds what `a` holds.
struct Hosts {
    root: PathBuf,
    script: Arc<Script>,
    held: Arc<Mutex<i32>>,
}

struct OnHost {
    place: PathBuf,
    script: Arc<Script>,
    held: Arc<Mutex<i32>>,
}

/// Counts who is held.
struct Held(Arc<Mutex<i32>>);

impl Drop for Held {
    fn drop(&mut self) {
        *self.0.lock().unwrap() -= 1;
    }
}

impl EnvironmentExtension for Hosts {
    fn on(&self, host: &Host) -> Result<Option<Arc<dyn EnvironmentExtension>>> {
        let place = self.root.join(&host.id);
        Ok(Some(Arc::new(OnHost { place, script: self.script.clone(), held: self.held.clone() })))
    }

    fn provision(&self, _: &Provision) -> Result<Handle> {
        Err(Error::refused("nowhere"))
    }

    fn wait_ready(&self, _: &Handle, _: Duration, _: &CancelFlag) -> Result<Ready> {
        Err(Error::refused("nowhere"))
    }

    fn teardown(&self, _: &SandboxId, _: Option<&Handle>) -> Result<()> {
        Err(Error::refused("nowhere"))
    }

    fn inspect(&self, _: Option<&SandboxId>) -> Result<Vec<Found>> {
        Err(Error::refused("nowhere"))
    }
}

impl OnHost {
    fn dir(&self, sandbox: &SandboxId) -> PathBuf {
        self.place.join(sandbox.as_str())
    }

    fn copy(&self, handle: &Handle, mount: &Mount) -> (PathBuf, PathBuf) {
        (mount.from.join("a"), self.dir(&handle.sandbox_id).join(&mount.workspace))
    }
}

impl EnvironmentExtension for OnHost {
    fn provision(&self, request: &Provision) -> Result<Handle> {
        self.script.pass("provision", "env")?;
        fs::create_dir_all(self.dir(&request.sandbox_id)).unwrap();
        let sandbox_id = request.sandbox_id.clone();
        let handle =
            Handle { version: 1, sandbox_id, data: json!({}), exec: vec![], exec_on_terminal: vec![] };
        self.send(&handle, &request.mounts)?;
        let volume = request.kept.as_ref().map(|kept| fs::read(kept.join("volume")).unwrap());
        fs::write(self.dir(&request.sandbox_id).join("volume"), volume.unwrap_or_default()).unwrap();
        Ok(handle)
    }

    fn wait_ready(&self, _: &Handle, _: Duration, _: &CancelFlag) -> Result<Ready> {
        Ok(Ready { endpoints: Vec::new(), notes: vec!["made otherwise".to_owned()] })
    }

    fn teardown(&self, sandbox: &SandboxId, _: Option<&Handle>) -> Result<()> {
        self.script.pass("teardown", "env")?;
        let _ = fs::remove_dir_all(self.dir(sandbox));
        Ok(())
    }

    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
        self.script.pass("inspect", &self.place.file_name().unwrap().to_string_lossy())?;
        let entries = fs::read_dir(&self.place).into_iter().flatten();
        let ids =
            entries.map(|entry| SandboxId::from_string(entry.unwrap().file_name().into_string().unwrap()));
        let found = |id| Found {
            sandbox_id: id,
            what: "directory".into(),
            running: true,
            made_at: Some(Timestamp::UNIX_EPOCH),
        };
        Ok(ids.filter(|id| sandbox.is_none_or(|wanted| wanted == id)).map(found).collect())
    }

    fn health(&self) -> Health {
        match self.script.pass("health", &self.place.file_name().unwrap().to_string_lossy()) {
            Ok(()) => Health::Healthy,
            Err(error) => Health::Unhealthy(error.to_string()),
        }
    }

    fn fetch(&self, handle: &Handle, mounts: &[Mount]) -> Result<bool> {
        self.script.pass("fetch", "env")?;
        self.script.pass("compare", "env").map_err(|_| Error::Refused {
            reason: "changed here as well: a".to_owned(),
            hint: Some("move it away".to_owned()),
        })?;
        if !self.dir(&handle.sandbox_id).exists() {
            return Ok(false);
        }
        for mount in mounts {
            let (here, there) = self.copy(handle, mount);
            fs::copy(there, here).unwrap();
        }
        Ok(true)
    }

    fn send(&self, handle: &Handle, mounts: &[Mount]) -> Result<()> {
        self.script.pass("send", "env")?;
        for mount in mounts {
            let (here, there) = self.copy(handle, mount);
            fs::copy(here, there).unwrap();
        }
        Ok(())
    }

    fn keep(&self, handle: &Handle, into: &Path) -> Result<bool> {
        self.script.pass("keep", "env")?;
        if !self.dir(&handle.sandbox_id).join("volume").exists() {
            return Ok(false);
        }
        fs::create_dir_all(into).unwrap();
        fs::copy(self.dir(&handle.sandbox_id).join("volume"), into.join("volume")).unwrap();
        Ok(true)
    }

    fn line(&self, _: &Handle, way: &Way<'_>) -> Result<Option<Vec<std::ffi::OsString>>> {
        Ok(matches!(way, Way::Logs { .. }).then(|| vec!["logs".into()]))
    }

    fn hold_still(&self, _: &Handle) -> Result<Option<Quiet>> {
        *self.held.lock().unwrap() += 1;
        Ok(Some(Box::new(Held(self.held.clone()))))
    }
}

/// A world with two hosts.
struct Far {
    hosted: Hosted,
    held: Arc<Mutex<i32>>,
}

impl Far {
    fn new() -> Self {
        Self { hosted: Hosted::new(), held: Arc::default() }
    }

    fn root(&self) -> PathBuf {
        self.hosted.world.temp.path().join("hosts")
    }

    fn manager(&self) -> SandboxManager {
        let mut registry = ExtensionRegistry::new(ExtensionContext::quiet(self.hosted.world.home()));
        let (root, script, held) = (self.root(), self.hosted.world.script.clone(), self.held.clone());
        registry.provide(
            "compose-ssh",
            Arc::new(move |_, _| {
                Ok(Arc::new(Hosts { root: root.clone(), script: script.clone(), held: held.clone() }))
            }),
        );
        let mut fake = definition("ext.fake", Provider::ComposeSsh);
        fake.capabilities.workspaces = WorkspaceAccess::Transfer;
        let host = |id: &str| Host { id: id.into(), extensions: vec!["ext.fake".into()], ..Host::local() };
        let known = Known {
            extensions: BTreeMap::from([("ext.fake".to_owned(), fake)]),
            hosts: ["h1", "h2"].map(|id| (id.to_owned(), host(id))).into(),
        };
        let environments = Environments::new(registry, Box::new(move || Ok(known.clone())));
        SandboxManager::open(ManagerParts { environments, ..self.hosted.world.parts() }).unwrap()
    }

    fn made(&self) -> (SandboxManager, Target) {
        self.made_on("h1")
    }

    fn made_on(&self, host: &str) -> (SandboxManager, Target) {
        let manager = self.manager();
        let mut request = self.hosted.request_of(profile(), None);
        request.environment.as_mut().unwrap().route.host = host.to_owned();
        let sandbox = manager.get_or_create_sandbox(&request).unwrap().sandbox;
        (manager.find(sandbox.id.as_str()).map(|target| (manager, target))).unwrap()
    }

    fn there(&self, target: &Target, name: &str) -> PathBuf {
        self.root().join(target.sandbox.host()).join(target.sandbox.id.as_str()).join(name)
    }

    /// A service changes the workspace.
    fn change(&self, target: &Target, content: &str) {
        assert_eq!(*self.held.lock().unwrap(), 0, "what stands still changes nothing");
        fs::write(self.there(target, "proj"), content).unwrap();
    }

    fn content(&self, target: &Target) -> String {
        fs::read_to_string(self.there(target, "proj")).unwrap()
    }

    fn script(&self) -> &Script {
        &self.hosted.world.script
    }
}

fn a() -> RelPath {
    RelPath::parse("a").unwrap()
}

fn read(manager: &SandboxManager, target: &Target) -> String {
    String::from_utf8(manager.read(target, &a()).unwrap()).unwrap()
}

#[test]
fn what_changes_there_is_here_when_somebody_looks() {
    let far = Far::new();
    let (manager, target) = far.made();
    assert_eq!(target.sandbox.environment.as_ref().unwrap().notes, ["made otherwise"]);
    far.change(&target, "there");
    assert_eq!(manager.diff(&target, &[]).unwrap().workspaces[0].entries.len(), 1);
    far.change(&target, "later");
    assert_eq!(read(&manager, &target), "later");
    far.change(&target, "last");
    let mut whole = Vec::new();
    manager.read_to(&target, &a(), &mut whole).unwrap();
    assert_eq!(whole, b"last");
    far.change(&target, "committed");
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(far.hosted.world.content("proj"), "committed");
    assert_eq!(*far.held.lock().unwrap(), 0);
}

#[test]
fn what_changes_here_is_there_afterwards() {
    let far = Far::new();
    let (manager, target) = far.made();
    manager.write(&target, &a(), b"from here").unwrap();
    assert_eq!(far.content(&target), "from here");
    manager.checkpoint(&target, Some("one")).unwrap();
    far.change(&target, "there");
    manager.restore(&target, "one").unwrap();
    assert_eq!(far.content(&target), "from here");
    far.change(&target, "there");
    manager.rollback(&target, &[]).unwrap();
    assert_eq!(far.content(&target), "old");
    far.change(&target, "new");
    let commit = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    let operation = manager.find_operation(commit.op_id.as_str()).unwrap();
    manager.undo(&operation).unwrap();
    assert_eq!((far.content(&target).as_str(), far.hosted.world.content("proj").as_str()), ("new", "old"));
    manager.rollback_plan(&target.sandbox.plan_id).unwrap();
    assert_eq!(far.content(&target), "old");
    assert_eq!(*far.held.lock().unwrap(), 0);
}

#[test]
fn what_could_not_be_sent_is_sent_first_and_nothing_moves_meanwhile() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "there");
    far.script().at("send", Fault::Fail);
    let refused = manager.rollback(&target, &[]).unwrap_err();
    assert!(refused.to_string().contains("done here"), "{refused}");
    assert_eq!((far.content(&target).as_str(), *far.held.lock().unwrap()), ("there", 1));
    far.script().at("send", Fault::Fail);
    manager.diff(&target, &[]).unwrap_err();
    assert_eq!(*far.held.lock().unwrap(), 2, "it is held once more, and not let go of");
    assert!(manager.diff(&target, &[]).unwrap().workspaces[0].entries.is_empty());
    assert_eq!(far.content(&target), "old");
}

#[test]
fn who_enters_finds_what_could_not_be_sent_before() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.script().at("send", Fault::Fail);
    manager.write(&target, &a(), b"mine").unwrap_err();
    far.script().at("send", Fault::Fail);
    assert!(manager.use_sandbox(&target).is_err());
    drop(manager.use_sandbox(&target).unwrap());
    assert_eq!(far.content(&target), "mine");
}

#[test]
fn a_stack_that_is_made_again_has_nothing_left_to_be_sent() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.script().at("send", Fault::Fail);
    manager.write(&target, &a(), b"mine").unwrap_err();
    *far.held.lock().unwrap() = 0;
    manager.recreate(&target, None).unwrap();
    *far.held.lock().unwrap() = 0;
    assert_eq!(far.content(&target), "mine");
    far.change(&target, "results");
    assert_eq!(read(&manager, &target), "results");
}

#[test]
fn what_ended_by_itself_may_have_work_in_it() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "work");
    let environment = target.sandbox.environment.as_deref().unwrap();
    let failure = Some(crate::service::environment::lost_for_tests());
    let lost = crate::environment::Environment { failure, ..environment.clone() };
    manager.store.tell_of_environment(&target.sandbox.id, &lost, "lost", None).unwrap();
    let target = manager.find(target.sandbox.id.as_str()).unwrap();
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Parked { changes: 1 });
}

#[test]
fn what_has_not_been_sent_is_not_found_again() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.script().at("send", Fault::Fail);
    manager.write(&target, &a(), b"mine").unwrap_err();
    let environment = target.sandbox.environment.as_deref().unwrap();
    let failure = Some(crate::service::environment::lost_for_tests());
    let lost = crate::environment::Environment { failure, ..environment.clone() };
    manager.store.tell_of_environment(&target.sandbox.id, &lost, "lost", None).unwrap();
    assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap().sound, 0, "it stands still");
    assert_eq!(read(&manager, &manager.find(target.sandbox.id.as_str()).unwrap()), "mine");
    assert_eq!(manager.reconcile(Duration::ZERO, false).unwrap().sound, 1);
}

#[test]
fn nobody_lets_go_of_what_has_not_been_sent() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.script().at("write", Fault::Die);
    dies(|| manager.write(&target, &a(), b"mine"));
    drop(manager);
    *far.held.lock().unwrap() = 0;
    let manager = far.manager();
    manager.extend(&target, jiff::SignedDuration::from_hours(1)).unwrap();
    assert_eq!(*far.held.lock().unwrap(), 1, "recovery leaves it held");
}

#[test]
fn a_recreate_that_died_throws_no_work_away() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "work");
    far.script().at("fetch", Fault::Die);
    dies(|| manager.recreate(&target, None));
    drop(manager);
    let manager = far.manager();
    manager.reconcile(Duration::ZERO, false).unwrap();
    let target = manager.find(target.sandbox.id.as_str()).unwrap();
    assert_eq!(read(&manager, &target), "work");
}

#[test]
fn who_replaces_everything_need_not_know_what_changed() {
    let far = Far::new();
    let (manager, target) = far.made();
    manager.checkpoint(&target, Some("one")).unwrap();
    far.change(&target, "there");
    far.script().at("fetch", Fault::AlwaysFail);
    manager.rollback(&target, &[]).unwrap();
    assert_eq!(far.content(&target), "old");
    far.change(&target, "there");
    manager.restore(&target, "one").unwrap();
    assert_eq!(far.content(&target), "old");
    manager.rollback(&target, &[a()]).unwrap_err();
}

#[test]
fn what_was_not_replaced_is_not_overwritten() {
    for (step, fault) in [("rollback", Fault::Fail), ("rollback", Fault::Die), ("restore", Fault::Fail)] {
        let far = Far::new();
        let (mut manager, target) = far.made();
        manager.checkpoint(&target, Some("one")).unwrap();
        far.change(&target, "work");
        far.script().at(step, fault);
        match (step, fault) {
            (_, Fault::Die) => dies(|| manager.rollback(&target, &[])),
            ("restore", _) => drop(manager.restore(&target, "one").unwrap_err()),
            _ => drop(manager.rollback(&target, &[]).unwrap_err()),
        }
        drop(manager);
        assert_eq!((far.content(&target).as_str(), *far.held.lock().unwrap()), ("work", 0), "{step}");
        manager = far.manager();
        manager.extend(&target, jiff::SignedDuration::from_hours(1)).unwrap();
        assert_eq!(*far.held.lock().unwrap(), 0, "it may run on: {step}");
        far.script().at("fetch", Fault::Fail);
        let refused = manager.diff(&target, &[]).unwrap_err();
        assert!(
            matches!(&refused, Error::Refused { hint: Some(hint), .. } if hint.contains("sandbox rollback")),
            "{refused}"
        );
        far.change(&target, "more work");
        assert_eq!(read(&manager, &target), "more work", "{step} {fault:?}");
        far.script().at("fetch", Fault::Fail);
        let refused = manager.diff(&target, &[]).unwrap_err();
        assert!(matches!(refused, Error::Usage { .. }), "nothing is left of it: {refused}");
        manager.rollback(&target, &[]).unwrap();
        assert_eq!(far.content(&target), "old");
    }
}

#[test]
fn what_was_not_sent_before_is_sent_after_a_replacement_that_failed() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.script().at("send", Fault::Fail);
    manager.write(&target, &a(), b"mine").unwrap_err();
    far.script().at("rollback", Fault::Fail);
    manager.rollback(&target, &[]).unwrap_err();
    assert_eq!(far.content(&target), "mine");
}

#[test]
fn who_cannot_leave_a_mark_changes_nothing() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "work");
    let mark = manager.sandbox_dir(&target.sandbox.id).join("replacing");
    fs::create_dir(&mark).unwrap();
    manager.rollback(&target, &[]).unwrap_err();
    assert_eq!(far.content(&target), "work");
    fs::remove_dir(mark).unwrap();
    assert_eq!(read(&manager, &target), "work");
}

#[test]
fn a_commit_that_cannot_be_told_is_a_commit() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "new");
    far.script().at("send", Fault::Fail);
    let commit = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert!(commit.unsent.unwrap().contains("h1 could not be told"));
    assert_eq!((far.hosted.world.content("proj").as_str(), *far.held.lock().unwrap()), ("new", 1));
}

#[test]
fn work_on_a_host_that_does_not_answer_is_not_thrown_away() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "work");
    far.script().at("fetch", Fault::Fail);
    let refused = manager.destroy(&target, Uncommitted::Park).unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { hint: Some(hint), .. }
            if hint.starts_with("try again when") && hint.contains("--discard")),
        "{refused}"
    );
    assert!(far.there(&target, "proj").exists());
    far.script().at("compare", Fault::Fail);
    let refused = manager.recreate(&target, None).unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { hint: Some(hint), .. }
            if hint.starts_with("move it away; ") && hint.contains("--discard")),
        "{refused:?}"
    );
    assert!(far.there(&target, "proj").exists());
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Parked { changes: 1 });
    assert!(!far.there(&target, "proj").exists());
    let parked = manager.parked().unwrap().remove(0);
    let sandbox = manager.unpark(&parked.sandbox, None).unwrap();
    let target = manager.find(sandbox.id.as_str()).unwrap();
    assert_eq!(read(&manager, &target), "work");
}

#[test]
fn what_is_gone_is_told_and_recreated_from_what_is_here() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "seen");
    assert_eq!(read(&manager, &target), "seen");
    fs::remove_dir_all(far.root().join("h1")).unwrap();
    let refused = manager.diff(&target, &[]).unwrap_err();
    assert!(refused.to_string().contains("is gone from h1"), "{refused}");
    assert_eq!(
        manager.reconcile(Duration::ZERO, false).unwrap().lost,
        std::slice::from_ref(&target.sandbox.id)
    );
    let target = manager.find(target.sandbox.id.as_str()).unwrap();
    manager.recreate(&target, None).unwrap();
    assert_eq!(far.content(&target), "seen");
}

#[test]
fn a_checkpoint_covers_what_else_there_is() {
    let far = Far::new();
    let (manager, target) = far.made();
    fs::write(far.there(&target, "volume"), "goods").unwrap();
    manager.checkpoint(&target, Some("full")).unwrap();
    fs::write(far.there(&target, "volume"), "").unwrap();
    manager.checkpoint(&target, Some("empty")).unwrap();
    manager.recreate(&target, Some("full")).unwrap();
    assert_eq!(fs::read(far.there(&target, "volume")).unwrap(), b"goods");
    manager.recreate(&target, None).unwrap();
    assert_eq!(fs::read(far.there(&target, "volume")).unwrap(), b"");
    let pruned = manager.checkpoint_service().prune(&target, 1).unwrap();
    assert_eq!(pruned.len(), 1);
    let kept = far.hosted.world.home().join("sandboxes").join(target.sandbox.id.as_str()).join("kept");
    assert_eq!(fs::read_dir(kept).unwrap().count(), 1);
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!(far.hosted.world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_stack_that_is_made_from_a_checkpoint_has_its_workspace() {
    for step in ["fetch", "teardown"] {
        let far = Far::new();
        let (manager, target) = far.made();
        far.change(&target, "good");
        manager.checkpoint(&target, Some("one")).unwrap();
        far.change(&target, "bad");
        let file = far.there(&target, "proj");
        far.script().meanwhile(step, move || fs::write(file, "worse").unwrap());
        manager.recreate(&target, Some("one")).unwrap();
        assert_eq!(far.content(&target), "good", "{step}");
    }
}

#[test]
fn a_recreate_from_a_checkpoint_that_died_begins_with_that() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.change(&target, "good");
    manager.checkpoint(&target, Some("one")).unwrap();
    far.change(&target, "bad");
    far.script().at("teardown", Fault::Die);
    dies(|| manager.recreate(&target, Some("one")));
    drop(manager);
    let manager = far.manager();
    manager.reconcile(Duration::ZERO, false).unwrap();
    manager.recreate(&manager.find(target.sandbox.id.as_str()).unwrap(), None).unwrap();
    assert_eq!(far.content(&target), "good");
}

#[test]
fn a_recreate_from_what_cannot_be_restored_takes_nothing_down() {
    let far = Far::new();
    let (manager, target) = far.made();
    manager.checkpoint(&target, Some("one")).unwrap();
    far.change(&target, "work");
    manager.recreate(&target, Some("two")).unwrap_err();
    far.script().at("restore", Fault::Fail);
    manager.recreate(&target, Some("one")).unwrap_err();
    let running = manager.use_sandbox(&target).unwrap();
    assert!(matches!(manager.recreate(&target, Some("one")), Err(Error::Busy { .. })));
    assert!(matches!(manager.recreate(&target, None), Err(Error::Busy { .. })));
    drop(running);
    far.change(&target, "more work");
    assert_eq!(read(&manager, &target), "more work");
}

#[test]
fn a_checkpoint_that_cannot_be_kept_is_none() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.script().at("keep", Fault::Fail);
    manager.checkpoint(&target, Some("one")).unwrap_err();
    assert!(manager.checkpoints(&target).unwrap().is_empty());
    manager.checkpoint(&target, Some("one")).unwrap();
}

#[test]
fn what_a_killed_checkpoint_kept_is_nobodys() {
    let far = Far::new();
    let (manager, target) = far.made();
    let kept = manager.sandbox_dir(&target.sandbox.id).join("kept");
    for name in ["one", "two", "three"] {
        fs::create_dir_all(kept.join(name)).unwrap();
        fs::write(kept.join(name).join("volume"), "stale").unwrap();
    }
    manager.checkpoint(&target, Some("one")).unwrap();
    assert_eq!(fs::read(kept.join("one/volume")).unwrap(), b"");
    fs::remove_file(far.there(&target, "volume")).unwrap();
    manager.checkpoint(&target, Some("two")).unwrap();
    assert!(!kept.join("two").exists(), "there was nothing to keep");
    far.script().at("provision", Fault::Fail);
    manager.recreate(&target, None).unwrap_err();
    manager.checkpoint(&target, Some("three")).unwrap();
    assert!(!kept.join("three").exists(), "there was nothing to keep it of");
}

#[test]
fn checkpoints_leave_each_others_volumes_alone() {
    let far = Far::new();
    let (manager, target) = far.made();
    let kept = manager.sandbox_dir(&target.sandbox.id).join("kept");
    for name in ["a.part", "a", "a.x"] {
        manager.checkpoint(&target, Some(name)).unwrap();
    }
    assert!(["a.part", "a", "a.x"].iter().all(|name| kept.join(name).join("volume").exists()));
}

#[test]
fn hosts_are_looked_at_one_by_one() {
    let far = Far::new();
    let (manager, first) = far.made_on("h1");
    let (_, second) = far.made_on("h2");
    fs::create_dir(far.root().join("h2/sbx_unknown")).unwrap();
    far.script().at("health h1", Fault::Fail);
    let report = manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(report.failed[0].starts_with("ext.fake on h1: "), "{report:?}");
    assert_eq!((report.sound, report.removed.len(), report.lost.len()), (1, 1, 0));
    assert!(!far.root().join("h2/sbx_unknown").exists());
    fs::create_dir(far.root().join("h1/sbx_other")).unwrap();
    assert_eq!(manager.reconcile_host("h2", Duration::ZERO, false).unwrap().removed.len(), 0);
    assert_eq!(manager.reconcile_host("h1", Duration::ZERO, true).unwrap().removed.len(), 1);
    manager.reconcile_host("nowhere", Duration::ZERO, true).unwrap_err();
    for target in [first, second] {
        manager.destroy(&target, Uncommitted::Discard).unwrap();
    }
}

#[test]
fn a_stack_that_cannot_be_fetched_does_not_shield_others_whose_time_is_up() {
    let far = Far::new();
    let (manager, first) = far.made();
    let (_, second) = far.made();
    far.change(&first, "work");
    for target in [&first, &second] {
        manager.extend(target, jiff::SignedDuration::from_micros(1)).unwrap();
    }
    // A host that is away is asked for one of them, and once more whether it is there.
    far.script().at("fetch", Fault::Fail);
    far.script().at("inspect", Fault::Fail);
    let report = manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!((report.expired.len(), report.parked.len(), report.failed.len()), (0, 0, 2), "{report:?}");
    assert!(report.failed[1].ends_with("ext.fake on h1 does not answer"), "{report:?}");
    // One that answers is asked for the other as well.
    far.script().at("fetch", Fault::Fail);
    let report = manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!((report.expired.len() + report.parked.len(), report.failed.len()), (1, 1), "{report:?}");
    assert!(report.failed[0].contains("cannot be brought here: scripted failure"), "{report:?}");
    let report = manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!((report.expired.len() + report.parked.len(), report.failed.len()), (1, 0), "{report:?}");
    assert_eq!(manager.parked().unwrap().len(), 1, "no work was thrown away");
}

#[test]
fn ways_are_the_extensions_affair() {
    let far = Far::new();
    let (manager, target) = far.made();
    let logs = Way::Logs { part: None, follow: false, tail: None };
    assert_eq!(manager.line(&target.sandbox, &logs).unwrap().unwrap(), ["logs"]);
    let exec = Way::Exec { part: None, directory: None, terminal: false, command: &[] };
    assert!(manager.line(&target.sandbox, &exec).unwrap().is_none());
    let (plain, target) = World::new().one();
    assert!(plain.line(&target.sandbox, &logs).unwrap().is_none());
}

#[test]
fn other_commands_ask_no_other_machine() {
    let far = Far::new();
    let (manager, target) = far.made();
    far.script().at("teardown", Fault::Die);
    dies(|| manager.destroy(&target, Uncommitted::Discard));
    drop(manager);
    let manager = far.manager();
    let before = far.script().calls().len();
    manager.recover().unwrap();
    manager.enforce_ttl().unwrap();
    assert_eq!(far.script().calls().len(), before);
    manager.reconcile(Duration::ZERO, false).unwrap();
    assert!(manager.list(false).unwrap().is_empty());
}
