//! Runs `features/*.feature` against a real manager and its handler of files.

mod git_worktree;
mod overlay;

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer::wiring::{self, Setup};
use sandboxer_core::Error;
use sandboxer_core::contract::{LocalPermissions, PermissionService, ResourceHandler};
use sandboxer_core::model::{
    AccessResult, CheckpointId, CheckpointResult, PlanId, Resource, RollbackResult, SandboxResult,
};
use sandboxer_core::service::SandboxManager;
use sandboxer_keeper::mount;
use sandboxer_testkit::faults::workspace_root;
use sandboxer_testkit::features::{Scenario, Steps, Table, find_feature_files, load_scenarios};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::mounts::DetachBelow;
use sandboxer_testkit::skip;
use tempfile::TempDir;

/// One scenario: a manager over fresh state, a directory, and what the handler answered last.
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

fn register(steps: &mut Steps<Files>) {
    steps.given("a directory with these files", a_directory);
    steps.given("the directory is removed", directory_removed);
    steps.given("a permission service that refuses {string}", refusing);
    steps.given("the handler made a sandbox for plan {string}", make_sandbox);
    steps.when("the handler makes a sandbox for plan {string}", make_sandbox);
    steps.then("it was created", was_created);
    steps.then("it was there already, under the same id", was_there);
    steps.then("it is a copy of the directory", is_a_copy);
    steps.then("it fails, and the message names the directory", fails_naming_directory);
    steps.then("it fails, and the message names {string}", fails_naming);
    steps.given("{string} in the sandbox is {string}", write_in_sandbox);
    steps.given("{string} in the sandbox is removed", remove_in_sandbox);
    steps.then("{string} in the sandbox reads {string}", reads);
    steps.then("there is no {string} in the sandbox", is_not_there);
    steps.then("the original is as it was", original_as_it_was);
    steps.when("the handler takes a checkpoint", take_checkpoint);
    steps.when("the handler takes a checkpoint for plan {string}", take_checkpoint_for);
    steps.given("the handler took a checkpoint called {string} here", took_checkpoint);
    steps.then("the checkpoint belongs to plan {string} and has a time and a message", checkpoint_belongs);
    steps.when("the handler rolls back to the checkpoint", rolls_back);
    steps.when("the handler rolls back to {string}", rolls_back_to);
    steps.when("the handler rolls back to a checkpoint {string}", rolls_back_to_unknown);
    steps.then("the rollback succeeded and restored {int} files", restored);
    steps.then("the rollback did not succeed, and its message names {string}", not_restored);
    steps.when("the handler is asked whether {string} may {string}", asked);
    steps.then("it is permitted to {string} with {string} on the directory, with a reason", permitted);
    steps.then("it is refused, because {string}", refused);
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

fn a_directory(world: &mut Files, table: Table) {
    for row in table.rows() {
        let path = world.original().join(&row[0]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &row[1]).unwrap();
    }
    world.before = Manifest::capture(&world.original());
}

fn directory_removed(world: &mut Files) {
    fs::remove_dir_all(world.original()).unwrap();
}

fn refusing(world: &mut Files, action: String) {
    world.manager = manager(&world.root, Arc::new(Refuses(action)));
}

fn make_sandbox(world: &mut Files, plan: String) {
    world.create(&plan);
}

fn was_created(world: &mut Files) {
    let (last, earlier) = world.sandboxes.split_last().unwrap();
    assert!(last.created && !last.message.is_empty() && !last.strategy.is_empty());
    assert!(earlier.iter().all(|s| s.sandbox_id != last.sandbox_id));
}

fn was_there(world: &mut Files) {
    let [.., before, last] = world.sandboxes.as_slice() else { panic!("two sandboxes were made") };
    assert!(!last.created);
    assert_eq!((&last.sandbox_id, &last.sandbox_path), (&before.sandbox_id, &before.sandbox_path));
}

fn is_a_copy(world: &mut Files) {
    let copy = Manifest::capture(&world.in_sandbox(""));
    world.before.assert_same(&copy, Facets::COPY, "the sandbox");
}

fn fails_naming_directory(world: &mut Files) {
    let error = world.error.take().unwrap();
    assert!(error.contains(world.original().to_str().unwrap()), "{error}");
}

fn fails_naming(world: &mut Files, name: String) {
    let error = world.error.take().unwrap();
    assert!(error.contains(&name), "{error}");
}

fn write_in_sandbox(world: &mut Files, path: String, content: String) {
    fs::write(world.in_sandbox(&path), content).unwrap();
}

fn remove_in_sandbox(world: &mut Files, path: String) {
    fs::remove_file(world.in_sandbox(&path)).unwrap();
}

fn reads(world: &mut Files, path: String, content: String) {
    assert_eq!(fs::read_to_string(world.in_sandbox(&path)).unwrap(), content);
}

fn is_not_there(world: &mut Files, path: String) {
    assert!(!world.in_sandbox(&path).exists());
}

fn original_as_it_was(world: &mut Files) {
    world.before.assert_same(&Manifest::capture(&world.original()), Facets::UNTOUCHED, "the original");
}

fn take_checkpoint(world: &mut Files) {
    let result = world.handler().create_checkpoint(&world.plan, &world.resource()).unwrap();
    world.checkpoint = Some(result);
}

fn take_checkpoint_for(world: &mut Files, plan: String) {
    let plan = PlanId::from_string(plan);
    let result = world.handler().create_checkpoint(&plan, &world.resource());
    world.error = result.err().map(|e| full_text(&e));
}

fn took_checkpoint(world: &mut Files, name: String) {
    take_checkpoint(world);
    let id = world.checkpoint.as_ref().unwrap().checkpoint_id.clone();
    world.named.insert(name, id);
}

fn checkpoint_belongs(world: &mut Files, plan: String) {
    let checkpoint = world.checkpoint.as_ref().unwrap();
    assert_eq!(checkpoint.plan_id, PlanId::from_string(plan));
    assert!(checkpoint.timestamp > jiff::Timestamp::UNIX_EPOCH && !checkpoint.message.is_empty());
}

fn rolls_back(world: &mut Files) {
    let id = world.checkpoint.as_ref().unwrap().checkpoint_id.clone();
    world.roll_back(&id);
}

fn rolls_back_to(world: &mut Files, name: String) {
    let id = world.named[&name].clone();
    world.roll_back(&id);
}

fn rolls_back_to_unknown(world: &mut Files, name: String) {
    world.roll_back(&CheckpointId::from_string(name));
}

fn restored(world: &mut Files, files: u64) {
    let rollback = world.rollback.as_ref().unwrap();
    assert!(rollback.success && !rollback.message.is_empty());
    assert_eq!(rollback.restored_files, files, "{rollback:?}");
}

fn not_restored(world: &mut Files, name: String) {
    let rollback = world.rollback.as_ref().unwrap();
    assert!(!rollback.success && rollback.restored_files == 0);
    assert!(rollback.message.contains(&name), "{rollback:?}");
}

fn asked(world: &mut Files, principal: String, action: String) {
    let answer = world.handler().project_access(&principal, &action, &world.resource());
    world.access = Some(answer);
}

fn permitted(world: &mut Files, principal: String, action: String) {
    let access = world.access.as_ref().unwrap();
    assert!(access.permitted && !access.reason.is_empty());
    assert_eq!((&access.principal, &access.action), (&principal, &action));
    assert_eq!(access.scope, world.resource().id.as_str());
}

fn refused(world: &mut Files, reason: String) {
    let access = world.access.as_ref().unwrap();
    assert!(!access.permitted);
    assert_eq!(access.reason, reason);
}

fn steps() -> Steps<Files> {
    Steps::new(|steps| {
        register(steps);
        git_worktree::register(steps);
        overlay::register(steps);
    })
}

/// Declares a test for each feature file: its name and the number of steps that have to run at least.
macro_rules! feature_tests {
    ($($file:ident: $min_steps:literal),*) => {
        const FILES: &[&str] = &[$(concat!(stringify!($file), ".feature")),*];

        $(
            #[test]
            fn $file() {
                run(concat!(stringify!($file), ".feature"), $min_steps);
            }
        )*
    };
}

feature_tests!(files: 60, git_worktree: 60, overlay: 45);

fn run(file: &str, min_steps: usize) {
    let refusal = LazyCell::new(|| mount::try_host(&std::env::temp_dir()).err());
    let can_run =
        |scenario: &Scenario| !scenario.tags.iter().any(|tag| tag == "overlay") || refusal.is_none();
    let scenarios = load_scenarios(&[workspace_root().join("features").join(file)]);
    let (runnable, skipped): (Vec<_>, Vec<_>) = scenarios.into_iter().partition(can_run);
    for Scenario { name, .. } in &skipped {
        let reason = refusal.as_ref().unwrap();
        skip(&format!("scenario {name:?} needs an overlay on the host: {reason}"));
    }
    let steps = steps().run(Files::new, &runnable).unwrap_or_else(|report| panic!("{report}"));
    assert!(steps >= min_steps || !skipped.is_empty(), "only {steps} steps ran");
}

#[test]
fn every_file_has_a_test_and_every_step_is_used() {
    let dir = workspace_root().join("features");
    let mut files = find_feature_files(&dir);
    // `plugin_features` runs these.
    files.retain(|file| !file.starts_with(dir.join("extensibility")));
    assert_eq!(files, FILES.iter().map(|file| dir.join(file)).collect::<Vec<_>>());
    steps().check_usage(&load_scenarios(&files)).unwrap_or_else(|report| panic!("{report}"));
}
