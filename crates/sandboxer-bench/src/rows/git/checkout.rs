//! Where the git rows work: the repository with its checkout, the `sandbox` command whose state is beside it, and worktrees
//! of git's own beside both.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::changes::Changes;
use super::history::{History, freshen};
use crate::failure::{During, Failure, Result};
use crate::measure::Sample;
use crate::place::{Place, tool};
use crate::rows::{Bench, git, need_git};
use crate::sandbox::{Created, SandboxCommand, Tidy};

/// A checked-out repository, and what works on it.
pub struct Checkout<'a> {
    /// The settings.
    pub bench: &'a Bench,
    /// The strategy under test.
    pub strategy: &'a str,
    /// What is changed in it.
    pub changes: Changes,
    /// The user's checkout.
    pub path: PathBuf,
    /// The commit that it is at when a round begins.
    pub start: String,
    // Before the place, so that its mounts are gone when the place is removed.
    /// The command.
    pub sandbox: Tidy,
    /// Where.
    pub place: Place,
}

impl<'a> Checkout<'a> {
    /// Makes the repository in `place`.
    pub fn new(bench: &'a Bench, strategy: &'a str, history: History, place: Place) -> Result<Self> {
        need_git()?;
        crate::say(&format!("committing {} files on {}", bench.spec.files, place.name));
        let path = place.root().join("checkout");
        history.make(&path, &bench.interrupt)?;
        let start = answer(&mut git(&path, &["rev-parse", "HEAD"]))?;
        let sandbox = Tidy(SandboxCommand::new(&bench.binary, place.root()));
        Ok(Self { bench, strategy, changes: Changes::of(bench.spec), path, start, sandbox, place })
    }

    /// A path beside the checkout.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.root().join(name)
    }

    /// A sandbox of the checkout; the disk is quiet when the clock starts.
    pub fn create(&self) -> Result<(Sample, Created)> {
        self.place.settle()?;
        self.sandbox.create_by(&self.path, self.strategy)
    }

    /// A worktree of git's own, on a branch of the same name.
    pub fn worktree(&self, name: &str) -> Result<Worktree<'_>> {
        let worktree = self.future_worktree(name);
        tool(&mut worktree.add())?;
        Ok(worktree)
    }

    /// A worktree that is not there until its [`Worktree::add`] has run.
    pub fn future_worktree(&self, name: &str) -> Worktree<'_> {
        Worktree { checkout: self, path: self.beside(name), branch: name.to_owned() }
    }

    /// Puts the checkout, or a worktree, back to where every round begins; what is ignored stays.
    pub fn back_to_start(&self, directory: &Path) -> Result<()> {
        tool(&mut git(directory, &["reset", "--quiet", "--hard", &self.start]))?;
        tool(&mut git(directory, &["clean", "--quiet", "-d", "--force"]))
    }

    /// What the checkout's branch holds that the start did not, path by path. The branch must be one commit further on,
    /// and the files and the index as it says.
    pub fn committed(&self) -> Result<String> {
        let parent = answer(&mut git(&self.path, &["rev-parse", "main^"]))?;
        if parent != self.start {
            return Err(Failure::new("the checkout's branch is not one commit further on"));
        }
        let left = answer(&mut git(&self.path, &["status", "--porcelain"]))?;
        if !left.is_empty() {
            return Err(Failure::new(format!("the checkout is not clean after the commit: {left}")));
        }
        answer(&mut git(&self.path, &["diff-tree", "-r", "-M", "--name-status", &self.start, "main"]))
    }
}

/// A worktree that goes when this value goes, with its branch.
pub struct Worktree<'a> {
    checkout: &'a Checkout<'a>,
    /// Where it is.
    pub path: PathBuf,
    /// Its branch.
    pub branch: String,
}

impl Worktree<'_> {
    /// The command that makes it.
    pub fn add(&self) -> Command {
        let mut add = git(&self.checkout.path, &["worktree", "add", "--quiet"]);
        add.arg(&self.path).args(["-b", &self.branch, "HEAD"]);
        add
    }

    /// Makes the changes in it and tells git of what is new, so that `git diff` shows new and renamed files, too.
    pub fn change(&self, round: usize) -> Result<()> {
        self.checkout.changes.make(&self.path, round)?;
        let mut add = git(&self.path, &["add", "--intent-to-add", "--"]);
        tool(add.args(self.checkout.changes.new_paths()))?;
        freshen(&self.path)
    }
}

impl Drop for Worktree<'_> {
    fn drop(&mut self) {
        let repository = &self.checkout.path;
        let removed = tool(git(repository, &["worktree", "remove", "--force"]).arg(&self.path))
            .and_then(|()| tool(&mut git(repository, &["branch", "--quiet", "-D", &self.branch])));
        if let Err(why) = removed {
            crate::say(&format!("cannot remove the worktree {}: {why}", self.path.display()));
        }
    }
}

/// What a command prints, less the newline at its end.
pub fn answer(command: &mut Command) -> Result<String> {
    let program = PathBuf::from(command.get_program());
    let output = command.output().during("run", &program)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{} ended with {}: {}", program.display(), output.status, said.trim())))
}
