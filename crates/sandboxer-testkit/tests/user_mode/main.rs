//! Overlays as an ordinary user has them: the conformance suite, and faults that only keepers can have.
//!
//! A keeper is the program that started it, under another name, so this test has a `main` of its own. It starts itself once
//! more for each case, as an ordinary user and with a directory for temporary files that no other case has. Cases must not
//! share a process: a process that is being started holds for a moment what the others have open, which makes a mount busy.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use sandboxer_core::model::DiffKind;
use sandboxer_keeper::Keepers;
use sandboxer_strategies::overlay;
use sandboxer_strategies::serve_if_asked;
use sandboxer_testkit::conformance::{self, Fixture};
use sandboxer_testkit::{skip, users};

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_killed_keeper_with_a_live_agent", a_killed_keeper_with_a_live_agent),
    ("forged_marks_delete_nothing", forged_marks_delete_nothing),
];

fn main() {
    serve_if_asked();
    match std::env::args().nth(1).as_deref() {
        Some("case" | "as-user") => exit(users::as_ordinary_user(run_case)),
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit(),
    }
}

/// A fixture whose overlays are mounted by keepers.
fn fixture() -> Fixture {
    Fixture::new(overlay::entry()).with_keepers_from(Path::new("/proc/self/exe"))
}

fn trials() -> Vec<Trial> {
    let names = conformance::CASES.iter().map(|case| case.name).chain(TESTS.iter().map(|test| test.0));
    names.map(|name| Trial::test(name, move || start(name))).collect()
}

/// Starts the case in a process of its own.
fn start(name: &str) -> Result<(), Failed> {
    let temp = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir()?;
    let status = Command::new("/proc/self/exe").args(["case", name]).env("TMPDIR", temp.path()).status()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// Runs the case in a thread of its name, and checks that it left nothing behind.
fn run_case(arguments: &[String]) -> i32 {
    let name = arguments[1].clone();
    let thread = std::thread::Builder::new().name(name.clone());
    let passed = thread.spawn(move || run_or_skip(&name)).unwrap().join().is_ok();
    let (files, keepers) = (temporary_files(), running_keepers());
    if !files.is_empty() || !keepers.is_empty() {
        eprintln!("the case left the files {files:?} and the keepers {keepers:?}");
    }
    if passed && files.is_empty() && keepers.is_empty() { 0 } else { 101 }
}

fn run_or_skip(name: &str) {
    if let Err(why) = try_user() {
        return skip(&why);
    }
    match TESTS.iter().find(|test| test.0 == name) {
        Some((_, test)) => test(),
        None => conformance::run(name, || Ok(fixture())),
    }
}

fn try_user() -> Result<(), String> {
    let temp = tempfile::tempdir().unwrap();
    Keepers::new(temp.path(), Path::new("/proc/self/exe")).try_user()
}

/// The fixtures that are still in the directory for temporary files.
fn temporary_files() -> Vec<PathBuf> {
    let listed = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let fixtures = listed.filter(|e| e.file_name().to_string_lossy().starts_with("sandboxer-conformance-"));
    fixtures.map(|entry| entry.path()).collect()
}

/// The keepers of directories below the directory for temporary files.
fn running_keepers() -> Vec<u32> {
    let mut start = b"sandbox-keeper\0".to_vec();
    start.extend(std::env::temp_dir().as_os_str().as_bytes());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let keepers =
        processes.filter(|p| fs::read(p.path().join("cmdline")).is_ok_and(|line| line.starts_with(&start)));
    keepers.filter_map(|p| p.file_name().to_str()?.parse().ok()).collect()
}

/// What a keeper mounted goes on for whoever works in it, and nothing is mounted beside it: D26.
fn a_killed_keeper_with_a_live_agent() {
    let fixture = fixture();
    let open = fixture.open();
    fs::write(open.path("a.txt"), "before the kill\n").unwrap();
    let keeper = only_keeper(&fixture);
    let mut agent = Command::new("sleep").arg("600").current_dir(open.path("dir")).spawn().unwrap();
    kill_process(Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap(), Signal::KILL).unwrap();
    // Its sockets are closed by the time that only its exit code is left of it.
    let status = format!("/proc/{keeper}/status");
    while fs::read_to_string(&status).is_ok_and(|text| !text.contains("State:\tZ")) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let upper = open.path("").parent().unwrap().join("upper");
    let refused = open.strategy.diff(&open.sandbox);
    let named = format!("{} (sleep)", agent.id());
    let text = refused.as_ref().err().map(|e| format!("{e:?}")).unwrap_or_default();
    let holds = fs::read_to_string(upper.join("a.txt")).unwrap();
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(text.contains("Busy") && text.contains(&named), "{named} is not named: {refused:?}");
    assert_eq!(holds, "before the kill\n");
    assert_eq!(open.read("a.txt"), "before the kill\n");
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "before the kill\n");
    open.strategy.cleanup(&open.sandbox).unwrap();
}

fn only_keeper(fixture: &Fixture) -> u32 {
    let running = fixture.keepers().unwrap().running();
    assert_eq!(running.len(), 1, "{running:?}");
    running[0].1
}

/// The kernel's own marks, set by an agent through the mount, are labels like any other, and delete nothing: D23.
fn forged_marks_delete_nothing() {
    let fixture = fixture();
    let before = fixture.manifest();
    let open = fixture.open();
    fs::write(open.path("dir/new"), "x\n").unwrap();
    fs::write(open.path("b.txt"), "").unwrap();
    for (path, name) in [
        ("dir", "user.overlay.opaque"),
        ("dir/sub", "user.overlay.opaque"),
        ("", "user.overlay.opaque"),
        ("a.txt", "user.overlay.whiteout"),
        ("b.txt", "user.overlay.whiteout"),
        ("dir/c.txt", "user.overlay.redirect"),
        ("a.txt", "user.overlay.metacopy"),
    ] {
        // The kernel may refuse some of them, which is as good.
        let _ = rustix::fs::setxattr(open.path(path), name, b"y", rustix::fs::XattrFlags::empty());
    }
    for round in ["live", "mounted anew"] {
        let kinds = open.kinds();
        assert!(kinds.values().all(|kind| *kind != DiffKind::Deleted), "{round}: {kinds:?}");
        let shown = open.manifest();
        assert!(before.names().iter().all(|name| shown.names().contains(name)), "{round}: entries are gone");
        open.unmount();
    }
    open.try_commit(&Default::default()).map(drop).unwrap_or_else(|e| println!("refused: {e}"));
    let after = fixture.manifest();
    assert!(before.names().iter().all(|name| after.names().contains(name)), "a mark has deleted something");
    let marked = after.entries.values().flat_map(|e| e.xattrs.keys());
    let marked: Vec<_> = marked.filter(|name| name.to_string_lossy().contains("overlay.")).collect();
    assert!(marked.is_empty(), "marks were committed: {marked:?}");
}
