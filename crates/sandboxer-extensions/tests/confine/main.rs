//! What a process can still do once it is confined, tried for real.
//!
//! Each case changes the process that it runs in for good, so this test has a `main` of its own and starts itself for every
//! case: as root, and as an ordinary user.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

mod denied;
mod inside;
mod landlock;
mod privileges;
mod watch;
mod works;

use std::process::{Command, exit};

use libtest_mimic::{Arguments, Failed, Trial};
use sandboxer_testkit::{skip, users};

type Case = (&'static str, fn());

/// Runs the case that is named next.
const CASE: &str = "case";

/// Runs the case that is named next, as an ordinary user.
const USER_CASE: &str = "user-case";

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
    match arguments.first().map(String::as_str) {
        Some(PROBE) => inside::become_init(),
        Some(CASE) => exit(run_case(&arguments)),
        Some(USER_CASE | "as-user") => exit(users::as_ordinary_user(run_case)),
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit(),
    }
}

fn trials() -> Vec<Trial> {
    let as_root = cases().map(|(name, _)| {
        Trial::test(format!("as_root::{name}"), move || match rustix::process::geteuid().is_root() {
            true => start(CASE, name),
            false => {
                skip("the tests are not run by root");
                Ok(())
            }
        })
    });
    let as_user =
        cases().map(|(name, _)| Trial::test(format!("as_user::{name}"), move || start(USER_CASE, name)));
    as_root.chain(as_user).collect()
}

/// Starts the case in a process of its own.
fn start(verb: &str, name: &str) -> Result<(), Failed> {
    let status = Command::new("/proc/self/exe").args([verb, name]).status()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// Runs the case in this process. A panic ends the process with an exit code of its own.
fn run_case(arguments: &[String]) -> i32 {
    let probe = Command::new("/proc/self/exe").arg(PROBE).output().unwrap();
    if probe.status.success() {
        let (_, case) = cases().find(|case| case.0 == arguments[1]).unwrap();
        case();
    } else {
        skip(&format!("no user namespace can be had here: {}", String::from_utf8_lossy(&probe.stderr)));
    }
    0
}
