#![allow(clippy::unwrap_used)]

mod full;
mod lines;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::*;

/// A machine, or the test is skipped with the reason.
macro_rules! host {
    ($started:expr) => {
        match $started {
            Ok(host) => host,
            Err(reason) => return crate::skip(&reason),
        }
    };
}
use host;

/// Runs a script there by ssh, with something on its input.
fn by_ssh(host: &RemoteHost, script: &str, input: &str) -> Output {
    feed(host.ssh().arg(script), input)
}

fn feed(command: &mut Command, input: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // Who has lost the connection does not read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn told(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn complained(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_host_answers_over_ssh() {
    let host = host!(RemoteHost::start());
    let script =
        "hostname; echo $HOME; pwd; docker images --format '{{.Repository}}:{{.Tag}}'; command -v docker";
    let expected = format!("{}\n/root\n/root\n{IMAGE}\n/usr/bin/docker", host.name());
    assert_eq!(told(&by_ssh(&host, script, "")).to_lowercase(), expected);
    assert_eq!(host.docker().run(&["ps", "--quiet"]), "");
    told(&by_ssh(&host, "cat > x", "from here"));
    assert_eq!(fs::read_to_string(host.home().join("x")).unwrap(), "from here");
    assert!(host.inventory("").is_empty(), "{:?}", host.inventory(""));
}

#[test]
fn a_guest_is_not_root_and_may_talk_to_the_engine() {
    let host = host!(RemoteHost::start());
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(host.ssh_config()).arg(host.guest_name());
    let output = feed(ssh.arg("id -un; pwd; docker ps --quiet; touch x; iptables -L 2>&1 | head -1"), "");
    let said = told(&output);
    assert!(said.starts_with("guest\n/home/guest"), "{said}");
    assert!(said.contains("denied") || said.contains("must be root"), "{said}");
    assert!(host.guest_home().join("x").exists());
}

#[test]
fn a_small_home_is_full_and_nothing_else_is() {
    let setup = Setup { engine: Engine::None, home_bytes: Some(1 << 20), ..Setup::default() };
    let host = host!(RemoteHost::with(&setup));
    let said = complained(&by_ssh(&host, "head -c 3000000 /dev/zero > much", ""));
    assert!(said.contains("No space left"), "{said}");
    assert_eq!(fs::metadata(host.home().join("much")).unwrap().len(), 1 << 20);
    told(&by_ssh(&host, "rm much; head -c 3000000 /dev/zero > /run/much", ""));
}
