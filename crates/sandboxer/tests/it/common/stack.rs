//! Stacks on another machine: a world whose hosts are real ones, with an sshd, an engine and a firewall of their own.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use sandboxer_testkit::host::RemoteHost;
use serde_json::{Value, json};

use crate::common::{Ran, World};

/// One service that has the repository, and stays.
pub const ONE: &str = "services:\n  web: {image: 'busybox:test', command: sleep infinity, init: true, working_dir: /shop, volumes: ['..:/shop']}\n";

/// A user with a repository, and a host for its stacks.
pub struct Yard {
    pub world: World,
    pub host: &'static RemoteHost,
}

/// The machine of this test process, or the reason why there is none.
pub fn host() -> Option<&'static RemoteHost> {
    RemoteHost::shared().map_err(|reason| sandboxer_testkit::skip(&reason)).ok()
}

/// A machine of a test's own.
pub fn own(started: Result<RemoteHost, String>) -> Option<RemoteHost> {
    started.map_err(|reason| sandboxer_testkit::skip(&reason)).ok()
}

/// Writes a host's file. JSON is YAML.
pub fn write_host(world: &World, id: &str, name: &str, config: &Path, more: &Value) {
    let mut file = json!({
        "id": id, "address": format!("ssh://{name}"), "extensions": ["ext.compose-ssh"], "ssh": {"config": config},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        file[key] = value.clone();
    }
    world.file(&format!("user/.config/sandboxer/hosts/{id}.yaml"), file.to_string());
}

/// Writes a profile of stacks, with what it says besides.
pub fn write_profile(world: &World, name: &str, more: &Value) {
    let mut file = json!({
        "id": format!("profile.{name}"), "summary": "A stack", "isolation": "container", "network": "none",
        "extension": {"policy": "explicit", "id": "ext.compose-ssh"},
        "workspace": {"mode": "filesystem_copy"},
        "inputs": {"repo": {"type": "fs-directory", "required": true}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        file[key] = value.clone();
    }
    world.file(&format!("user/.config/sandboxer/profiles/profile.{name}.yaml"), file.to_string());
}

/// Writes the compose file of the world's project.
pub fn write_stack(world: &World, compose: &str) {
    world.file("project/e2e/docker-compose.yml", compose);
}

/// What a test says to `sandbox create`.
pub fn create<'a>(profile: &'a str, host: &'a str) -> Vec<&'a str> {
    vec!["create", "--profile", profile, "--input", "repo=.", "--host", host, "--name", "e2e"]
}

/// A world with one host, `h1`, and a profile, `profile.stack`.
pub fn world(host: &RemoteHost, compose: &str) -> World {
    let world = World::new();
    write_host(&world, "h1", host.name(), host.ssh_config(), &json!({}));
    write_profile(&world, "stack", &json!({}));
    write_stack(&world, compose);
    without_local_engine(&world);
    world
}

/// No container engine of this machine: `reconcile` would ask each that is installed, and none of them is tested here.
fn without_local_engine(world: &World) {
    let file = json!({
        "id": "ext.container", "summary": "none", "provider": "container", "pricing": {"model": "free"},
        "capabilities": {"isolation": ["container"], "network": ["none"], "workspaces": "any"},
        "options": {"engine": "/nonexistent/docker"},
    });
    world.file("user/.config/sandboxer/extensions/ext.container.yaml", file.to_string());
}

/// Services reach neither an address of their host, where sshd listens on each of them, nor a name server.
pub fn assert_network_is_denied(world: &World, host: &RemoteHost, services: &[&str]) {
    let names = host.name_server();
    host.there("ip", &["address", "replace", "192.0.2.1/32", "dev", "lo"]);
    let here = host.there("sh", &["-c", "echo | busybox nc -w 5 192.0.2.1 22"]);
    assert!(here.contains("SSH-"), "sshd does not listen there: {here}");
    let gateway = "gw=$(ip route 2>/dev/null | sed -n 's/.*via \\([0-9.]*\\).*/\\1/p'); me=$(hostname -i); me=${me%% *}; gw=${gw:-${me%.*}.1}";
    let inside = |service: &str, script: &str| {
        world.run(&["exec", "e2e", "--service", service, "--", "sh", "-c", script])
    };
    for service in services {
        for address in ["$gw", "192.0.2.1"] {
            let reached = inside(service, &format!("{gateway}; echo | nc -w 2 {address} 22"));
            assert!(reached.code != 0 && !reached.stdout.contains("SSH-"), "{service}: {}", reached.stdout);
        }
        assert_ne!(inside(service, "nslookup secret.example.com").code, 0);
    }
    assert_eq!(names.asked(), Vec::<String>::new());
}

impl Yard {
    pub fn new(compose: &str) -> Option<Self> {
        let host = host()?;
        Some(Self { world: world(host, compose), host })
    }

    /// With a machine of the test's own, for one that breaks its connections or looks at everything on it.
    pub fn with_own_host(compose: &str) -> Option<Self> {
        let host: &'static RemoteHost = Box::leak(Box::new(own(RemoteHost::start())?));
        Some(Self { world: world(host, compose), host })
    }

    /// A sandbox `e2e` of the project.
    pub fn create(&self) -> Value {
        self.world.json(&create("profile.stack", "h1"))
    }

    /// A script in a service; what it printed.
    pub fn inside(&self, service: &str, script: &str) -> String {
        self.world.ok(&["exec", "e2e", "--service", service, "--", "sh", "-c", script])
    }

    pub fn try_inside(&self, service: &str, script: &str) -> Ran {
        self.world.run(&["exec", "e2e", "--service", service, "--", "sh", "-c", script])
    }

    /// A command with arguments of any bytes.
    pub fn exec(&self, service: &str, command: &[&[u8]]) -> Ran {
        let mut line = self.world.command(&["exec", "e2e", "--service", service, "--"]);
        line.args(command.iter().map(|word| OsString::from_vec(word.to_vec())));
        Ran::of(line.output().unwrap())
    }

    /// Ends the sandbox; nothing of it is left, here or there.
    pub fn destroy(&self) {
        self.world.ok(&["destroy", "e2e", "--discard"]);
        self.is_clean();
    }

    /// Nothing is left of this world's sandboxes, here or there.
    pub fn is_clean(&self) {
        nothing_there(&self.world, self.host);
        nothing_here(&self.world);
    }
}

/// No sandbox of this world has left anything on a host. Other tests may have stacks there, and bridges that are coming or going.
pub fn nothing_there(world: &World, host: &RemoteHost) {
    let left = what_is_there(world, host);
    assert!(left.is_empty(), "left on the host: {left:#?}");
}

/// Everything of this world's on a host.
pub fn what_is_there(world: &World, host: &RemoteHost) -> Vec<String> {
    // Without a word of its own it has never been there.
    let Ok(text) = std::fs::read_to_string(world.path("home/controller")) else { return Vec::new() };
    let word = text.split_whitespace().next().unwrap();
    let mut left = host.inventory(word.trim());
    for _ in 0..20 {
        if !left.iter().any(|line| line.starts_with("bridge ")) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        // Bridges of other tests come and go: one that is left is there both times.
        let before = std::mem::replace(&mut left, host.inventory(word.trim()));
        left.retain(|line| !line.starts_with("bridge ") || before.contains(line));
    }
    left
}

/// No sandbox has left anything in the state directory.
pub fn nothing_here(world: &World) {
    for dir in ["home/sandboxes", "home/scratch"] {
        let entries = std::fs::read_dir(world.path(dir)).into_iter().flatten().flatten();
        let names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
        assert!(names.is_empty(), "{dir}: {names:?}");
    }
    let root = std::fs::canonicalize(world.path("")).unwrap();
    let mounts = crate::common::remains::mounts(&root);
    assert!(mounts.is_empty(), "{mounts:?}");
}

/// What `sandbox diff` lists.
pub fn diff(world: &World) -> Vec<String> {
    world.ok(&["diff", "e2e"]).lines().map(str::to_owned).collect()
}
