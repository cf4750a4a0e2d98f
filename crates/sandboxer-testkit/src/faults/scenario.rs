//! A tree with fifty pending changes, and the verdict on it afterwards.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Cli, Created};
use crate::manifest::{Facets, Manifest};
use crate::mounts::mounts_below;

/// How a commit ends that is decided, and stopped half way.
pub const UNFINISHED: i32 = 7;

/// What became of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exactly as it was.
    Old,
    /// Exactly what the sandbox has.
    New,
}

/// A resource of sixty-odd files, a sandbox over it with fifty pending changes, and both trees as they were.
pub struct Scenario {
    /// Runs commands over its state directory.
    pub cli: Cli,
    /// The original.
    pub resource: PathBuf,
    /// The sandbox.
    pub sandbox: Created,
    /// The original as it was.
    pub old: Manifest,
    /// The sandbox's tree: what the original has to become.
    pub new: Manifest,
    inventory: Vec<PathBuf>,
    dir: TempDir,
}

impl Scenario {
    /// In a temporary directory, with the sandbox made by `strategy`.
    pub fn new(strategy: &str) -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-faults-", crate::in_memory()).unwrap();
        let (home, resource) = (dir.path().join("home"), dir.path().join("resource"));
        Self::at(strategy, home, resource, dir)
    }

    /// With the state directory and the resource at paths of the caller's choice; `dir` goes with the scenario.
    pub fn at(strategy: &str, home: PathBuf, resource: PathBuf, dir: TempDir) -> Self {
        fs::create_dir_all(&resource).unwrap();
        fill_fifty_files(&resource);
        let cli = Cli::new(&home);
        let sandbox = cli.create(&resource, &["--strategy", strategy]);
        change_fifty_files(&sandbox.path);
        let (old, new) = (Manifest::capture(&resource), Manifest::capture(&sandbox.path));
        let inventory = cli.inventory();
        Self { cli, resource, sandbox, old, new, inventory, dir }
    }

    /// The temporary directory that holds everything.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The arguments of the commit.
    pub fn commit_arguments(&self) -> [String; 2] {
        ["commit".to_owned(), self.sandbox.id.clone()]
    }

    /// The resource after recovery: all old or all new, or a panic that says what is torn.
    #[track_caller]
    pub fn verdict(&self, context: &str) -> Outcome {
        let now = Manifest::capture(&self.resource);
        let (from_old, from_new) =
            (self.old.differences(&now, Facets::UNTOUCHED), self.new.differences(&now, Facets::WRITTEN));
        if from_new.is_empty() {
            return Outcome::New;
        }
        assert!(
            from_old.is_empty(),
            "{context}: torn.\nnot old:\n  {}\nnot new:\n  {}",
            from_old.join("\n  "),
            from_new.join("\n  ")
        );
        Outcome::Old
    }

    /// Recovers with the next command, then checks everything: old or new, nothing left over, and both roads go on.
    #[track_caller]
    pub fn recover_and_check(&self, context: &str) -> Outcome {
        let recovery = self.cli.run(&["list"]);
        assert!(recovery.status.success(), "{context}: recovery failed: {}", super::cli::describe(&recovery));
        let outcome = self.verdict(context);
        self.assert_no_leftovers(context);
        self.go_on(outcome, context);
        outcome
    }

    /// The same after a failure that lasted, and so kept the command from tidying up behind itself: what it left has
    /// to be gone after the next commit.
    #[track_caller]
    pub fn recover_and_check_late(&self, context: &str) -> Outcome {
        self.cli.ok(&["list"]);
        let outcome = self.verdict(context);
        self.go_on(outcome, context);
        outcome
    }

    fn go_on(&self, outcome: Outcome, context: &str) {
        self.assert_pending(outcome, context);
        if outcome == Outcome::Old {
            self.cli.ok(&self.commit_arguments());
            assert_eq!(self.verdict(context), Outcome::New, "{context}: the repeated commit did nothing");
        }
        self.assert_no_leftovers(context);
        self.assert_destroyable(context);
    }

    fn assert_pending(&self, outcome: Outcome, context: &str) {
        let pending = self.cli.code(&["diff", "--exit-code", &self.sandbox.id]);
        let expected = if outcome == Outcome::New { 0 } else { 1 };
        assert_eq!(pending, expected, "{context}: the tree is {outcome:?}, but diff says otherwise");
    }

    /// Nothing in the state directory that was not there before, no mounts, nothing hidden beside the resource.
    #[track_caller]
    pub fn assert_no_leftovers(&self, context: &str) {
        let now = self.cli.inventory();
        let kept = self.cli.operations_in(&["done", "recovered"]);
        let extra: Vec<_> =
            now.iter().filter(|path| !self.inventory.contains(path) && !is_kept(path, &kept)).collect();
        assert!(extra.is_empty(), "{context}: left over in the state directory: {extra:?}");
        assert_eq!(mounts_below(self.dir()), Vec::<PathBuf>::new(), "{context}: mounts are left over");
        let hidden: Vec<_> = hidden_beside(&self.resource).collect();
        assert!(hidden.is_empty(), "{context}: left over beside the resource: {hidden:?}");
    }

    /// The sandbox can be destroyed, and is gone then.
    #[track_caller]
    pub fn assert_destroyable(&self, context: &str) {
        let before = Manifest::capture(&self.resource);
        self.cli.ok(&["destroy", "--discard", &self.sandbox.id]);
        let workspaces: Vec<_> = self.cli.inventory().into_iter().filter(|p| is_of_a_sandbox(p)).collect();
        assert!(workspaces.is_empty(), "{context}: destroy left {workspaces:?}");
        before.assert_same(&Manifest::capture(&self.resource), Facets::UNTOUCHED, context);
    }
}

/// Whether a path belongs to what takes one of `operations` back, or is an empty room to work in.
fn is_kept(path: &Path, operations: &[String]) -> bool {
    let below_undo = path.iter().skip_while(|part| *part != "undo").nth(1);
    let is_room = path.file_name().is_some_and(|name| name == "undo" || name == "workshop");
    is_room || below_undo.is_some_and(|id| operations.iter().any(|known| id == known.as_str()))
}

pub(super) fn is_of_a_sandbox(path: &Path) -> bool {
    path.components().any(|c| {
        let name = c.as_os_str().to_string_lossy();
        name.starts_with("ws_") || name.starts_with("sbx_")
    })
}

pub(super) fn hidden_beside(resource: &Path) -> impl Iterator<Item = PathBuf> {
    let listing = fs::read_dir(resource.parent().unwrap()).unwrap().flatten().map(|e| e.path());
    listing.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(".sandboxer")))
}

/// Files that [`change_fifty_files`] changes.
pub fn fill_fifty_files(dir: &Path) {
    for sub in ["src", "src/deep", "docs", "gone", "untouched"] {
        fs::create_dir(dir.join(sub)).unwrap();
    }
    for i in 0..12 {
        for sub in ["src", "src/deep", "docs", "gone", "untouched"] {
            fs::write(dir.join(sub).join(format!("{i:02}.txt")), format!("{sub} {i}\n").repeat(i + 1))
                .unwrap();
        }
    }
    for i in 0..4 {
        symlink(format!("src/{i:02}.txt"), dir.join(format!("link{i}"))).unwrap();
    }
}

/// Fifty changes: modified, created, deleted, renamed, chmod, links, new and vanished directories.
pub fn change_fifty_files(dir: &Path) {
    for i in 0..12 {
        fs::write(dir.join(format!("src/{i:02}.txt")), format!("modified {i}\n")).unwrap();
        fs::remove_file(dir.join(format!("gone/{i:02}.txt"))).unwrap();
    }
    fs::remove_dir(dir.join("gone")).unwrap();
    fs::create_dir_all(dir.join("fresh/below")).unwrap();
    for i in 0..10 {
        fs::write(dir.join(format!("fresh/below/{i:02}")), format!("created {i}\n").repeat(100)).unwrap();
    }
    for i in 0..6 {
        fs::rename(dir.join(format!("docs/{i:02}.txt")), dir.join(format!("fresh/moved{i}.txt"))).unwrap();
        let mode = Permissions::from_mode(0o600 + u32::from(i % 2 == 0) * 0o100);
        fs::set_permissions(dir.join(format!("src/deep/{i:02}.txt")), mode).unwrap();
    }
    for i in 0..4 {
        let link = dir.join(format!("link{i}"));
        fs::remove_file(&link).unwrap();
        if i < 3 {
            symlink("fresh/below", &link).unwrap();
        } else {
            fs::write(&link, "a file now\n").unwrap();
        }
    }
}
