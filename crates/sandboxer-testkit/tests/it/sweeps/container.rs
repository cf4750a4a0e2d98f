//! `create` of a real container killed while it is at it, at moments spread over the time that it takes; then what somebody would type next.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sandboxer_testkit::docker::{Docker, IMAGE};
use sandboxer_testkit::faults::Hosted;
use sandboxer_testkit::{full, skip};
use serde_json::json;

const PROFILE: &str = "profile.killed";
const RECONCILE: [&str; 3] = ["reconcile", "--grace", "0s"];

/// The shipped extension with the daemon of the tests, and a profile with a port: that takes a network besides the container.
fn catalogue(docker: &Docker) -> Vec<(&'static str, String)> {
    let extension = json!({
        "id": "ext.container", "summary": "the daemon of the tests", "provider": "container", "pricing": {"model": "free"},
        "capabilities": {
            "isolation": ["container"], "network": ["none", "host"], "workspaces": "host-path",
            "exec": true, "ports": true, "limits": true, "mounts": true,
        },
        "options": {"engine": docker.client(), "host": docker.host(), "image": IMAGE},
    });
    let profile = json!({
        "id": PROFILE, "summary": "a container", "isolation": "container", "reachability": {"ports": [80]},
        "extension": {"policy": "explicit", "id": "ext.container"},
    });
    vec![("extensions/container.yaml", extension.to_string()), ("profiles/killed.yaml", profile.to_string())]
}

/// Whose containers and networks the daemon has.
fn there(docker: &Docker) -> BTreeSet<String> {
    let template = "{{.Label \"sandboxer.sandbox\"}}";
    let filter = "--filter=label=sandboxer.sandbox";
    let containers = docker.run(&["ps", "--all", filter, "--format", template]);
    let networks = docker.run(&["network", "ls", filter, "--format", template]);
    containers.lines().chain(networks.lines()).map(str::to_owned).collect()
}

/// Kills a create after `time`; what it has started goes on.
fn killed_after(hosted: &Hosted, time: Duration) {
    let mut create = hosted.cli.command(&hosted.create_arguments(PROFILE, &[]));
    let mut create = create.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(time);
    create.kill().unwrap();
    create.wait().unwrap();
}

/// Waits for clients that outlived whoever started them: they know the daemon's socket and nothing else.
fn wait_for_clients(docker: &Docker) {
    let began = Instant::now();
    while clients(&docker.host()) > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "a client never ends");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn clients(host: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let is_client = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"docker"))
            && words.any(|w| w == host.as_bytes())
    };
    lines.filter(|line| is_client(line)).count()
}

fn destroy_all(hosted: &Hosted) {
    hosted.open().iter().for_each(|id| drop(hosted.cli.ok(&["destroy", "--discard", id])));
}

#[test]
fn a_killed_create_leaves_a_container_that_works_or_none() {
    let docker = match Docker::start() {
        Ok(docker) => docker,
        Err(reason) => return skip(&reason),
    };
    let first = Hosted::new(&catalogue(&docker));
    let began = Instant::now();
    first.cli.ok(&first.create_arguments(PROFILE, &[]));
    let time = began.elapsed();
    first.check(&there(&docker), "an undisturbed create");
    first.cli.ok(&RECONCILE);
    first.check(&there(&docker), "one thing of two does not run, and that is as it should be");
    destroy_all(&first);
    let moments: u32 = if full() { 40 } else { 6 };
    for moment in 0..moments {
        let (hosted, context) =
            (Hosted::new(&catalogue(&docker)), format!("killed at {moment} of {moments}"));
        killed_after(&hosted, time * moment / moments);
        // At once, while a client may still be talking to the daemon; what that makes afterwards, the next one removes.
        hosted.cli.ok(&["list"]);
        hosted.cli.run(&RECONCILE);
        wait_for_clients(&docker);
        hosted.cli.ok(&["list"]);
        hosted.cli.ok(&RECONCILE);
        hosted.check(&there(&docker), &context);
        println!("{context}: {:?}", hosted.rows().iter().map(|row| &row.state).collect::<Vec<_>>());
        hosted.cli.ok(&hosted.create_arguments(PROFILE, &[]));
        destroy_all(&hosted);
        hosted.check(&there(&docker), &context);
        assert!(there(&docker).is_empty(), "{context}");
    }
}
