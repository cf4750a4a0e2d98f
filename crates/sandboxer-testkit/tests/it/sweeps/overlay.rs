//! Operations of an overlay killed at a system call, then the next command: everything as before, or everything done.
//!
//! What lies in the state directory is not compared, but for there being nothing in the end: an overlay may be mounted or not, and both are
//! right. By default a spread sample of the calls that change something; `SANDBOXER_TEST_FULL=1` takes every call.

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_keeper::mount;
use sandboxer_testkit::faults::{
    Cli, Created, Ended, Point, Trace, change_fifty_files, fill_fifty_files, sample,
};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::mounts::{DetachBelow, mounts_below};
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

const WORKSHOP: &str = ".sandboxer-workshop";

/// The tasks that are killed: together they are one sweep.
const TASKS: usize = 5;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Commit,
    Undo,
    Checkpoint,
    Restore,
    Rollback,
}

/// A sandbox in which the task is about to be done, beside another one that must not notice.
struct Case {
    task: Task,
    cli: Cli,
    resource: PathBuf,
    sandbox: Created,
    neighbour: Created,
    before: Seen,
    _mounts: DetachBelow,
    dir: TempDir,
}

/// Original, sandbox, neighbour, and what is pending in the sandbox.
struct Seen {
    resource: Manifest,
    tree: Manifest,
    neighbour: Manifest,
    pending: serde_json::Value,
}

impl Case {
    fn new(task: Task) -> Self {
        let dir =
            TempDir::with_prefix_in("sandboxer-overlay-sweep-", sandboxer_testkit::in_memory()).unwrap();
        let resource = dir.path().join("resource");
        fs::create_dir(&resource).unwrap();
        fill_fifty_files(&resource);
        let cli = Cli::new(&dir.path().join("home"));
        let [sandbox, neighbour] = ["one", "other"]
            .map(|name| cli.create(&resource, &["--strategy", "overlay", "--no-fallback", "--name", name]));
        fs::write(sandbox.path.join("untouched/00.txt"), "at the checkpoint\n").unwrap();
        prepare(task, &cli, &sandbox);
        let _mounts = DetachBelow(dir.path().to_path_buf());
        let before = look(&cli, &resource, &sandbox, &neighbour);
        Self { task, cli, resource, sandbox, neighbour, before, _mounts, dir }
    }

    fn arguments(&self) -> Vec<&str> {
        let id = self.sandbox.id.as_str();
        match self.task {
            Task::Commit => vec!["commit", id],
            Task::Undo => vec!["undo", id],
            Task::Checkpoint => vec!["checkpoint", id, "two"],
            Task::Restore => vec!["restore", id, "one"],
            Task::Rollback => vec!["rollback", id],
        }
    }

    fn look(&self) -> Seen {
        look(&self.cli, &self.resource, &self.sandbox, &self.neighbour)
    }

    /// Whether the task was done; a panic where it was done by half.
    #[track_caller]
    fn is_done(&self, twin: &Seen, context: &str) -> bool {
        let now = self.look();
        self.before.neighbour.assert_same(&now.neighbour, Facets::WRITTEN, &format!("{context}: neighbour"));
        let differences = |than: &Seen| {
            let mut lines = than.resource.differences(&now.resource, Facets::CONTENT);
            lines.extend(than.tree.differences(&now.tree, Facets::CONTENT));
            lines.extend((than.pending != now.pending).then(|| "what is pending".to_owned()));
            lines
        };
        let (from_old, from_new) = (differences(&self.before), differences(twin));
        assert!(
            from_old.is_empty() || from_new.is_empty(),
            "{context}: torn.\nnot old: {from_old:#?}\nnot new: {from_new:#?}"
        );
        from_new.is_empty() && self.task != Task::Checkpoint || self.has_checkpoint("two")
    }

    fn has_checkpoint(&self, name: &str) -> bool {
        self.cli.json(&["checkpoints", &self.sandbox.id]).to_string().contains(&format!("\"{name}\""))
    }

    #[track_caller]
    fn recover_and_check(&self, twin: &Seen, context: &str) -> bool {
        self.cli.ok(&["list"]);
        self.cli.ok(&["list"]);
        let done = self.is_done(twin, context);
        if !done {
            self.cli.ok(&self.arguments());
            assert!(self.is_done(twin, context), "{context}: the repeated command did nothing");
            let room = self.sandbox.path.join(WORKSHOP);
            assert!(self.task != Task::Commit || !room.exists(), "{context}: left {}", room.display());
        }
        if self.task == Task::Checkpoint {
            fs::remove_dir_all(self.sandbox.path.join("src")).unwrap();
            self.cli.ok(&["restore", &self.sandbox.id, "two"]);
            self.is_done(twin, &format!("{context}, then restored"));
        }
        for sandbox in [&self.sandbox, &self.neighbour] {
            self.cli.ok(&["destroy", "--discard", &sandbox.id]);
        }
        assert_eq!(mounts_below(self.dir.path()), Vec::<PathBuf>::new(), "{context}: mounts are left over");
        let is_left = |p: &PathBuf| p.iter().any(|n| n.to_string_lossy().starts_with("ws_") || n == "graves");
        let left: Vec<_> = self.cli.inventory().into_iter().filter(is_left).collect();
        assert!(left.is_empty(), "{context}: left over: {left:?}");
        done
    }
}

fn prepare(task: Task, cli: &Cli, sandbox: &Created) {
    if task == Task::Restore {
        cli.ok(&["checkpoint", &sandbox.id, "one"]);
    }
    change_fifty_files(&sandbox.path);
    if task == Task::Undo {
        cli.ok(&["commit", &sandbox.id]);
    }
}

/// Asking for what is pending mounts what is not.
fn look(cli: &Cli, resource: &Path, sandbox: &Created, neighbour: &Created) -> Seen {
    let pending = cli.json(&["diff", &sandbox.id])["entries"].take();
    let strange = cli.json(&["diff", &neighbour.id])["entries"].take();
    assert_eq!(strange, serde_json::json!([]), "the neighbour has changed nothing");
    let [resource, mut tree, neighbour] = [resource, &sandbox.path, &neighbour.path].map(Manifest::capture);
    // A room to work in, which the next that works there removes. No diff shows it.
    tree.entries.retain(|path, _| !path.starts_with(WORKSHOP));
    Seen { resource, tree, neighbour, pending }
}

fn sweep(task: Task) {
    if let Some(reason) = Trace::unavailable().or(mount::try_host(&std::env::temp_dir()).err()) {
        return skip(&reason);
    }
    let twin = Case::new(task);
    let points = Trace::new(&twin.cli).on_one_processor().points(&twin.arguments());
    let points: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
    assert!(points.len() > 5, "hardly a call was seen: {points:?}");
    let seen = twin.look();
    let (renames, others): (Vec<Point>, Vec<Point>) = points.into_iter().partition(|p| p.name == "rename");
    let (mut killed, mut undone) = (0, 0);
    let points = [sample(&others, TASKS), sample(&renames, 10)].concat();
    for point in &points {
        let case = Case::new(task);
        let ended = Trace::new(&case.cli).on_one_processor().kill(point, &case.arguments());
        killed += usize::from(matches!(ended, Ended::Killed));
        undone += usize::from(!case.recover_and_check(&seen, &format!("{task:?} killed at {point:?}")));
    }
    println!("{task:?}: {undone} undone, killed {killed} of {}", points.len());
    assert!(killed * 2 > points.len(), "only {killed} of {} points were reached", points.len());
    // Recovery finishes a rollback or restore from the moment it is logged; the few points before that may not be in the sample.
    match task {
        Task::Restore | Task::Rollback => {
            assert!(undone < points.len(), "a sweep over a whole {task:?} sees it finished")
        }
        _ => assert!(undone > 0, "a sweep over a whole {task:?} sees it undone"),
    }
}

#[test]
fn commit_killed() {
    sweep(Task::Commit);
}

#[test]
fn undo_killed() {
    sweep(Task::Undo);
}

#[test]
fn checkpoint_killed() {
    sweep(Task::Checkpoint);
}

#[test]
fn restore_killed() {
    sweep(Task::Restore);
}

#[test]
fn rollback_killed() {
    sweep(Task::Rollback);
}
