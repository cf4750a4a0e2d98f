//! The steps of `overlay.feature`: sandboxes asked for by the name of a strategy, and what the manager answers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{Consumer, CreateRequest, Input, Target, Workspace};
use sandboxer_testkit::features::{Steps, Table};
use sandboxer_testkit::manifest::Manifest;
use sandboxer_testkit::mounts::mounts_below;

use super::Files;

pub fn register(steps: &mut Steps<Files>) {
    steps.given("a sandbox was asked for by the strategy {string}", ask);
    steps.when("a sandbox is asked for by the strategy {string}", ask);
    steps.when("a sandbox is asked for by the strategy {string} and no other", ask_for_no_other);
    steps.given("the directory and the state are on an overlay themselves", on_an_overlay);
    steps.then("the strategy {string} is used, as it was asked for", used_as_asked);
    steps.then("the strategy {string} was asked for, and a copy is used because {string}", used_instead);
    steps.then("{string} is unavailable because {string}", unavailable);
    steps.then("no change is kept for it yet", nothing_kept);
    steps.then("nothing is mounted for it", nothing_mounted);
    steps.given("{string} in the original is {string}", write_in_original);
    steps.then("the sandbox differs in", differs_in);
    steps.then("nothing differs", nothing_differs);
    steps.when("the sandbox is committed", commit);
    steps.then("it is a conflict on {string}", is_a_conflict);
    steps.when("the sandbox is rolled back", roll_back);
    steps.then("the original has exactly these files", original_has);
}

/// What the manager answered last.
#[derive(Debug, Default)]
pub struct Answers {
    target: Option<Target>,
    error: Option<Error>,
}

impl Answers {
    /// Where the last sandbox is worked in, if one was asked for by the name of a strategy.
    pub fn sandbox_path(&self) -> Option<std::path::PathBuf> {
        self.target.as_ref().map(|_| self.workspace().sandbox_ref.sandbox_path().unwrap())
    }

    fn workspace(&self) -> &Workspace {
        &self.target.as_ref().unwrap_or_else(|| panic!("no sandbox was made: {:?}", self.error)).workspaces[0]
    }
}

fn create(world: &mut Files, strategy: &str, no_fallback: bool) {
    let location = world.original().to_str().unwrap().to_owned();
    let request = CreateRequest {
        inputs: vec![Input { name: None, location, properties: BTreeMap::new() }],
        strategy: Some(strategy.to_owned()),
        no_fallback,
        plan: None,
        name: None,
        ttl: None,
        consumer: Consumer { actor_type: "agt".to_owned(), project: "features".to_owned() },
        disposable: false,
        environment: None,
    };
    let result = world.manager.get_or_create_sandbox(&request);
    match result {
        Ok(created) => {
            assert!(created.created && !created.message.is_empty());
            let workspaces = created.sandbox.workspaces.clone();
            world.answers.target = Some(Target { sandbox: created.sandbox, workspaces });
        }
        Err(error) => world.answers.error = Some(error),
    }
}

pub fn target(world: &Files) -> &Target {
    world.answers.target.as_ref().unwrap()
}

fn ask(world: &mut Files, strategy: String) {
    create(world, &strategy, false);
}

fn ask_for_no_other(world: &mut Files, strategy: String) {
    create(world, &strategy, true);
}

fn on_an_overlay(world: &mut Files) {
    let part = |name: &str| world.dir.path().join(name);
    for name in ["lower", "upper", "work", "over"] {
        fs::create_dir(part(name)).unwrap();
    }
    fs::rename(world.original(), part("lower/project")).unwrap();
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| part(name).display().to_string());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let mut mount = Command::new("mount");
    mount.args(["-t", "overlay", "none", "-o", &options]).arg(part("over"));
    assert!(mount.status().unwrap().success());
    world.move_to("over");
}

fn used_as_asked(world: &mut Files, strategy: String) {
    let workspace = world.answers.workspace();
    assert_eq!(workspace.sandbox_ref.strategy_name, strategy, "{}", workspace.reason);
    assert_eq!(workspace.requested_strategy, strategy);
}

/// Which one is used instead is a matter of what the filesystem below can share.
fn used_instead(world: &mut Files, asked: String, reason: String) {
    let workspace = world.answers.workspace();
    let used = workspace.sandbox_ref.strategy_name.clone();
    assert!(["copy_on_write", "filesystem_copy"].contains(&&*used), "{used}: {}", workspace.reason);
    assert_eq!(workspace.requested_strategy, asked);
    for part in [&asked, &used, &reason] {
        assert!(workspace.reason.contains(part), "{part:?} is not in {:?}", workspace.reason);
    }
}

fn unavailable(world: &mut Files, asked: String, why: String) {
    assert!(world.answers.target.is_none(), "a sandbox was made: {:?}", world.answers);
    let Some(Error::Unavailable { strategy, path, reason }) = &world.answers.error else {
        panic!("expected that it is unavailable, got {:?}", world.answers.error)
    };
    assert_eq!((strategy, path), (&asked, &world.original()));
    assert!(reason.contains(&why), "{reason}");
}

fn nothing_kept(world: &mut Files) {
    let upper = world.in_sandbox("").with_file_name("upper");
    assert_eq!(fs::read_dir(&upper).unwrap().count(), 0, "something is in {}", upper.display());
}

fn nothing_mounted(world: &mut Files) {
    assert_eq!(mounts_below(world.dir.path()), [world.dir.path().join("over")]);
}

fn write_in_original(world: &mut Files, path: String, content: String) {
    fs::write(world.original().join(path), content).unwrap();
}

fn differs_in(world: &mut Files, table: Table) {
    let expected: BTreeMap<String, String> = rows(&table);
    let word = |kind: DiffKind| format!("{kind:?}").to_lowercase();
    let diff = world.manager.diff(target(world), &[]).unwrap();
    let entries = diff.workspaces.iter().flat_map(|w| &w.entries);
    let found: BTreeMap<String, String> = entries.map(|e| (e.path.to_string(), word(e.kind))).collect();
    assert_eq!(found, expected);
}

fn nothing_differs(world: &mut Files) {
    let diff = world.manager.diff(target(world), &[]).unwrap();
    assert!(diff.workspaces.iter().all(|w| w.entries.is_empty()), "{diff:?}");
}

fn commit(world: &mut Files) {
    let result = world.manager.commit(target(world), &CommitRequest::default(), &CommitRules::default());
    world.answers.error = result.err();
}

fn is_a_conflict(world: &mut Files, path: String) {
    let error = world.answers.error.take();
    let Some(Error::Conflict { conflicts }) = error else { panic!("expected a conflict, got {error:?}") };
    let paths: Vec<String> = conflicts.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(paths, [path]);
}

fn roll_back(world: &mut Files) {
    let results = world.manager.rollback(target(world), &[]).unwrap();
    assert!(results.iter().all(|(_, result)| result.success), "{results:?}");
}

fn original_has(world: &mut Files, table: Table) {
    assert!(world.answers.error.is_none(), "{:?}", world.answers.error);
    let original = world.original();
    let names = Manifest::capture(&original).entries.into_keys().map(|path| original.join(path));
    let found = names.filter(|path| path.is_file()).map(|path| (below(&path, &original), read(&path)));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), rows(&table));
}

fn below(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// A table of two columns, without its head.
fn rows(table: &Table) -> BTreeMap<String, String> {
    table.rows().iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}
