//! Overlays as an ordinary user has them: the conformance suite, and what only keepers can suffer.
//!
//! A keeper is the program that started it, under another name, so this test has a `main` of its own. The cases run one after the
//! other: a process that is being started holds for a moment what the others have open, and makes a mount busy by that.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_keeper::{Keepers, serve_if_asked};
use sandboxer_strategies::overlay;
use sandboxer_testkit::conformance::{self, Fixture};
use sandboxer_testkit::{skip, users};

type Test = (&'static str, fn());

const TESTS: &[Test] = &[];

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
    let same = processes.filter(|p| fs::read_link(p.path().join("exe")).is_ok_and(|e| e == exe));
    let ids = same.filter_map(|p| p.file_name().to_str()?.parse().ok());
    ids.filter(|pid| *pid != std::process::id()).collect()
}
