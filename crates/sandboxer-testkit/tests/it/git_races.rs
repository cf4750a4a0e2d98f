//! The user goes on working in the checkout while a sandbox commits to it: no commit of his is lost, his index stays whole, and what the
//! sandbox was told to have committed is there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sandboxer_keeper::mount;
use sandboxer_testkit::faults::{Cli, Created};
use sandboxer_testkit::git::GitRepo;
use sandboxer_testkit::mounts::DetachBelow;
use sandboxer_testkit::skip;
use tempfile::TempDir;

/// How long each race goes on, and how much longer where commits are still missing.
const TIME: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(120);

/// A checkout and a sandbox of it.
struct World {
    repo: GitRepo,
    cli: Cli,
    sandbox: Created,
    _mounts: DetachBelow,
    _dir: TempDir,
}

impl World {
    fn new() -> Option<Self> {
        if let Err(reason) = mount::try_host(&std::env::temp_dir()) {
            skip(&reason);
            return None;
        }
        let dir = TempDir::with_prefix("sandboxer-git-races-").unwrap();
        let repo = GitRepo::new(dir.path().join("checkout"));
        for number in 0..20 {
            repo.write(format!("files/{number}"), format!("{number}\n"));
        }
        repo.commit_all("first");
        let cli = Cli::new(&dir.path().join("home"));
        let sandbox = cli.create(repo.path(), &["--strategy", "git_worktree"]);
        let _mounts = DetachBelow(dir.path().to_path_buf());
        Some(Self { repo, cli, sandbox, _mounts, _dir: dir })
    }

    /// Commits from the sandbox again and again; returns the commits that it was told of, and how many were refused. `count` follows how
    /// many it was told of so far.
    fn commit_until(&self, over: &AtomicBool, count: &AtomicUsize) -> (Vec<String>, usize) {
        let (mut made, mut refused) = (Vec::new(), 0);
        for round in 0.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            std::fs::write(self.sandbox.path.join("from the sandbox"), format!("{round}\n")).unwrap();
            let output = self.cli.run(&["commit", &self.sandbox.id, "-m", "sandbox", "--json"]);
            let code = output.status.code().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!([0, 1, 3, 5].contains(&code), "exit {code}: {said}");
            match code {
                0 => made.extend(revision(&output.stdout)),
                _ => {
                    println!("refused with exit {code}: {said}");
                    refused += 1;
                }
            }
            count.store(made.len(), Ordering::Relaxed);
        }
        (made, refused)
    }

    /// Everything that has to hold when the race is over.
    fn check(&self, users: &[String], sandboxes: &[String]) {
        self.cli.ok(&["list"]);
        let unsettled = self.cli.operations_in(&["running", "decided"]);
        assert!(unsettled.is_empty(), "still under way in the log: {unsettled:?}");
        self.repo.git(&["fsck", "--strict", "--no-dangling"]);
        self.repo.git(&["ls-files", "-s"]);
        let history = self.repo.git(&["rev-list", "main"]);
        for (whose, commits) in [("the user's", users), ("the sandbox's", sandboxes)] {
            let lost: Vec<_> = commits.iter().filter(|c| !history.lines().any(|line| line == **c)).collect();
            assert!(lost.is_empty(), "{whose} commits are gone from the branch: {lost:?}");
        }
        let git_dir = self.repo.path().join(".git");
        let locks: Vec<_> = ["index.lock", "HEAD.lock", "refs/heads/main.lock"].into_iter().collect();
        assert!(locks.iter().all(|name| !git_dir.join(name).exists()), "a lock is left");
        assert_eq!(temporaries(&git_dir), Vec::<String>::new());
    }
}

fn temporaries(git_dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(git_dir).unwrap().flatten();
    let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".sandboxer")).collect()
}

/// The commit that `sandbox commit --json` names.
fn revision(answer: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
    find(&answer, "commit")
}

fn find(value: &serde_json::Value, key: &str) -> Option<String> {
    match value {
        serde_json::Value::Object(map) => match map.get(key).and_then(|v| v.as_str()) {
            Some(text) => Some(text.to_owned()),
            None => map.values().find_map(|value| find(value, key)),
        },
        serde_json::Value::Array(list) => list.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

/// Lets the user do `act` again and again while the sandbox commits. Returns the user's commits and the sandbox's. The race goes on until
/// `is_enough`, which is told how many commits each of them has.
fn race(
    world: &World,
    is_enough: impl Fn(usize, usize) -> bool,
    act: impl Fn(usize) -> Option<String> + Sync,
) -> (Vec<String>, Vec<String>) {
    let (over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (users, (made, refused)) = std::thread::scope(|scope| {
        let sandbox = scope.spawn(|| world.commit_until(&over, &count));
        let begun = Instant::now();
        let mut users = Vec::new();
        for round in 0.. {
            let is_enough = is_enough(users.len(), count.load(Ordering::Relaxed));
            if begun.elapsed() > TIME && is_enough || begun.elapsed() > LIMIT || sandbox.is_finished() {
                break;
            }
            users.extend(act(round));
        }
        over.store(true, Ordering::Relaxed);
        (users, sandbox.join().unwrap())
    });
    println!("{} commits of the user, {} of the sandbox, {refused} refused", users.len(), made.len());
    world.check(&users, &made);
    // Once it is quiet everything works again.
    world.repo.git(&["switch", "-q", "main"]);
    println!("then the checkout is: {:?}", world.repo.status());
    std::fs::write(world.sandbox.path.join("from the sandbox"), "in the end\n").unwrap();
    world.cli.ok(&["commit", &world.sandbox.id]);
    assert_eq!(world.repo.git(&["show", "main:from the sandbox"]), "in the end");
    world.check(&users, &made);
    (users, made)
}

fn tried(repo: &GitRepo, arguments: &[&str]) -> bool {
    repo.command(arguments).output().unwrap().status.success()
}

#[test]
fn the_user_commits() {
    let Some(world) = World::new() else { return };
    let repo = &world.repo;
    let (users, made) = race(
        &world,
        |users, made| users > 0 && made > 0,
        |round| {
            repo.write("by hand", format!("{round}\n"));
            // His own commands may find the index locked, as with any other git.
            let committed =
                tried(repo, &["add", "by hand"]) && tried(repo, &["commit", "-q", "-m", "by hand"]);
            // Whoever commits without a pause leaves no room for anybody else.
            std::thread::sleep(Duration::from_millis(100 + 300 * (round as u64 % 4)));
            let is_his = committed
                .then(|| repo.git(&["log", "-1", "--format=%H", "--author=Tess", "--grep=^by hand$"]));
            is_his.filter(|commit| !commit.is_empty())
        },
    );
    assert!(!users.is_empty() && !made.is_empty(), "only one of them got to commit");
}

#[test]
fn the_user_stages_and_looks() {
    let Some(world) = World::new() else { return };
    let repo = &world.repo;
    let (_, made) = race(
        &world,
        |_, made| made > 0,
        |round| {
            repo.write(format!("files/{}", round % 20), format!("staged {round}\n"));
            tried(repo, &["add", "files"]);
            tried(repo, &["status"]);
            // `git reset -- files` reads the index before it locks it, and so undoes what any other git has staged in between.
            tried(repo, &["restore", "--staged", "--", "files"]);
            tried(repo, &["checkout", "-q", "--", "files"]);
            None
        },
    );
    assert!(!made.is_empty(), "the sandbox never got to commit");
}

#[test]
fn the_user_cleans_up() {
    let Some(world) = World::new() else { return };
    let repo = &world.repo;
    let (_, made) = race(
        &world,
        |_, made| made > 0,
        |_| {
            // Not `--prune=now`: git says itself that it may remove what somebody is about to refer to, and so it does.
            tried(repo, &["gc", "-q", "--prune=1.minute.ago"]);
            tried(repo, &["pack-refs", "--all", "--prune"]);
            None
        },
    );
    assert!(!made.is_empty(), "the sandbox never got to commit");
}

/// On another branch the sandbox is refused; on its own it commits; it never commits to the wrong one.
#[test]
fn the_user_switches_branches() {
    let Some(world) = World::new() else { return };
    let repo = &world.repo;
    repo.git(&["branch", "other"]);
    let other = repo.git(&["rev-parse", "other"]);
    race(
        &world,
        |_, _| true,
        |round| {
            tried(repo, &["switch", "-q", if round % 2 == 0 { "other" } else { "main" }]);
            std::thread::sleep(Duration::from_millis(150));
            None
        },
    );
    assert_eq!(repo.git(&["rev-parse", "other"]), other, "the other branch was moved");
}
