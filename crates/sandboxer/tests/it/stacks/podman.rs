//! The lifecycle of a stack on a host with podman: `profile.compose-e2e` unmodified, as root and rootless.

use sandboxer_testkit::host::RemoteHost;
use serde_json::{Value, json};

use crate::common::stack::{self, assert_network_is_denied, diff, nothing_here, nothing_there, write_host};
use crate::common::{Ran, World};
use crate::stacks::smoke_script::make_smoke_remote;

/// Two networks, a dependency on health, a volume and an image that is built.
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
    command: sh -c 'echo opened; echo trouble >&2; touch /tmp/open; exec sleep infinity'
    init: true
    volumes: ['goods:/goods']
    networks: {back: {aliases: [warehouse]}}
    healthcheck: {test: 'test -e /tmp/open', interval: 1s}
  seed: {image: 'busybox:test', command: sh -c 'echo once > /log/log', volumes: ['log:/log'], networks: [front]}
networks: {front: {}, back: {}}
volumes: {goods: {}, log: {}}
";
const STORE: &str = "FROM busybox:test\nRUN mkdir -p /goods /tmp; cd /goods; touch old new; chown 7:8 /goods; chmod 750 /goods\n";

struct Shop<'a> {
    world: World,
    host: &'a RemoteHost,
}

impl<'a> Shop<'a> {
    fn new(host: &'a RemoteHost, name: &str) -> Self {
        let world = stack::world(host, SHOP);
        write_host(&world, "h1", name, host.ssh_config(), &json!({}));
        world.file("project/image/Dockerfile", STORE);
        Self { world, host }
    }

    /// `compose` is what `SANDBOXER_COMPOSE_CMD` says: both words for it mean podman.
    fn create(&self, sandbox: &str, compose: &str) -> Value {
        let words = [
            "create",
            "--profile",
            "profile.compose-e2e",
            "--input",
            "repo=.",
            "--host",
            "h1",
            "--name",
            sandbox,
            "--json",
        ];
        let ran = Ran::of(self.world.command(&words).env("SANDBOXER_COMPOSE_CMD", compose).output().unwrap());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    fn inside(&self, service: &str, script: &str) -> String {
        self.world.ok(&["exec", "e2e", "--service", service, "--", "sh", "-c", script])
    }

    fn reaches_services_by_every_name(&self) {
        assert_eq!(self.inside("store", "wget -q -O - http://web:8080/hello.txt"), "hello\nworld\n");
        assert_eq!(self.inside("web", "nc -z -w 2 warehouse 1; grep -c warehouse /etc/hosts"), "1\n");
    }

    fn keeps_volumes(&self) {
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
        assert!(all.contains("store_1 | opened") && all.contains("store_1 | trouble"), "{all}");
        assert_eq!(self.world.ok(&["logs", "e2e", "store", "--tail", "1"]).matches(" | ").count(), 1);
    }

    fn destroy(&self, sandbox: &str) {
        self.world.ok(&["destroy", sandbox, "--discard"]);
    }
}

/// Podman answers a question for two labels with everything that has one of them.
fn another_is_destroyed(shop: &Shop) {
    shop.inside("store", "echo mine > /goods/mine");
    shop.create("other", "podman-compose");
    shop.destroy("other");
    assert_eq!(shop.inside("store", "cat /goods/mine; rm /goods/mine"), "mine\n");
}

/// What podman cannot do on a host is said by `hosts check` and noted at create. `docs/compose.md` has the same table.
fn limits_and_pauses(shop: &Shop, made: &Value, rootless: bool) {
    let checked = shop.world.run(&["hosts", "check", "h1"]);
    assert_eq!(checked.code, 0, "{}", checked.stdout);
    let said =
        |words: &str| checked.stdout.contains(words) && made["environment"].to_string().contains(words);
    let store = "label=com.docker.compose.service=store";
    let id = shop.host.run(&["ps", "--quiet", "--filter", store]);
    let limit = shop.host.run(&["inspect", "--format", "{{.HostConfig.Memory}}", &id]);
    let is_limited = limit == (64 << 20).to_string();
    assert_ne!(
        is_limited,
        said("memory, processors and processes are not limited"),
        "{limit}: {}",
        checked.stdout
    );
    assert!(is_limited || rootless, "{limit}");
    let info = shop.host.run(&["info", "--format", "{{.Host.CgroupsVersion}}"]);
    assert_eq!(said("paused by signals"), rootless && info == "v1", "{info}: {}", checked.stdout);
}

fn lifecycle(host: &RemoteHost, name: &str) {
    let shop = Shop::new(host, name);
    let made = shop.create("e2e", "");
    assert_eq!(made["state"], "ready", "{made:#}");
    limits_and_pauses(&shop, &made, name != host.name());
    shop.reaches_services_by_every_name();
    assert_network_is_denied(&shop.world, host, &["web", "store"]);
    shop.logs();
    shop.changes_are_compared_and_rolled_back();
    another_is_destroyed(&shop);
    shop.keeps_volumes();
    shop.destroy("e2e");
    nothing_there(&shop.world, shop.host);
    nothing_here(&shop.world);
    let ran = make_smoke_remote(&shop.world, "h1", "podman compose");
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    nothing_there(&shop.world, shop.host);
}

#[test]
fn a_stack_runs_on_podman_as_root() {
    let Some(host) = stack::own(RemoteHost::start_podman()) else { return };
    lifecycle(&host, host.name());
}

#[test]
fn a_stack_runs_on_podman_without_root() {
    let Some(host) = stack::own(RemoteHost::start_rootless_podman()) else { return };
    lifecycle(&host, &host.guest_name());
}
