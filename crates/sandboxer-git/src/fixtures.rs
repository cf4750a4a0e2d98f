//! Repositories for tests, used as a user would, but without the machine's configuration.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::oid::{ObjectFormat, Oid};

/// Git as a person calls it in `dir`.
pub(crate) fn command(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.current_dir(dir).args(args);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/nonexistent");
    command.env("GIT_EDITOR", "true").env("LC_ALL", "C").output().unwrap()
}

/// What it prints; it has to succeed.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = command(dir, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "git {args:?} in {}: {said}", dir.display());
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// A new repository at `dir` without a commit.
pub(crate) fn init(dir: &Path, format: ObjectFormat) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q", "--object-format", format.name(), "-b", "main", "."]);
    git(dir, &["config", "user.name", "A \"quoted\" \\ User"]);
    git(dir, &["config", "user.email", "user@example.com"]);
}

/// Writes files and directories above them.
pub(crate) fn write(dir: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A repository with three files and one commit.
pub(crate) fn repository(dir: &Path, format: ObjectFormat) {
    init(dir, format);
    write(dir, "a.txt", "one\n");
    write(dir, "src/lib.rs", "fn main() {}\n");
    write(dir, "docs/deep/x.md", "text\n");
    commit(dir, "first");
}

/// Everything in it as a commit.
pub(crate) fn commit(dir: &Path, subject: &str) -> Oid {
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "--allow-empty", "-m", subject]);
    head(dir)
}

pub(crate) fn head(dir: &Path) -> Oid {
    git(dir, &["rev-parse", "HEAD"]).parse().unwrap()
}

/// A copy of the files at `from`, times included, without `.git`.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let script = "tar -C \"$0\" --exclude=./.git -cf - . | tar -C \"$1\" -xpf -";
    let status = Command::new("sh").args(["-c", script]).arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// Every file below `dir` and its content.
pub(crate) fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            match path.symlink_metadata().unwrap().is_dir() {
                true => left.push(path),
                false => drop(all.insert(path.clone(), std::fs::read(&path).unwrap_or_default())),
            }
        }
    }
    all
}

/// The marker that a program run by git would leave, and the command that leaves it.
pub(crate) fn marker(dir: &Path) -> (PathBuf, String) {
    let marker = dir.join("marker");
    let script = dir.join("run-me");
    std::fs::write(&script, format!("#!/bin/sh\ntouch '{}'\ncat\n", marker.display())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    (marker, script.display().to_string())
}
