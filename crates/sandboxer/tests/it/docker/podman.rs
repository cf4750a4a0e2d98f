//! The lifecycle of a container by podman, as root and rootless: `sandbox` runs on a machine that has no other engine.

use sandboxer_testkit::docker::IMAGE;
use sandboxer_testkit::host::RemoteHost;
use serde_json::{Value, json};

use super::container::extension;
use crate::common::stack::own;
use crate::common::user::binary_for_all_users;
use crate::common::{Ran, World};

struct User {
    world: World,
    host: RemoteHost,
    is_root: bool,
}

impl User {
    fn new(host: RemoteHost, is_root: bool) -> Self {
        let world = World::new();
        world.file("user/.config/sandboxer/extensions/ext.container.yaml", extension(&json!({})).to_string());
        let profile = json!({
            "id": "profile.box", "summary": "A box", "isolation": "container", "network": "none",
            "extension": {"policy": "explicit", "id": "ext.container"},
            "workspace": {"mode": "filesystem_copy"},
            "inputs": {"code": {"type": "fs-directory", "required": true, "mount": "/srv/code"}},
            "resources": {"memory": "64M"}, "reachability": {"ports": [8080]},
            "options": {"image": IMAGE, "command": ["httpd", "-f", "-p", "8080", "-h", "/srv/code"]},
        });
        world.file("user/.config/sandboxer/profiles/profile.box.yaml", profile.to_string());
        if !is_root {
            host.give_to_guest(&world.path(""));
        }
        Self { world, host, is_root }
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut command =
            if self.is_root { self.host.in_namespace("env") } else { self.host.as_guest("env") };
        let path = |name: &str| self.world.path(name).display().to_string();
        command.args([
            format!("SANDBOXER_HOME={}", path("home")),
            format!("XDG_CONFIG_HOME={}", path("user/.config")),
        ]);
        command.args(["sh", "-c", "cd \"$1\" && shift && exec \"$@\"", "sh", &path("project")]);
        Ran::of(command.arg(binary_for_all_users()).args(words).output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    fn inside(&self, script: &str) -> String {
        self.ok(&["exec", "box", "--", "sh", "-c", script])
    }

    fn create(&self) -> Value {
        let words = ["create", "--profile", "profile.box", "--input", "code=.", "--name", "box", "--json"];
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    /// The port is reached as it is shown, and nothing is reached from inside.
    fn port_is_reached(&self) {
        let shown: Value = serde_json::from_str(&self.ok(&["get", "box", "--json"])).unwrap();
        let endpoint = &shown["environment"]["endpoints"][0];
        let address = format!("http://{}:{}/hello.txt", endpoint["host"].as_str().unwrap(), endpoint["port"]);
        assert_eq!(self.host.there("busybox", &["wget", "-q", "-O", "-", &address]), "hello\nworld");
    }

    fn network_is_denied(&self) {
        let names = self.host.name_server();
        let gateway = "me=$(hostname -i); me=${me%% *}; echo | nc -w 2 ${me%.*}.1 22";
        let reached = self.run(&["exec", "box", "--", "sh", "-c", gateway]);
        assert!(reached.code != 0 && !reached.stdout.contains("SSH-"), "{}", reached.stdout);
        for server in ["", "$gateway"] {
            let script = format!(
                "me=$(hostname -i); me=${{me%% *}}; gateway=${{me%.*}}.1; nslookup secret.example.com {server}"
            );
            assert_ne!(self.run(&["exec", "box", "--", "sh", "-c", &script]).code, 0);
        }
        assert_eq!(names.asked(), Vec::<String>::new());
    }

    /// What podman cannot do here is noted at create, and `doctor` says it of each extension that podman makes things for.
    fn shortcomings_are_noted(&self, made: &Value) {
        let id = self.host.run(&["ps", "--quiet"]);
        let limit = self.host.run(&["inspect", "--format", "{{.HostConfig.Memory}}", &id]);
        let is_limited = limit == (64 << 20).to_string();
        assert!(is_limited || !self.is_root, "{limit}");
        let cgroups = self.host.run(&["info", "--format", "{{.Host.CgroupsVersion}}"]);
        let by_signals = !self.is_root && cgroups == "v1";
        let doctor: Value = serde_json::from_str(&self.run(&["doctor", "--json"]).stdout).unwrap();
        let said_by_doctor = |extension: &str| {
            let mut all = doctor["extensions"].as_array().unwrap().iter();
            all.find(|entry| entry["extension"] == extension).unwrap()["reason"].as_str().unwrap().to_owned()
        };
        let notes = made["environment"]["notes"].to_string();
        for said in [notes, said_by_doctor("ext.container"), said_by_doctor("ext.compose-ssh")] {
            let unlimited = said.contains("memory, processors and processes are not limited");
            assert_eq!(unlimited, !is_limited, "{limit}: {said}");
            assert_eq!(said.contains("paused by signals"), by_signals, "{cgroups}: {said}");
        }
    }
}

fn lifecycle(user: &User) {
    let made = user.create();
    assert_eq!(made["state"], "ready", "{made:#}");
    user.shortcomings_are_noted(&made);
    user.port_is_reached();
    user.network_is_denied();
    user.inside("echo more >> hello.txt; echo new > new");
    assert_eq!(user.ok(&["diff", "box"]), "M hello.txt\nA new\n");
    user.ok(&["rollback", "box"]);
    assert_eq!(user.inside("cat hello.txt; test ! -e new"), "hello\nworld\n");
    user.inside("echo kept > kept");
    user.ok(&["checkpoint", "box", "one"]);
    user.inside("rm kept");
    user.ok(&["recreate", "box", "--from", "one"]);
    assert_eq!(user.inside("cat kept"), "kept\n");
    user.ok(&["commit", "box"]);
    assert_eq!(user.world.text("project/kept"), "kept\n");
    user.ok(&["destroy", "box"]);
    assert_eq!(user.host.inventory(""), Vec::<String>::new());
}

#[test]
fn a_life_in_a_container_of_podman_as_root() {
    let Some(host) = own(RemoteHost::start_podman()) else { return };
    lifecycle(&User::new(host, true));
}

#[test]
fn a_life_in_a_container_of_podman_without_root() {
    let Some(host) = own(RemoteHost::start_rootless_podman()) else { return };
    lifecycle(&User::new(host, false));
}
