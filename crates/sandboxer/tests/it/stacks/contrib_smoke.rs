//! The smoke script of `contrib/`, as whoever is on duty runs it, against a machine with an engine.

use std::path::Path;
use std::process::Command;

use sandboxer_testkit::host::RemoteHost;

use crate::common::{self, World};

#[test]
fn the_smoke_script_makes_a_stack_reaches_it_and_leaves_nothing() {
    let host = match RemoteHost::start() {
        Ok(host) => host,
        Err(reason) => return sandboxer_testkit::skip(&reason),
    };
    let world = World::new();
    let (name, config) = (host.name(), host.ssh_config().display());
    let text = format!(
        "id: corner\naddress: ssh://{name}\nextensions: [ext.compose-ssh]\nssh: {{config: \"{config}\"}}\n"
    );
    world.file("user/.config/sandboxer/hosts/corner.yaml", text);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/smoke-compose-e2e");
    let binaries = Path::new(common::SANDBOX).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(script);
    world.furnish(&mut command);
    let ran = command.env("PATH", path).args(["corner", "busybox:test"]).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}{complained}");
    let steps: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(steps, ["created", "ready", "reachable", "reachable", "destroyed", "nothing"]);
    assert_eq!(host.inventory("sbx_"), Vec::<String>::new());
}
