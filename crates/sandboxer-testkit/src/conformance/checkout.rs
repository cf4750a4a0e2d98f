//! A resource that is a git checkout.

use std::fs;
use std::path::{Path, PathBuf};

use crate::git::GitRepo;
use crate::manifest::Manifest;

/// The checkout, with its repository beside it: what is in the checkout itself is one file that never changes.
pub(super) struct Checkout {
    repo: GitRepo,
    git_dir: PathBuf,
}

impl Checkout {
    /// Makes the directory at `path` one.
    pub fn of(path: &Path) -> Self {
        let git_dir = path.with_file_name("repository");
        let repo = GitRepo::at(path);
        let elsewhere = format!("--separate-git-dir={}", git_dir.display());
        repo.git(&["init", "-q", "--initial-branch=main", "--template=", &elsewhere]);
        repo.git(&["config", "user.name", "Tess Tester"]);
        repo.git(&["config", "user.email", "tess@example.org"]);
        Self { repo, git_dir }
    }

    /// A tree without `.git` at its top.
    pub fn without_git(mut manifest: Manifest) -> Manifest {
        manifest.entries.retain(|path, _| !path.starts_with(".git"));
        manifest
    }

    /// Commits whatever is there, as its user would.
    pub fn commit_all(&self) {
        self.repo.git(&["add", "--all", "--force"]);
        let clean = self.repo.command(&["diff-index", "--cached", "--quiet", "HEAD", "--"]).output().unwrap();
        if !clean.status.success() {
            self.repo.git(&["commit", "-q", "-m", "by hand"]);
        }
    }

    /// Asserts that the repository holds together, that its index is as its commit, and that nobody left a lock.
    #[track_caller]
    pub fn assert_sound(&self) {
        if self.repo.command(&["rev-parse", "-q", "--verify", "HEAD"]).output().unwrap().status.success() {
            self.repo.git(&["fsck", "--strict", "--no-dangling", "--no-progress"]);
            assert_eq!(self.repo.git(&["diff-index", "--cached", "--name-status", "HEAD"]), "", "staged");
        }
        let left = left_by_commits(&self.git_dir);
        assert!(left.is_empty(), "left over in the repository: {left:?}");
    }
}

/// Locks and temporary files below a git directory.
fn left_by_commits(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_temporary =
            name.ends_with(".lock") || name.starts_with(".sandboxer") || name.starts_with("tmp_");
        found.extend(is_temporary.then(|| entry.path()));
        if entry.file_type().unwrap().is_dir() {
            found.extend(left_by_commits(&entry.path()));
        }
    }
    found
}
