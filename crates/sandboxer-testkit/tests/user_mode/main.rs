//! Overlays as an ordinary user has them: the conformance suite, and what only keepers can suffer.
//!
//! A keeper is the program that started it, under another name, so this test has a `main` of its own. The cases run one after the
//! other: a process that is being started holds for a moment what the others have open, and makes a mount busy by that.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    std::process::exit(users::as_ordinary_user(run));
}

/// A fixture whose overlays are mounted by keepers.
fn fixture() -> Fixture {
    Fixture::new(overlay::entry()).with_keepers_from(Path::new("/proc/self/exe"))
}

fn run(arguments: &[String]) -> i32 {
    let (flags, words): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|w| w.starts_with('-'));
    let cases = conformance::CASES.iter().map(|case| case.name).chain(TESTS.iter().map(|test| test.0));
    let exact = flags.iter().any(|flag| *flag == "--exact");
    let is_it = |name: &str, word: &str| if exact { name == word } else { name.contains(word) };
    let chosen = |name: &&str| words.is_empty() || words.iter().any(|word| is_it(name, word));
    if flags.iter().any(|flag| *flag == "--list") {
        cases.for_each(|name| println!("{name}: test"));
        return 0;
    }
    if let Err(why) = tried() {
        skip(&why);
        return 0;
    }
    let failed: Vec<&str> = cases.filter(chosen).filter(|name| !passes(name)).collect();
    println!("test result: {}. failed: {failed:?}", if failed.is_empty() { "ok" } else { "FAILED" });
    if failed.is_empty() { 0 } else { 101 }
}

fn tried() -> Result<(), String> {
    let temp = tempfile::tempdir().unwrap();
    Keepers::new(temp.path(), Path::new("/proc/self/exe")).try_user()
}

/// Runs a case in a thread of its name, and looks at what it left.
fn passes(name: &'static str) -> bool {
    let before = temporary();
    let case = move || match TESTS.iter().find(|test| test.0 == name) {
        Some((_, test)) => test(),
        None => conformance::run(name, || Ok(fixture())),
    };
    let ran = std::thread::Builder::new().name(name.to_owned()).spawn(case).unwrap().join().is_ok();
    let left: Vec<PathBuf> = temporary().into_iter().filter(|path| !before.contains(path)).collect();
    if !left.is_empty() {
        eprintln!("{name} left {left:?}");
    }
    let keepers = keepers_of_ours();
    if !keepers.is_empty() {
        eprintln!("{name} left the keepers {keepers:?}");
    }
    let ok = ran && left.is_empty() && keepers.is_empty();
    println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
    ok
}

/// What there is of this suite in the directory for temporary files.
fn temporary() -> Vec<PathBuf> {
    let listed = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let ours = listed.filter(|e| e.file_name().to_string_lossy().starts_with("sandboxer-conformance-"));
    ours.map(|entry| entry.path()).collect()
}

/// The processes, but for this one, that run this program.
fn keepers_of_ours() -> Vec<u32> {
    let exe = fs::read_link("/proc/self/exe").unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    // A sweeper is the same program, and ends by itself.
    let is_keeper = |p: &fs::DirEntry| {
        fs::read(p.path().join("cmdline")).is_ok_and(|words| words.starts_with(b"sandbox-keeper"))
    };
    let same =
        processes.filter(|p| is_keeper(p) && fs::read_link(p.path().join("exe")).is_ok_and(|e| e == exe));
    let ids = same.filter_map(|p| p.file_name().to_str()?.parse().ok());
    ids.filter(|pid| *pid != std::process::id()).collect()
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
