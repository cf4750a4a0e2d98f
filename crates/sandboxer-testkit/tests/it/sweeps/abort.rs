//! A commit that is killed while it is applied, cannot be finished, and is aborted.

use std::path::Path;
use std::process::Command;

use sandboxer_testkit::faults::{Cli, Ended, Point, Trace};
use sandboxer_testkit::mounts::DetachBelow;
use sandboxer_testkit::skip;
use tempfile::TempDir;

const REFUSED: i32 = 5;
const LOOK: &str = "find . -type f | sort | xargs tail -v -n +1; find . | sort";
/// What no commit can change, and an abort need not.
const MARK: &str = "chattr +i d";
const UNMARK: &str = "chattr -i d";

fn try_shell(dir: &Path, script: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn shell(dir: &Path, script: &str) -> String {
    try_shell(dir, script).unwrap()
}

fn diff(cli: &Cli) -> String {
    String::from_utf8_lossy(&cli.ok(&["diff", "q"]).stdout).into_owned()
}

/// A project with a sandbox in which everything was changed.
struct Case {
    cli: Cli,
    project: std::path::PathBuf,
    before: String,
    changes: String,
    _mounts: DetachBelow,
    _dir: TempDir,
}

impl Case {
    fn new(strategy: &str) -> Self {
        let dir = TempDir::with_prefix("sandboxer-abort-").unwrap();
        let (cli, project) = (Cli::new(&dir.path().join("state")), dir.path().join("p"));
        shell(dir.path(), "mkdir -p p/c p/d p/e; for f in a c/x d/x e/y e/z; do echo 1 > p/$f; done");
        let sandbox = cli.create(&project, &["--name", "q", "--strategy", strategy, "--no-fallback"]);
        shell(
            &sandbox.path,
            "echo 2 > a; echo 2 > c/x; echo 2 > d/x; rm -r e; mkdir n; echo 2 > n/new; chmod 600 a",
        );
        let changes = diff(&cli);
        let before = shell(&project, LOOK);
        let _mounts = DetachBelow(dir.path().to_path_buf());
        Self { cli, project, before, changes, _mounts, _dir: dir }
    }

    /// The renames that put entries in place, and what comes between them.
    fn points(&self) -> Vec<Point> {
        let points = Trace::new(&self.cli).on_one_processor().points(&["commit", "q"]);
        points.into_iter().filter(|point| point.changes && point.name.starts_with("rename")).collect()
    }

    /// Whether a commit was waiting that could not be finished, and was aborted.
    fn abort(&self, context: &str) -> bool {
        shell(&self.project, MARK);
        let listed = self.cli.run(&["list"]);
        let is_stuck = String::from_utf8_lossy(&listed.stderr).contains("decided but not finished");
        let aborted = self.cli.run(&["commit", "q", "--abort"]);
        shell(&self.project, UNMARK);
        let told = String::from_utf8_lossy(&aborted.stderr).into_owned();
        match is_stuck {
            true => assert!(aborted.status.success(), "{context}: {told}"),
            false => assert_eq!(aborted.status.code(), Some(REFUSED), "{context}: {told}"),
        }
        is_stuck
    }

    fn check(&self, context: &str) {
        assert_eq!(self.cli.operations_in(&["running", "decided"]), Vec::<String>::new(), "{context}");
        assert_eq!(shell(&self.project, LOOK), self.before, "{context}: the original");
        assert_eq!(diff(&self.cli), self.changes, "{context}: what is pending");
    }
}

fn sweep(strategy: &str) {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    let twin = Case::new(strategy);
    if let Err(reason) = try_shell(&twin.project, MARK).and_then(|_| try_shell(&twin.project, UNMARK)) {
        return skip(&reason);
    }
    let points = twin.points();
    let committed = shell(&twin.project, LOOK);
    assert_ne!(committed, twin.before);
    let mut aborted = 0;
    for point in &points {
        let case = Case::new(strategy);
        let ended = Trace::new(&case.cli).on_one_processor().kill(point, &["commit", "q"]);
        if !matches!(ended, Ended::Killed) {
            continue;
        }
        let context = format!("{strategy} killed at {point:?}");
        if case.abort(&context) {
            aborted += 1;
            case.check(&context);
            case.cli.ok(&["commit", "q"]);
        } else if shell(&case.project, LOOK) == case.before {
            case.cli.ok(&["commit", "q"]);
        }
        assert_eq!(shell(&case.project, LOOK), committed, "{context}: the commit afterwards");
    }
    println!("{strategy}: {aborted} aborted of {} points", points.len());
    assert!(aborted > 0, "{strategy}: no commit got stuck at {points:?}");
}

#[test]
fn of_a_copy() {
    sweep("filesystem_copy");
}

#[test]
fn of_an_overlay() {
    sweep("overlay");
}
