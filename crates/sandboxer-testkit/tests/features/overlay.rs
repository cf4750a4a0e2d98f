//! The steps of `overlay.feature`: sandboxes asked for by the name of a strategy, and what the manager answers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use cucumber::gherkin::Step;
use cucumber::{given, then, when};
use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{Consumer, CreateRequest, Input, Target, Workspace};
use sandboxer_testkit::manifest::Manifest;
use sandboxer_testkit::mounts::mounts_below;

use super::Files;

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

#[given(expr = "a sandbox was asked for by the strategy {string}")]
#[when(expr = "a sandbox is asked for by the strategy {string}")]
fn ask(world: &mut Files, strategy: String) {
    create(world, &strategy, false);
}

#[when(expr = "a sandbox is asked for by the strategy {string} and no other")]
fn ask_for_no_other(world: &mut Files, strategy: String) {
    create(world, &strategy, true);
}

#[given("the directory and the state are on an overlay themselves")]
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

#[then(expr = "the strategy {string} is used, as it was asked for")]
fn used_as_asked(world: &mut Files, strategy: String) {
    let workspace = world.answers.workspace();
    assert_eq!(workspace.sandbox_ref.strategy_name, strategy, "{}", workspace.reason);
    assert_eq!(workspace.requested_strategy, strategy);
}

/// Which one is used instead is a matter of what the filesystem below can share.
#[then(expr = "the strategy {string} was asked for, and a copy is used because {string}")]
fn used_instead(world: &mut Files, asked: String, reason: String) {
    let workspace = world.answers.workspace();
    let used = workspace.sandbox_ref.strategy_name.clone();
    assert!(["copy_on_write", "filesystem_copy"].contains(&&*used), "{used}: {}", workspace.reason);
    assert_eq!(workspace.requested_strategy, asked);
    for part in [&asked, &used, &reason] {
        assert!(workspace.reason.contains(part), "{part:?} is not in {:?}", workspace.reason);
    }
}

#[then(expr = "{string} is unavailable because {string}")]
fn unavailable(world: &mut Files, asked: String, why: String) {
    assert!(world.answers.target.is_none(), "a sandbox was made: {:?}", world.answers);
    let Some(Error::Unavailable { strategy, path, reason }) = &world.answers.error else {
        panic!("expected that it is unavailable, got {:?}", world.answers.error)
    };
    assert_eq!((strategy, path), (&asked, &world.original()));
    assert!(reason.contains(&why), "{reason}");
}

#[then("no change is kept for it yet")]
fn nothing_kept(world: &mut Files) {
    let upper = world.in_sandbox("").with_file_name("upper");
    assert_eq!(fs::read_dir(&upper).unwrap().count(), 0, "something is in {}", upper.display());
}

#[then("nothing is mounted for it")]
fn nothing_mounted(world: &mut Files) {
    assert_eq!(mounts_below(world.dir.path()), [world.dir.path().join("over")]);
}

#[given(expr = "{string} in the original is {string}")]
fn write_in_original(world: &mut Files, path: String, content: String) {
    fs::write(world.original().join(path), content).unwrap();
}

#[then("the sandbox differs in")]
fn differs_in(world: &mut Files, step: &Step) {
    let expected: BTreeMap<String, String> = rows(step);
    let word = |kind: DiffKind| format!("{kind:?}").to_lowercase();
    let diff = world.manager.diff(target(world), &[]).unwrap();
    let entries = diff.workspaces.iter().flat_map(|w| &w.entries);
    let found: BTreeMap<String, String> = entries.map(|e| (e.path.to_string(), word(e.kind))).collect();
    assert_eq!(found, expected);
}

#[then("nothing differs")]
fn nothing_differs(world: &mut Files) {
    let diff = world.manager.diff(target(world), &[]).unwrap();
    assert!(diff.workspaces.iter().all(|w| w.entries.is_empty()), "{diff:?}");
}

#[when("the sandbox is committed")]
fn commit(world: &mut Files) {
    let result = world.manager.commit(target(world), &CommitRequest::default(), &CommitRules::default());
    world.answers.error = result.err();
}

#[then(expr = "it is a conflict on {string}")]
fn is_a_conflict(world: &mut Files, path: String) {
    let error = world.answers.error.take();
    let Some(Error::Conflict { conflicts }) = error else { panic!("expected a conflict, got {error:?}") };
    let paths: Vec<String> = conflicts.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(paths, [path]);
}

#[when("the sandbox is rolled back")]
fn roll_back(world: &mut Files) {
    let results = world.manager.rollback(target(world), &[]).unwrap();
    assert!(results.iter().all(|(_, result)| result.success), "{results:?}");
}

#[then("the original has exactly these files")]
fn original_has(world: &mut Files, step: &Step) {
    assert!(world.answers.error.is_none(), "{:?}", world.answers.error);
    let original = world.original();
    let names = Manifest::capture(&original).entries.into_keys().map(|path| original.join(path));
    let found = names.filter(|path| path.is_file()).map(|path| (below(&path, &original), read(&path)));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), rows(step));
}

fn below(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// A table of two columns, without its head.
fn rows(step: &Step) -> BTreeMap<String, String> {
    let rows = step.table.as_ref().unwrap().rows.iter().skip(1);
    rows.map(|row| (row[0].clone(), row[1].clone())).collect()
}
