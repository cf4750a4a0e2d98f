//! The table of engines in docs/compose.md: the lifecycle of a stack on each engine holds each of its cells.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sandboxer_testkit::host::RemoteHost;
use serde_json::{Value, json};

use crate::common::doc_pages::repository;
use crate::common::stack::{
    self, assert_network_is_denied, diff, nothing_here, nothing_there, write_host, write_profile,
};
use crate::common::{Ran, World};
use crate::stacks::smoke_script::{SMOKE_STEPS, make_smoke_remote, steps_of};

/// Two networks, a dependency on health, volumes, limits, an image that is built, and a service that never stops writing.
const SHOP: &str = "
services:
  web:
    image: busybox:test
    command: httpd -f -p 8080 -h /shop
    working_dir: /shop
    volumes: ['..:/shop']
    ports: ['8080:8080']
    networks: [front, back]
    depends_on: {store: {condition: service_healthy}, seed: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, wget, -q, -O, '-', 'http://127.0.0.1:8080/hello.txt'], interval: 1s}
  store:
    build: ../image
    mem_limit: 64m
    cpus: 0.5
    pids_limit: 64
    command: sh -c 'httpd -p 8081 -h /goods; echo opened; echo trouble >&2; touch /tmp/open; exec sleep infinity'
    init: true
    volumes: ['goods:/goods']
    networks: {back: {aliases: [warehouse]}}
    healthcheck: {test: 'test -e /tmp/open', interval: 1s}
  seed: {image: 'busybox:test', command: sh -c 'echo once > /log/log', volumes: ['log:/log'], networks: [front]}
  writer:
    image: busybox:test
    command: sh -c 'mkdir -p /tmp; while :; do echo >> /tmp/ticks; sleep 0.2; done'
    networks: [front]
networks: {front: {}, back: {}}
volumes: {goods: {}, log: {}}
";
const STORE: &str = "FROM busybox:test\nRUN mkdir -p /goods /tmp; cd /goods; touch old new; chown 7:8 /goods; chmod 750 /goods\n";
const OPEN: &str = "services:\n  web: {image: 'busybox:test', command: httpd -f -p 8080 -h /shop, volumes: ['.:/shop'], ports: ['8080:8080']}\n";

/// The chains that every table has, once anything has looked at it.
const BUILT_IN: [&str; 5] = [":INPUT ", ":OUTPUT ", ":FORWARD ", ":PREROUTING ", ":POSTROUTING "];

/// The rules that docs/compose.md names, as `iptables -S` prints them.
const INPUT_RULE: &str = "-A INPUT -i sbx+ -m conntrack --ctstate NEW -j DROP";
const FORWARD_RULE: &str = "-A FORWARD -i sbx+ ! -o sbx+ -j DROP";

/// The engines in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Docker,
    PodmanAsRoot,
    RootlessPodman,
}

struct Shop<'a> {
    world: World,
    host: &'a RemoteHost,
    column: Column,
    /// What `create` said.
    made: Value,
    /// What `hosts check` said then.
    checked: String,
}

impl<'a> Shop<'a> {
    /// A world with a host `h1` and a sandbox `e2e` on it.
    fn create(host: &'a RemoteHost, column: Column) -> Self {
        let world = stack::world(host, SHOP);
        let name = if column == Column::RootlessPodman { host.guest_name() } else { host.name().to_owned() };
        write_host(&world, "h1", &name, host.ssh_config(), &json!({}));
        world.file("project/image/Dockerfile", STORE);
        let mut shop = Self { world, host, column, made: Value::Null, checked: String::new() };
        shop.made = shop.create_sandbox("e2e", "");
        shop.checked = shop.check();
        shop
    }

    /// `compose` is what `SANDBOXER_COMPOSE_CMD` says: both words for it mean podman.
    fn create_sandbox(&self, sandbox: &str, compose: &str) -> Value {
        let profile = ["--profile", "profile.compose-e2e", "--input", "repo=.", "--host", "h1"];
        let words = [&["create"], &profile[..], &["--name", sandbox, "--json"]].concat();
        let ran = Ran::of(self.world.command(&words).env("SANDBOXER_COMPOSE_CMD", compose).output().unwrap());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    fn inside(&self, service: &str, script: &str) -> String {
        self.world.ok(&["exec", "e2e", "--service", service, "--", "sh", "-c", script])
    }

    /// The id of a service's container.
    fn container(&self, service: &str) -> String {
        let service = format!("label=com.docker.compose.service={service}");
        let ids = self.host.run(&["ps", "--quiet", "--filter", &service]);
        assert_eq!(ids.lines().count(), 1, "{service}: {ids}");
        ids
    }

    fn inspect(&self, container: &str, format: &str) -> String {
        self.host.run(&["inspect", "--type", "container", "--format", format, container])
    }

    /// Whether the engine has no control groups that it could use: rootless podman on their first version.
    fn is_without_groups(&self) -> bool {
        self.column == Column::RootlessPodman
            && self.host.run(&["info", "--format", "{{.Host.CgroupsVersion}}"]) == "v1"
    }

    fn check(&self) -> String {
        self.world.ok(&["hosts", "check", "h1"])
    }

    /// Whether both `hosts check` and the answer of `create` contain `words`.
    fn is_said(&self, words: &str) -> bool {
        let noted = self.made["environment"]["notes"].to_string();
        assert_eq!(self.checked.contains(words), noted.contains(words), "{words}: {}{noted}", self.checked);
        noted.contains(words)
    }

    /// Holds the cell of a row. Panics for a row that no check belongs to.
    fn hold(&self, row: &str, cell: &str) {
        match row {
            "create, exec, logs, forward, diff, rollback, checkpoint, recreate, destroy" => {
                assert_eq!(cell, "yes");
                assert_eq!(self.made["state"], "ready", "{:#}", self.made);
                self.logs();
                self.changes_are_compared_and_rolled_back();
                // The hazard is podman's.
                if self.column != Column::Docker {
                    self.another_is_destroyed();
                }
                self.volumes_are_kept();
            }
            "several networks, builds, volumes, dependencies on health" => {
                assert_eq!(cell, "yes");
                self.services_reach_each_other_by_every_name();
                assert_eq!(self.inside("store", "stat -c '%u %g' /goods"), "7 8\n");
            }
            "`network: none`" => self.network_is_denied(cell),
            "limits of memory, processors and processes" => self.limits(cell),
            "services are paused while files are fetched" => self.services_are_paused(cell),
            other => panic!("no check holds the row {other:?} of the table of engines"),
        }
    }

    fn services_reach_each_other_by_every_name(&self) {
        assert_eq!(self.inside("store", "wget -q -O - http://web:8080/hello.txt"), "hello\nworld\n");
        self.inside("web", "wget -q -O - http://warehouse:8081/new");
    }

    fn network_is_denied(&self, cell: &str) {
        // The same probes on docker are `services::a_stack_reaches_neither_its_host_nor_a_name_server`.
        if self.column != Column::Docker {
            assert_network_is_denied(&self.world, self.host, &["web", "store"]);
        }
        let rules = match cell {
            "by internal networks and a firewall rule" => vec![INPUT_RULE],
            "by internal networks and firewall rules" => vec![INPUT_RULE, FORWARD_RULE],
            "by internal networks" => Vec::new(),
            other => panic!("{other:?}"),
        };
        let found = firewall(self.host);
        for rule in [INPUT_RULE, FORWARD_RULE] {
            let is_set = found.contains(&format!("iptables-save {rule}"));
            assert_eq!(is_set, rules.contains(&rule), "{rule}: {found:#?}");
        }
        if rules.contains(&FORWARD_RULE) {
            self.nothing_is_forwarded();
        }
    }

    /// A packet that a host forwards reaches a network behind it, once the rule against that is gone. `hosts check` misses
    /// the rule; the next stack sets it again, which `lifecycle` sees.
    fn nothing_is_forwarded(&self) {
        let pid = self.inspect(&self.container("web"), "{{.State.Pid}}");
        self.host.there("sh", &["-c", NETWORK_BEHIND, "sh", &pid]);
        let arrives = || self.host.in_namespace("sh").args(["-c", PING_BEHIND, "sh", &pid]).output().unwrap();
        assert!(!arrives().status.success(), "a packet was forwarded");
        let words: Vec<&str> = FORWARD_RULE.split(' ').skip(2).collect();
        let delete = [&["--wait", "-D", "FORWARD"], &words[..]].concat();
        self.host.there("iptables", &delete);
        let until = Instant::now() + Duration::from_secs(60);
        while !arrives().status.success() {
            assert!(Instant::now() < until, "the host forwards nothing, so the probe shows nothing");
        }
        assert!(self.checked.contains("drops what stacks send to the host"), "{}", self.checked);
        let checked = self.check();
        assert!(checked.contains("the first stack does so"), "{checked}");
    }

    fn limits(&self, cell: &str) {
        let format = "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}";
        let limits = self.inspect(&self.container("store"), format);
        let is_limited = limits == format!("{} 500000000 64", 64 << 20);
        let depends = "only with version 2 of control groups; otherwise said at create";
        assert!(cell == "yes" || cell == depends, "{cell:?}");
        assert!(is_limited || (cell == depends && self.is_without_groups()), "{limits}");
        assert_eq!(self.is_said("memory, processors and processes are not limited"), !is_limited, "{limits}");
    }

    /// While files are fetched no process of a service runs; afterwards all of them go on.
    fn services_are_paused(&self, cell: &str) {
        let depends = "by the engine with version 2 of control groups, otherwise by signals";
        assert!(cell == "by the engine" || cell == depends, "{cell:?}");
        let by_signals = cell == depends && self.is_without_groups();
        assert_eq!(self.is_said("paused by signals"), by_signals);
        let writer = self.container("writer");
        let process = format!("/proc/{}/stat", self.inspect(&writer, "{{.State.Pid}}"));
        let is_paused = || match by_signals {
            true => self.host.there("cat", &[&process]).contains(") T "),
            false => self.inspect(&writer, "{{.State.Status}}") == "paused",
        };
        let is_seen_paused = || {
            let mut command = self.world.command(&["diff", "e2e"]);
            let mut diff = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let mut seen = false;
            while diff.try_wait().unwrap().is_none() {
                seen |= is_paused();
            }
            assert!(diff.wait().unwrap().success());
            seen
        };
        // A busy machine may look too late.
        assert!((0..30).any(|_| is_seen_paused()), "no diff paused the services");
        assert!(!is_paused());
        let ticks = || self.inside("writer", "wc -l < /tmp/ticks").trim().parse::<u64>().unwrap();
        let (before, until) = (ticks(), Instant::now() + Duration::from_secs(60));
        while ticks() == before {
            assert!(Instant::now() < until, "the service does not go on");
        }
    }

    fn volumes_are_kept(&self) {
        self.inside(
            "store",
            "rm /goods/old; echo apples > /goods/list; chmod 640 /goods/list; chown 7:8 /goods/list",
        );
        self.inside("web", "echo then > then");
        self.world.ok(&["checkpoint", "e2e", "stocked"]);
        self.inside("store", "rm /goods/*");
        self.world.ok(&["recreate", "e2e", "--from", "stocked"]);
        let found = self.inside("store", "cd /goods; ls; cat list; stat -c '%a %u %g' list .");
        assert_eq!(found, "list\nnew\napples\n640 7 8\n750 7 8\n");
        assert_eq!(diff(&self.world), ["A then"]);
    }

    fn changes_are_compared_and_rolled_back(&self) {
        self.inside("web", "echo more >> hello.txt; mkdir d; echo new > d/a");
        assert_eq!(diff(&self.world), ["A d/", "A d/a", "M hello.txt"]);
        self.world.ok(&["rollback", "e2e"]);
        assert_eq!(self.inside("web", "cat hello.txt; test ! -e d"), "hello\nworld\n");
    }

    fn logs(&self) {
        let all = self.world.ok(&["logs", "e2e"]);
        // Some plugins of docker erase each line before they write it, also where it goes to a pipe.
        let lines: Vec<&str> = all.lines().map(|line| line.trim_start_matches("\u{1b}[2K")).collect();
        let of_store =
            |said: &str| lines.iter().any(|line| line.starts_with("store") && line.ends_with(said));
        assert!(of_store("| opened") && of_store("| trouble"), "{all:?}");
        assert_eq!(self.world.ok(&["logs", "e2e", "store", "--tail", "1"]).matches(" | ").count(), 1);
    }

    /// podman answers a question for two labels with everything that has one of them: what belongs to one sandbox stays
    /// when another one is removed.
    fn another_is_destroyed(&self) {
        let image = self.inspect(&self.container("store"), "{{.Image}}");
        let tags = || self.host.run(&["image", "inspect", "--format", "{{json .RepoTags}}", &image]);
        let tags_before = tags();
        assert!(tags_before.contains("sandboxer-"), "{tags_before}");
        self.inside("store", "echo mine > /goods/mine");
        self.create_sandbox("other", "podman-compose");
        self.destroy("other");
        assert_eq!(self.inside("store", "cat /goods/mine; rm /goods/mine"), "mine\n");
        assert_eq!(tags(), tags_before);
    }

    /// With `network: host` ports are published on the host's loopback.
    fn an_open_stack_is_reached_on_loopback(&self) {
        write_profile(
            &self.world,
            "open",
            &json!({"network": "host", "options": {"compose_file": "open.yaml"}}),
        );
        self.world.file("project/open.yaml", OPEN);
        let profile = ["create", "--profile", "profile.open", "--input", "repo=.", "--host", "h1"];
        let made = self.world.json(&[&profile[..], &["--name", "open"]].concat());
        let endpoint = &made["environment"]["endpoints"][0];
        assert_eq!(endpoint["host"], "127.0.0.1", "{endpoint}");
        let address = format!("http://127.0.0.1:{}/hello.txt", endpoint["port"]);
        assert_eq!(self.host.there("busybox", &["wget", "-q", "-O", "-", &address]), "hello\nworld");
        self.destroy("open");
    }

    /// `doctor` connects to no host, and names the command that does.
    fn doctor_names_the_check(&self) {
        let doctor: Value = serde_json::from_str(&self.world.run(&["doctor", "--json"]).stdout).unwrap();
        let named = doctor["hosts"].as_array().unwrap().iter().find(|host| host["host"] == "h1");
        assert_eq!(named.unwrap()["check"], "sandbox hosts check h1");
    }

    fn destroy(&self, sandbox: &str) {
        self.world.ok(&["destroy", sandbox, "--discard"]);
    }
}

/// A network behind a host, which forwards to it, and a route of a container there. `$1` a process of the container.
const NETWORK_BEHIND: &str = r#"
set -e
# podman switches forwarding off for the bridges of internal networks; whatever switches it on for the host, does so for all of them.
echo 0 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/ip_forward
ip netns add behind
ip link add to-behind type veth peer name from-behind
ip link set from-behind netns behind
ip address add 198.51.100.1/24 dev to-behind
ip link set to-behind up
ip netns exec behind ip address add 198.51.100.2/24 dev from-behind
ip netns exec behind ip link set from-behind up
ip netns exec behind ip route add default via 198.51.100.1
busybox ping -c 1 -W 10 198.51.100.2 >/dev/null
address=$(nsenter --target "$1" --net ip -4 -oneline address show scope global | head -n 1 | sed 's:.*inet \([0-9.]*\)/.*:\1:')
nsenter --target "$1" --net ip route replace 198.51.100.0/24 via "${address%.*}.1"
"#;
const PING_BEHIND: &str = r#"nsenter --target "$1" --net busybox ping -c 2 -W 1 198.51.100.2"#;

/// Every rule and every chain of a host's firewall but those that are built in, without counters.
fn firewall(host: &RemoteHost) -> BTreeSet<String> {
    let of = |program: &'static str| {
        let said = host.there(program, &[]);
        let lines: Vec<String> = said
            .lines()
            .filter(|line| {
                line.starts_with(['-', ':']) && !BUILT_IN.iter().any(|chain| line.starts_with(chain))
            })
            .map(|line| format!("{program} {}", line.split(" [").next().unwrap()))
            .collect();
        lines
    };
    ["iptables-save", "ip6tables-save"].into_iter().flat_map(of).collect()
}

/// The rows of the table: the name, then a cell for each engine.
fn table() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(repository().join("docs/compose.md")).unwrap();
    let mut lines =
        page.lines().skip_while(|line| *line != "## Engines").filter(|line| line.starts_with('|'));
    assert_eq!(lines.next(), Some("| | docker | podman, as root | podman, rootless |"));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    lines.skip(1).map(cells).collect()
}

/// Runs everything that the table says of an engine.
pub fn lifecycle(host: &RemoteHost, column: Column) {
    let firewall_before = firewall(host);
    let shop = Shop::create(host, column);
    if column == Column::RootlessPodman {
        shop.doctor_names_the_check();
    }
    for row in table() {
        assert_eq!(row.len(), 4, "{row:?}");
        shop.hold(&row[0], &row[1 + column as usize]);
    }
    shop.destroy("e2e");
    nothing_there(&shop.world, host);
    nothing_here(&shop.world);
    // Other tests run the smoke test and open stacks on docker.
    if column == Column::Docker {
        assert_eq!(added(&firewall_before, &firewall(host)), documented_rules(column));
        return;
    }
    let ran = make_smoke_remote(&shop.world, "h1", "podman compose");
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(steps_of(&ran), SMOKE_STEPS);
    nothing_there(&shop.world, host);
    let stacks_left = added(&firewall_before, &firewall(host));
    assert_eq!(stacks_left, documented_rules(column));
    shop.an_open_stack_is_reached_on_loopback();
    // podman keeps the chains from which it publishes ports.
    let open_stack_left = added(&firewall_before, &firewall(host));
    let others = open_stack_left.difference(&stacks_left).filter(|rule| !rule.contains("NETAVARK"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}

/// What was added to a firewall. Nothing of what was there may be gone.
fn added(before: &BTreeSet<String>, after: &BTreeSet<String>) -> BTreeSet<String> {
    let gone: Vec<&String> = before.difference(after).collect();
    assert!(gone.is_empty(), "{gone:#?}");
    after.difference(before).cloned().collect()
}

/// What docs/compose.md says that stays of the firewall's rules.
fn documented_rules(column: Column) -> BTreeSet<String> {
    let rules = match column {
        Column::Docker => vec![INPUT_RULE],
        Column::PodmanAsRoot => vec![INPUT_RULE, FORWARD_RULE],
        Column::RootlessPodman => Vec::new(),
    };
    let of = |program: &str| rules.iter().map(|rule| format!("{program} {rule}")).collect::<Vec<_>>();
    ["iptables-save", "ip6tables-save"].into_iter().flat_map(of).collect()
}

#[test]
fn a_stack_runs_on_docker() {
    let Some(host) = stack::own(RemoteHost::start()) else { return };
    lifecycle(&host, Column::Docker);
}
