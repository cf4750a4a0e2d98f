//! What a process can still do once it is confined, tried for real.
//!
//! Each case changes the process that it runs in for good. So this test has a `main` of its own and starts itself for every case:
//! as whoever runs it, and once more as an ordinary user where that is root.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

mod denied;
mod inside;
mod landlock;
mod privileges;
mod watch;
mod works;

use std::process::{Command, exit};

use sandboxer_testkit::{skip, users};

type Case = (&'static str, fn());

/// Tries whether cases can run at all.
const PROBE: &str = "probe";

fn cases() -> impl Iterator<Item = Case> {
    [privileges::CASES, denied::CASES, works::CASES, landlock::CASES, watch::CASES]
        .into_iter()
        .flatten()
        .copied()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [verb, name] if verb == "case" => run_case(name),
        [first, ..] if first == "as-user" => exit(users::as_ordinary_user(run)),
        _ if rustix::process::geteuid().is_root() && !is_list(&arguments) => {
            let as_root = run(&arguments);
            exit(users::as_ordinary_user(run).max(as_root))
        }
        _ => exit(run(&arguments)),
    }
}

/// In the process that belongs to the case. A panic ends it with a code of its own.
fn run_case(name: &str) {
    if name == PROBE {
        return inside::become_init();
    }
    let (_, case) = cases().find(|case| case.0 == name).unwrap();
    case();
}

fn is_list(arguments: &[String]) -> bool {
    arguments.iter().any(|word| word == "--list")
}

fn run(arguments: &[String]) -> i32 {
    let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    if is_list(arguments) {
        cases().for_each(|(name, _)| println!("{name}: test"));
        return 0;
    }
    if let Err(why) = started(PROBE) {
        skip(&format!("no user namespace can be had here: {why}"));
        return 0;
    }
    let outcomes: Vec<bool> = cases().filter(|case| is_chosen(case.0)).map(|case| passes(case.0)).collect();
    let passed = outcomes.iter().filter(|passed| **passed).count();
    let failed = outcomes.len() - passed;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    if failed == 0 { 0 } else { 101 }
}

fn passes(name: &'static str) -> bool {
    let outcome = started(name);
    println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
    if let Err(said) = &outcome {
        println!("{said}");
    }
    outcome.is_ok()
}

/// Starts the case in a process of its own. What it said, if it failed.
fn started(name: &str) -> Result<(), String> {
    let output = Command::new("/proc/self/exe").args(["case", name]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{}: {said}", output.status));
    }
    // What a case skips it says there.
    eprint!("{said}");
    Ok(())
}
