//! The services of a stack: what reaches them, when they are ready, and what they do not reach.

use serde_json::json;

use crate::common::Ran;
use crate::common::stack::{ONE, Yard, assert_network_is_denied, create, write_profile, write_stack};

const TWO: &str = "
services:
  web: {image: 'busybox:test', command: sleep infinity, init: true, working_dir: /shop, volumes: ['..:/shop']}
  store: {image: 'busybox:test', command: sleep infinity, init: true}
";

/// Creates what is not to be had; what was said, and nothing is left.
fn refused(yard: &Yard, profile: &str) -> String {
    let ran = yard.world.run(&create(profile, "h1"));
    assert_ne!(ran.code, 0, "{}", ran.stdout);
    yard.world.run(&["destroy", "e2e", "--discard"]);
    yard.is_clean();
    ran.stderr
}

#[test]
fn arguments_and_input_reach_a_service_as_they_are() {
    let Some(yard) = Yard::new(TWO) else { return };
    yard.create();
    let odd: Vec<&[u8]> = vec![
        b"a b",
        b"",
        b"'",
        b"\"",
        b"$(id)",
        b"`id`",
        b"$HOME",
        b"a\nb",
        b"-n",
        b"--help",
        b"--",
        b"\\",
        b"*",
        b"~",
        b";exit 9",
        b"\xc3\xa4",
        b"\t",
        b"!x",
        b"#",
        b"{a,b}",
        b"%s",
    ];
    let script: &[u8] = b"for word do printf '%s\\0' \"$word\"; done";
    let command = [&[b"sh".as_slice(), b"-c", script, b"sh"][..], &odd].concat();
    let expected: Vec<u8> = odd.iter().flat_map(|word| [word, &b"\0"[..]].concat()).collect();
    assert_eq!(yard.exec("store", &command).raw, expected);
    let other = yard.exec("store", &[b"echo", b"a\xffb"]);
    assert!(other.code == 2 || other.code == 125, "{}", other.code);
    assert!(other.stderr.contains("is not UTF-8"), "{}", other.stderr);
    let input: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let echoed = yard.world.run_with_input(&["exec", "e2e", "--service", "store", "--", "cat"], &input);
    assert!(echoed.raw == input, "{} bytes came back: {}", echoed.raw.len(), echoed.stderr);
    for code in [0, 1, 7, 125, 126, 255] {
        assert_eq!(yard.try_inside("store", &format!("exit {code}")).code, code);
    }
    // Which of the two, is the engine's.
    assert!([126, 127].contains(&yard.exec("store", &[b"no-such-program"]).code));
    let both = yard.try_inside("store", "echo out; echo err >&2");
    assert_eq!((both.stdout.as_str(), both.stderr.trim()), ("out\n", "err"));
    yard.destroy();
}

#[test]
fn commands_begin_while_others_look() {
    let Some(yard) = Yard::new(ONE) else { return };
    yard.create();
    let again = |words: &[&str]| {
        for _ in 0..6 {
            let ran = yard.world.run(words);
            assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| again(&["exec", "e2e", "--", "true"]));
        }
        scope.spawn(|| again(&["diff", "e2e"]));
    });
    yard.destroy();
}

#[test]
fn the_service_that_is_meant_is_found_or_asked_for() {
    let Some(yard) = Yard::new(TWO) else { return };
    let world = &yard.world;
    yard.create();
    // The only one that has the repository.
    assert_eq!(world.ok(&["exec", "e2e", "--", "cat", "hello.txt"]), "hello\nworld\n");
    assert_eq!(world.ok(&["exec", "e2e", "-w", "src", "--", "ls"]), "main.rs\n");
    let unknown = world.json_error(&["exec", "e2e", "--service", "stroe", "--", "true"], 4);
    assert!(unknown.to_string().contains("store"), "{unknown}");
    let nowhere = world.json_error(&["exec", "e2e", "--service", "store", "-w", "src", "--", "true"], 2);
    assert!(nowhere["message"].as_str().unwrap().contains("does not have the workspace"), "{nowhere}");
    yard.destroy();
    write_profile(world, "stack", &json!({"options": {"service": "store"}}));
    yard.create();
    assert_eq!(world.run(&["exec", "e2e", "--", "ls", "/shop"]).code, 1);
    yard.destroy();
    write_profile(world, "stack", &json!({"options": {"service": "stock"}}));
    assert!(refused(&yard, "profile.stack").contains("no service \"stock\""));
    write_profile(world, "stack", &json!({}));
    write_stack(
        world,
        "services: {a: {image: 'busybox:test', command: sleep 999, init: true}, b: {image: 'busybox:test', command: sleep 999, init: true}}",
    );
    yard.create();
    let which = world.json_error(&["exec", "e2e", "--", "true"], 2);
    assert!(which.to_string().contains("--service a or b"), "{which}");
    yard.destroy();
}

#[test]
fn ports_are_published_on_the_loopback_of_the_host_with_its_network() {
    let Some(yard) = Yard::new(
        "services:\n  web: {image: 'busybox:test', command: httpd -f -p 8080 -h /shop, init: true, volumes: ['..:/shop'], ports: ['0.0.0.0:80:8080', '53:5353/udp']}\n",
    ) else {
        return;
    };
    let world = &yard.world;
    write_profile(world, "stack", &json!({"network": "host"}));
    yard.create();
    let endpoint = world.json(&["get", "e2e"])["environment"]["endpoints"][0].clone();
    assert_eq!((&endpoint["name"], &endpoint["host"]), (&json!("web:8080/tcp"), &json!("127.0.0.1")));
    let port = endpoint["port"].as_u64().unwrap().to_string();
    let at = format!("http://127.0.0.1:{port}/hello.txt");
    assert_eq!(yard.host.there("busybox", &["wget", "-q", "-O", "-", &at]), "hello\nworld");
    // No tunnel is said to lead where none can.
    let udp = world.json_error(&["forward", "e2e", "5353"], 2);
    assert!(udp["message"].as_str().unwrap().contains("web:5353 speaks UDP"), "{udp}");
    let listening = yard.host.there("sh", &["-c", "ss -ltn | grep -c '0.0.0.0:80 ' || true"]);
    assert_eq!(listening, "0");
    yard.destroy();
    write_stack(world, ONE);
    yard.create();
    assert_eq!(world.json(&["get", "e2e"])["environment"]["endpoints"], json!([]));
    assert!(
        world.json_error(&["forward", "e2e"], 4)["message"].as_str().unwrap().contains("publishes no port")
    );
    yard.destroy();
}

#[test]
fn who_is_not_healthy_in_time_is_named() {
    let sick = "services:\n  db: {image: 'busybox:test', command: sleep 999, init: true, healthcheck: {test: [CMD, 'false'], interval: 1s, retries: 50}}\n";
    let Some(yard) = Yard::new(sick) else { return };
    write_profile(&yard.world, "stack", &json!({"options": {"ready_timeout_seconds": 2}}));
    let said = refused(&yard, "profile.stack");
    assert!(said.contains("not in 2 s: db is not healthy yet"), "{said}");
    // One that becomes healthy is waited for.
    write_stack(
        &yard.world,
        "services:\n  db: {image: 'busybox:test', command: sh -c 'sleep 2; touch /ok; exec sleep 999', init: true, healthcheck: {test: [CMD, test, -e, /ok], interval: 1s, retries: 50}}\n",
    );
    write_profile(&yard.world, "stack", &json!({"options": {"ready_timeout_seconds": 60}}));
    yard.create();
    assert_eq!(yard.try_inside("db", "test -e /ok").code, 0);
    yard.destroy();
}

#[test]
fn who_has_ended_is_told_by_last_words_unless_it_was_to_end() {
    let broken = "services:\n  db: {image: 'busybox:test', command: [sh, -c, \"echo starting; printf 'out of \\\\033[31mapples' >&2; exit 3\"]}\n  web: {image: 'busybox:test', command: sleep 999, init: true}\n";
    let Some(yard) = Yard::new(broken) else { return };
    let said = refused(&yard, "profile.stack");
    assert!(said.contains("db has ended with exit code 3") && said.contains("apples"), "{said}");
    assert!(!said.contains('\x1b'), "{said:?}");
    write_stack(
        &yard.world,
        "services:\n  seed: {image: 'busybox:test', command: 'true'}\n  web: {image: 'busybox:test', command: sleep 999, init: true, depends_on: [seed]}\n",
    );
    yard.create();
    assert!(yard.inside("web", "echo here").contains("here"));
    yard.destroy();
    write_stack(&yard.world, "services:\n  seed: {image: 'busybox:test', command: 'true'}\n");
    let said = refused(&yard, "profile.stack");
    assert!(said.contains("all of them have ended"), "{said}");
}

#[test]
fn an_image_that_was_built_goes_with_its_stack() {
    let Some(yard) = Yard::with_own_host(
        "services:\n  web: {build: ../image, image: 'busybox:test', command: sleep 999, init: true}\n",
    ) else {
        return;
    };
    let (world, before) = (&yard.world, yard.host.run(&["images", "--quiet", "--no-trunc", "busybox:test"]));
    world.file("project/image/Dockerfile", "FROM busybox:test\nCOPY word /word\nRUN echo more >> /word\n");
    world.file("project/image/word", "built\n");
    yard.create();
    assert_eq!(yard.inside("web", "cat /word"), "built\nmore\n");
    // The image of others is not replaced by it.
    assert_eq!(yard.host.run(&["images", "--quiet", "--no-trunc", "busybox:test"]), before);
    world.ok(&["recreate", "e2e"]);
    assert_eq!(yard.inside("web", "cat /word"), "built\nmore\n");
    yard.destroy();
    assert_eq!(yard.host.run(&["images", "--quiet", "--no-trunc", "busybox:test"]), before);
    // A build that fails is told, and leaves nothing.
    world.file("project/image/Dockerfile", "FROM busybox:test\nRUN echo no such luck >&2; exit 4\n");
    let said = refused(&yard, "profile.stack");
    assert!(said.contains("returned a non-zero code: 4") || said.contains("exit code: 4"), "{said}");
    assert_eq!(yard.host.run(&["ps", "--all", "--quiet"]), "", "the container of a step that failed");
}

/// What is built from may say what happens to whoever builds from it, and nobody has looked at that.
#[test]
fn a_build_from_an_image_with_instructions_of_its_own_is_refused() {
    let Some(yard) = Yard::new("services:\n  web: {build: ../image, command: sleep 999, init: true}\n")
    else {
        return;
    };
    let trap =
        "tar -cf - -T /dev/null | docker import --change 'ONBUILD ADD http://127.0.0.1:9/x /x' - trap:1";
    yard.host.there("sh", &["-c", trap]);
    yard.world.file("project/image/Dockerfile", "FROM trap:1\nCMD [\"true\"]\n");
    let said = refused(&yard, "profile.stack");
    assert!(said.contains("trap:1") && said.contains("ONBUILD") && said.contains("build-fetch"), "{said}");
    yard.host.run(&["rmi", "trap:1"]);
}

#[test]
fn the_compose_command_is_the_one_that_is_named() {
    let Some(yard) = Yard::new(ONE) else { return };
    let world = &yard.world;
    let program = "#!/bin/sh\necho \"$*\" >> /root/used\nexec docker-compose \"$@\"\n";
    let place = yard.host.home().join("mine");
    std::fs::write(&place, program).unwrap();
    yard.host.there("chmod", &["755", "/root/mine"]);
    let with = |command: &str, words: &[&str]| {
        Ran::of(world.command(words).env("SANDBOXER_COMPOSE_CMD", command).output().unwrap())
    };
    let ran = with("/root/mine", &create("profile.stack", "h1"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(std::fs::read_to_string(yard.host.home().join("used")).unwrap().contains("--detach"));
    yard.destroy();
    for command in ["/root/not-mine", "docker", "sh -c id"] {
        let ran = with(command, &create("profile.stack", "h1"));
        assert_ne!(ran.code, 0, "{command}");
        assert!(!ran.stderr.is_empty());
        world.run(&["destroy", "e2e", "--discard"]);
        yard.is_clean();
    }
    let route = with("/root/not-mine", &["route", "--profile", "profile.stack", "--host", "h1", "--json"]);
    assert!(route.stderr.contains("/root/not-mine does not work there"), "{}", route.stderr);
}

#[test]
fn a_stack_reaches_neither_its_host_nor_a_name_server() {
    let Some(yard) = Yard::with_own_host(TWO) else { return };
    yard.create();
    assert_network_is_denied(&yard.world, yard.host, &["web", "store"]);
    assert_eq!(yard.try_inside("store", "ping -c 1 -w 5 web").code, 0);
    yard.destroy();
}
