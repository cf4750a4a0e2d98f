//! A sandbox of a checkout in which something is about to be done, and the verdict on it afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_testkit::faults::{Cli, Created, Outcome, change_fifty_files, fill_fifty_files};
use sandboxer_testkit::git::GitRepo;
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::mounts::{DetachBelow, mounts_below};
use serde_json::Value;
use tempfile::TempDir;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Commit,
    Undo,
}

/// A checkout, and a sandbox of it with fifty changes.
pub struct Case {
    task: Task,
    pub cli: Cli,
    repo: GitRepo,
    sandbox: Created,
    before: Seen,
    _mounts: [DetachBelow; 2],
    _dir: TempDir,
}

/// What can be seen from outside.
pub struct Seen {
    files: Manifest,
    /// The commit's files; its name has the time in it.
    tree: String,
    commits: usize,
    index: String,
    other_refs: String,
    pending: Value,
}

impl Case {
    pub fn new(task: Task) -> Self {
        Self::at(task, &sandboxer_testkit::in_memory(), None)
    }

    /// The checkout below `place`, and the state directory too unless it is elsewhere.
    pub fn at(task: Task, place: &Path, elsewhere: Option<&Path>) -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-git-sweep-", place).unwrap();
        let repo = GitRepo::new(dir.path().join("checkout"));
        fill_fifty_files(repo.path());
        repo.commit_all("first");
        repo.git(&["branch", "theirs"]);
        let home = match elsewhere {
            Some(elsewhere) => TempDir::with_prefix_in("home-", elsewhere).unwrap().keep(),
            None => dir.path().join("home"),
        };
        let cli = Cli::new(&home);
        let sandbox = cli.create(repo.path(), &["--strategy", "git_worktree", "--no-fallback"]);
        change_fifty_files(&sandbox.path);
        let _mounts = [DetachBelow(dir.path().to_path_buf()), DetachBelow(home)];
        if task == Task::Undo {
            cli.ok(&["commit", &sandbox.id]);
        }
        let before = look(&cli, &repo, &sandbox);
        Self { task, cli, repo, sandbox, before, _mounts, _dir: dir }
    }

    pub fn arguments(&self) -> [&str; 2] {
        match self.task {
            Task::Commit => ["commit", &self.sandbox.id],
            Task::Undo => ["undo", &self.sandbox.id],
        }
    }

    pub fn look(&self) -> Seen {
        look(&self.cli, &self.repo, &self.sandbox)
    }

    /// Ends the mounts, as a reboot does.
    pub fn detach(&self) {
        drop(DetachBelow(self._dir.path().to_path_buf()));
        drop(DetachBelow(self.cli.home().to_path_buf()));
    }

    /// Recovers twice by the next commands, then checks everything, and that it goes on from there.
    #[track_caller]
    pub fn recover_and_check(&self, twin: &Seen, context: &str) -> Outcome {
        self.cli.ok(&["list"]);
        let outcome = self.verdict(twin, context);
        self.cli.ok(&["list"]);
        assert_eq!(self.verdict(twin, context), outcome, "{context}: a second recovery changed it");
        let unsettled = self.cli.operations_in(&["running", "decided"]);
        assert!(unsettled.is_empty(), "{context}: still under way in the log: {unsettled:?}");
        if outcome == Outcome::Old {
            self.cli.ok(&self.arguments());
            assert_eq!(
                self.verdict(twin, context),
                Outcome::New,
                "{context}: the repeated command did nothing"
            );
        }
        self.cli.ok(&["destroy", "--discard", &self.sandbox.id]);
        assert_eq!(mounts_below(self._dir.path()), Vec::<PathBuf>::new(), "{context}: mounts are left over");
        let is_left = |p: &PathBuf| p.iter().any(|n| n.to_string_lossy().starts_with("ws_") || n == "graves");
        let left: Vec<_> = self.cli.inventory().into_iter().filter(is_left).collect();
        assert!(left.is_empty(), "{context}: left over: {left:?}");
        self.assert_repository(context);
        outcome
    }

    /// All old or all new, or a panic that says what is torn.
    #[track_caller]
    fn verdict(&self, twin: &Seen, context: &str) -> Outcome {
        let now = self.look();
        let (old, new) = (self.before.differences(&now), twin.differences(&now));
        assert!(old.is_empty() || new.is_empty(), "{context}: torn.\nnot old: {old:#?}\nnot new: {new:#?}");
        self.assert_repository(context);
        if new.is_empty() { Outcome::New } else { Outcome::Old }
    }

    /// The repository holds together, agrees with its files, and nobody's lock is in it.
    #[track_caller]
    pub fn assert_repository(&self, context: &str) {
        let checked = self.repo.command(&["fsck", "--strict", "--no-dangling"]).output().unwrap();
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(checked.status.success(), "{context}: fsck: {told}");
        let status = self.repo.status();
        assert_eq!(status, "", "{context}: the checkout is not clean");
        let left: Vec<_> = left_below(&self.repo.path().join(".git"));
        assert!(left.is_empty(), "{context}: left over in the repository: {left:?}");
    }
}

impl Seen {
    fn differences(&self, now: &Self) -> Vec<String> {
        let mut lines = self.files.differences(&now.files, Facets::CONTENT);
        let mut note = |what: &str, differs: bool| lines.extend(differs.then(|| what.to_owned()));
        note("the commit's files", self.tree != now.tree);
        note("the number of commits", self.commits != now.commits);
        note("the index", self.index != now.index);
        note("other branches", self.other_refs != now.other_refs);
        note("what is pending", self.pending != now.pending);
        lines
    }
}

fn look(cli: &Cli, repo: &GitRepo, sandbox: &Created) -> Seen {
    let mut files = Manifest::capture(repo.path());
    files.entries.retain(|path, _| !path.starts_with(".git"));
    let refs = repo.git(&["for-each-ref", "--format=%(refname)"]);
    Seen {
        files,
        tree: repo.git(&["rev-parse", "main^{tree}"]),
        commits: repo.git(&["rev-list", "--count", "main"]).parse().unwrap(),
        index: repo.git(&["ls-files", "-s"]),
        other_refs: refs,
        pending: cli.json(&["diff", &sandbox.id])["entries"].take(),
    }
}

/// Locks and temporary files in a git directory.
fn left_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_left = name.ends_with(".lock") || name.starts_with(".sandboxer") || name.starts_with("tmp_");
        found.extend(is_left.then(|| entry.path()));
        if entry.file_type().unwrap().is_dir() {
            found.extend(left_below(&entry.path()));
        }
    }
    found
}
