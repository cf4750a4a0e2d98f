#![allow(clippy::unwrap_used)]
use std::collections::{BTreeMap, BTreeSet};

use sandboxer_compose::{Limits, Network, Placing, Policy, Source, place, resolve};

use super::*;

const ROOT: PodmanHost = PodmanHost { rootless: false, limits: true };
const ROOTLESS: PodmanHost = PodmanHost { rootless: true, limits: false };

const STACK: &str = r#"
services:
  db:
    image: redis:7
    healthcheck: {test: [CMD, "true"], interval: 1s, timeout: 1s, retries: 2}
    networks: {back: {aliases: [store]}}
    volumes: ["data:/data"]
  web:
    image: web
    command: sh -c 'echo "$$HOME"; it''s'
    ports: ["8080:80"]
    networks: [back, front]
    depends_on: {db: {condition: service_healthy}}
networks: {back: {}, front: {}}
volumes: {data: {}}
"#;

fn script(compose: &str, network: Network, host: PodmanHost) -> String {
    let script = stack_script(&placed(compose, network), "p", host).unwrap();
    script.split_once("build_images() {").unwrap().1.to_owned()
}

fn placed(compose: &str, network: Network) -> Stack {
    let repository = tempfile::tempdir().unwrap();
    std::fs::write(repository.path().join("compose.yaml"), compose).unwrap();
    let variables = BTreeMap::new();
    let model = resolve(&Source { root: repository.path(), file: None, variables: &variables }).unwrap();
    let labels = BTreeMap::from([("sandboxer.stack".to_owned(), "home/sbx_1".to_owned())]);
    let placing = Placing {
        project: "p",
        workspace: "/w",
        sealed: "/s",
        labels: &labels,
        network,
        limits: Limits::default(),
        bridges: "sbx",
        nobody: "192.0.2.1",
        policy: &Policy::default(),
        kept_volumes: &BTreeSet::new(),
    };
    place(&model, &placing).unwrap()
}

fn line_of<'a>(script: &'a str, start: &str) -> &'a str {
    script.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {script}"))
}

#[test]
fn services_know_each_other_by_assigned_addresses() {
    let script = script(STACK, Network::Deny, ROOT);
    let web = line_of(&script, "'container' 'p_web_1'");
    for words in [
        "'--network=p_back:ip='\"$net0\".3",
        "'--network=p_front:ip='\"$net1\".3",
        "'--add-host=db:'\"$net0\".2",
        "'--add-host=store:'\"$net0\".2",
        "'--dns=192.0.2.1'",
        "'docker.io/library/web'",
    ] {
        assert!(web.contains(words), "{words}: {web}");
    }
    let db = line_of(&script, "'container' 'p_db_1'");
    assert!(db.contains("'--volume=p_data:/data'") && !db.contains("p_front"), "{db}");
    let steps: Vec<&str> =
        script.lines().filter(|line| line.starts_with("'start'") || line.starts_with("'healthy'")).collect();
    assert_eq!(steps, ["'start' 'p_db_1'", "'healthy' 'p_db_1' 'db' '5'", "'start' 'p_web_1'"]);
}

#[test]
fn only_networks_of_root_have_a_named_bridge() {
    let of = |network, host| line_of(&script(STACK, network, host), "'network' 'p_back'").to_owned();
    let denied = of(Network::Deny, ROOT);
    assert!(
        denied.contains("'sbx") && denied.contains("'--internal'") && !denied.contains("dns"),
        "{denied}"
    );
    let rootless = of(Network::Deny, ROOTLESS);
    assert!(rootless.contains("'p_back' '' '--internal' '--disable-dns'"), "{rootless}");
    assert!(!of(Network::Open, ROOT).contains("--internal"));
}

#[test]
fn ports_are_published_on_loopback_unless_the_host_reaches_the_container() {
    let web = |network, host| line_of(&script(STACK, network, host), "'container' 'p_web_1'").to_owned();
    for (network, host) in [(Network::Open, ROOT), (Network::Open, ROOTLESS), (Network::Deny, ROOTLESS)] {
        let line = web(network, host);
        assert!(line.contains("'--publish=127.0.0.1::80/tcp'"), "{network:?} {host:?}: {line}");
    }
    assert!(!web(Network::Deny, ROOT).contains("--publish"));
}

#[test]
fn a_key_that_podman_has_no_option_for_is_noted() {
    let stack = placed("services: {a: {image: i, hostname: h, domainname: example.com}}", Network::Deny);
    let notes = untranslated_keys(&stack);
    assert_eq!(notes, ["services.a.domainname: dropped: podman has no option for it"]);
}

/// A podman 4 that writes down its calls. The first namespace is removed before `init` is done.
const PODMAN_CALLS: &str = r#"
podman() {
  echo "$*" >>calls
  case $* in
    version*) echo 4.3.1 ;;
    *' touch '*) touch marker ;;
    init*) [ -e removed ] || { touch removed; rm marker; } ;;
    *' rm '*) rm marker ;;
  esac
}
"#;

#[test]
fn rootless_containers_are_started_once_their_networks_last() {
    let script = script(STACK, Network::Deny, ROOTLESS);
    let start = line_of(&script, "'start_on_networks' 'p_web_1'");
    let directory = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("sh")
        .args(["-c", &format!("{FUNCTIONS}{PODMAN_CALLS}{start}")])
        .current_dir(directory.path())
        .status();
    assert!(status.unwrap().success());
    let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
    let (touch, remove) =
        ["touch", "rm"].map(|word| format!("unshare --rootless-netns {word} /run/sandboxer-p_web_1")).into();
    assert_eq!(
        calls.lines().skip(1).collect::<Vec<_>>(),
        [
            &touch,
            "init p_web_1",
            &remove,
            "container cleanup p_web_1",
            &touch,
            "init p_web_1",
            &remove,
            "start p_web_1"
        ]
    );
}

#[test]
fn only_rootless_containers_with_networks_are_initialized_first() {
    let starts = |compose, host| script(compose, Network::Deny, host).contains("'start_on_networks'");
    assert!(starts(STACK, ROOTLESS) && !starts(STACK, ROOT));
    assert!(!starts("services: {a: {image: i, network_mode: none}}", ROOTLESS));
}

#[test]
fn hostile_words_stay_words() {
    let hostile =
        "services: {a: {image: i, command: [\"$$(touch /x)\", \"`id`\", \"a'; rm -rf / #\", \"--\"]}}";
    let script = script(hostile, Network::Deny, ROOT);
    let line = line_of(&script, "'container' 'p_a_1'");
    assert!(line.ends_with(r#"-- '$(touch /x)' '`id`' 'a'\''; rm -rf / #' '--'"#), "{line}");
    let ran = std::process::Command::new("sh")
        .args([
            "-c",
            &format!("container() {{ for word; do printf '%s\\n' \"$word\"; done; }}; net0=10.0.0; {line}"),
        ])
        .output()
        .unwrap();
    let words = String::from_utf8(ran.stdout).unwrap();
    assert!(words.ends_with("--\n$(touch /x)\n`id`\na'; rm -rf / #\n--\n"), "{words}");
}

#[test]
fn short_names_of_images_are_those_of_docker() {
    assert_eq!(qualified("redis:7"), "docker.io/library/redis:7");
    assert_eq!(qualified("me/app"), "docker.io/me/app");
    assert_eq!(qualified("ghcr.io/me/app:1"), "ghcr.io/me/app:1");
    assert_eq!(qualified("localhost/app"), "localhost/app");
    assert_eq!(qualified("registry:5000/app"), "registry:5000/app");
}
