//! Every operation of the service once, by a client that looks at all of the answer: status, type, headers, document.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::World;
use crate::common::server::{Client, Server, until, wanted, with};

fn started() -> (World, Server, Client) {
    let world = World::new();
    let server = Server::start(&world);
    let client = server.local();
    (world, server, client)
}

/// A server with a sandbox `try` of the project.
fn with_sandbox() -> (World, Server, Client, Value) {
    let (world, server, client) = started();
    let made = client.made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    (world, server, client, made)
}

#[test]
fn it_tells_how_it_is_and_what_it_can() {
    let (_world, _server, client) = started();
    assert_eq!(client.get("/health").ok(200)["status"], "ok");
    let metrics = client.get("/metrics");
    assert_eq!((metrics.status, metrics.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    assert!(metrics.text().contains("route=\"/health\",status=\"200\""), "{}", metrics.text());
    let described = client.get("/openapi.json").ok(200);
    assert!(described["openapi"].as_str().unwrap().starts_with("3.1"));
    for (path, list) in
        [("/v1/profiles", "profiles"), ("/v1/extensions", "extensions"), ("/v1/hosts", "hosts")]
    {
        assert!(!client.get(path).ok(200)[list].as_array().unwrap().is_empty(), "{path}");
    }
    // HEAD is GET without the body.
    let head = client.send("HEAD", "/health", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn the_log_names_where_it_listens() {
    let (world, server, _) = started();
    let line = &server.said("listening")[0];
    let socket = format!("listening on unix:{}", world.path("home/serve.sock").display());
    assert_eq!(line["message"], socket);
    assert!(server.stop().success());
    assert!(!world.path("home/serve.sock").exists(), "the socket goes with its server");
}

#[test]
fn a_sandbox_is_made_once_for_a_key() {
    let (world, _server, client) = started();
    let request = wanted("web", &world.project());
    let key = [("Idempotency-Key", "k-1")];
    let first = client.post_with("/v1/sandboxes", &key, &request);
    let made = first.ok(201);
    let place = format!("/v1/sandboxes/{}", made["sandbox_id"].as_str().unwrap());
    assert_eq!(first.header("location"), Some(place.as_str()));
    assert_eq!((&made["created"], &made["state"]), (&json!(true), &json!("ready")));
    assert_eq!(made["consumer"], request["consumer"]);
    let again = client.post_with("/v1/sandboxes", &key, &request);
    let same = again.ok(200);
    assert_eq!(again.header("location"), Some(place.as_str()));
    assert_eq!((&same["created"], &same["sandbox_id"]), (&json!(false), &made["sandbox_id"]));
    // Without a key every request is its own, and so is another key.
    let other = client.post_with("/v1/sandboxes", &[("Idempotency-Key", "k-2")], &request).ok(201);
    let third = client.post("/v1/sandboxes", &request).ok(201);
    let ids: BTreeSet<_> =
        [&made, &other, &third].iter().map(|m| m["sandbox_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    // A key is good as long as its sandbox is there.
    client.delete(&place).ok(200);
    let anew = client.post_with("/v1/sandboxes", &key, &request).ok(201);
    assert_ne!(anew["sandbox_id"], made["sandbox_id"]);
    for odd in ["", &"k".repeat(256)] {
        client.post_with("/v1/sandboxes", &[("Idempotency-Key", odd)], &request).problem(400);
    }
}

#[test]
fn a_sandbox_can_be_made_while_nobody_waits() {
    let (world, _server, client) = started();
    let request = wanted("web", &world.project());
    let prefer = [("Prefer", "respond-async, wait=0")];
    let answer = client.post_with("/v1/sandboxes", &prefer, &request);
    // It may be through before anybody has looked.
    assert!(matches!(answer.status, 201 | 202), "{}", answer.text());
    let place = answer.header("location").unwrap().to_owned();
    until("it is ready", || client.get(&place).ok(200)["state"] == "ready");
    assert_eq!(client.get("/v1/sandboxes").ok(200)["sandboxes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_plan_over_the_same_inputs_is_the_same_sandbox() {
    let (world, _server, client) = started();
    let first = client.made(&wanted("web", &world.project()));
    let of_plan = with(wanted("web", &world.project()), json!({"plan": first["plan_id"]}));
    let again = client.post("/v1/sandboxes", &of_plan).ok(200);
    assert_eq!(again["sandbox_id"], first["sandbox_id"]);
    world.file("other/x", "x");
    let elsewhere = with(of_plan, json!({"inputs": {"repo": world.path("other")}}));
    let other = client.post("/v1/sandboxes", &elsewhere).ok(201);
    assert_eq!(other["plan_id"], first["plan_id"]);
    assert_ne!(other["sandbox_id"], first["sandbox_id"]);
    let plan = first["plan_id"].as_str().unwrap();
    let listed = client.get(&format!("/v1/sandboxes?plan={plan}")).ok(200);
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 2);
}

#[test]
fn sandboxes_are_found_and_listed() {
    let (world, _server, client, made) = with_sandbox();
    let id = made["sandbox_id"].as_str().unwrap();
    for name in [id, "try", &id[..20]] {
        assert_eq!(client.get(&format!("/v1/sandboxes/{name}")).ok(200)["sandbox_id"], id, "{name}");
    }
    let problem = client.get("/v1/sandboxes/tri").problem(404);
    assert_eq!(
        (&problem["type"], &problem["kind"]),
        (&json!("urn:sandboxer:not_found"), &json!("not_found"))
    );
    let second = client.made(&wanted("api", &world.project()));
    let page = client.get("/v1/sandboxes?limit=1").ok(200);
    assert_eq!(page["sandboxes"][0]["sandbox_id"], second["sandbox_id"], "newest first");
    let next = client.get(&format!("/v1/sandboxes?limit=1&after={}", page["next"].as_str().unwrap())).ok(200);
    assert_eq!(next["sandboxes"][0]["sandbox_id"], id);
    assert!(next.get("next").is_none(), "{next}");
    let of_api = client.get("/v1/sandboxes?project=api&state=ready").ok(200);
    assert_eq!(of_api["sandboxes"].as_array().unwrap().len(), 1);
    for odd in ["limit=0", "limit=1001", "limit=x", "state=odd", "colour=red", "all=perhaps"] {
        client.get(&format!("/v1/sandboxes?{odd}")).problem(400);
    }
    client.get("/v1/sandboxes?after=sbx_nope").problem(404);
}

#[test]
fn files_are_written_and_read_to_the_byte() {
    let (_world, _server, client, made) = with_sandbox();
    let id = made["sandbox_id"].as_str().unwrap();
    let at = |path: &str| format!("/v1/sandboxes/try/files/{path}");
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let written = client.put(&at("dir/new%20%ff.bin"), &bytes).ok(201);
    assert_eq!((&written["kind"], &written["new_size"]), (&json!("created"), &json!(300_000)));
    assert_eq!(written["sandbox_id"], id);
    let read = client.get(&at("dir/new%20%ff.bin"));
    assert_eq!((read.status, read.header("content-type")), (200, Some("application/octet-stream")));
    assert!(read.body == bytes);
    let changed = client.put(&at("hello.txt"), b"").ok(200);
    assert_eq!((&changed["kind"], &changed["old_size"]), (&json!("modified"), &json!(12)));
    assert_eq!(client.get(&at("hello.txt")).body, b"");
    for nothing in [at("nope"), "/v1/sandboxes/nope/files/hello.txt".into(), at("hello.txt?workspace=nope")] {
        assert_eq!(client.get(&nothing).problem(404)["kind"], "not_found", "{nothing}");
        let written = client.put(&nothing.replace("files/nope", "files/nope/"), b"x").status;
        assert!(matches!(written, 400 | 404), "{nothing} {written}");
    }
}

#[test]
fn a_difference_is_told_committed_taken_back_and_thrown_away() {
    let (world, _server, client, _) = with_sandbox();
    client.put("/v1/sandboxes/try/files/hello.txt", b"changed\n").ok(200);
    let diff = client.get("/v1/sandboxes/try/diff").ok(200);
    assert_eq!((&diff["summary"]["modified"], &diff["summary"]["total"]), (&json!(1), &json!(1)));
    let patch = client.get("/v1/sandboxes/try/diff?format=patch&path=hello.txt");
    assert_eq!((patch.status, patch.header("content-type")), (200, Some("text/x-diff")));
    assert!(patch.text().contains("+changed"), "{}", patch.text());
    let none = client.get("/v1/sandboxes/try/diff?path=src").ok(200);
    assert_eq!(none["summary"]["total"], 0);
    client.post("/v1/sandboxes/try/commit", &json!({"digest": "blake3:00"})).problem(403);
    let refused = client.post("/v1/sandboxes/try/commit", &json!({"if": ["paths=src/**"]}));
    refused.problem(403);
    let tried = client.post("/v1/sandboxes/try/commit", &json!({"dry_run": true})).ok(200);
    assert_eq!(tried["digest"], diff["digest"]);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n", "nothing was committed so far");
    let body = json!({"digest": diff["digest"], "message": "why"});
    let committed = client.post("/v1/sandboxes/try/commit", &body).ok(200);
    assert_eq!(world.text("project/hello.txt"), "changed\n");
    let undone = client.post("/v1/sandboxes/try/undo", &json!({})).ok(200);
    assert_eq!(undone["undone"], committed["op_id"]);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    client.post("/v1/sandboxes/try/rollback", &json!({})).ok(200);
    assert_eq!(client.get("/v1/sandboxes/try/diff").ok(200)["summary"]["total"], 0);
}

#[test]
fn a_conflict_writes_nothing() {
    let (world, _server, client, _) = with_sandbox();
    client.put("/v1/sandboxes/try/files/hello.txt", b"theirs\n").ok(200);
    world.file("project/hello.txt", "mine\n");
    let problem = client.post("/v1/sandboxes/try/commit", &json!({})).problem(409);
    assert_eq!(problem["kind"], "conflict");
    assert_eq!(world.text("project/hello.txt"), "mine\n");
}

#[test]
fn states_are_kept_and_brought_back() {
    let (_world, _server, client, made) = with_sandbox();
    let write = |text: &str| client.put("/v1/sandboxes/try/files/hello.txt", text.as_bytes()).ok(200);
    let read = || client.get("/v1/sandboxes/try/files/hello.txt").text();
    write("one");
    client.post("/v1/sandboxes/try/checkpoints", &json!({"name": "first"})).ok(201);
    let snapshot = client.post("/v1/sandboxes/try/snapshots", &json!({})).ok(201);
    assert_eq!((&snapshot["sandbox_id"], &snapshot["workspaces"]), (&made["sandbox_id"], &json!(["repo"])));
    write("two");
    client.post("/v1/sandboxes/try/checkpoints/first/restore", &json!({})).ok(200);
    assert_eq!(read(), "one");
    write("three");
    let place = format!("/v1/sandboxes/try/snapshots/{}/restore", snapshot["id"].as_str().unwrap());
    client.post(&place, &json!({})).ok(200);
    assert_eq!(read(), "one");
    assert_eq!(
        client.get("/v1/sandboxes/try/checkpoints").ok(200)["checkpoints"].as_array().unwrap().len(),
        2
    );
    let snapshots = client.get("/v1/sandboxes/try/snapshots").ok(200);
    assert!(snapshots["snapshots"].as_array().unwrap().contains(&snapshot), "{snapshots}");
    client.post("/v1/sandboxes/try/checkpoints/nope/restore", &json!({})).problem(404);
}

#[test]
fn commands_run_and_tell_how_they_ended() {
    let (_world, _server, client, _) = with_sandbox();
    let run = |body: Value| {
        let answer = client.post("/v1/sandboxes/try/exec", &body);
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"), "{}", answer.text());
        answer.lines()
    };
    let lines = run(json!({
        "command": ["sh", "-c", "cat; pwd | sed 's,.*/,,'; echo $A >&2; exit 3"],
        "stdin": "in\n", "env": {"A": "b c"}, "directory": "src",
    }));
    let all = |key: &str| lines.iter().filter_map(|line| line[key].as_str()).collect::<String>();
    assert_eq!((all("stdout"), all("stderr")), ("in\nsrc\n".to_owned(), "b c\n".to_owned()));
    assert_eq!(lines.last().unwrap()["exit_code"], 3);
    assert_eq!(run(json!({"command": ["printf", "\\377"]}))[0]["stdout_b64"], "/w==");
    let late = run(json!({"command": ["sleep", "60"], "timeout": "100ms"}));
    assert_eq!(late.last().unwrap()["exit_code"], 124);
    assert_eq!(run(json!({"command": ["no-such-program"]})).last().unwrap()["exit_code"], 127);
    for odd in [json!({}), json!({"command": []}), json!({"command": ["a\u{0}"]}), json!({"commando": 1})] {
        client.post("/v1/sandboxes/try/exec", &odd).problem(400);
    }
    client.post("/v1/sandboxes/nope/exec", &json!({"command": ["true"]})).problem(404);
}

#[test]
fn a_sandbox_gets_more_time_and_is_made_again() {
    let (_world, _server, client, made) = with_sandbox();
    let extended = client.post("/v1/sandboxes/try/extend", &json!({"ttl": "2h"})).ok(200);
    assert_eq!(extended["sandbox_id"], made["sandbox_id"]);
    assert!(extended["expires_at"].is_string(), "{extended}");
    for odd in [json!({"ttl": "soon"}), json!({}), json!({"ttl": "-1h"})] {
        client.post("/v1/sandboxes/try/extend", &odd).problem(400);
    }
    client.put("/v1/sandboxes/try/files/hello.txt", b"kept").ok(200);
    let again = client.post("/v1/sandboxes/try/recreate", &json!({})).ok(200);
    assert_eq!(again["sandbox_id"], made["sandbox_id"]);
    assert_eq!(client.get("/v1/sandboxes/try/files/hello.txt").text(), "kept", "the workspaces stay");
}

#[test]
fn an_end_parks_work_and_comes_twice() {
    let (world, _server, client, made) = with_sandbox();
    let id = made["sandbox_id"].as_str().unwrap();
    client.put("/v1/sandboxes/try/files/new", b"work").ok(201);
    let parked = client.delete("/v1/sandboxes/try").ok(200);
    assert_eq!(
        (&parked["sandbox_id"], &parked["state"], &parked["parked_changes"]),
        (&json!(id), &json!("parked"), &json!(1))
    );
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).ok(200)["state"], "parked");
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).ok(200)["state"], "parked");
    let listed = client.get("/v1/sandboxes?state=parked").ok(200);
    assert_eq!(listed["sandboxes"][0]["sandbox_id"], id);
    let clean = client.made(&wanted("web", &world.project()));
    let place = format!("/v1/sandboxes/{}", clean["sandbox_id"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(client.delete(&place).ok(200)["state"], "destroyed");
    }
    let third = client.made(&with(wanted("web", &world.project()), json!({"name": "third"})));
    client.put("/v1/sandboxes/third/files/new", b"work").ok(201);
    assert_eq!(client.delete("/v1/sandboxes/third?discard=true").ok(200)["state"], "destroyed");
    let gone = format!("/v1/sandboxes/{}", third["sandbox_id"].as_str().unwrap());
    assert_eq!(client.get(&gone).ok(200)["state"], "destroyed");
    client.delete("/v1/sandboxes/never").problem(404);
    assert!(!client.get("/v1/sandboxes?all=true").ok(200)["sandboxes"].as_array().unwrap().is_empty());
}

#[test]
fn events_come_by_the_page_and_as_they_happen() {
    let (world, _server, client, made) = with_sandbox();
    let all = client.get("/v1/events").ok(200)["events"].as_array().unwrap().clone();
    let kinds: Vec<&str> = all.iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["requested", "provisioning", "ready"]);
    let seqs: Vec<u64> = all.iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    let after = client.get(&format!("/v1/events?after={}&limit=1", seqs[0])).ok(200);
    assert_eq!(after["events"], json!([all[1]]));
    for far in ["9223372036854775807", "9223372036854775808", "18446744073709551615"] {
        assert_eq!(client.get(&format!("/v1/events?after={far}")).ok(200)["events"], json!([]), "{far}");
        assert_eq!(client.get(&format!("/v1/sandboxes/try/events?after={far}")).ok(200)["events"], json!([]));
    }
    for odd in ["after=-1", "after=x", "limit=0", "limit=1001", "after=18446744073709551616"] {
        client.get(&format!("/v1/events?{odd}")).problem(400);
    }
    client.send("GET", "/v1/events", &[("Last-Event-ID", "x")], b"").problem(400);
    let mut follower = client.follow("/v1/sandboxes/try/events?after=0", &[]);
    let first: Vec<_> = (0..3).map(|_| follower.next().unwrap()).collect();
    assert_eq!(first.iter().map(|e| e.0).collect::<Vec<_>>(), seqs);
    assert_eq!(first[2].1, "ready");
    client.made(&wanted("web", &world.project()));
    client.delete("/v1/sandboxes/try").ok(200);
    let (_, kind, event) = follower.next().unwrap();
    assert_eq!(event["sandbox_id"], made["sandbox_id"], "of the other one nothing is told here");
    assert_eq!(kind, event["kind"].as_str().unwrap());
}

#[test]
fn requests_that_make_no_sense_are_told_so() {
    let (world, _server, client) = started();
    let request = wanted("web", &world.project());
    let json = [("Content-Type", "application/json")];
    for odd in ["{", "[]", "null", "\"x\"", "{}", "{\"profile\": 1}"] {
        client.send("POST", "/v1/sandboxes", &json, odd.as_bytes()).problem(400);
    }
    client.made(&with(request.clone(), json!({"name": "own"})));
    for body in ["[]", "[null, null]", "null", " [1]", "{\"a\": 1}"] {
        client.send("POST", "/v1/sandboxes/own/checkpoints", &json, body.as_bytes()).problem(400);
        client.send("POST", "/v1/sandboxes/own/rollback", &json, body.as_bytes()).problem(400);
    }
    for (odd, status) in [
        (with(request.clone(), json!({"colour": "red"})), 400),
        (with(request.clone(), json!({"profile": "profile.nope"})), 404),
        (with(request.clone(), json!({"inputs": {}})), 400),
        (with(request.clone(), json!({"inputs": {"repo": "relative"}})), 400),
        (with(request.clone(), json!({"inputs": {"repo": "/no/such/place"}})), 404),
        (with(request.clone(), json!({"inputs": {"repo": "/tmp/\u{0}"}})), 400),
        (with(request.clone(), json!({"inputs": {"": world.project()}})), 400),
        (with(request.clone(), json!({"ttl": "soon"})), 400),
        (with(request.clone(), json!({"name": "../x"})), 400),
        (with(request.clone(), json!({"name": ""})), 400),
        (with(request.clone(), json!({"plan": " "})), 400),
        (with(request.clone(), json!({"labels": {"": "x"}})), 400),
    ] {
        let answer = client.post("/v1/sandboxes", &odd);
        assert_eq!(answer.status, status, "{odd}: {}", answer.text());
        answer.problem(status);
    }
    client.made(&with(request.clone(), json!({"name": "try"})));
    let taken = client.post("/v1/sandboxes", &with(request, json!({"name": "try"})));
    assert!(matches!(taken.status, 400 | 403 | 409), "{}", taken.text());
    for path in ["/", "/v1", "/v1/nothing", "/v1/sandboxes/try/nothing", "/v2/sandboxes"] {
        client.get(path).problem(404);
    }
}

#[test]
fn the_policy_of_a_project_holds_for_clients_too() {
    let world = World::new();
    world.file("policy.yaml", "paths: [\"src/**\"]\n");
    let config = format!("commit:\n  policy: {}\n", world.path("policy.yaml").display());
    world.file("project/sandboxer.yaml", config);
    world.ok(&["trust", "."]);
    let server = Server::start(&world);
    let client = server.local();
    client.made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    client.put("/v1/sandboxes/try/files/hello.txt", b"changed").ok(200);
    client.put("/v1/sandboxes/try/files/src/main.rs", b"changed").ok(200);
    let refused = client.post("/v1/sandboxes/try/commit", &json!({"accept_flags": true})).problem(403);
    assert!(refused.to_string().contains("paths=src/**"), "{refused}");
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    client.post("/v1/sandboxes/try/commit", &json!({"paths": ["src"]})).ok(200);
    assert_eq!(world.text("project/src/main.rs"), "changed");
}
