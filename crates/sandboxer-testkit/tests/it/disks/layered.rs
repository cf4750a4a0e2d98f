//! An original that lies in a lower layer of an overlay, as the project of a container lies in its image: the first change of an entry
//! gives it another inode, and a directory cannot be renamed.

use std::fs;
use std::path::Path;
use std::process::Command;

use sandboxer_testkit::faults::Cli;
use sandboxer_testkit::mounts::{DetachBelow, Mounted};
use sandboxer_testkit::skip;
use tempfile::TempDir;

const REFUSED: i32 = 5;
const EDITS: &str = "echo more >> edited; sed -i s/2/two/ replaced; rm gone; chmod 600 private; mv moved elsewhere; \
                     echo new > new; mkdir made; echo in > made/in; rm -r d; echo file > d; rm -r e; rm f; mkdir f; echo x > f/x";
const AFTER: &str = "d: file|e: -|edited: 1 2 3 more|elsewhere: 1 2 3|f/x: x|gone: -|made/in: in|new: new|private: 600|replaced: 1 two 3|";
const BEFORE: &str =
    "d: -|e: -|edited: 1 2 3|elsewhere: -|f/x: -|gone: 1 2 3|made/in: -|new: -|private: 644|replaced: 1 2 3|";

fn shell(dir: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn project(dir: &Path) {
    let files = "for f in edited replaced gone private moved f d/x d/y/z e/x; do mkdir -p $(dirname $f); seq 3 > $f; done";
    shell(dir, &format!("mkdir p; cd p; {files}; chmod 644 private"));
}

fn look(project: &Path) -> String {
    let content = |f: &str| {
        format!(
            "printf '{f}: %s|' \"$(cat {f} 2>/dev/null | tr '\\n' ' ' | sed 's/ $//;s/^$/-/' | grep . || echo -)\""
        )
    };
    let files = ["d", "e", "edited", "elsewhere", "f/x", "gone", "made/in", "new"].map(content).join(";");
    shell(project, &format!("{files}; printf 'private: %s|' $(stat -c %a private); {}", content("replaced")))
}

fn committed_and_undone(strategy: &str, as_checkout: bool) {
    let made = Mounted::overlay_over(|layer| {
        project(layer);
        if as_checkout {
            let identity = "git config user.name t; git config user.email t@example.com";
            shell(&layer.join("p"), &format!("git init -q; {identity}; git add .; git commit -qm one"));
        }
    });
    let mounted = match made {
        Ok(mounted) => mounted,
        Err(reason) => return skip(&reason),
    };
    let home = TempDir::with_prefix("sandboxer-home-").unwrap();
    let _mounts = DetachBelow(home.path().to_path_buf());
    let cli = Cli::new(&home.path().join("state"));
    let project = mounted.path().join("p");
    assert_eq!(look(&project), BEFORE);
    let sandbox = cli.create(&project, &["--name", "q", "--strategy", strategy, "--no-fallback"]);
    shell(&sandbox.path, EDITS);
    cli.ok(&["commit", "q"]);
    assert_eq!(look(&project), AFTER, "{strategy}");
    assert_eq!(cli.ok(&["diff", "q"]).stdout, b"", "{strategy}");
    cli.ok(&["undo", "q"]);
    assert_eq!(look(&project), BEFORE, "{strategy}");
    cli.ok(&["commit", "q"]);
    assert_eq!(look(&project), AFTER, "{strategy}");
    cli.ok(&["destroy", "q"]);
    assert!(
        !fs::read_dir(&project).unwrap().any(|e| e
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".sandboxer"))
    );
}

#[test]
fn a_copy_is_committed_into_it() {
    committed_and_undone("filesystem_copy", false);
}

#[test]
fn an_overlay_is_committed_into_it() {
    committed_and_undone("overlay", false);
}

#[test]
fn a_checkout_is_committed_into_it() {
    committed_and_undone("git_worktree", true);
}

/// A new directory gets the inode number of the removed one, and an overlay has no lasting birth times.
#[test]
fn a_directory_that_was_removed_and_made_again_is_not_committed_to() {
    for strategy in ["overlay", "filesystem_copy"] {
        let mounted = match Mounted::overlay() {
            Ok(mounted) => mounted,
            Err(reason) => return skip(&reason),
        };
        let home = TempDir::with_prefix("sandboxer-home-").unwrap();
        let _mounts = DetachBelow(home.path().to_path_buf());
        let cli = Cli::new(&home.path().join("state"));
        let project = mounted.path().join("p");
        shell(mounted.path(), "mkdir p; echo 1 > p/a");
        let sandbox = cli.create(&project, &["--name", "q", "--strategy", strategy, "--no-fallback"]);
        shell(&sandbox.path, "echo new > new");
        shell(mounted.path(), "rm -r p; mkdir p; echo 1 > p/a");
        assert_eq!(cli.code(&["commit", "q"]), REFUSED, "{strategy}");
        assert_eq!(shell(&project, "ls"), "a\n", "{strategy}");
    }
}
