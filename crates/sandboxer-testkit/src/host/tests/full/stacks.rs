//! Stacks of services, with the programs that users start them with.

use super::super::*;

pub(super) const STACK: &str = r#"
version: "3.8"
services:
  web:
    image: busybox:test
    command: [httpd, -f, -p, "80", -h, /bin]
    networks: [inside]
    volumes: ["data:/data"]
    healthcheck: {test: [CMD, wget, -q, -O, /dev/null, "http://127.0.0.1/sh"], interval: 1s, retries: 20}
  app:
    image: busybox:test
    command: [sleep, infinity]
    init: true
    depends_on:
      web: {condition: service_healthy}
    dns: [192.0.2.1]
    networks: [inside]
networks:
  inside:
    internal: true
    driver_opts: {com.docker.network.bridge.name: sbxstack}
volumes:
  data: {}
"#;

pub(super) fn up(host: &RemoteHost) {
    told(&by_ssh(host, "docker-compose -p stack -f - up -d", STACK));
}

#[test]
fn a_stack_comes_up_and_goes_down() {
    let host = host!(RemoteHost::start());
    up(&host);
    // With a time limit this wget crashes on names.
    host.run(&["exec", "stack_app_1", "wget", "-q", "-O", "/dev/null", "http://web/sh"]);
    let found = host.inventory("stack");
    let kinds: Vec<&str> = found.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["container", "container", "network", "volume"], "{found:?}");
    assert!(host.inventory("another").is_empty());
    told(&by_ssh(&host, "docker-compose -p stack -f - down -t 0 -v", STACK));
    assert!(host.inventory("").is_empty(), "{:?}", host.inventory(""));
}

#[test]
fn what_is_left_is_found() {
    let host = host!(RemoteHost::start());
    host.run(&["tag", IMAGE, "mine:1"]);
    host.run(&["volume", "create", "--label", "sandboxer.id=sb1", "other"]);
    told(&by_ssh(&host, "mkdir -p .sandboxer/word/sb1/deep; ip link add sbxlost type bridge", ""));
    let found = host.inventory("sb1");
    assert!(found[0].starts_with("directory") && found[0].ends_with(".sandboxer/word/sb1"), "{found:?}");
    assert_eq!(found[1..], ["volume other sandboxer.id=sb1", "bridge sbxlost"]);
    assert!(
        host.inventory("mine:1")[0].starts_with("image [busybox:test mine:1]"),
        "{:?}",
        host.inventory("")
    );
}
