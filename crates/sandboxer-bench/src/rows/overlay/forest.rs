//! Where the overlay rows work: trees by their number of files, repositories over them, and the `sandbox` command whose
//! state is beside them. A tree is written once, when the first row needs it and where there is room for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{STRATEGY, Scale};
use crate::failure::{During, Result};
use crate::measure::Sample;
use crate::place::{Place, tool};
use crate::rows::{Bench, git, need_git};
use crate::sandbox::{Created, SandboxCommand, Tidy};
use crate::tree::TreeSpec;

/// The trees, and what works on them.
pub struct Forest<'a> {
    /// The settings.
    pub bench: &'a Bench,
    /// The sizes.
    pub scale: Scale,
    // Before the place, so that its mounts are gone when the place is removed.
    /// The command.
    pub sandbox: Tidy,
    /// Where.
    pub place: Place,
}

impl<'a> Forest<'a> {
    /// Nothing is written yet.
    pub fn new(bench: &'a Bench, scale: Scale, place: Place) -> Self {
        let sandbox = Tidy(SandboxCommand::new(&bench.binary, place.root()));
        Self { bench, scale, sandbox, place }
    }

    /// A path beside the trees.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.root().join(name)
    }

    /// The tree of that size.
    pub fn tree(&self, spec: TreeSpec) -> Result<PathBuf> {
        let tree = self.beside(&format!("tree-{}", spec.files));
        if !tree.exists() {
            self.write_tree(spec, &tree)?;
        }
        Ok(tree)
    }

    /// The tree of that size, all of it committed to a git repository that is kept beside it.
    pub fn repository(&self, spec: TreeSpec) -> Result<PathBuf> {
        need_git()?;
        let tree = self.tree(spec)?;
        let directory = tree.with_extension("git");
        if !directory.exists() {
            crate::say(&format!("committing {} files to git", spec.files));
            let mut init = self.git(&tree, &["init", "--quiet", "--separate-git-dir"]);
            tool(init.arg(&directory))?;
            tool(&mut self.git(&tree, &["add", "--all"]))?;
            tool(&mut self.git(&tree, &["commit", "--quiet", "--message", "everything"]))?;
            self.place.settle()?;
        }
        Ok(tree)
    }

    /// Git in `directory`, with nobody's configuration.
    pub fn git(&self, directory: &Path, arguments: &[&str]) -> Command {
        git(directory, arguments)
    }

    /// A sandbox of `tree`; the disk is quiet when the clock starts.
    pub fn create(&self, tree: &Path) -> Result<(Sample, Created)> {
        self.place.settle()?;
        self.sandbox.create_by(tree, STRATEGY)
    }

    /// What a create takes; its sandbox is gone again.
    pub fn create_and_destroy(&self, tree: &Path) -> Result<Sample> {
        let (sample, created) = self.create(tree)?;
        self.sandbox.destroy(&created)?;
        Ok(sample)
    }

    fn write_tree(&self, spec: TreeSpec, tree: &Path) -> Result<()> {
        // Twice the inodes: git keeps an object for each directory.
        self.place.need(spec.bytes_on_disk() * 2 + (64 << 20), spec.inodes() * 2)?;
        crate::say(&format!("writing {} files on {}", spec.files, self.place.name));
        let unfinished = tree.with_extension("unfinished");
        spec.write(&unfinished, &self.bench.interrupt)?;
        self.place.settle()?;
        fs::rename(&unfinished, tree).during("rename", &unfinished)
    }
}
