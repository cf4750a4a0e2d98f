//! What a host's words let through.

use serde_json::{Value, json};

use super::service;
use crate::Allowance;

fn web(keys: &str, words: &[Allowance]) -> Value {
    service(keys).open().allowing(words).written()["services"]["web"].clone()
}

#[test]
fn each_word_lets_its_own_thing_through() {
    use Allowance::*;
    assert_eq!(web("privileged: true", &[Privileged])["privileged"], true);
    assert_eq!(web("cap_add: [NET_ADMIN]", &[CapAdd])["cap_add"], json!(["NET_ADMIN"]));
    assert_eq!(
        web("devices: ['/dev/fuse:/dev/fuse']", &[Devices])["devices"],
        json!(["/dev/fuse:/dev/fuse"])
    );
    assert_eq!(
        web("sysctls: [net.core.somaxconn=1]", &[Sysctls])["sysctls"],
        json!({"net.core.somaxconn": "1"})
    );
    assert_eq!(web("runtime: runsc", &[Runtime])["runtime"], "runsc");
    assert_eq!(web("cgroup_parent: /x", &[CgroupParent])["cgroup_parent"], "/x");
    assert_eq!(web("network_mode: host", &[HostNetwork])["network_mode"], "host");
    assert_eq!(web("pid: host", &[HostPid])["pid"], "host");
    assert_eq!(web("ipc: host", &[HostIpc])["ipc"], "host");
    assert_eq!(web("uts: host", &[HostUts])["uts"], "host");
    assert_eq!(web("userns_mode: host", &[HostUserns])["userns_mode"], "host");
    assert_eq!(web("cgroup: host", &[HostCgroup])["cgroup"], "host");
    let options = web("security_opt: ['seccomp=unconfined']", &[Unconfined])["security_opt"].clone();
    assert_eq!(options, json!(["seccomp=unconfined", "no-new-privileges:true"]));
    let mount = web("volumes: ['/srv/./x/../y:/x:ro']", &[HostMounts])["volumes"][0].clone();
    assert_eq!(mount, json!({"type": "bind", "source": "/srv/y", "target": "/x", "read_only": true}));
    let socket = web("volumes: ['/var/run/docker.sock:/s']", &[EngineSocket])["volumes"][0].clone();
    assert_eq!(socket["source"], "/var/run/docker.sock");
}

#[test]
fn the_engine_is_reached_by_its_own_word_only() {
    use Allowance::*;
    for keys in ["volumes: ['/var/run/docker.sock:/s']", "volumes: ['/run:/s']", "volumes: ['/:/s']"] {
        assert!(service(keys).allowing(&[HostMounts]).stack().is_err(), "{keys}");
        assert!(service(keys).allowing(&[HostMounts, EngineSocket]).stack().is_ok(), "{keys}");
    }
    for keys in ["volumes: ['/run:/s']", "volumes: ['/:/s']"] {
        assert!(service(keys).allowing(&[EngineSocket]).stack().is_err(), "{keys}");
    }
    for keys in ["volumes: ['~/x:/s']", "volumes: ['../../x:/s']"] {
        assert!(service(keys).allowing(&Allowance::ALL).stack().is_err(), "{keys}");
    }
}

#[test]
fn no_word_makes_a_way_out_of_a_sandbox_without_a_network() {
    for keys in
        ["network_mode: host", "extra_hosts: ['h:host-gateway']", "build: {context: ., network: host}"]
    {
        let workspace = service(keys).allowing(&Allowance::ALL);
        assert!(workspace.refusal().0.contains("no network"), "{keys}");
        assert!(workspace.open().stack().is_ok(), "{keys}");
    }
    for network in ["external: true", "driver: macvlan", "driver_opts: {a: b}"] {
        let text =
            format!("services: {{web: {{image: a, networks: [n]}}}}\nnetworks: {{n: {{{network}}}}}\n");
        let workspace = super::Workspace::new(&text).allowing(&Allowance::ALL);
        assert!(workspace.refusal().0.contains("no network"), "{network}");
        assert!(workspace.open().stack().is_ok(), "{network}");
    }
}

#[test]
fn what_belongs_to_others_is_used_and_not_listed_as_ours() {
    let text = "services: {web: {image: a, volumes: ['v:/v'], networks: [n]}}\nvolumes: {v: {external: true, name: theirs}}\n\
        networks: {n: {external: true}}\n";
    let workspace = super::Workspace::new(text).open().allowing(&[Allowance::External]);
    let stack = workspace.stack().unwrap();
    assert!(stack.volumes.is_empty() && stack.networks.is_empty());
    assert_eq!(workspace.written()["volumes"]["v"], json!({"external": true, "name": "theirs"}));
}
