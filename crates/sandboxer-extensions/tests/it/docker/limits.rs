//! What is inside and what is not: files, the network, rights, limits; and words that would like to be more than words.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

use sandboxer_core::environment::{Mount, ResourceNeeds};
use serde_json::json;

use super::yard::{Yard, inside, request, try_inside};

fn mount(from: &Path, at: &str) -> Mount {
    Mount { workspace: "w".into(), from: from.into(), at: at.into(), read_only: false }
}

#[test]
fn a_workspace_is_the_same_on_both_sides() {
    let Some(yard) = Yard::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    // Names that would be several words, flags or fields to somebody careless.
    let names = ["plain", "with space", "a,readonly", "quo\"te", "-v", "$(touch x)", "ä=ö"];
    let mut request = request();
    for (number, name) in names.iter().enumerate() {
        fs::create_dir(temp.path().join(name)).unwrap();
        fs::write(temp.path().join(name).join("from-outside"), name).unwrap();
        request.mounts.push(mount(&temp.path().join(name), &format!("/work,{number} \"x\"")));
    }
    let handle = yard.provision(&request);
    for (number, name) in names.iter().enumerate() {
        let at = format!("'/work,{number} \"x\"'");
        assert_eq!(inside(&handle, &format!("cat {at}/from-outside")), *name);
        inside(&handle, &format!("echo back > {at}/from-inside"));
        assert_eq!(fs::read_to_string(temp.path().join(name).join("from-inside")).unwrap(), "back\n");
    }
    yard.extension.teardown(&request.sandbox_id, Some(&handle)).unwrap();
    assert!(temp.path().join("plain/from-inside").exists());
}

#[test]
fn hostile_mounts_make_nothing() {
    let Some(yard) = Yard::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    for at in ["/", "/proc/sys", "/dev", "/a/../sys", "w", "/a\nb"] {
        let mut request = request();
        request.mounts.push(mount(temp.path(), at));
        yard.extension.provision(&request).expect_err(at);
        assert_eq!(yard.things_of(&request.sandbox_id), 0);
    }
    let mut request = request();
    request.mounts.push(mount(&temp.path().join("missing"), "/w"));
    yard.extension.provision(&request).unwrap_err();
    yard.extension.teardown(&request.sandbox_id, None).unwrap();
    assert_eq!(yard.things_of(&request.sandbox_id), 0);
    assert!(!temp.path().join("missing").exists());
}

#[test]
fn there_is_no_way_out() {
    let Some(yard) = Yard::new() else { return };
    let handle = yard.provision(&request());
    assert_eq!(inside(&handle, "ip route; ls /sys/class/net"), "lo");
    assert!(!try_inside(&handle, "ping -c 1 -W 1 192.0.2.1").status.success());
    let status = inside(&handle, "cat /proc/self/status");
    let line = |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert_eq!(line("CapBnd:").split_whitespace().last(), Some("0000000000000000"));
    assert_eq!(line("NoNewPrivs:").split_whitespace().last(), Some("1"));
    assert_eq!(line("Seccomp:").split_whitespace().last(), Some("2"));
}

#[test]
fn limits_are_the_kernels() {
    let Some(yard) = Yard::new() else { return };
    let mut request = request();
    request.resources =
        ResourceNeeds { cpus: Some(0.5), memory: Some("32M".into()), pids: Some(20), disk: None };
    let handle = yard.provision(&request);
    let container = handle.data["container"].as_str().unwrap();
    let set = "--format={{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}";
    assert_eq!(yard.docker.run(&["inspect", set, container]), "33554432 33554432 500000000 20");
    let script = "i=0; while [ $i -lt 40 ]; do sleep 60 >/dev/null 2>&1 & i=$((i+1)); done; wait";
    assert!(!try_inside(&handle, script).status.success());
}

#[test]
fn a_port_is_reached_over_a_network_that_leads_nowhere() {
    let Some(yard) = Yard::new() else { return };
    let mut request = request();
    request.reachability.ports = vec![8080];
    request.options.insert("command".into(), json!(["nc", "-ll", "-p", "8080", "-e", "echo", "hello"]));
    let handle = yard.provision(&request);
    let ready = yard.ready(&handle).unwrap();
    let [end] = ready.endpoints.as_slice() else { panic!("{ready:?}") };
    assert_eq!(end.name, "8080/tcp");
    let mut said = String::new();
    // What is inside may not listen yet: that is not the extension's to know.
    let mut stream = (0..600)
        .find_map(|_| {
            let stream = TcpStream::connect((end.host.as_str(), end.port)).ok();
            stream.or_else(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                None
            })
        })
        .expect("nobody answers");
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "hello\n");
    // That it leads nowhere is the engine's firewall, which the tests' daemon may not touch: here is only that it was asked for.
    let name = format!("sandboxer-{}", request.sandbox_id.as_str());
    assert_eq!(yard.docker.run(&["network", "inspect", "--format={{.Internal}}", &name]), "true");
    yard.extension.teardown(&request.sandbox_id, None).unwrap();
    assert_eq!(yard.things_of(&request.sandbox_id), 0);
}

#[test]
fn labels_are_words_and_nothing_more() {
    let Some(yard) = Yard::new() else { return };
    let (mut request, other) = (request(), request_id());
    request.labels.insert("note".into(), format!("x,sandboxer.sandbox={other} --privileged \"'$HOME"));
    let handle = yard.provision(&request);
    let container = handle.data["container"].as_str().unwrap();
    let label = |key: &str| {
        let format = format!("--format={{{{index .Config.Labels {key:?}}}}}");
        yard.docker.run(&["inspect", &format, container])
    };
    assert_eq!(label("sandboxer.label.note"), request.labels["note"]);
    assert_eq!(label("sandboxer.sandbox"), request.sandbox_id.as_str());
    assert_eq!(label("sandboxer.consumer"), "agt/a project, with=odd \"words\"");
    assert_eq!(label("sandboxer.profile"), "profile.container");
    let ids: Vec<_> = yard.extension.inspect(None).unwrap().into_iter().map(|f| f.sandbox_id).collect();
    assert_eq!(ids, [request.sandbox_id.clone()]);
}

fn request_id() -> String {
    request().sandbox_id.as_str().to_owned()
}
