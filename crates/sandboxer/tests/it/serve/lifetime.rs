//! A server's beginning and end: one for a state directory, another that takes over, an end that lets work finish, clients that go away, and
//! sandboxes that outlive it.

use std::io::{Read, Write};
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use crate::common::server::{self, Answer, Client, Server, until, wanted, with};
use crate::common::user::overlay_users;
use crate::common::{World, remains};

/// A server with a sandbox `try`.
fn started() -> (World, Server, Client) {
    let world = World::new();
    let server = Server::start(&world);
    let client = server.local();
    client.made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    (world, server, client)
}

#[test]
fn a_second_one_refuses_and_names_the_first() {
    let (world, mut server, client) = started();
    let ran = world.run(&["serve"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains(&format!("(process {})", server.pid())), "{}", ran.stderr);
    assert!(ran.stderr.contains("--standby"), "{}", ran.stderr);
    client.get("/v1/sandboxes/try").ok(200);
    assert!(server.is_there());
}

#[test]
fn one_that_stands_by_takes_over() {
    let (world, first, client) = started();
    let mut second = Server::begin(world.command(&["serve", "--standby"]), &world);
    client.get("/v1/sandboxes/try").ok(200);
    assert!(second.is_there() && second.said("listening").is_empty());
    first.kill();
    second.wait_until_it_listens();
    assert_eq!(client.get("/v1/sandboxes/try").ok(200)["name"], "try");
    let ran = world.run(&["serve"]);
    assert!(ran.stderr.contains(&format!("(process {})", second.pid())), "{}", ran.stderr);
    // One that waits can be told not to.
    let mut third = Server::begin(world.command(&["serve", "--standby"]), &world);
    third.signal(Signal::INT);
    assert!(!third.ended().success());
    assert!(second.stop().success());
}

/// Begins a command whose answer nobody reads yet, and waits until it runs.
fn begun(client: &Client, sandbox: &str, script: &str, sign: &Path) -> Box<dyn server::Wire> {
    let body = json!({"command": ["sh", "-c", script]}).to_string();
    let length = body.len().to_string();
    let headers = [("Content-Type", "application/json"), ("Content-Length", length.as_str())];
    let head = client.head("POST", &format!("/v1/sandboxes/{sandbox}/exec"), &headers);
    let mut wire = client.connect().unwrap();
    wire.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    until("the command runs", || sign.exists());
    wire
}

#[test]
fn a_stop_lets_commands_finish_and_ends_streams() {
    let (world, mut server, client) = started();
    let inside = world.inside("try");
    let mut follower = client.follow("/v1/events", &[]);
    let script = "touch running; while [ ! -e go ]; do sleep 0.05; done; echo finished";
    let mut wire = begun(&client, "try", script, &inside.join("running"));
    server.signal(Signal::TERM);
    until("it is about to end", || !server.said("stopping").is_empty());
    // The stream ends, so that its client can go elsewhere; the command goes on.
    while follower.next().is_some() {}
    assert!(client.try_send("GET", "/health", &[], b"").is_none(), "no new work");
    assert!(server.is_there());
    std::fs::write(inside.join("go"), "").unwrap();
    let mut answer = Vec::new();
    wire.read_to_end(&mut answer).unwrap();
    let lines = Answer::parse(&answer).unwrap().lines();
    assert_eq!(lines[0]["stdout"], "finished\n", "{lines:?}");
    assert_eq!(lines.last().unwrap()["exit_code"], 0);
    assert!(server.ended().success());
    assert_eq!(server.said("stopped")[0]["message"], "all work is finished");
}

/// Processes whose command line has these words.
fn processes_with(words: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    ids.filter(|pid| String::from_utf8_lossy(&line(*pid)).contains(words)).count()
}

#[test]
fn a_command_that_does_not_finish_in_time_is_ended_with_the_server() {
    let world = World::new();
    let mut server = Server::start_with(&world, &["--grace", "1s"]);
    let client = server.local();
    client.made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    let inside = world.inside("try");
    // The name of the world makes the command one that no other test has.
    let mark = world.path("mark").display().to_string();
    let script = format!("touch running; while :; do sleep 1; done # {mark}");
    let mut wire = begun(&client, "try", &script, &inside.join("running"));
    assert!(processes_with(&mark) > 0);
    server.signal(Signal::TERM);
    assert!(server.ended().success());
    until("the command is gone", || processes_with(&mark) == 0);
    let mut answer = Vec::new();
    let _ = wire.read_to_end(&mut answer);
    assert_eq!(server.said("stopped")[0]["message"], "some work is left to recovery");
    // The state is one that the next server works with.
    let server = Server::start(&world);
    assert_eq!(server.local().shell("try", "echo fine").1, "fine\n");
}

#[test]
fn a_client_that_goes_away_ends_its_command() {
    let (world, _server, client) = started();
    let inside = world.inside("try");
    let mark = world.path("mark").display().to_string();
    for script in [
        "while :; do sleep 1; done",
        "while :; do echo more; done",
        "trap '' TERM; while :; do sleep 1; done",
    ] {
        let sign = inside.join("running");
        let wire = begun(&client, "try", &format!("touch running; {script} # {mark}"), &sign);
        assert!(processes_with(&mark) > 0, "{script}");
        drop(wire);
        until("the command is gone", || processes_with(&mark) == 0);
        std::fs::remove_file(sign).unwrap();
    }
    until("none is counted", || client.get("/metrics").text().contains("\nsandboxer_commands_running 0\n"));
    assert_eq!(client.shell("try", "echo fine").1, "fine\n");
}

#[test]
fn overlays_outlive_their_server() {
    for user in overlay_users() {
        let world = &user.world;
        let serve = || {
            let mut command = user.sandbox();
            command.arg("serve");
            let mut server = Server::begin(command, world);
            server.wait_until_it_listens();
            server
        };
        let server = serve();
        let made = server.local().made(&with(wanted("web", &world.project()), json!({"name": "try"})));
        assert_eq!(made["strategy"], "overlay");
        server.local().put("/v1/sandboxes/try/files/new", b"kept").ok(201);
        let root = world.path("").canonicalize().unwrap();
        let held = (remains::keepers(&root), remains::mounts(&root));
        assert!(!held.0.is_empty() || !held.1.is_empty());
        server.kill();
        assert_eq!((remains::keepers(&root), remains::mounts(&root)), held, "they are not the server's");
        let server = serve();
        let client = server.local();
        assert_eq!(client.get("/v1/sandboxes/try/files/new").text(), "kept");
        let (code, said) = client.shell("try", "cat new && echo more > other");
        // A measured program of another user says that it cannot write its measurements.
        assert!(code == 0 && said.starts_with("kept"), "{code} {said}");
        assert!(server.stop().success());
        assert_eq!((remains::keepers(&root), remains::mounts(&root)), held);
        let server = serve();
        let client = server.local();
        assert_eq!(client.get("/v1/sandboxes/try/diff").ok(200)["summary"]["created"], 2);
        client.post("/v1/sandboxes/try/commit", &json!({})).ok(200);
        assert_eq!(world.text("project/new"), "kept");
        client.delete("/v1/sandboxes/try").ok(200);
        until("nothing is mounted", || remains::mounts(&root).is_empty());
    }
}
