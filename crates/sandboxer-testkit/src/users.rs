//! Tests as an ordinary user runs them, also where the tests are run by root.
//!
//! A test with a `main` of its own calls [`as_ordinary_user`]: run by root, it is started once more as a user that nobody is, in a
//! directory that belongs to that user.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip::LOG;

/// Nobody's user and group, and not the ones that stand for nobody either: those are what strangers look like to a keeper.
pub const USER: u32 = 54_321;

/// Tells the test that it is the one which was started for the user.
const VERB: &str = "as-user";

/// Runs `test` with the arguments of this process: at once where the user is an ordinary one, in another process where it is root. Returns
/// what to exit with.
pub fn as_ordinary_user(test: impl FnOnce(&[String]) -> i32) -> i32 {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(VERB) => test(&arguments[1..]),
        _ if rustix::process::geteuid().is_root() => started_again(&arguments),
        _ => test(&arguments),
    }
}

fn started_again(arguments: &[String]) -> i32 {
    let temp = tempfile::tempdir().unwrap();
    fs::set_permissions(temp.path(), Permissions::from_mode(0o755)).unwrap();
    // The user may not be able to reach the test where it was built.
    let program = temp.path().join("test");
    fs::copy("/proc/self/exe", &program).unwrap();
    let home = temp.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    let (skips, profile) = (temp.path().join("skipped"), profile_in(&home));
    fs::File::create(&skips).unwrap();
    chown(&skips, Some(USER), Some(USER)).unwrap();
    let mut command = Command::new(&program);
    command.arg(VERB).args(arguments).env("TMPDIR", &home).env(LOG, &skips);
    command.envs(profile.map(|path| ("LLVM_PROFILE_FILE", path)));
    let status = command.uid(USER).gid(USER).current_dir("/").status().unwrap();
    keep_skips(&skips);
    keep_profiles(&home);
    assert_eq!(processes_of(USER, &program), Vec::<u32>::new(), "processes were left behind");
    status.code().unwrap_or(101)
}

/// The processes of `user` that run `program`.
fn processes_of(user: u32, program: &Path) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let theirs = entries.filter(|e| e.metadata().is_ok_and(|m| m.uid() == user));
    let is_program = |e: &fs::DirEntry| fs::read_link(e.path().join("exe")).is_ok_and(|exe| exe == program);
    // A sweeper is the same program, and ends by itself.
    let is_keeper = |e: &fs::DirEntry| {
        fs::read(e.path().join("cmdline")).is_ok_and(|words| words.starts_with(b"sandbox-keeper"))
    };
    let running = theirs.filter(|e| is_program(e) && is_keeper(e));
    running.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Where coverage is measured: a place that the user may write to.
fn profile_in(home: &Path) -> Option<PathBuf> {
    let ours = PathBuf::from(std::env::var_os("LLVM_PROFILE_FILE")?);
    Some(home.join(format!("{}-user.profraw", ours.file_stem()?.to_str()?)))
}

fn keep_profiles(from: &Path) {
    let Some(ours) = std::env::var_os("LLVM_PROFILE_FILE").map(PathBuf::from) else { return };
    for entry in fs::read_dir(from).unwrap().flatten() {
        if entry.path().extension() == Some(OsStr::new("profraw")) {
            fs::copy(entry.path(), ours.with_file_name(entry.file_name())).unwrap();
        }
    }
}

/// The user may not write to our list of what was skipped, so it has one of its own.
fn keep_skips(theirs: &Path) {
    let lines = fs::read(theirs).unwrap_or_default();
    if let Some(ours) = std::env::var_os(LOG) {
        fs::OpenOptions::new().create(true).append(true).open(ours).unwrap().write_all(&lines).unwrap();
    }
}
