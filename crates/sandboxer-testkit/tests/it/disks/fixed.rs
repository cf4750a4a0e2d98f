//! Entries of the original that nobody can change: a commit is refused before anything is.

use std::path::Path;
use std::process::Command;

use sandboxer_testkit::faults::Cli;
use sandboxer_testkit::mounts::{DetachBelow, Mounted};
use sandboxer_testkit::skip;
use tempfile::TempDir;

const CONFLICT: i32 = 3;
const REFUSED: i32 = 5;
const LOOK: &str = "find . -type f | sort | xargs tail -v -n +1; find . | sort";

fn shell(dir: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A project with a sandbox in which everything was changed.
struct Case {
    cli: Cli,
    project: std::path::PathBuf,
    _mounts: DetachBelow,
    _home: TempDir,
    _disk: Mounted,
}

impl Case {
    fn new(strategy: &str, mark: &str) -> Option<Self> {
        let disk = match Mounted::ext4(64 << 20) {
            Ok(disk) => disk,
            Err(reason) => {
                skip(&reason);
                return None;
            }
        };
        let home = TempDir::with_prefix("sandboxer-home-").unwrap();
        let cli = Cli::new(&home.path().join("state"));
        let project = disk.path().join("p");
        shell(disk.path(), "mkdir -p p/d p/e p/empty; echo 1 > p/a; echo 1 > p/d/x; echo 1 > p/e/y");
        shell(&project, mark);
        let sandbox = cli.create(&project, &["--name", "q", "--strategy", strategy, "--no-fallback"]);
        shell(&sandbox.path, "echo 2 > a; echo 2 > d/x; rm -r e empty; echo 2 > new");
        let _mounts = DetachBelow(home.path().to_path_buf());
        Some(Self { cli, project, _mounts, _home: home, _disk: disk })
    }

    /// The command is refused and changes nothing while `fix` holds, and works after `loosen`.
    fn refused_while(&self, command: &str, fix: &str, loosen: &str) {
        shell(&self.project, fix);
        let before = shell(&self.project, LOOK);
        // What is mounted there can be taken for an edit of the directory as well.
        assert!([CONFLICT, REFUSED].contains(&self.cli.code(&[command, "q"])), "{command} after {fix}");
        assert_eq!(shell(&self.project, LOOK), before, "{command} after {fix}");
        assert_eq!(self.cli.operations_in(&["running"]), Vec::<String>::new());
        shell(&self.project, loosen);
        self.cli.ok(&[command, "q"]);
        assert_ne!(shell(&self.project, LOOK), before, "{command} after {loosen}");
    }
}

#[test]
fn a_commit_that_cannot_be_finished_is_not_begun() {
    for strategy in ["overlay", "filesystem_copy"] {
        for (fix, loosen) in [
            ("chattr +i d", "chattr -i d"),
            ("chattr +a d", "chattr -a d"),
            ("mount -t tmpfs none d", "umount d"),
        ] {
            let Some(case) = Case::new(strategy, "") else { return };
            case.refused_while("commit", fix, loosen);
            case.refused_while("undo", fix, loosen);
        }
    }
}

#[test]
fn a_directory_that_is_mounted_on_is_not_removed() {
    for strategy in ["overlay", "filesystem_copy"] {
        let Some(case) = Case::new(strategy, "") else { return };
        case.refused_while("commit", "mount -t tmpfs -o mode=755 none empty", "umount empty");
    }
}

/// An overlay refuses to write to such a file in the first place.
#[test]
fn a_file_that_cannot_be_replaced_is_not_committed() {
    for (mark, unmark) in [("chattr +i a", "chattr -i a"), ("chattr +a e/y", "chattr -a e/y")] {
        let Some(case) = Case::new("filesystem_copy", mark) else { return };
        let before = shell(&case.project, LOOK);
        assert_eq!(case.cli.code(&["commit", "q"]), REFUSED, "after {mark}");
        assert_eq!(shell(&case.project, LOOK), before, "after {mark}");
        shell(&case.project, unmark);
    }
}
