//! One operation of each kind in a state of its own, and the verdict on it after it was hit.
//!
//! A [`Case`] is a resource and a sandbox over it, brought to the point where one [`Task`] is to be done. What it comes to is known
//! from a [`Seen`] that an undisturbed twin left behind. After a fault and a recovery the case is as it was or as its twin: the
//! resource, the sandbox's tree, what is pending, and what lies in the state directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::scenario::{hidden_beside, is_of_a_sandbox};
use super::{Cli, Created, Outcome, change_fifty_files, fill_fifty_files};
use crate::manifest::{Facets, Manifest};
use crate::mounts::mounts_below;

const STRATEGY: &str = "filesystem_copy";

/// How a command was kept from finishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// It was killed: the next command finishes what it did, or takes it back.
    Killed,
    /// A call of it failed.
    Failed,
    /// Calls failed until its end, and so kept it from tidying up behind itself.
    FailedForGood,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A commit is taken back.
    Undo,
    /// A commit that merges what the resource has become.
    Merge,
    /// A commit of some hunks.
    Hunks,
    /// All changes are thrown away.
    Rollback,
    /// The present state is kept.
    Checkpoint,
    /// A kept state is brought back.
    Restore,
    /// A sandbox with uncommitted work is put away.
    Park,
    /// It is taken up again.
    Unpark,
}

impl Task {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Undo,
        Self::Merge,
        Self::Hunks,
        Self::Rollback,
        Self::Checkpoint,
        Self::Restore,
        Self::Park,
        Self::Unpark,
    ];

    /// Whether it writes to the resource.
    pub fn writes_to_resource(self) -> bool {
        matches!(self, Self::Undo | Self::Merge | Self::Hunks)
    }
}

/// What can be seen from outside.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The resource.
    pub resource: Manifest,
    /// The sandbox's tree; `None` while it is parked.
    pub tree: Option<Manifest>,
    /// What is pending, as `diff` tells it.
    pub pending: Value,
    /// How many checkpoints are listed.
    pub checkpoints: usize,
    /// What lies in the state directory, ids left out.
    inventory: BTreeSet<PathBuf>,
}

/// A task that is about to be done.
pub struct Case {
    /// What is to be done.
    pub task: Task,
    /// Runs commands over its state directory.
    pub cli: Cli,
    /// The resource.
    pub resource: PathBuf,
    /// The sandbox.
    pub sandbox: Created,
    /// As it is before.
    pub before: Seen,
    /// The resource and the sandbox's tree with what was pending, before a commit or a parking that the case begins with.
    first: (Manifest, Manifest, Value),
    dir: TempDir,
}

impl Case {
    /// In a temporary directory.
    pub fn new(task: Task) -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-faults-", crate::in_memory()).unwrap();
        let (home, resource) = (dir.path().join("home"), dir.path().join("resource"));
        Self::at(task, &home, resource, dir)
    }

    /// With the state directory and the resource at paths of the caller's choice; `dir` goes with the case.
    pub fn at(task: Task, home: &Path, resource: PathBuf, dir: TempDir) -> Self {
        fs::create_dir_all(&resource).unwrap();
        fill_fifty_files(&resource);
        write_texts(&resource, &[]);
        let cli = Cli::new(home);
        let sandbox = cli.create(&resource, &["--strategy", STRATEGY]);
        change_fifty_files(&sandbox.path);
        write_texts(&sandbox.path, &[(1, "changed above"), (19, "changed below")]);
        fs::write(dir.path().join("patch"), first_hunks()).unwrap();
        let pending = cli.json(&["diff", &sandbox.id])["entries"].take();
        let first = (Manifest::capture(&resource), Manifest::capture(&sandbox.path), pending);
        prepare(task, &cli, &resource, &sandbox);
        let before = look(&cli, &resource, &sandbox);
        Self { task, cli, resource, sandbox, before, first, dir }
    }

    /// The temporary directory that holds everything.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What to type.
    pub fn arguments(&self) -> Vec<String> {
        let (id, patch) = (self.sandbox.id.as_str(), self.dir().join("patch"));
        let words = match self.task {
            Task::Undo => vec!["undo", id],
            Task::Merge => vec!["commit", id, "--on-conflict", "merge"],
            Task::Hunks => vec!["commit", id, "--hunks", patch.to_str().unwrap()],
            Task::Rollback => vec!["rollback", id],
            Task::Checkpoint => vec!["checkpoint", id, "one"],
            Task::Restore => vec!["restore", id, "one"],
            Task::Park => vec!["destroy", id],
            Task::Unpark => vec!["unpark", id],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// As it is now.
    #[track_caller]
    pub fn look(&self) -> Seen {
        look(&self.cli, &self.resource, &self.sandbox)
    }

    /// Recovers twice with the next command, then checks everything, and that both roads go on from there.
    #[track_caller]
    pub fn recover_and_check(&self, how: Interruption, twin: &Seen, context: &str) -> Outcome {
        let outcome = self.recover(how, twin, context);
        // What calls that go on failing leave behind has to be gone once the command was repeated.
        if how != Interruption::FailedForGood {
            self.assert_no_leftovers(how, outcome, twin, context);
        }
        self.go_on(outcome, twin, context);
        outcome
    }

    /// For a rollback or a restore that the power was cut over: nothing flushed the sandbox's tree, so its paths may be anything. The
    /// resource is untouched, and the command repeated brings everything back.
    #[track_caller]
    pub fn recover_and_repeat(&self, twin: &Seen, context: &str) {
        self.cli.ok(&["list"]);
        self.before.resource.assert_same(&Manifest::capture(&self.resource), Facets::UNTOUCHED, context);
        self.go_on(Outcome::Old, twin, context);
    }

    #[track_caller]
    fn recover(&self, how: Interruption, twin: &Seen, context: &str) -> Outcome {
        for _ in 0..2 {
            let recovery = self.cli.run(&["list"]);
            let told = super::cli::describe(&recovery);
            assert!(recovery.status.success(), "{context}: recovery failed: {told}");
        }
        let unsettled = self.cli.operations_in(&["running", "decided"]);
        assert!(unsettled.is_empty(), "{context}: still under way in the log: {unsettled:?}");
        match self.task {
            Task::Rollback | Task::Restore if how != Interruption::Killed => {
                self.verdict_on_paths(twin, context)
            }
            _ => self.verdict(twin, context),
        }
    }

    /// A rollback or a restore that failed has said so. It leaves each path of the sandbox as it was or as it is to be, which counts as old.
    #[track_caller]
    fn verdict_on_paths(&self, twin: &Seen, context: &str) -> Outcome {
        let found = self.look();
        self.before.resource.assert_same(&found.resource, Facets::UNTOUCHED, context);
        let trees = [&self.before.tree, &twin.tree, &found.tree].map(|tree| tree.as_ref().unwrap());
        let [old, new, now] = trees;
        if new.same(now, Facets::CONTENT) {
            return Outcome::New;
        }
        let paths: BTreeSet<_> = trees.into_iter().flat_map(Manifest::names).collect();
        let torn: Vec<_> =
            paths.into_iter().filter(|path| !now.is_at(path, old) && !now.is_at(path, new)).collect();
        assert!(torn.is_empty(), "{context}: neither as they were nor as they are to be: {torn:?}");
        Outcome::Old
    }

    /// All old or all new, or a panic that says what is torn.
    #[track_caller]
    pub fn verdict(&self, twin: &Seen, context: &str) -> Outcome {
        let now = self.look();
        match self.task {
            Task::Undo | Task::Merge | Task::Hunks => self.verdict_on_resource(&now, twin, context),
            _ => {
                self.before.resource.assert_same(&now.resource, Facets::UNTOUCHED, context);
                self.verdict_on_sandbox(&now, twin, context)
            }
        }
    }

    fn verdict_on_resource(&self, now: &Seen, twin: &Seen, context: &str) -> Outcome {
        let from_old = self.before.resource.differences(&now.resource, Facets::UNTOUCHED);
        let from_new = match self.task {
            // What comes back is what was there, times included.
            Task::Undo => self.first.0.differences(&now.resource, Facets::WRITTEN),
            _ => twin.resource.differences(&now.resource, Facets::CONTENT),
        };
        let outcome = if from_new.is_empty() { Outcome::New } else { Outcome::Old };
        let (old, new) = (from_old.join("\n  "), from_new.join("\n  "));
        let is_whole = outcome == Outcome::New || from_old.is_empty();
        assert!(is_whole, "{context}: torn.\nnot old:\n  {old}\nnot new:\n  {new}");
        let expected = if outcome == Outcome::New { twin } else { &self.before };
        expected.assert_same_sandbox(now, &format!("{context}: the resource is {outcome:?}"));
        outcome
    }

    fn verdict_on_sandbox(&self, now: &Seen, twin: &Seen, context: &str) -> Outcome {
        match (self.task, &now.tree) {
            (Task::Park, None) | (Task::Checkpoint, _) if now.checkpoints > 0 || now.tree.is_none() => {
                if let Some(tree) = &now.tree {
                    self.first.1.assert_same(tree, Facets::UNTOUCHED, context);
                }
                Outcome::New
            }
            (Task::Unpark, None) => Outcome::Old,
            (Task::Unpark, Some(tree)) => {
                self.first.1.assert_same(tree, Facets::WRITTEN, context);
                assert_eq!(now.pending, self.first.2, "{context}: something else is pending than before");
                Outcome::New
            }
            (Task::Rollback | Task::Restore, Some(tree))
                if twin.tree.as_ref().is_some_and(|new| new.same(tree, Facets::CONTENT)) =>
            {
                Outcome::New
            }
            _ => {
                self.before.assert_same_sandbox(now, context);
                Outcome::Old
            }
        }
    }

    /// Nothing in the state directory that does not belong there, no mounts, nothing hidden beside the resource.
    #[track_caller]
    pub fn assert_no_leftovers(&self, how: Interruption, outcome: Outcome, twin: &Seen, context: &str) {
        let now = inventory(&self.cli);
        let expected = if outcome == Outcome::New { &twin.inventory } else { &self.before.inventory };
        let is_extra = |path: &&PathBuf| !expected.contains(*path) && !self.may_stay(how, path);
        let extra: Vec<_> = now.iter().filter(is_extra).collect();
        assert!(extra.is_empty(), "{context} ({outcome:?}): left over in the state directory: {extra:?}");
        assert_eq!(mounts_below(self.dir()), Vec::<PathBuf>::new(), "{context}: mounts are left over");
        let hidden: Vec<_> = hidden_beside(&self.resource).collect();
        assert!(hidden.is_empty(), "{context}: left over beside the resource: {hidden:?}");
    }

    /// Rooms that are made once; content of a checkpoint that was never listed, which the next one under that name replaces; and
    /// what a rollback that failed had put aside, which the next one removes.
    fn may_stay(&self, how: Interruption, path: &Path) -> bool {
        let is_room = path.ends_with("undo") || path.ends_with("workshop");
        let below = |name: &str| path.iter().any(|part| part == name);
        is_room
            || match self.task {
                Task::Checkpoint => below("checkpoints"),
                Task::Rollback | Task::Restore => how != Interruption::Killed && below("workshop"),
                _ => false,
            }
    }

    /// What was not done is done now; what was done can be built upon; and in the end all of it can go.
    fn go_on(&self, outcome: Outcome, twin: &Seen, context: &str) {
        if outcome == Outcome::Old {
            self.cli.ok(&self.arguments());
            assert_eq!(
                self.verdict(twin, context),
                Outcome::New,
                "{context}: the repeated command did nothing"
            );
        }
        self.assert_no_leftovers(Interruption::Killed, Outcome::New, twin, context);
        self.build_upon(context);
        let before = Manifest::capture(&self.resource);
        self.cli.ok(&["destroy", "--discard", &self.sandbox.id]);
        let left: Vec<_> = self.cli.inventory().into_iter().filter(|p| is_of_a_sandbox(p)).collect();
        assert!(left.is_empty(), "{context}: destroy left {left:?}");
        before.assert_same(&Manifest::capture(&self.resource), Facets::UNTOUCHED, context);
    }

    fn build_upon(&self, context: &str) {
        match self.task {
            Task::Park => {
                self.cli.ok(&["unpark", &self.sandbox.id]);
                let tree = Manifest::capture(&self.sandbox.path);
                self.first.1.assert_same(&tree, Facets::WRITTEN, context);
                assert_eq!(
                    self.look().pending,
                    self.first.2,
                    "{context}: something else is pending than before"
                );
            }
            Task::Checkpoint => {
                fs::remove_dir_all(self.sandbox.path.join("src")).unwrap();
                self.cli.ok(&["restore", &self.sandbox.id, "one"]);
                let tree = Manifest::capture(&self.sandbox.path);
                self.first.1.assert_same(&tree, Facets::WRITTEN, context);
            }
            Task::Undo | Task::Hunks | Task::Unpark => {
                self.cli.ok(&["commit", &self.sandbox.id]);
                let resource = Manifest::capture(&self.resource);
                self.first.1.assert_same(&resource, Facets::CONTENT, context);
            }
            Task::Merge | Task::Rollback | Task::Restore => {}
        }
    }
}

impl Seen {
    /// Panics unless tree and pending changes are the same.
    #[track_caller]
    fn assert_same_sandbox(&self, now: &Self, context: &str) {
        match (&self.tree, &now.tree) {
            (Some(expected), Some(found)) => expected.assert_same(found, Facets::CONTENT, context),
            (expected, found) => {
                assert_eq!(expected.is_some(), found.is_some(), "{context}: parked, or not parked");
            }
        }
        assert_eq!(self.pending, now.pending, "{context}: something else is pending");
    }
}

impl Manifest {
    /// Whether `path` is here what it is in `other`, or is in neither.
    fn is_at(&self, path: &Path, other: &Self) -> bool {
        match (self.entries.get(path), other.entries.get(path)) {
            (Some(a), Some(b)) => {
                (a.kind, a.size, &a.hash, &a.target) == (b.kind, b.size, &b.hash, &b.target)
            }
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

fn prepare(task: Task, cli: &Cli, resource: &Path, sandbox: &Created) {
    match task {
        Task::Undo => drop(cli.ok(&["commit", &sandbox.id])),
        Task::Merge => write_texts(resource, &[(10, "changed by hand")]),
        Task::Restore => {
            cli.ok(&["checkpoint", &sandbox.id, "one"]);
            fs::remove_dir_all(sandbox.path.join("src")).unwrap();
            fs::write(sandbox.path.join("later"), "later\n").unwrap();
            // A directory where a file is to come back, and a file where a directory is.
            fs::remove_file(sandbox.path.join("texts/0.txt")).unwrap();
            fs::create_dir(sandbox.path.join("texts/0.txt")).unwrap();
            fs::write(sandbox.path.join("texts/0.txt/inside"), "inside\n").unwrap();
            fs::remove_dir_all(sandbox.path.join("docs")).unwrap();
            fs::write(sandbox.path.join("docs"), "a file now\n").unwrap();
        }
        Task::Unpark => drop(cli.ok(&["destroy", &sandbox.id])),
        Task::Hunks | Task::Rollback | Task::Checkpoint | Task::Park => {}
    }
}

#[track_caller]
fn look(cli: &Cli, resource: &Path, sandbox: &Created) -> Seen {
    let is_parked = !cli.json(&["parked"])["parked"].as_array().unwrap().is_empty();
    let tree = (!is_parked).then(|| Manifest::capture(&sandbox.path));
    let pending = match is_parked {
        true => Value::Null,
        false => cli.json(&["diff", &sandbox.id])["entries"].take(),
    };
    let checkpoints = match is_parked {
        true => 0,
        false => cli.json(&["checkpoints", &sandbox.id])["checkpoints"].as_array().unwrap().len(),
    };
    Seen { resource: Manifest::capture(resource), tree, pending, checkpoints, inventory: inventory(cli) }
}

/// What lies in the state directory, with ids left out: they are others in every case.
fn inventory(cli: &Cli) -> BTreeSet<PathBuf> {
    let plain = |part: &std::ffi::OsStr| {
        let text = part.to_string_lossy();
        let prefix = ["ws_", "sbx_", "op_"].into_iter().find(|prefix| text.starts_with(prefix));
        prefix.map_or_else(|| text.clone().into_owned(), str::to_owned)
    };
    cli.inventory().iter().map(|path| path.iter().map(plain).collect()).collect()
}

const TEXTS: usize = 6;
const LINES: usize = 21;

/// Files of twenty-one lines, some of which are given.
fn write_texts(dir: &Path, lines: &[(usize, &str)]) {
    fs::create_dir_all(dir.join("texts")).unwrap();
    for text in 0..TEXTS {
        let line = |number: usize| match lines.iter().find(|(at, _)| *at == number) {
            Some((_, line)) => format!("{line} in {text}\n"),
            None => format!("line {number} of {text}\n"),
        };
        let content: String = (0..LINES).map(line).collect();
        fs::write(dir.join(format!("texts/{text}.txt")), content).unwrap();
    }
}

/// The first of the two hunks of each text.
fn first_hunks() -> String {
    let hunk = |text: usize| {
        let kept = |number: usize| format!(" line {number} of {text}\n");
        format!(
            "--- a/texts/{text}.txt\n+++ b/texts/{text}.txt\n@@ -1,5 +1,5 @@\n{}-line 1 of {text}\n+changed above in {text}\n{}{}{}",
            kept(0),
            kept(2),
            kept(3),
            kept(4),
        )
    };
    (0..TEXTS).map(hunk).collect()
}
