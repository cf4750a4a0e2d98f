//! Random work in a sandbox of a checkout, and around it: what `diff` shows is what plain git finds between the branch and a copy of the
//! sandbox's files, and after a commit the branch has just those files.
//!
//! The second opinion is git's own, with a repository that the sandbox never saw. `SANDBOXER_TEST_FULL=1` takes many more histories.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use sandboxer_keeper::mount;
use sandboxer_testkit::faults::{Cli, Created};
use sandboxer_testkit::git::GitRepo;
use sandboxer_testkit::mounts::DetachBelow;
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

const STEPS: usize = 14;

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

struct World {
    repo: GitRepo,
    cli: Cli,
    sandbox: Created,
    random: Random,
    /// What was done, for whoever has to understand a failure.
    story: Vec<String>,
    commits: usize,
    _mounts: DetachBelow,
    dir: TempDir,
}

impl World {
    fn new(seed: u64) -> Self {
        let dir = TempDir::with_prefix("sandboxer-git-model-").unwrap();
        let repo = GitRepo::new(dir.path().join("checkout"));
        for number in 0..8 {
            repo.write(format!("d{}/f{number}", number % 3), format!("{number}\n").repeat(30));
        }
        repo.write(".gitignore", "*.ignored\n");
        repo.write("theirs", "theirs\n");
        repo.commit_all("first");
        let cli = Cli::new(&dir.path().join("home"));
        let sandbox = cli.create(repo.path(), &["--strategy", "git_worktree"]);
        let inside = GitRepo::at(&sandbox.path);
        inside.git(&["config", "user.name", "Agent"]);
        inside.git(&["config", "user.email", "agent@example.org"]);
        let _mounts = DetachBelow(dir.path().to_path_buf());
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { repo, cli, sandbox, random, story: Vec::new(), commits: 0, _mounts, dir }
    }

    fn file(&mut self) -> String {
        let (dir, file) = (self.random.below(3), self.random.below(10));
        format!("d{dir}/f{file}")
    }

    /// Something that an agent does.
    fn work(&mut self) {
        let (what, file, number) = (self.random.below(10), self.file(), self.random.below(1000));
        let path = self.sandbox.path.join(&file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let inside = GitRepo::at(&self.sandbox.path);
        let git = |arguments: &[&str]| drop(inside.command(arguments).output().unwrap());
        self.story.push(format!("inside {what}: {file} {number}"));
        match what {
            0..=2 => {
                replace(&path, |path| fs::write(path, format!("{number}\n").repeat(number % 40)).unwrap())
            }
            3 => replace(&path, |_| ()),
            4 => replace(&path, |path| symlink(format!("to {number}"), path).unwrap()),
            5 => replace(&path, |path| {
                fs::write(path, "#!/bin/sh\n").unwrap();
                fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
            }),
            6 => git(&["add", "--all"]),
            7 => {
                git(&["add", "--all"]);
                git(&["commit", "-q", "-m", "inside"]);
            }
            8 => git(&["stash", "-q", "--include-untracked"]),
            _ => fs::write(self.sandbox.path.join("x.ignored"), "ignored\n").unwrap(),
        }
    }

    /// Something that is done from outside.
    fn act(&mut self) {
        let id = self.sandbox.id.clone();
        let what = self.random.below(7);
        self.story.push(format!("outside {what}"));
        match what {
            0 => drop(self.cli.ok(&["rollback", &id])),
            1 => drop(self.cli.run(&["checkpoint", &id, "kept"])),
            2 => drop(self.cli.run(&["restore", &id, "kept"])),
            3 => {
                self.commits += 1;
                self.repo.write("theirs", format!("theirs {}\n", self.commits));
                self.repo.commit_all("by hand");
            }
            4 => drop(self.cli.run(&["undo", &id])),
            _ => self.commit(),
        }
    }

    fn commit(&mut self) {
        let before = self.repo.head();
        let pending = self.shown();
        self.cli.ok(&["commit", &self.sandbox.id]);
        assert_eq!(self.shown(), BTreeSet::new(), "something is pending after a commit: {:?}", self.story);
        assert_eq!(self.found(), BTreeSet::new(), "the branch has other files: {:?}", self.story);
        // What is as in the base is no change, however the user's version differs: git in the sandbox puts back what it does not know.
        let is_mine = |path: &String| path != "theirs";
        let same = self.repo.head() == before;
        assert!(!same || !pending.iter().any(is_mine), "what was pending is not committed: {:?}", self.story);
        assert!(same || !pending.is_empty(), "a commit of nothing: {:?}", self.story);
    }

    /// The paths that `diff` shows, directories aside.
    fn shown(&self) -> BTreeSet<String> {
        let answer = self.cli.json(&["diff", &self.sandbox.id]);
        let mut paths = BTreeSet::new();
        for entry in answer["entries"].as_array().unwrap() {
            let is_dir = |side: &str| entry[side]["type"] == "directory" || entry[side].is_null();
            if is_dir("old") && is_dir("new") {
                continue;
            }
            paths.extend(entry["path"].as_str().map(str::to_owned));
            paths.extend(entry["from"].as_str().map(str::to_owned));
        }
        paths
    }

    /// The paths that git finds, in a copy of the files and with a repository of its own.
    fn found(&self) -> BTreeSet<String> {
        let copy = TempDir::new_in(self.dir.path()).unwrap();
        let copied = Command::new("cp").arg("-a").arg(self.sandbox.path.join(".")).arg(copy.path()).status();
        assert!(copied.unwrap().success());
        fs::remove_dir_all(copy.path().join(".git")).unwrap();
        let trusted = copy.path().join(".git");
        self.repo.git(&["clone", "-q", "--bare", ".", trusted.to_str().unwrap()]);
        let git = GitRepo::at(copy.path());
        git.git(&["config", "core.bare", "false"]);
        git.git(&["read-tree", "main"]);
        git.git(&["add", "--all"]);
        let told = git.git(&["diff", "--cached", "--no-renames", "--name-only", "main"]);
        told.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(&self) {
        assert_eq!(self.shown(), self.found(), "`diff` and git disagree after {:#?}", self.story);
        assert_eq!(self.repo.status(), "", "the checkout is not clean after {:#?}", self.story);
    }
}

/// Puts something in the place of whatever is at `path`.
fn replace(path: &Path, put: impl FnOnce(&Path)) {
    let _ = fs::remove_file(path);
    put(path);
}

#[test]
fn diff_and_commit_agree_with_git() {
    if let Err(reason) = mount::try_host(&std::env::temp_dir()) {
        return skip(&reason);
    }
    for seed in 0..if full() { 200 } else { 8 } {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            match world.random.below(3) {
                0 => world.act(),
                _ => world.work(),
            }
            world.check();
        }
        world.commit();
        world.repo.git(&["fsck", "--strict", "--no-dangling"]);
        world.cli.ok(&["destroy", "--discard", &world.sandbox.id]);
    }
}
