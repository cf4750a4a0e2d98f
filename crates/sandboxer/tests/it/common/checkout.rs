//! A world whose project is a git checkout, and what a test wants to know of one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandboxer_testkit::git::GitRepo;

use crate::common::World;

/// The project of a world, as a checkout on `main`.
pub struct Checkout {
    pub world: World,
    pub repo: GitRepo,
}

impl Checkout {
    /// With the world's three files and a text of ten lines in its first commit, and nothing uncommitted.
    pub fn new() -> Self {
        Self::of(GitRepo::new)
    }

    /// The same with a repository that `init` makes.
    pub fn of(init: fn(PathBuf) -> GitRepo) -> Self {
        let world = World::new();
        let repo = init(world.project());
        repo.write("ten.txt", (1..=10).map(|n| format!("line {n}\n")).collect::<String>());
        repo.write(".gitignore", "build/\n*.log\n");
        repo.commit_all("first");
        Self { world, repo }
    }

    /// The same, and the user in the middle of something: a change that is not committed, a file that git does not know, and
    /// a directory that it ignores.
    pub fn dirty() -> Self {
        let checkout = Self::new();
        checkout.repo.write("run.sh", "#!/bin/sh\necho mine\n");
        checkout.repo.write("notes.txt", "untracked\n");
        checkout.repo.write("build/out.o", "object\n");
        checkout
    }

    /// A sandbox called `try`, as the checkout that it is inside.
    pub fn sandbox(&self) -> GitRepo {
        self.create("try", &[])
    }

    /// A sandbox of that name, made with these flags.
    pub fn create(&self, name: &str, flags: &[&str]) -> GitRepo {
        self.world.ok(&[&["create", "--name", name], flags].concat());
        GitRepo::at(self.world.inside(name))
    }

    /// What `diff` lists.
    pub fn diff(&self, name: &str) -> Vec<String> {
        self.world.ok(&["diff", name]).lines().map(str::to_owned).collect()
    }

    /// Everything that is the user's: the git directory, and every file with its mode.
    pub fn everything(&self) -> (String, BTreeMap<PathBuf, (u32, Vec<u8>)>) {
        (self.repo.hash_of_git_dir(), files(self.repo.path()))
    }

    /// What git finds wrong with the repository; empty where nothing is.
    pub fn fsck(&self) -> String {
        self.repo.git(&["fsck", "--strict", "--no-dangling"])
    }

    /// The branches, in order.
    pub fn branches(&self) -> String {
        self.repo.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads"])
    }

    /// The subjects from the tip of `branch` on.
    pub fn subjects(&self, branch: &str) -> String {
        self.repo.git(&["log", "--format=%s", branch])
    }
}

/// Whether git works in the directory that `sandbox path` names. For an ordinary user it does so by `sandbox run` alone.
pub fn git_works_inside() -> bool {
    let works = rustix::process::geteuid().is_root();
    if !works {
        sandboxer_testkit::skip(
            "git is started from outside in the sandbox, which needs a mount on the host",
        );
    }
    works
}

/// Every file below `root` but those of `.git`, with mode and content; of a link, where it leads.
pub fn files(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    collect(root, root, &mut found);
    found
}

fn collect(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|e| e.file_name() != ".git") {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            collect(root, &path, found);
            continue;
        }
        let content = match kind.is_symlink() {
            true => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            false => fs::read(&path).unwrap(),
        };
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        found.insert(path.strip_prefix(root).unwrap().to_owned(), (mode, content));
    }
}
