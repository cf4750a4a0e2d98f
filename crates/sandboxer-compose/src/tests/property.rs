//! Whatever stands at whatever key: the host is not handed out.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use super::Workspace;
use super::generated::service;

/// What may never be in a file that is handed over.
fn expect_harmless(written: &Value) {
    for (name, service) in written["services"].as_object().unwrap() {
        for key in [
            "privileged",
            "cap_add",
            "devices",
            "device_cgroup_rules",
            "gpus",
            "sysctls",
            "runtime",
            "userns_mode",
            "uts",
            "cgroup",
            "cgroup_parent",
            "env_file",
            "extends",
            "ports",
            "secrets",
            "configs",
            "deploy",
            "external_links",
        ] {
            assert!(service.get(key).is_none(), "{name}.{key}: {service}");
        }
        for key in ["network_mode", "pid", "ipc"] {
            let value = service.get(key).map_or("", |value| value.as_str().unwrap());
            assert!(
                value != "host" && !value.starts_with("container:") && !value.contains('/'),
                "{name}.{key}: {value}"
            );
        }
        assert_eq!(service["security_opt"], json!(["no-new-privileges:true"]), "{name}");
        assert_eq!(service["restart"], "no");
        assert_eq!(service["labels"]["sandboxer.sandbox"], "s1");
        for mount in service.get("volumes").and_then(Value::as_array).into_iter().flatten() {
            expect_harmless_mount(mount);
        }
        if let Some(build) = service.get("build") {
            expect_inside(build["context"].as_str().unwrap());
            let dockerfile = build["dockerfile"].as_str().unwrap();
            assert!(!dockerfile.split('/').any(|part| part == ".."), "{dockerfile}");
            assert!(!dockerfile.starts_with('/') || dockerfile.starts_with("/remote/ws/"), "{dockerfile}");
            assert_eq!(build["network"], "none");
        }
    }
    for network in written["networks"].as_object().into_iter().flat_map(Map::values) {
        assert_eq!((&network["internal"], &network["driver"]), (&json!(true), &json!("bridge")));
        assert!(network.get("external").is_none());
    }
    for volume in written.get("volumes").and_then(Value::as_object).into_iter().flat_map(Map::values) {
        assert!(volume.get("external").is_none() && volume.get("driver_opts").is_none(), "{volume}");
    }
}

fn expect_harmless_mount(mount: &Value) {
    match mount["type"].as_str().unwrap() {
        "bind" => {
            expect_inside(mount["source"].as_str().unwrap());
            assert!(mount.get("bind").is_none(), "{mount}");
        }
        "volume" => assert!(mount.get("source").is_none_or(|source| source == "v"), "{mount}"),
        "tmpfs" => assert!(mount.get("source").is_none(), "{mount}"),
        other => panic!("{other}"),
    }
}

fn expect_inside(path: &str) {
    let inside =
        path == "/remote/ws" || path.starts_with("/remote/ws/") || path.starts_with("/remote/sealed/");
    assert!(inside && !path.split('/').any(|part| part == ".."), "{path}");
    assert!(!path.contains([',', ':', '\n', '"']), "{path}");
}

/// No text is left that a compose program would look up.
fn expect_settled(value: &Value) {
    match value {
        Value::String(text) => assert!(!text.replace("$$", "").contains('$'), "{text}"),
        Value::Array(items) => items.iter().for_each(expect_settled),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            assert!(!key.contains('$'), "{key}");
            expect_settled(value);
        }),
        _ => {}
    }
}

/// How many were accepted, and how many of them mount something of the workspace.
#[derive(Default)]
struct Accepted {
    all: std::cell::Cell<u32>,
    binds: std::cell::Cell<u32>,
}

const CASES: u32 = 1000;

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })
}

fn tried(web: &Value, db: &Value, accepted: &Accepted) {
    let compose = json!({
        "services": {"web": web, "db": db},
        "volumes": {"v": {}},
        "networks": {"n": {}},
        "secrets": {"s": {"file": "./conf/app.conf"}},
    });
    let workspace = Workspace::new(&compose.to_string());
    workspace.write("e2e/app.env", "A=1\n");
    std::os::unix::fs::symlink("/etc", workspace.path().join("e2e/link")).unwrap();
    let Ok(stack) = workspace.stack() else { return };
    let written = crate::yaml::parse(&stack.yaml, "stack.yaml").unwrap();
    expect_harmless(&written);
    expect_settled(&written);
    let count =
        |counter: &std::cell::Cell<u32>, whether: bool| counter.set(counter.get() + u32::from(whether));
    count(&accepted.all, true);
    count(&accepted.binds, stack.yaml.contains("\"bind\""));
}

#[test]
fn whatever_a_service_says_the_host_is_not_handed_out() {
    let accepted = Accepted::default();
    let ran = runner().run(&(service(), service()), |(web, db)| {
        tried(&web, &db, &accepted);
        Ok(())
    });
    ran.unwrap();
    // A test that everything is refused by would find nothing.
    let counted = (accepted.all.get(), accepted.binds.get());
    assert!(counted.0 > CASES / 20 && counted.1 > CASES / 100, "{counted:?}");
}

#[test]
fn whatever_a_file_says_it_is_read_or_refused() {
    let ran = runner().run(&"[ -~\\n]{0,200}", |text| {
        _ = Workspace::new(&text).stack();
        Ok(())
    });
    ran.unwrap();
}
