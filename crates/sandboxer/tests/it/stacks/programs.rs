//! The same stack by each program that people have: `docker compose`, and `docker-compose` before it.

use std::process::Command;

use sandboxer_testkit::host::{RemoteHost, compose_plugin};
use serde_json::json;

use crate::common::pty::Terminal;
use crate::common::stack::{self, Yard, create, diff, write_host};
use crate::common::{SANDBOX, World};

/// What programs differ in: builds, the order of starts, healthchecks, volumes, services that end, published ports, secrets.
const SHOP: &str = "
services:
  web:
    build: {context: ../image, args: {GREETING: hello}}
    command: httpd -f -p 8080 -h /shop
    init: true
    working_dir: /shop
    environment: {PRICE: '$$5'}
    secrets: [key]
    volumes: ['..:/shop', 'goods:/goods']
    ports: ['8080']
    depends_on: {store: {condition: service_healthy}, seed: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1:8080/hello.txt'], interval: 1s, retries: 30}
  store:
    image: 'busybox:test'
    command: [sleep, infinity]
    init: true
    deploy: {replicas: 2}
    healthcheck: {test: 'test -d /proc/1', interval: 1s, retries: 30}
  seed: {image: 'busybox:test', command: echo once, volumes: ['goods:/goods']}
volumes: {goods: {}}
secrets: {key: {file: ../key}}
";

fn host() -> Option<&'static RemoteHost> {
    let host = compose_plugin().and_then(|_| RemoteHost::shared());
    host.map_err(|reason| sandboxer_testkit::skip(&reason)).ok()
}

/// Everything that is asked of such a program, from the first look at its host to an empty inventory.
fn has_a_whole_life(command: &str, named: Option<&str>) {
    let Some(host) = host() else { return };
    let yard = Yard { world: stack::world(host, SHOP), host };
    let world = &yard.world;
    let ssh = json!({"ssh": {"config": host.ssh_config(), "compose": named}});
    write_host(world, "h1", host.name(), host.ssh_config(), &ssh);
    world.file("project/key", "secret\n");
    let image = "FROM busybox:test\nARG GREETING\nRUN mkdir /goods; echo $GREETING > /goods/greeting\n";
    world.file("project/image/Dockerfile", image);
    let checked = world.ok(&["hosts", "check", "h1"]);
    assert!(checked.contains(&format!("by `{command}`")), "{checked}");

    let made = yard.create();
    assert_eq!(made["state"], "ready");
    assert_eq!(
        yard.inside("web", "cat /goods/greeting /run/secrets/key; echo $PRICE"),
        "hello\nsecret\n$5\n"
    );
    assert_eq!(yard.inside("store", "wget -q -O - http://web:8080/hello.txt"), "hello\nworld\n");
    assert!(world.ok(&["logs", "e2e", "seed"]).contains("once"));
    yard.inside("web", "echo more >> hello.txt; echo kept > /goods/new; rm /goods/greeting");
    assert_eq!(diff(world), ["M hello.txt"]);
    world.ok(&["checkpoint", "e2e", "one"]);
    yard.inside("web", "echo worse > hello.txt; rm /goods/new");
    world.ok(&["recreate", "e2e", "--from", "one"]);
    assert_eq!(yard.inside("web", "tail -n 1 hello.txt; cat /goods/*"), "more\nkept\n");
    world.ok(&["commit", "e2e"]);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\nmore\n");
    yard.destroy();
}

#[test]
fn the_plugin_of_docker_makes_stacks() {
    has_a_whole_life("docker compose", None);
}

#[test]
fn the_program_before_it_makes_the_same() {
    has_a_whole_life("docker-compose", Some("docker-compose"));
}

/// One service is waited for by the program, because another depends on it, and then one by us.
const SLOW: &str = "
services:
  base: {image: 'busybox:test', command: sh -c 'sleep 2; touch /ok; sleep infinity', init: true, healthcheck: {test: 'test -e /ok', interval: 1s, retries: 60}}
  next: {image: 'busybox:test', command: sh -c 'sleep 3; touch /ok; sleep infinity', init: true, healthcheck: {test: 'test -e /ok', interval: 1s, retries: 60}, depends_on: {base: {condition: service_healthy}}}
";

fn on_a_terminal(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("setsid");
    world.furnish(&mut command);
    command.arg("--ctty").arg(SANDBOX).args(arguments).env("TERM", "xterm");
    let terminal = Terminal::over(command);
    terminal.resize(24, 120);
    terminal.finish()
}

/// Whoever waits at a terminal sees what for, by either program.
#[test]
fn what_is_waited_for_is_shown_on_a_terminal() {
    let Some(host) = host() else { return };
    for (compose, says) in [("docker compose", "base-1"), ("docker-compose", "base_1")] {
        let yard = Yard { world: stack::world(host, SLOW), host };
        let ssh = json!({"ssh": {"config": host.ssh_config(), "compose": compose}});
        write_host(&yard.world, "h1", host.name(), host.ssh_config(), &ssh);
        let (code, screen) = on_a_terminal(&yard.world, &create("profile.stack", "h1"));
        assert_eq!(code, Some(0), "{screen}");
        let shown =
            |words: &str| screen.lines().flat_map(|line| line.split('\r')).any(|line| line.contains(words));
        assert!(shown("starting the services: "), "{compose}: {screen}");
        assert!(screen.contains(&format!(" {says} ")), "{compose}: {screen}");
        assert!(shown("waiting: next is not healthy yet"), "{compose}: {screen}");
        assert!(!screen.contains("sandboxer-sbx_"), "nobody needs the project's name: {screen}");
        yard.destroy();
    }
}
