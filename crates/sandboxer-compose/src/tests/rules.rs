//! What every stack gets, and what is dropped.

use serde_json::{Value, json};

use super::{Workspace, service};
use crate::{Allowance, Limits};

fn web(workspace: &Workspace) -> Value {
    workspace.written()["services"]["web"].clone()
}

#[test]
fn every_service_is_confined_and_labelled() {
    let workspace = service("labels: {sandboxer.sandbox: other, com.docker.compose.project: x, mine: 'y'}");
    let web = web(&workspace);
    assert_eq!(web["security_opt"], json!(["no-new-privileges:true"]));
    assert_eq!(web["restart"], "no");
    assert_eq!(web["pids_limit"], 4096);
    assert_eq!(web["labels"], json!({"sandboxer.sandbox": "s1"}));
    assert_eq!(web["dns"], json!(["192.0.2.1"]));
    assert_eq!(web["environment"]["HTTPS_PROXY"], "");
    assert_eq!(web["environment"]["no_proxy"], "");
}

#[test]
fn without_a_network_nothing_leaves_and_nothing_is_published() {
    let workspace = Workspace::new(
        "services:\n  web: {image: a, ports: ['8080:80'], dns: 8.8.8.8, environment: {HTTP_PROXY: own}, networks: [n]}\n  \
         db: {image: a, network_mode: bridge}\n  alone: {image: a, network_mode: none}\n  \
         beside: {image: a, network_mode: 'service:web'}\nnetworks: {n: {name: x, ipam: {config: [{subnet: 10.0.0.0/8}]}}}\n",
    );
    let written = workspace.written();
    for (name, network) in written["networks"].as_object().unwrap() {
        assert_eq!(network["internal"], true, "{name}");
        assert_eq!(network["name"], format!("sandboxer-s1_{name}"));
        let bridge = network["driver_opts"]["com.docker.network.bridge.name"].as_str().unwrap();
        assert!(bridge.starts_with("sbx") && bridge.len() == 13, "{bridge}");
        assert!(network.get("ipam").is_none());
        assert_eq!(network["labels"]["sandboxer.sandbox"], "s1");
    }
    let services = &written["services"];
    assert!(services["web"].get("ports").is_none());
    assert_eq!(services["web"]["dns"], json!(["192.0.2.1"]));
    assert_eq!(services["web"]["environment"]["HTTP_PROXY"], "own");
    assert_eq!(services["db"]["networks"], json!({"default": {}}));
    assert_eq!(services["alone"]["network_mode"], "none");
    assert_eq!(services["beside"]["network_mode"], "service:web");
    assert!(services["beside"].get("dns").is_none());
    let stack = workspace.stack().unwrap();
    assert_eq!(stack.networks, ["sandboxer-s1_default", "sandboxer-s1_n"]);
    assert_eq!(stack.services.iter().find(|one| one.name == "web").unwrap().ports.len(), 1);
}

#[test]
fn with_a_network_ports_are_on_loopback_wherever_one_is_free() {
    let keys = "ports: ['0.0.0.0:80:8080', '53:53/udp', {target: 9}]\ndns: [1.1.1.1]\nextra_hosts: ['h:host-gateway', 'i=::1']";
    let workspace = service(keys).open();
    let web = web(&workspace);
    assert_eq!(web["ports"], json!(["127.0.0.1::8080/tcp", "127.0.0.1::53/udp", "127.0.0.1::9/tcp"]));
    assert_eq!(web["dns"], json!(["1.1.1.1"]));
    assert_eq!(web["extra_hosts"], json!(["h:host-gateway", "i:::1"]));
    assert!(web["environment"].get("HTTP_PROXY").is_none());
    let network = &workspace.written()["networks"]["default"];
    assert!(network.get("internal").is_none() && network.get("driver_opts").is_none(), "{network}");
}

#[test]
fn what_lies_below_something_writable_is_mounted_from_a_copy_or_not_at_all() {
    let workspace = service(
        "volumes: ['..:/app', './conf/app.conf:/etc/app.conf:ro', './conf:/conf:ro', './conf:/again:ro']",
    );
    let mounts = web(&workspace)["volumes"].clone();
    assert_eq!(mounts[0]["source"], "/remote/ws");
    assert_eq!(
        mounts[1],
        json!({"type": "bind", "source": "/remote/sealed/0", "target": "/etc/app.conf", "read_only": true})
    );
    assert_eq!(mounts[2]["source"], "/remote/sealed/1");
    assert_eq!(mounts[3]["source"], "/remote/sealed/1");
    let stack = workspace.stack().unwrap();
    assert!(stack.expected.is_empty(), "{:?}", stack.expected);
    let sealed: Vec<(String, bool)> =
        stack.sealed.iter().map(|one| (one.from.to_string(), one.is_dir)).collect();
    assert_eq!(sealed, [("e2e/conf/app.conf".to_owned(), false), ("e2e/conf".to_owned(), true)]);
    assert_eq!(stack.services[0].mounts_workspace_at.as_deref(), Some("/app"));
    let writable = || service("volumes: ['./conf:/conf', './conf/app.conf:/x']");
    let (reason, hint) = writable().refusal();
    assert!(reason.contains("could put a link there") && hint.contains("[nested-mounts]"), "{reason} {hint}");
    let allowed = writable().allowing(&[Allowance::NestedMounts]);
    assert_eq!(web(&allowed)["volumes"][1]["source"], "/remote/ws/e2e/conf/app.conf");
}

#[test]
fn another_service_that_writes_above_counts_too() {
    let workspace = Workspace::new(
        "services:\n  a: {image: a, volumes: ['../data:/d']}\n  b: {image: a, volumes: ['../data/file:/f:ro', './conf:/c:ro']}\n",
    );
    let written = workspace.written();
    assert_eq!(written["services"]["b"]["volumes"][0]["source"], "/remote/sealed/0");
    assert_eq!(written["services"]["b"]["volumes"][1]["source"], "/remote/ws/e2e/conf");
    // A name that only begins alike is not below it, and the same path twice is neither.
    workspace.write("data2/x", "");
    workspace.write("e2e/docker-compose.yml", "services:\n  a: {image: a, volumes: ['../data:/d']}\n  b: {image: a, volumes: ['../data2:/e', '../data:/d']}\n");
    assert!(workspace.stack().unwrap().sealed.is_empty());
}

#[test]
fn secrets_and_configs_are_copies_that_nobody_writes() {
    let workspace = Workspace::new(
        "services:\n  web:\n    image: a\n    volumes: ['..:/app']\n    secrets: [s, {source: s, target: other, mode: 0400, uid: '1'}]\n    \
         configs: [{source: c, target: /etc/c}, c]\nsecrets: {s: {file: ./conf/app.conf}}\nconfigs: {c: {file: ../data/file}}\n",
    );
    let mounts = web(&workspace)["volumes"].clone();
    let targets: Vec<&str> =
        mounts.as_array().unwrap().iter().map(|mount| mount["target"].as_str().unwrap()).collect();
    assert_eq!(targets, ["/app", "/run/secrets/s", "/run/secrets/other", "/etc/c", "/c"]);
    assert!(mounts.as_array().unwrap()[1..].iter().all(|mount| mount["read_only"] == true));
    let stack = workspace.stack().unwrap();
    assert_eq!(stack.sealed.iter().map(|one| one.mode).collect::<Vec<_>>(), [0o444, 0o400, 0o444]);
    assert!(workspace.written().get("secrets").is_none());
}

#[test]
fn volumes_get_names_and_labels_of_ours() {
    let workspace = Workspace::new(
        "services: {web: {image: a, volumes: ['v:/v', 'm:/m', '/anonymous', {type: tmpfs, target: /t, tmpfs: {size: 1m}}]}}\n\
         volumes: {v: {name: fixed, labels: [x=y]}, m: {driver: local, driver_opts: {type: tmpfs, device: tmpfs, o: 'size=1m,uid=5'}}, unused: {external: true}}\n",
    );
    let written = workspace.written();
    let volumes = &written["volumes"];
    assert_eq!(volumes["v"], json!({"name": "sandboxer-s1_v", "labels": {"sandboxer.sandbox": "s1"}}));
    assert_eq!(volumes["m"]["driver_opts"]["o"], "size=1m,uid=5");
    assert!(volumes.get("unused").is_none());
    assert_eq!(workspace.stack().unwrap().volumes, ["sandboxer-s1_m", "sandboxer-s1_v"]);
    let mounts = &written["services"]["web"]["volumes"];
    assert_eq!(mounts[2], json!({"type": "volume", "target": "/anonymous"}));
    assert_eq!(mounts[3], json!({"type": "tmpfs", "target": "/t", "tmpfs": {"size": 1 << 20}}));
}

#[test]
fn what_is_built_has_a_name_of_ours_and_no_network() {
    let workspace = Workspace::new(
        "services:\n  web_App: {build: ., image: 'library/alpine:3', pull_policy: always}\n  \
         api: {build: {context: .., dockerfile: e2e/Dockerfile, target: dev, args: [A=1, B]}}\n  \
         out: {build: {context: conf, dockerfile: ../Dockerfile, network: none}}\n",
    );
    let written = workspace.written();
    let services = &written["services"];
    let build = &services["web_App"]["build"];
    assert_eq!(build["context"], "/remote/ws/e2e");
    assert_eq!(build["dockerfile"], "Dockerfile");
    assert_eq!(build["network"], "none");
    assert_eq!(build["labels"]["sandboxer.sandbox"], "s1");
    assert_eq!(build["args"]["HTTP_PROXY"], "");
    assert!(services["web_App"].get("pull_policy").is_none());
    assert_eq!(services["api"]["build"]["context"], "/remote/ws");
    assert_eq!(services["api"]["build"]["dockerfile"], "e2e/Dockerfile");
    assert_eq!(services["api"]["build"]["args"]["A"], "1");
    assert!(services["api"]["build"]["args"].get("B").is_none());
    assert_eq!(services["out"]["build"]["dockerfile"], "/remote/ws/e2e/Dockerfile");
    let stack = workspace.stack().unwrap();
    assert_eq!(stack.images_built[0], "sandboxer-s1-api");
    assert!(stack.images_built[2].starts_with("sandboxer-s1-web-app-"), "{:?}", stack.images_built);
    assert_eq!(stack.services[0].built_from.as_deref(), Some(""));
}

#[test]
fn an_engine_that_may_fetch_is_allowed_to() {
    let fetching = || {
        let workspace = Workspace::new("services: {web: {build: .}}\n");
        workspace.write("e2e/Dockerfile", "# syntax=docker/dockerfile:1\nFROM a\n");
        workspace
    };
    assert!(fetching().refusal().1.contains("[build-fetch]"));
    assert!(fetching().open().stack().is_ok());
    assert!(fetching().allowing(&[Allowance::BuildFetch]).stack().is_ok());
}

#[test]
fn images_that_are_built_from_are_named_where_the_engine_may_not_fetch() {
    let building = || {
        let workspace = Workspace::new(
            "services:\n  a: {build: {context: ., args: {BASE: 'debian:12'}}}\n  b: {build: .}\n  c: {image: redis}\n",
        );
        workspace.write(
            "e2e/Dockerfile",
            "ARG BASE=alpine\nFROM $BASE AS one\nFROM one\nCOPY --from=busybox /x /\n",
        );
        workspace
    };
    assert_eq!(building().stack().unwrap().bases, ["alpine", "busybox", "debian:12"]);
    assert!(building().open().stack().unwrap().bases.is_empty());
    assert!(building().allowing(&[Allowance::BuildFetch]).stack().unwrap().bases.is_empty());
}

#[test]
fn limits_are_for_the_whole_stack() {
    let text = "services:\n  a: {image: a, mem_limit: 512m, deploy: {replicas: 2}}\n  \
        b: {image: a, deploy: {resources: {limits: {cpus: '0.5', memory: 256M, pids: 100}}}}\n  c: {image: a}\n  d: {image: a}\n";
    let mut workspace = Workspace::new(text);
    workspace.limits = Limits { memory: Some(2 << 30), cpus: Some(2.5), pids: Some(900) };
    let written = workspace.written();
    let get = |name: &str, key: &str| written["services"][name][key].clone();
    assert_eq!(get("a", "mem_limit"), 512 << 20);
    assert_eq!(get("b", "mem_limit"), 256 << 20);
    assert_eq!(get("c", "mem_limit"), 384 << 20);
    assert_eq!(get("c", "memswap_limit"), 384 << 20);
    assert_eq!(get("a", "scale"), 2);
    assert_eq!(get("b", "cpus"), 0.5);
    assert_eq!(get("d", "cpus"), 0.5);
    assert_eq!(get("d", "pids_limit"), 200);
    workspace.limits.memory = Some(1 << 30);
    let (reason, _) = workspace.refusal();
    assert!(reason.contains("1342177280") && reason.contains("1073741824"), "{reason}");
    workspace.limits.memory = Some((1280 << 20) + 1000);
    assert!(workspace.refusal().0.contains("too little is left"), "{:?}", workspace.refusal());
}

#[test]
fn a_service_without_containers_does_not_run() {
    let text = "services:\n  a: {image: a, deploy: {replicas: 0}, ports: ['80']}\n  b: {build: ., scale: 0}\n  c: {image: a}\n";
    let workspace = Workspace::new(text);
    let stack = workspace.stack().unwrap();
    assert_eq!(stack.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(workspace.written()["services"]["a"]["scale"], 0);
    assert_eq!(stack.images_built, ["sandboxer-s1-b"], "compose programs build it all the same");
}

#[test]
fn what_would_meet_others_on_the_host_is_dropped_and_told() {
    let workspace = service(
        "container_name: My_db\nrestart: unless-stopped\nmac_address: 02:00:00:00:00:01\nlogging: {driver: syslog}\n\
         oom_score_adj: -1000\noom_kill_disable: true\nstop_grace_period: 10h\nnetworks: {default: {ipv4_address: 10.0.0.1, aliases: [x]}}\n\
         deploy: {placement: {constraints: [a]}}\nannotations: [a=b]",
    );
    let web = web(&workspace);
    for key in ["container_name", "mac_address", "oom_score_adj", "oom_kill_disable", "annotations", "deploy"]
    {
        assert!(web.get(key).is_none(), "{key}");
    }
    assert_eq!(web["restart"], "no");
    assert_eq!(web["logging"], json!({"driver": "json-file", "options": {"max-size": "10m"}}));
    assert!(web.get("stop_grace_period").is_none());
    assert_eq!(web["networks"], json!({"default": {"aliases": ["My_db", "x"]}}));
    let notes = workspace.stack().unwrap().notes;
    for word in
        ["container_name", "restart", "mac_address", "logging", "oom_score_adj", "ipv4_address", "placement"]
    {
        assert!(
            notes.iter().any(|note| note.contains(word) && note.starts_with("e2e/docker-compose.yml: ")),
            "{word}: {notes:#?}"
        );
    }
}

#[test]
fn plain_keys_are_kept_as_they_are() {
    let keys = "command: sh -c 'echo hi'\nentrypoint: [tini, --]\nworking_dir: /a b\nuser: 1000:1000\nhostname: h.x\n\
        init: true\ntty: true\nstdin_open: 'true'\nread_only: true\ncap_drop: [ALL]\ngroup_add: [5, video]\nshm_size: 64m\n\
        ulimits: {nofile: 1024, nproc: {soft: 1, hard: 2}}\ntmpfs: /run\nstop_signal: SIGINT\nplatform: linux/amd64\n\
        pull_policy: missing\ncpuset: 0-1\nipc: shareable\nexpose: ['80', 81]\nlinks: [web]\nprivileged: false\n\
        healthcheck: {test: [CMD, true], interval: 1m30s, timeout: 5s, retries: 3, start_period: 0s, start_interval: 1s}\n\
        security_opt: ['no-new-privileges:true']\ncgroup: private\nx-mine: {a: $%}\ndepends_on: []";
    let workspace = service(keys);
    let web = web(&workspace);
    let expected = json!({
        "command": "sh -c 'echo hi'", "entrypoint": ["tini", "--"], "working_dir": "/a b", "user": "1000:1000",
        "hostname": "h.x", "init": true, "tty": true, "stdin_open": true, "read_only": true, "cap_drop": ["ALL"],
        "group_add": ["5", "video"], "shm_size": 64 << 20, "tmpfs": ["/run"], "stop_signal": "SIGINT",
        "ulimits": {"nofile": {"soft": 1024, "hard": 1024}, "nproc": {"soft": 1, "hard": 2}},
        "platform": "linux/amd64", "pull_policy": "if_not_present", "cpuset": "0-1", "ipc": "shareable",
        "expose": ["80", "81"], "links": ["web"],
        "healthcheck": {"test": ["CMD", "true"], "interval": "90000ms", "timeout": "5000ms", "retries": 3, "start_period": "0ms"},
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&web[key], value, "{key}");
    }
    assert!(web.get("privileged").is_none() && web.get("x-mine").is_none() && web.get("cgroup").is_none());
    assert!(workspace.stack().unwrap().services[0].has_healthcheck);
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let text = "services: {b: {image: a, environment: {Z: 1, A: 2}}, a: {image: a, depends_on: {b: {condition: service_healthy}}}}\n";
    let first = Workspace::new(text).stack().unwrap();
    assert_eq!(first.yaml, Workspace::new(text).stack().unwrap().yaml);
    assert_eq!(first.services[0].depends_on["b"], "service_healthy");
    assert!(!first.yaml.contains("version"));
}

#[test]
fn what_the_engine_is_told_of_is_listed() {
    let workspace = service("volumes: ['./conf/app.conf:/c:ro', '../data:/d']\nbuild: .");
    let expected: Vec<(String, bool)> =
        workspace.stack().unwrap().expected.iter().map(|one| (one.path.to_string(), one.is_dir)).collect();
    let listed = [("data", true), ("e2e", true), ("e2e/Dockerfile", false), ("e2e/conf/app.conf", false)];
    assert_eq!(expected, listed.map(|(path, is_dir)| (path.to_owned(), is_dir)));
}

#[test]
fn keys_for_other_programs_are_passed_over_everywhere() {
    let keys = "x-a: 1\nhealthcheck: {test: a, x-b: {}}\nbuild: {context: ., x-c: 1}\ndeploy: {x-d: 1}\nlogging: {x-e: 1}";
    assert!(!service(keys).stack().unwrap().yaml.contains("\"x-"));
}

#[test]
fn what_was_kept_of_a_volume_is_all_that_is_in_it() {
    let mut stack = Workspace::new(
        "services:\n  web: {image: alpine, volumes: ['a:/a', 'b:/b', {type: volume, source: a, target: /c, volume: {nocopy: false}}]}\n\
         volumes: {a: {}, b: {}}\n",
    );
    stack.kept_volumes = ["a".to_owned()].into();
    let mounts = stack.written()["services"]["web"]["volumes"].clone();
    assert_eq!([&mounts[0]["volume"], &mounts[2]["volume"]], [&json!({"nocopy": true}); 2]);
    assert_eq!(mounts[1].get("volume"), None, "{mounts}");
}

/// A program that starts nothing may wait for what never starts.
#[test]
fn what_is_made_without_a_start_is_the_same_in_any_order() {
    let stack = Workspace::new(
        "services:\n  web: {image: a, depends_on: {db: {condition: service_healthy}}}\n  db: {image: a, volumes: ['d:/d']}\nvolumes: {d: {}}\n",
    );
    let (stack, mut ordered) = (stack.stack().unwrap(), stack.written());
    assert_eq!(ordered["services"]["web"]["depends_on"]["db"]["condition"], "service_healthy");
    ordered["services"]["web"].as_object_mut().unwrap().remove("depends_on");
    assert_eq!(crate::yaml::parse(&stack.unordered, "x").unwrap(), ordered);
}
