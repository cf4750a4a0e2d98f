//! `features/*.feature`, run by cucumber against a real manager and its handler of files.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "features/git_worktree.rs"]
mod git_worktree;
#[path = "features/overlay.rs"]
mod overlay;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cucumber::gherkin::Step;
use cucumber::writer::Stats as _;
use cucumber::{World as _, given, then, when};
use sandboxer::wiring::{self, Setup};
use sandboxer_core::Error;
use sandboxer_core::contract::{LocalPermissions, PermissionService, ResourceHandler};
use sandboxer_core::model::{
    AccessResult, CheckpointId, CheckpointResult, PlanId, Resource, RollbackResult, SandboxResult,
};
use sandboxer_core::service::SandboxManager;
use sandboxer_keeper::mount;
use sandboxer_testkit::faults::workspace_root;
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::mounts::DetachBelow;
use sandboxer_testkit::skip;
use tempfile::TempDir;

/// One scenario: a manager over fresh state, a directory, and what the handler answered last.
#[derive(cucumber::World)]
#[world(init = Self::new)]
struct Files {
    manager: SandboxManager,
    /// Goes before the directory: what is mounted there would keep it.
    _mounts: DetachBelow,
    dir: TempDir,
    /// Where the state and the original are.
    root: PathBuf,
    before: Manifest,
    /// What it is, to the handlers.
    type_name: &'static str,
    plan: PlanId,
    sandboxes: Vec<SandboxResult>,
    error: Option<String>,
    checkpoint: Option<CheckpointResult>,
    named: BTreeMap<String, CheckpointId>,
    rollback: Option<RollbackResult>,
    access: Option<AccessResult>,
    answers: overlay::Answers,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sandboxes, error, checkpoint, rollback, access, answers, .. } = self;
        write!(f, "{sandboxes:#?} {error:?} {checkpoint:#?} {rollback:#?} {access:#?} {answers:#?}")
    }
}

impl Files {
    fn new() -> Self {
        let dir = TempDir::with_prefix("sandboxer-features-").unwrap();
        Self {
            manager: manager(dir.path(), Arc::new(LocalPermissions)),
            _mounts: DetachBelow(dir.path().to_path_buf()),
            root: dir.path().to_path_buf(),
            dir,
            before: Manifest::default(),
            type_name: "fs-directory",
            plan: PlanId::from_string("none yet"),
            sandboxes: Vec::new(),
            error: None,
            checkpoint: None,
            named: BTreeMap::new(),
            rollback: None,
            access: None,
            answers: overlay::Answers::default(),
        }
    }

    /// Goes on with the state and the original in a directory below, as they are there.
    fn move_to(&mut self, below: &str) {
        self.root = self.dir.path().join(below);
        self.manager = manager(&self.root, Arc::new(LocalPermissions));
        self.before = Manifest::capture(&self.original());
    }

    fn original(&self) -> PathBuf {
        self.root.join("project")
    }

    fn resource(&self) -> Resource {
        Resource::at_path(self.type_name, &self.original())
    }

    fn handler(&self) -> Box<dyn ResourceHandler + '_> {
        self.manager.handler(self.type_name).unwrap()
    }

    fn in_sandbox(&self, path: &str) -> PathBuf {
        let by_handler = || self.sandboxes.last().unwrap().sandbox_path.clone().unwrap();
        let root = self.answers.sandbox_path().unwrap_or_else(by_handler);
        if path.is_empty() { root } else { root.join(path) }
    }

    fn create(&mut self, plan: &str) {
        self.plan = PlanId::from_string(plan);
        let result = self.handler().create_sandbox(&self.plan, &self.resource());
        match result {
            Ok(result) => self.sandboxes.push(result),
            Err(error) => self.error = Some(full_text(&error)),
        }
    }

    fn roll_back(&mut self, checkpoint: &CheckpointId) {
        let result = self.handler().rollback_to(&self.plan, &self.resource(), checkpoint).unwrap();
        self.rollback = Some(result);
    }
}

fn manager(root: &Path, permissions: Arc<dyn PermissionService>) -> SandboxManager {
    wiring::open(Setup { permissions, ..Setup::quiet(root.join("home")) }).unwrap()
}

/// An error with all its causes.
fn full_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

/// Refuses one action.
struct Refuses(String);

impl PermissionService for Refuses {
    fn decide(&self, principal: &str, action: &str, scope: &str) -> AccessResult {
        let permitted = action != self.0;
        let reason = if permitted { "nothing speaks against it" } else { "commits need a review" };
        AccessResult {
            permitted,
            reason: reason.to_owned(),
            ..LocalPermissions.decide(principal, action, scope)
        }
    }
}

#[given("a directory with these files")]
fn a_directory(world: &mut Files, step: &Step) {
    for row in step.table.as_ref().unwrap().rows.iter().skip(1) {
        let path = world.original().join(&row[0]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &row[1]).unwrap();
    }
    world.before = Manifest::capture(&world.original());
}

#[given("the directory is removed")]
fn directory_removed(world: &mut Files) {
    fs::remove_dir_all(world.original()).unwrap();
}

#[given(expr = "a permission service that refuses {string}")]
fn refusing(world: &mut Files, action: String) {
    world.manager = manager(&world.root, Arc::new(Refuses(action)));
}

#[given(expr = "the handler made a sandbox for plan {string}")]
#[when(expr = "the handler makes a sandbox for plan {string}")]
fn make_sandbox(world: &mut Files, plan: String) {
    world.create(&plan);
}

#[then("it was created")]
fn was_created(world: &mut Files) {
    let (last, earlier) = world.sandboxes.split_last().unwrap();
    assert!(last.created && !last.message.is_empty() && !last.strategy.is_empty());
    assert!(earlier.iter().all(|s| s.sandbox_id != last.sandbox_id));
}

#[then("it was there already, under the same id")]
fn was_there(world: &mut Files) {
    let [.., before, last] = world.sandboxes.as_slice() else { panic!("two sandboxes were made") };
    assert!(!last.created);
    assert_eq!((&last.sandbox_id, &last.sandbox_path), (&before.sandbox_id, &before.sandbox_path));
}

#[then("it is a copy of the directory")]
fn is_a_copy(world: &mut Files) {
    let copy = Manifest::capture(&world.in_sandbox(""));
    world.before.assert_same(&copy, Facets::COPY, "the sandbox");
}

#[then("it fails, and the message names the directory")]
fn fails_naming_directory(world: &mut Files) {
    let error = world.error.take().unwrap();
    assert!(error.contains(world.original().to_str().unwrap()), "{error}");
}

#[then(expr = "it fails, and the message names {string}")]
fn fails_naming(world: &mut Files, name: String) {
    let error = world.error.take().unwrap();
    assert!(error.contains(&name), "{error}");
}

#[given(expr = "{string} in the sandbox is {string}")]
fn write_in_sandbox(world: &mut Files, path: String, content: String) {
    fs::write(world.in_sandbox(&path), content).unwrap();
}

#[given(expr = "{string} in the sandbox is removed")]
fn remove_in_sandbox(world: &mut Files, path: String) {
    fs::remove_file(world.in_sandbox(&path)).unwrap();
}

#[then(expr = "{string} in the sandbox reads {string}")]
fn reads(world: &mut Files, path: String, content: String) {
    assert_eq!(fs::read_to_string(world.in_sandbox(&path)).unwrap(), content);
}

#[then(expr = "there is no {string} in the sandbox")]
fn is_not_there(world: &mut Files, path: String) {
    assert!(!world.in_sandbox(&path).exists());
}

#[then("the original is as it was")]
fn original_as_it_was(world: &mut Files) {
    world.before.assert_same(&Manifest::capture(&world.original()), Facets::UNTOUCHED, "the original");
}

#[when("the handler takes a checkpoint")]
fn take_checkpoint(world: &mut Files) {
    let result = world.handler().create_checkpoint(&world.plan, &world.resource()).unwrap();
    world.checkpoint = Some(result);
}

#[when(expr = "the handler takes a checkpoint for plan {string}")]
fn take_checkpoint_for(world: &mut Files, plan: String) {
    let plan = PlanId::from_string(plan);
    let result = world.handler().create_checkpoint(&plan, &world.resource());
    world.error = result.err().map(|e| full_text(&e));
}

#[given(expr = "the handler took a checkpoint called {string} here")]
fn took_checkpoint(world: &mut Files, name: String) {
    take_checkpoint(world);
    let id = world.checkpoint.as_ref().unwrap().checkpoint_id.clone();
    world.named.insert(name, id);
}

#[then(expr = "the checkpoint belongs to plan {string} and has a time and a message")]
fn checkpoint_belongs(world: &mut Files, plan: String) {
    let checkpoint = world.checkpoint.as_ref().unwrap();
    assert_eq!(checkpoint.plan_id, PlanId::from_string(plan));
    assert!(checkpoint.timestamp > jiff::Timestamp::UNIX_EPOCH && !checkpoint.message.is_empty());
}

#[when("the handler rolls back to the checkpoint")]
fn rolls_back(world: &mut Files) {
    let id = world.checkpoint.as_ref().unwrap().checkpoint_id.clone();
    world.roll_back(&id);
}

#[when(expr = "the handler rolls back to {string}")]
fn rolls_back_to(world: &mut Files, name: String) {
    let id = world.named[&name].clone();
    world.roll_back(&id);
}

#[when(expr = "the handler rolls back to a checkpoint {string}")]
fn rolls_back_to_unknown(world: &mut Files, name: String) {
    world.roll_back(&CheckpointId::from_string(name));
}

#[then(expr = "the rollback succeeded and restored {int} files")]
fn restored(world: &mut Files, files: u64) {
    let rollback = world.rollback.as_ref().unwrap();
    assert!(rollback.success && !rollback.message.is_empty());
    assert_eq!(rollback.restored_files, files, "{rollback:?}");
}

#[then(expr = "the rollback did not succeed, and its message names {string}")]
fn not_restored(world: &mut Files, name: String) {
    let rollback = world.rollback.as_ref().unwrap();
    assert!(!rollback.success && rollback.restored_files == 0);
    assert!(rollback.message.contains(&name), "{rollback:?}");
}

#[when(expr = "the handler is asked whether {string} may {string}")]
fn asked(world: &mut Files, principal: String, action: String) {
    let answer = world.handler().project_access(&principal, &action, &world.resource());
    world.access = Some(answer);
}

#[then(expr = "it is permitted to {string} with {string} on the directory, with a reason")]
fn permitted(world: &mut Files, principal: String, action: String) {
    let access = world.access.as_ref().unwrap();
    assert!(access.permitted && !access.reason.is_empty());
    assert_eq!((&access.principal, &access.action), (&principal, &action));
    assert_eq!(access.scope, world.resource().id.as_str());
}

#[then(expr = "it is refused, because {string}")]
fn refused(world: &mut Files, reason: String) {
    let access = world.access.as_ref().unwrap();
    assert!(!access.permitted);
    assert_eq!(access.reason, reason);
}

/// A plain test, so that every test runner lists and runs it like any other. Scenarios that need an overlay are marked so.
#[test]
fn features() {
    let features = workspace_root().join("features");
    let refusal = mount::try_host(&std::env::temp_dir()).err();
    let runner = Files::cucumber().with_default_cli().fail_on_skipped().max_concurrent_scenarios(2);
    let runs = move |name: &str, tags: &[String]| match &refusal {
        Some(reason) if tags.iter().any(|tag| tag == "overlay") => {
            skip(&format!("scenario {name:?} needs an overlay on the host: {reason}"));
            false
        }
        _ => true,
    };
    let writer = futures::executor::block_on(runner.filter_run(features, move |feature, _, scenario| {
        // What extends us has steps of its own.
        let is_ours =
            feature.path.as_ref().is_none_or(|path| !path.to_string_lossy().contains("/extensibility/"));
        is_ours && runs(&scenario.name, &scenario.tags)
    }));
    assert!(writer.passed_steps() > 40, "only {} steps ran", writer.passed_steps());
    assert!(!writer.execution_has_failed(), "{} steps failed", writer.failed_steps());
}
