//! A checkout, a sandbox of it in which the agent has committed, and all that a host does with a sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use sandboxer_core::Result;
use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{
    CheckpointId, CommitRequest, History, OnConflict, OpId, Part, Phase, PlanId, Resource, SandboxRef,
};
use sandboxer_core::registry::StrategyContext;
use sandboxer_keeper::mount;
use sandboxer_strategies::git_worktree;
use sandboxer_testkit::faults::{Cli, Created};
use sandboxer_testkit::git::GitRepo;
use sandboxer_testkit::mounts::{DetachBelow, Mounted};
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

use super::plants::{self, Plant};

/// Nothing that a host does takes so long, unless it waits for something that never comes.
const DEADLINE: Duration = Duration::from_secs(120);

/// How the files of a sandbox are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Overlay,
    Copy,
}

impl Way {
    /// Those that work here.
    pub fn available() -> Vec<Self> {
        let overlay = mount::try_host(&std::env::temp_dir()).map(|_| Self::Overlay);
        let copy = Mounted::overlay().map(|_| Self::Copy);
        [overlay, copy].into_iter().filter_map(|way| way.inspect_err(|reason| skip(reason)).ok()).collect()
    }
}

/// Ways to try the `turn`th thing of many in: one of them by default, in turn.
pub fn ways(turn: usize) -> Vec<Way> {
    let all = Way::available();
    if full() || all.is_empty() { all } else { vec![all[turn % all.len()]] }
}

/// One checkout and one sandbox.
pub struct World {
    name: String,
    original: GitRepo,
    tree: PathBuf,
    /// Where it was not made through the command line.
    sandbox: Option<SandboxRef>,
    dir: PathBuf,
    // In this order: what is mounted goes before the directories, and these before the filesystem below them.
    _mounts: DetachBelow,
    _dir: TempDir,
    _guard: Option<Mounted>,
}

/// What nobody may change.
#[derive(PartialEq, Eq, Debug)]
pub struct Kept {
    config: Vec<u8>,
    hooks: Vec<(PathBuf, Vec<u8>)>,
    branches: String,
    other: Vec<(PathBuf, Vec<u8>)>,
    secret: Vec<u8>,
}

impl World {
    /// With a sandbox that was made by the strategy.
    pub fn of(way: Way, name: &str) -> Self {
        let guard = (way == Way::Copy).then(|| Mounted::overlay().unwrap());
        let (temp, original) = prepare(guard.as_ref());
        let resource = Resource::at_path("git-checkout", original.path());
        let sandbox = strategy(temp.path()).create(&PlanId::generate(), &resource).unwrap();
        let is_copy = sandbox.metadata.contains_key("fallback_reason");
        assert_eq!(is_copy, way == Way::Copy, "{sandbox:?}");
        let tree = sandbox.sandbox_path().unwrap();
        Self::new(format!("{way:?}: {name}"), original, tree, Some(sandbox), temp, guard)
    }

    /// With a sandbox that was made through the command line.
    pub fn of_command_line(name: &str) -> (Self, Cli, Created) {
        let (temp, original) = prepare(None);
        let cli = Cli::new(&temp.path().join("home"));
        let created = cli.create(original.path(), &["--strategy", git_worktree::NAME]);
        let world = Self::new(name.to_owned(), original, created.path.clone(), None, temp, None);
        (world, cli, created)
    }

    fn new(
        name: String,
        original: GitRepo,
        tree: PathBuf,
        sandbox: Option<SandboxRef>,
        temp: TempDir,
        guard: Option<Mounted>,
    ) -> Self {
        let dir = temp.path().to_path_buf();
        let _mounts = DetachBelow(dir.clone());
        let world = Self { name, original, tree, sandbox, dir, _mounts, _dir: temp, _guard: guard };
        world.commit_inside();
        world
    }

    /// The agent's own commits, while its repository is what it was made to be.
    fn commit_inside(&self) {
        let inside = self.inside();
        inside.git(&["config", "user.name", "Agent"]);
        inside.git(&["config", "user.email", "agent@example.org"]);
        inside.write("agent.txt", "by the agent\n");
        inside.commit_all("the agent's");
        inside.write("c.bin", "a filtered file\n");
    }

    pub fn inside(&self) -> GitRepo {
        GitRepo::at(&self.tree)
    }

    pub fn original(&self) -> &GitRepo {
        &self.original
    }

    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// The git directory inside.
    pub fn private(&self) -> PathBuf {
        self.tree().join(".git")
    }

    /// That of the original.
    pub fn git_dir(&self) -> PathBuf {
        self.original.path().join(".git")
    }

    /// A path outside of everything.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A repository of somebody else's.
    pub fn other(&self) -> PathBuf {
        self.dir.join("other")
    }

    /// Fills it, with traps.
    pub fn plant_other(&self) {
        let other = GitRepo::new(self.other());
        other.write("theirs.txt", "theirs\n");
        other.commit_all("theirs");
        let config = self.other().join(".git/config");
        let text = fs::read_to_string(&config).unwrap();
        let trap = format!("[core]\n\tfsmonitor = \"{}\"\n", self.mark("fsmonitor"));
        fs::write(config, text + &trap).unwrap();
        plants::plant_hooks(self, &self.other().join(".git/hooks"));
    }

    /// A command that leaves the marker `name`.
    pub fn mark(&self, name: &str) -> String {
        format!("{} {name}", self.dir.join("mark").display())
    }

    pub fn markers(&self) -> Vec<String> {
        let listing = fs::read_dir(self.dir.join("markers")).unwrap().flatten();
        let mut names: Vec<_> = listing.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn wipe_markers(&self) {
        for name in self.markers() {
            fs::remove_file(self.dir.join("markers").join(name)).unwrap();
        }
    }

    /// Changes of the agent's that are not committed.
    pub fn edit(&self) {
        fs::write(self.tree().join("a.txt"), "edited\n").unwrap();
        fs::write(self.tree().join("new.txt"), "new\n").unwrap();
        let _ = fs::remove_file(self.tree().join("dir/b.txt"));
    }

    /// Plants everything, then does all that a host does. What fails may fail; nothing may run, hang, or reach what it should not.
    pub fn endure(&self, plants: &[&Plant]) {
        self.edit();
        plants.iter().for_each(|plant| (plant.plant)(self));
        self.wipe_markers();
        let kept = self.kept();
        for (step, act) in steps() {
            let told = self.within_deadline(step, act);
            let context = format!("{}: {step} ({told})", self.name);
            assert_eq!(self.markers(), Vec::<String>::new(), "{context}: something ran");
            assert_eq!(self.kept(), kept, "{context}: something else was changed");
            println!("{context}");
        }
        self.assert_whole();
    }

    /// The repository holds together, and nothing is left of the sandbox.
    pub fn assert_whole(&self) {
        self.original.git(&["fsck", "--strict", "--no-dangling", "--no-progress"]);
        let left: Vec<_> = names_below(&self.git_dir()).into_iter().filter(|p| is_temporary(p)).collect();
        assert!(left.is_empty(), "{}: left over in the repository: {left:?}", self.name);
        let homes = fs::read_dir(self.dir.join("home/scratch")).into_iter().flatten().flatten();
        assert_eq!(homes.count(), 0, "{}: the workspace is still there", self.name);
    }

    fn within_deadline(&self, step: &str, act: Act) -> String {
        let (strategy, sandbox) = (strategy(&self.dir), self.sandbox.clone().unwrap());
        let (send, receive) = mpsc::channel();
        let worker = std::thread::spawn(move || {
            let done = act(strategy.as_ref(), &sandbox);
            let _ = send.send(done.map_or_else(|error| format!("{error:?}"), |()| "done".to_owned()));
        });
        match receive.recv_timeout(DEADLINE) {
            Ok(told) => told,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{}: {step} hangs", self.name),
            Err(_) => std::panic::resume_unwind(worker.join().unwrap_err()),
        }
    }

    pub fn kept(&self) -> Kept {
        let branches = self.original.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        let is_other = |line: &&str| !line.contains("refs/heads/main ") && !line.contains("refs/heads/asked");
        Kept {
            config: fs::read(self.git_dir().join("config")).unwrap(),
            hooks: contents(&self.git_dir().join("hooks")),
            branches: branches.lines().filter(is_other).collect::<Vec<_>>().join("\n"),
            other: contents(&self.other()),
            secret: fs::read(self.dir.join("secret")).unwrap(),
        }
    }
}

/// Places, a program that leaves markers, and a checkout.
fn prepare(guard: Option<&Mounted>) -> (TempDir, GitRepo) {
    let below = guard.map_or_else(std::env::temp_dir, |guard| guard.path().to_path_buf());
    let temp = TempDir::with_prefix_in("sandboxer-git-hostile-", below).unwrap();
    let dir = temp.path();
    for made in ["home", "markers", "other"] {
        fs::create_dir(dir.join(made)).unwrap();
    }
    fs::write(dir.join("secret"), "secret\n").unwrap();
    // As a filter it passes on what it gets, so that git goes on to what comes next.
    let passes = "case $1 in clean | smudge | process) exec cat ;; esac";
    let mark = format!("#!/bin/sh\n: > '{}'/\"$1\"\n{passes}\n", dir.join("markers").display());
    let program = format!("#!/bin/sh\nexec '{}' program\n", dir.join("mark").display());
    for (name, script) in [("mark", mark), ("program", program)] {
        fs::write(dir.join(name), script).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let original = checkout(&dir.join("original"));
    (temp, original)
}

fn checkout(path: &Path) -> GitRepo {
    let repo = GitRepo::new(path);
    for (file, content) in [("a.txt", "alpha\n"), ("dir/b.txt", "beta\n"), ("c.bin", "gamma\n")] {
        repo.write(file, content);
    }
    repo.commit_all("first");
    repo.git(&["branch", "theirs"]);
    repo.git(&["tag", "-a", "-m", "a tag", "v1"]);
    repo
}

fn strategy(dir: &Path) -> std::sync::Arc<dyn SandboxStrategy> {
    let entry = git_worktree::entry();
    let context = StrategyContext::quiet(dir.join("home"));
    (entry.factory)(&entry.name, &entry.options, &context).unwrap()
}

type Act = fn(&dyn SandboxStrategy, &SandboxRef) -> Result<()>;

fn theirs() -> CommitRequest {
    CommitRequest { on_conflict: OnConflict::Theirs, ..CommitRequest::default() }
}

fn logged(sandbox: &SandboxRef, operation: &str) -> SandboxRef {
    sandbox.clone().for_operation(&OpId::from_string(operation))
}

/// All that a host does, in an order in which what was planted stays as long as it can.
fn steps() -> [(&'static str, Act); 14] {
    [
        ("get", |_, sandbox| git_worktree::about(sandbox).map(drop)),
        ("diff", |strategy, sandbox| strategy.diff(sandbox).map(drop)),
        ("checkpoint", |strategy, sandbox| {
            strategy.checkpoint(sandbox, &CheckpointId::from_string("kept")).map(drop)
        }),
        ("dry run", |strategy, sandbox| {
            strategy.commit(sandbox, &CommitRequest { phase: Phase::Prepare, ..theirs() })?;
            strategy.commit(sandbox, &CommitRequest { phase: Phase::Abort, ..theirs() }).map(drop)
        }),
        ("commit to a branch", |strategy, sandbox| {
            let request = CommitRequest { branch: Some("asked".to_owned()), ..theirs() };
            strategy.commit(sandbox, &request).map(drop)
        }),
        ("commit with its commits to a branch", |strategy, sandbox| {
            let branch = Some("asked-too".to_owned());
            let request = CommitRequest { branch, history: History::Keep, ..theirs() };
            strategy.commit(sandbox, &request).map(drop)
        }),
        ("commit with its commits", |strategy, sandbox| {
            let request = CommitRequest { history: History::Keep, ..theirs() };
            strategy.commit(&logged(sandbox, "op_1"), &request).map(drop)
        }),
        ("undo of it", |strategy, sandbox| {
            let undoing = logged(sandbox, "op_2").undoing(&OpId::from_string("op_1"));
            strategy.commit(&undoing, &CommitRequest::default()).map(drop)
        }),
        ("commit", |strategy, sandbox| strategy.commit(&logged(sandbox, "op_3"), &theirs()).map(drop)),
        ("undo", |strategy, sandbox| {
            let undoing = logged(sandbox, "op_4").undoing(&OpId::from_string("op_3"));
            strategy.commit(&undoing, &CommitRequest::default()).map(drop)
        }),
        ("restore", |strategy, sandbox| {
            strategy.restore_checkpoint(sandbox, &CheckpointId::from_string("kept")).map(drop)
        }),
        ("park", |strategy, sandbox| strategy.cleanup(&sandbox.clone().for_part(&Part::Unchanged))),
        ("rollback", |strategy, sandbox| {
            let path = sandbox.text("original").map_or_else(|| "/".to_owned(), str::to_owned);
            let mut resource = Resource::at_path("git-checkout", Path::new(&path));
            resource.properties.insert("parked".to_owned(), sandbox.metadata["dir"].clone());
            // Whether it was put away or not: what is there is rolled back.
            let _ = strategy.create(&sandbox.plan_id, &resource);
            strategy.rollback(sandbox).map(drop)
        }),
        ("destroy", |strategy, sandbox| strategy.cleanup(sandbox)),
    ]
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = names_below(dir).into_iter().filter(|path| path.is_file());
    files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn names_below(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(names_below(&entry.path()));
        }
        found.push(entry.path());
    }
    found.sort();
    found
}

fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.ends_with(".lock") || name.starts_with(".sandboxer") || name.starts_with("tmp_")
}
