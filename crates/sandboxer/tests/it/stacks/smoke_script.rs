//! The smoke test of a host, `scripts/smoke-compose-e2e.sh`, by the word that people try: `make smoke-remote HOST=…`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use sandboxer_testkit::host::RemoteHost;

use crate::common::doc_pages::repository;
use crate::common::{Ran, SANDBOX, World};

/// The host's own compose command, with a record of its calls.
const RECORDING_COMPOSE: &str = "#!/bin/sh\necho \"$*\" >> /root/used\nexec docker-compose \"$@\"\n";

/// A host that the configuration of a world calls `corner`, or why there is none here.
fn world_with_host() -> Result<(World, RemoteHost), String> {
    let host = RemoteHost::start()?;
    let world = World::new();
    let (name, config) = (host.name(), host.ssh_config().display());
    let text = format!(
        "id: corner\naddress: ssh://{name}\nextensions: [ext.compose-ssh]\nssh: {{config: \"{config}\"}}\n"
    );
    world.file("user/.config/sandboxer/hosts/corner.yaml", text);
    Ok((world, host))
}

pub fn make_smoke_remote(world: &World, host: &str, compose: &str) -> Ran {
    let binaries = Path::new(SANDBOX).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let mut make = Command::new("make");
    world.furnish(&mut make);
    make.env("PATH", path).env("SANDBOXER_COMPOSE_CMD", compose).current_dir(repository());
    make.args(["--silent", "smoke-remote", &format!("HOST={host}"), "IMAGE=busybox:test"]);
    Ran::of(make.output().unwrap())
}

/// The first word of each line that a smoke test prints if all is well.
pub const SMOKE_STEPS: [&str; 6] = ["created", "ready", "reachable", "reachable", "destroyed", "clean"];

pub fn steps_of(ran: &Ran) -> Vec<&str> {
    ran.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn smoke_test_creates_a_stack_reaches_it_and_leaves_nothing() {
    let (world, host) = match world_with_host() {
        Ok(parts) => parts,
        Err(reason) => return sandboxer_testkit::skip(&reason),
    };
    let compose = host.home().join("compose");
    fs::write(&compose, RECORDING_COMPOSE).unwrap();
    fs::set_permissions(&compose, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = make_smoke_remote(&world, "corner", "/root/compose");
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(steps_of(&ran), SMOKE_STEPS);
    assert_eq!(host.inventory("sbx_"), Vec::<String>::new());
    let used = fs::read_to_string(host.home().join("used")).unwrap();
    assert!(used.contains("--detach"), "SANDBOXER_COMPOSE_CMD made no stack: {used}");
}

#[test]
fn smoke_test_fails_when_no_stack_can_be_created() {
    let (world, host) = match world_with_host() {
        Ok(parts) => parts,
        Err(reason) => return sandboxer_testkit::skip(&reason),
    };
    let ran = make_smoke_remote(&world, "corner", "/root/missing");
    assert_ne!(ran.code, 0, "{}", ran.stdout);
    assert_eq!(ran.stdout, "", "{}", ran.stderr);
    assert!(ran.stderr.contains("/root/missing does not work there"), "{}", ran.stderr);
    assert_eq!(host.inventory("sbx_"), Vec::<String>::new());
}
