//! D37: overlapping resources, several state directories, several users.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use sandboxer_testkit::faults::{Cli, binary};
use sandboxer_testkit::skip;
use tempfile::TempDir;

use super::{STRATEGY, told};

struct Repo {
    dir: TempDir,
    root: PathBuf,
}

impl Repo {
    fn new() -> Self {
        let dir = TempDir::with_prefix("sandboxer-sharing-").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let root = dir.path().join("repo");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("top.txt"), "top\n").unwrap();
        fs::write(root.join("sub/x.txt"), "x\n").unwrap();
        Self { dir, root }
    }

    fn cli(&self, name: &str) -> Cli {
        Cli::new(&self.dir.path().join(name))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }
}

#[track_caller]
fn assert_conflict(output: &Output) {
    assert_eq!(output.status.code(), Some(3), "{}", told(output));
}

#[test]
fn d37_overlapping_resources_conflict() {
    let repo = Repo::new();
    for (outer_home, inner_home) in [("one", "one"), ("two", "three")] {
        let (outer, inner) = (repo.cli(outer_home), repo.cli(inner_home));
        let whole = outer.create(&repo.root, &STRATEGY);
        let part = inner.create(&repo.root.join("sub"), &STRATEGY);
        fs::write(whole.path.join("sub/x.txt"), format!("whole {outer_home}\n")).unwrap();
        fs::write(part.path.join("x.txt"), "part\n").unwrap();
        fs::write(part.path.join("y.txt"), "part\n").unwrap();
        outer.ok(&["commit", &whole.id]);
        assert_conflict(&inner.run(&["commit", &part.id]));
        assert_eq!(repo.read("sub/x.txt"), format!("whole {outer_home}\n"));
        assert!(!repo.root.join("sub/y.txt").exists());
        outer.ok(&["destroy", &whole.id]);
        inner.ok(&["destroy", &part.id]);
    }
}

#[test]
fn d37_two_state_directories_race_for_one_file() {
    let repo = Repo::new();
    for round in 0..8 {
        let contenders: Vec<_> = ["one", "two"]
            .into_iter()
            .map(|name| {
                let cli = repo.cli(name);
                let sandbox = cli.create(&repo.root, &STRATEGY);
                fs::write(sandbox.path.join("top.txt"), format!("{name} {round}\n")).unwrap();
                fs::write(sandbox.path.join("sub/x.txt"), format!("{name} {round}\n")).unwrap();
                (cli, sandbox)
            })
            .collect();
        let codes: Vec<i32> = thread::scope(|scope| {
            let started: Vec<_> =
                contenders.iter().map(|(cli, s)| scope.spawn(|| cli.code(&["commit", &s.id]))).collect();
            started.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut sorted = codes.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 3], "round {round}: exactly one wins, the other has a conflict");
        let winner = if codes[0] == 0 { "one" } else { "two" };
        assert_eq!((repo.read("top.txt"), repo.read("sub/x.txt")), {
            let expected = format!("{winner} {round}\n");
            (expected.clone(), expected)
        });
        contenders.iter().for_each(|(cli, sandbox)| drop(cli.ok(&["destroy", &sandbox.id])));
    }
}

/// A lock held on the outer resource, as a commit of another user holds it, keeps commits of the inner one out.
#[test]
fn d37_a_commit_waits_for_the_lock_of_an_overlapping_one() {
    let repo = Repo::new();
    let cli = repo.cli("one");
    let part = cli.create(&repo.root.join("sub"), &STRATEGY);
    fs::write(part.path.join("x.txt"), "part\n").unwrap();
    let root = File::open(&repo.root).unwrap();
    root.lock().unwrap();
    let mut commit = cli.command(&["commit", &part.id]).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(repo.read("sub/x.txt"), "x\n", "a commit went through a held lock");
    root.unlock().unwrap();
    let status = commit.wait().unwrap();
    let now = repo.read("sub/x.txt");
    assert_eq!(now, if status.success() { "part\n" } else { "x\n" });
    cli.ok(&["commit", &part.id]);
    assert_eq!(repo.read("sub/x.txt"), "part\n");
}

const NOBODY: &str = "65534";

/// `sandbox` as another user, from a binary that user can reach.
fn as_nobody(cli: &Cli, binary: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(binary).args(arguments);
    cli.prepare(&mut command);
    command.output().unwrap()
}

#[test]
fn d37_two_users_exclude_one_another() {
    if !rustix::process::geteuid().is_root() {
        return skip("becoming another user needs root");
    }
    let repo = Repo::new();
    for path in ["", "sub"] {
        fs::set_permissions(repo.root.join(path), Permissions::from_mode(0o777)).unwrap();
    }
    for path in ["top.txt", "sub/x.txt"] {
        rustix::fs::chown(repo.root.join(path), Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    }
    let reachable = repo.dir.path().join("sandbox-binary");
    fs::copy(binary(), &reachable).unwrap();
    let home = repo.dir.path().join("nobody");
    fs::create_dir(&home).unwrap();
    rustix::fs::chown(&home, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    let (root, nobody) = (repo.cli("root"), Cli::new(&home));
    let mine = root.create(&repo.root, &STRATEGY);
    let location = repo.root.to_str().unwrap();
    let created = as_nobody(&nobody, &reachable, &[&["create", location, "--json"], &STRATEGY[..]].concat());
    assert!(created.status.success(), "{}", told(&created));
    let theirs: serde_json::Value = serde_json::from_slice(&created.stdout).unwrap();
    let their_path = Path::new(theirs["sandbox_path"].as_str().unwrap());
    fs::write(mine.path.join("top.txt"), "root\n").unwrap();
    fs::write(their_path.join("top.txt"), "nobody\n").unwrap();
    fs::write(their_path.join("sub/x.txt"), "nobody\n").unwrap();
    root.ok(&["commit", &mine.id]);
    let id = theirs["sandbox_id"].as_str().unwrap();
    assert_conflict(&as_nobody(&nobody, &reachable, &["commit", id]));
    assert_eq!((repo.read("top.txt"), repo.read("sub/x.txt")), ("root\n".into(), "x\n".into()));
    let other = as_nobody(&nobody, &reachable, &["commit", id, "sub"]);
    assert!(other.status.success(), "{}", told(&other));
    assert_eq!(repo.read("sub/x.txt"), "nobody\n");
    let gone = as_nobody(&nobody, &reachable, &["destroy", id]);
    assert!(gone.status.success(), "{}", told(&gone));
}
