//! Many at once: one key from a thousand clients, followers over a restart, and a server that is killed while everybody works.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};

use serde_json::Value;

use crate::common::server::{Client, Server, until, wanted};
use crate::common::{World, remains};

const CROWD: usize = 1000;

#[test]
fn a_thousand_requests_with_one_key_are_one_sandbox() {
    let world = World::new();
    let server = Server::start(&world);
    let (client, request) = (server.local(), wanted("web", &world.project()));
    let (gate, answers) = (Barrier::new(CROWD), Mutex::new(Vec::new()));
    let (gate, answers_of, request) = (&gate, &answers, &request);
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            let client = client.clone();
            let ask = move || {
                gate.wait();
                let answer = client.post_with("/v1/sandboxes", &[("Idempotency-Key", "one")], request);
                answers_of.lock().unwrap().push(answer);
            };
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, ask).unwrap();
        }
    });
    let answers = answers.into_inner().unwrap();
    assert_eq!(answers.len(), CROWD);
    let mut by_status: BTreeMap<u16, usize> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for answer in &answers {
        *by_status.entry(answer.status).or_default() += 1;
        assert!(matches!(answer.status, 200..=202), "{} {}", answer.status, answer.text());
        ids.insert(answer.json()["sandbox_id"].as_str().unwrap().to_owned());
        assert_eq!(answer.json()["created"], answer.status == 201);
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    // Whoever made it may have been answered before it was made.
    let made = by_status.get(&201).copied().unwrap_or(0);
    assert!(made == 1 || made == 0 && by_status.contains_key(&202), "{by_status:?}");
    let listed = client.get("/v1/sandboxes?all=true").ok(200);
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1);
    let requested = client.get("/v1/events?limit=1000").ok(200);
    let requested = requested["events"].as_array().unwrap().iter().filter(|e| e["kind"] == "requested");
    assert_eq!(requested.count(), 1);
}

/// Makes and ends a sandbox; gives its id.
fn one_life(client: &Client, request: &Value) -> String {
    let made = client.made(request);
    let id = made["sandbox_id"].as_str().unwrap().to_owned();
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).ok(200)["state"], "destroyed");
    id
}

#[test]
fn followers_miss_nothing_and_hear_nothing_twice_over_a_restart() {
    let world = World::new();
    let request = wanted("web", &world.project());
    let mut heard: Vec<(u64, Value)> = Vec::new();
    let mut last = String::from("0");
    for round in 0..3 {
        let server = Server::start(&world);
        let client = server.local();
        let mut follower = client.follow("/v1/events", &[("Last-Event-ID", &last)]);
        let id = one_life(&client, &request);
        loop {
            let (seq, kind, event) = follower.next().unwrap();
            heard.push((seq, event.clone()));
            last = seq.to_string();
            // The last round is heard to its end; the others are left in the middle of what happens.
            let enough = if round == 2 { "destroyed" } else { "ready" };
            if event["sandbox_id"] == id && kind == enough {
                break;
            }
        }
        match round {
            0 => server.kill(),
            _ => assert!(server.stop().success()),
        }
        // Something happens while there is no server.
        world.ok(&["create", "--name", &format!("between-{round}"), "-s", "filesystem_copy"]);
        world.ok(&["destroy", &format!("between-{round}")]);
    }
    let server = Server::start(&world);
    let all = server.local().get("/v1/events?limit=1000").ok(200);
    let all: Vec<(u64, Value)> =
        all["events"].as_array().unwrap().iter().map(|e| (e["seq"].as_u64().unwrap(), e.clone())).collect();
    let until_last: Vec<_> = all.into_iter().take_while(|(seq, _)| *seq <= heard.last().unwrap().0).collect();
    assert!(until_last.len() > 12);
    assert_eq!(heard, until_last);
}

#[test]
fn whoever_begins_to_follow_misses_nothing_from_then_on() {
    let world = World::new();
    let server = Server::start(&world);
    let (client, request) = (server.local(), wanted("web", &world.project()));
    // Each one is the first follower there is, and something happens at once.
    for _ in 0..10 {
        let mut follower = client.follow("/v1/events", &[]);
        let made = client.made(&request);
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|kind| kind != "ready") {
            let (_, kind, event) = follower.next().unwrap();
            assert_eq!(event["sandbox_id"], made["sandbox_id"]);
            kinds.push(kind);
        }
        assert_eq!(kinds, ["requested", "provisioning", "ready"]);
        drop(follower);
        until("nobody follows", || client.get("/metrics").text().contains("\nsandboxer_event_followers 0\n"));
    }
}

/// What was acknowledged to a client before the server was killed.
#[derive(Default)]
struct Acknowledged {
    live: BTreeSet<String>,
    destroyed: BTreeSet<String>,
    committed: BTreeSet<(String, String)>,
    unclear: BTreeSet<String>,
}

/// Makes sandboxes, commits in them and ends some, until the server is gone.
fn work(client: &Client, request: &Value, number: usize, told: &Mutex<Acknowledged>, stop: &AtomicBool) {
    let json = [("Content-Type", "application/json")];
    let bytes = [("Content-Type", "application/octet-stream")];
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let body = request.to_string();
        let Some(made) = client.try_send("POST", "/v1/sandboxes", &json, body.as_bytes()) else { return };
        assert_eq!(made.status, 201, "{}", made.text());
        let id = made.json()["sandbox_id"].as_str().unwrap().to_owned();
        let at = |rest: &str| format!("/v1/sandboxes/{id}{rest}");
        told.lock().unwrap().live.insert(id.clone());
        let (file, content) = (format!("by-{number}-{round}"), format!("content {number} {round}\n"));
        let written = client.try_send("PUT", &at(&format!("/files/{file}")), &bytes, content.as_bytes());
        if written.is_none_or(|answer| answer.status != 201) {
            return;
        }
        match client.try_send("POST", &at("/commit"), &json, b"{}") {
            Some(answer) if answer.status == 200 => {
                told.lock().unwrap().committed.insert((file, content));
            }
            // Somebody else commits to the same original: busy is an answer.
            Some(answer) => assert!(matches!(answer.status, 409 | 503), "{}", answer.text()),
            None => return,
        }
        if round % 2 == 0 {
            told.lock().unwrap().live.remove(&id);
            told.lock().unwrap().unclear.insert(id.clone());
            let Some(ended) = client.try_send("DELETE", &at("?discard=true"), &[], b"") else { return };
            assert_eq!(ended.status, 200, "{}", ended.text());
            told.lock().unwrap().unclear.remove(&id);
            told.lock().unwrap().destroyed.insert(id);
        }
    }
}

#[test]
fn a_server_that_is_killed_at_work_loses_nothing_that_it_has_acknowledged() {
    let world = World::new();
    let told = Mutex::new(Acknowledged::default());
    for round in 0..3_usize {
        let server = Server::start(&world);
        let stop = AtomicBool::new(false);
        let request = wanted("web", &world.project());
        let before = told.lock().unwrap().committed.len();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (client, told, stop, request) = (server.local(), &told, &stop, &request);
                scope.spawn(move || work(&client, request, round * 10 + number, told, stop));
            }
            until("some work is done", || told.lock().unwrap().committed.len() >= before + 5);
            server.signal(rustix::process::Signal::KILL);
            stop.store(true, Ordering::Relaxed);
        });
    }
    let server = Server::start(&world);
    let client = server.local();
    let told = told.into_inner().unwrap();
    assert!(!told.live.is_empty() && !told.destroyed.is_empty() && told.committed.len() >= 15);
    for id in &told.live {
        assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).ok(200)["sandbox_id"], *id);
        // It is not only on record.
        assert_eq!(client.get(&format!("/v1/sandboxes/{id}/files/hello.txt")).text(), "hello\nworld\n");
    }
    for id in &told.destroyed {
        assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).ok(200)["state"], "destroyed");
    }
    for (file, content) in &told.committed {
        assert_eq!(world.text(&format!("project/{file}")), *content);
    }
    // Whatever else is in the original is whole.
    for entry in std::fs::read_dir(world.project()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(rest) = name.strip_prefix("by-") {
            let expected = format!("content {}\n", rest.replace('-', " "));
            assert_eq!(world.text(&format!("project/{name}")), expected);
        } else {
            assert!(
                ["hello.txt", "src", "run.sh"].contains(&name.as_str()),
                "{name} was left in the original"
            );
        }
    }
    // Nothing is half made: what is not ready is put in order, without anybody asking.
    until("everything is settled", || {
        let all = client.get("/v1/sandboxes?limit=1000").ok(200);
        let states = all["sandboxes"].as_array().unwrap().iter().map(|s| s["state"].as_str().unwrap());
        states.collect::<BTreeSet<_>>().is_subset(&BTreeSet::from(["ready", "active", "parked"]))
    });
    let all = client.get("/v1/sandboxes?limit=1000").ok(200);
    for sandbox in all["sandboxes"].as_array().unwrap() {
        let place = format!("/v1/sandboxes/{}?discard=true", sandbox["sandbox_id"].as_str().unwrap());
        client.delete(&place).ok(200);
    }
    drop(client);
    assert!(server.stop().success());
    world.ok(&["gc"]);
    let root = world.path("").canonicalize().unwrap();
    assert_eq!(remains::mounts(&root), Vec::<std::path::PathBuf>::new());
    assert_eq!(remains::keepers(&root), Vec::<i32>::new());
    let left = world.path("home/scratch");
    let left: Vec<_> = std::fs::read_dir(left).into_iter().flatten().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
}
