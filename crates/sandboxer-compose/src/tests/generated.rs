//! Services as nobody would write them, most of them nearly right.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Keys that compose programs know, and some that they do not.
const KEYS: &[&str] = &[
    "privileged",
    "network_mode",
    "pid",
    "ipc",
    "uts",
    "userns_mode",
    "cgroup",
    "cgroup_parent",
    "devices",
    "gpus",
    "device_cgroup_rules",
    "cap_add",
    "security_opt",
    "sysctls",
    "runtime",
    "volumes",
    "volumes_from",
    "env_file",
    "build",
    "extends",
    "networks",
    "ports",
    "environment",
    "labels",
    "command",
    "entrypoint",
    "tmpfs",
    "secrets",
    "configs",
    "deploy",
    "logging",
    "links",
    "external_links",
    "extra_hosts",
    "dns",
    "depends_on",
    "healthcheck",
    "user",
    "restart",
    "container_name",
    "hostname",
    "ulimits",
    "shm_size",
    "blkio_config",
    "credential_spec",
    "x-anything",
    "unknown",
    "image",
    "scale",
    "mem_limit",
    "cpus",
    "pids_limit",
    "profiles",
    "init",
    "storage_opt",
];

/// Texts that mean something to an engine.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "host",
            "true",
            "false",
            "ALL",
            "/",
            "/etc",
            "/etc:/x",
            "./conf",
            "./conf:/c",
            "./conf:/c:ro",
            "..:/w",
            "../..:/x",
            "~/.ssh:/x",
            "/var/run/docker.sock:/s",
            "container:x",
            "service:web",
            "service:db",
            "none",
            "bridge",
            "default",
            "seccomp=unconfined",
            "no-new-privileges:false",
            "/dev/sda",
            "${X:-/etc}:/x",
            "${X:-host}",
            "v:/v",
            "undeclared:/v",
            "SYS_ADMIN",
            "https://x/y.git",
            ".",
            "..",
            "Dockerfile",
            "../Dockerfile",
            "80:80",
            "8000-8010",
            "A=b",
            "A",
            "s",
            "db",
            "web",
            "bind",
            "volume",
            "tmpfs",
            "/c",
            "./conf/app.conf:/f:ro",
            "./conf,x:/y",
            "rshared",
            "runc",
            "$$",
            "$",
            "host-gateway",
            "h:host-gateway",
            "json-file",
            "512m",
            "1",
            "-x",
            "x\ny",
            "alpine",
            "./app.env",
            "/etc/passwd",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,12}",
    ]
}

/// Names inside of mappings that mean something.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "type",
            "source",
            "target",
            "read_only",
            "bind",
            "volume",
            "propagation",
            "context",
            "dockerfile",
            "network",
            "privileged",
            "args",
            "service",
            "file",
            "path",
            "required",
            "resources",
            "limits",
            "reservations",
            "devices",
            "replicas",
            "driver",
            "options",
            "test",
            "condition",
            "default",
            "n",
            "db",
            "web",
            "inside",
            "outside",
            "external",
            "driver_opts",
            "soft",
            "hard",
            "mode",
            "A",
            "x-y",
        ])
        .prop_map(str::to_owned),
        "[a-zA-Z._$-]{1,8}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => text().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => (-2_i64..100_000).prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner.clone(), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            (text(), text(), any::<bool>()).prop_map(|(source, target, read_only)| {
                json!([{"type": "bind", "source": source, "target": target, "read_only": read_only}])
            }),
        ]
    })
}

/// Values that are right, and values that would be wrong to hand over, for keys at which both have the same form.
fn samples(key: &str) -> &'static [&'static str] {
    match key {
        "network_mode" => {
            &["none", "bridge", "service:db", "host", "container:x", "ns:/x", "${X:-host}", "HOST"]
        }
        "pid" | "ipc" | "uts" | "userns_mode" | "cgroup" => {
            &["", "private", "shareable", "service:db", "host", "container:x"]
        }
        "volumes" => &[
            "./conf:/c",
            "./conf:/c:ro",
            "../data:/d",
            "../data/file:/f:ro",
            "..:/w",
            "./conf/app.conf:/f:ro",
            "v:/v",
            "/anon",
            "v:/v2:ro",
            "./conf/../conf:/e",
            "./conf:/c,x",
            "../..:/x",
            "/etc:/x",
            "~:/x",
            "${X:-/}:/x",
            "./conf:/y:rshared",
            "../data:/d2:z",
            "./link:/l",
            "${X:-./conf}:/g",
        ],
        "tmpfs" => &["/t", "/t:size=1m", "/t:suid", "t"],
        "security_opt" => {
            &["no-new-privileges", "no-new-privileges:true", "seccomp=unconfined", "no-new-privileges:false"]
        }
        "cap_drop" => &["ALL", "NET_RAW", "-x"],
        "links" | "volumes_from" => &["db", "db:x", "db:ro", "container:x"],
        "extra_hosts" => &["a:1.2.3.4", "b=::1", "h:host-gateway"],
        "dns" | "dns_search" => &["1.1.1.1", "x"],
        "secrets" => &["s", "t"],
        "env_file" => &["./app.env", "/etc/passwd", "../../x"],
        "ports" | "expose" => &["80", "8080:81", "9000-9002", "x"],
        "networks" => &["n", "default", "m"],
        "environment" | "labels" => {
            &["A=b", "B=$$x", "C", "com.docker.compose.x=y", "sandboxer.sandbox=z", "$$D=e"]
        }
        "build" => &[".", "..", "./conf", "https://x/y.git", "/etc", "./link"],
        "group_add" => &["5", "video"],
        "privileged" => &["false", "true", "${X:-true}", "${X:-false}"],
        "cap_add" | "devices" | "sysctls" | "runtime" | "cgroup_parent" => &["", "ALL", "/dev/sda", "a=b"],
        "user" | "hostname" | "container_name" | "restart" | "command" | "entrypoint" => {
            &["a", "no", "always", "-x", "a $$b"]
        }
        _ => &["1", "true", "512m", "a", "./x"],
    }
}

const LISTS: &[&str] = &[
    "volumes",
    "tmpfs",
    "security_opt",
    "cap_drop",
    "links",
    "volumes_from",
    "extra_hosts",
    "dns",
    "secrets",
    "ports",
    "expose",
    "networks",
    "environment",
    "labels",
    "group_add",
    "cap_add",
    "devices",
    "sysctls",
];

fn plausible(key: &'static str) -> BoxedStrategy<Value> {
    let one = prop::sample::select(samples(key)).prop_map(Value::from);
    if key == "volumes" {
        let long = (
            prop::sample::select(vec!["bind", "bind", "bind", "volume", "tmpfs"]),
            prop::sample::select(vec![
                "./conf",
                "..",
                "../data",
                "../data/file",
                "v",
                ".",
                "/etc",
                "../..",
                "./link",
                "~",
            ]),
            prop::sample::select(vec!["/a", "/b/c", "/d", "/a", "/b", "/../x", "x"]),
            any::<bool>(),
        );
        let long = long.prop_map(|(kind, source, target, read_only)| {
            json!({"type": kind, "source": source, "target": target, "read_only": read_only})
        });
        return prop::collection::vec(prop_oneof![one, long], 0..4).prop_map(Value::from).boxed();
    }
    if LISTS.contains(&key) {
        return prop::collection::vec(one, 0..3).prop_map(Value::from).boxed();
    }
    if key == "build" {
        let places = (
            prop::sample::select(samples(key)),
            prop::sample::select(vec!["Dockerfile", "../e2e/Dockerfile", "/x"]),
        );
        let long = places.prop_map(
            |(context, file)| json!({"context": context, "dockerfile": file, "args": ["A=b", "C"]}),
        );
        return prop_oneof![one, long].boxed();
    }
    one.boxed()
}

/// A key with a value that is mostly of the right form.
fn entry() -> impl Strategy<Value = (&'static str, Value)> {
    prop::sample::select(KEYS).prop_flat_map(|key| {
        prop_oneof![6 => plausible(key), 1 => value()].prop_map(move |value| (key, value))
    })
}

pub(super) fn service() -> impl Strategy<Value = Value> {
    let mounts = prop::option::of(plausible("volumes"));
    (prop::collection::vec(entry(), 0..3), mounts).prop_map(|(keys, mounts)| {
        let mut service = Map::new();
        service.insert("image".to_owned(), "alpine".into());
        service.extend(mounts.map(|mounts| ("volumes".to_owned(), mounts)));
        service.extend(keys.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Value::Object(service)
    })
}
