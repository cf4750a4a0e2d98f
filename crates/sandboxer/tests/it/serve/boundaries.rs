//! What a token is not good for, though something on the way might let it: keys, links between sandboxes, sockets, databases, labels.

use serde_json::{Map, Value, json};

use crate::common::World;
use crate::common::server::{Client, Server, token, wanted, with};

fn started() -> (World, Server) {
    let world = World::new();
    let server = Server::start_tcp(&world);
    (world, server)
}

fn somebody(world: &World, server: &Server, principal: &str, scope: &str) -> Client {
    server.remote().bearing(&token(world, principal, "web", scope, &world.project()))
}

#[test]
fn a_key_stands_for_one_request() {
    let (world, server) = started();
    let (client, key) = (server.local(), [("Idempotency-Key", "job-1")]);
    let request = wanted("web", &world.project());
    let made = client.post_with("/v1/sandboxes", &key, &request).ok(201);
    let same = client.post_with("/v1/sandboxes", &key, &request).ok(200);
    assert_eq!(same["sandbox_id"], made["sandbox_id"]);
    assert!(same["message"].as_str().unwrap().contains("\"job-1\""), "{same}");
    world.file("other/x", "x");
    let other = with(request, json!({"inputs": {"repo": world.path("other")}}));
    let problem = client.post_with("/v1/sandboxes", &key, &other).problem(422);
    assert!(problem["detail"].as_str().unwrap().contains("used for another request"), "{problem}");
}

#[test]
fn commands_begin_in_the_first_input_as_it_was_given() {
    let (world, server) = started();
    world.file("app/x", "x");
    let inputs =
        format!(r#"{{"zoo": "{}", "app": "{}"}}"#, world.project().display(), world.path("app").display());
    let body = format!(
        r#"{{"profile": "profile.local", "name": "both", "inputs": {inputs}, "consumer": {{"actor_type": "agt", "project": "web"}}}}"#
    );
    let headers = [("Content-Type", "application/json")];
    let made = server.local().send("POST", "/v1/sandboxes", &headers, body.as_bytes()).ok(201);
    let names: Vec<&str> =
        made["workspaces"].as_array().unwrap().iter().map(|w| w["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["zoo", "app"]);
    assert_eq!(server.local().shell("both", "ls").1.lines().next(), Some("hello.txt"));
    let twice = body.replace("\"app\":", "\"zoo\":");
    server.local().send("POST", "/v1/sandboxes", &headers, twice.as_bytes()).problem(400);
}

#[test]
fn parked_work_is_taken_up_by_whose_it_is() {
    let (world, server) = started();
    let (ann, bob) = (somebody(&world, &server, "ann", "work"), somebody(&world, &server, "bob", "work"));
    let id = ann.made(&wanted("web", &world.project()))["sandbox_id"].as_str().unwrap().to_owned();
    let place = format!("/v1/sandboxes/{id}");
    ann.put(&format!("{place}/files/note"), b"hi").ok(201);
    let ended = ann.delete(&place).ok(200);
    assert_eq!((&ended["state"], &ended["parked_changes"]), (&json!("parked"), &json!(1)));
    bob.post(&format!("{place}/unpark"), &json!({})).problem(404);
    let back = ann.post(&format!("{place}/unpark"), &json!({"name": "again"})).ok(200);
    assert_eq!((&back["state"], &back["name"]), (&json!("ready"), &json!("again")));
    assert_eq!(ann.get(&format!("{place}/files/note")).text(), "hi");
    ann.post(&format!("{place}/unpark"), &json!({})).problem(404);
}

/// Asks for all sandboxes on a socket, without a token; prints the status.
const ASK: &str = "
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(b'GET /v1/sandboxes HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')
print('answered', client.makefile('rb').readline().split()[1].decode())
";

#[test]
fn a_contained_command_is_not_the_owner_of_the_socket_that_it_reaches() {
    let world = World::new();
    // Below none of the directories that are private inside.
    let seen = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let socket = seen.path().join("api.sock").display().to_string();
    let own = format!("unix:{}", world.path("home/serve.sock").display());
    let server = Server::start_with(&world, &["--listen", &own, "--listen", &format!("unix:{socket}")]);
    let outside = std::process::Command::new("python3").args(["-c", ASK, &socket]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "answered 200\n");
    server.local().made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    let body = json!({"command": ["python3", "-c", ASK, socket]});
    let lines = server.local().post("/v1/sandboxes/try/exec", &body).lines();
    let text: String = lines.iter().filter_map(|line| line["stdout"].as_str()).collect();
    assert!(text.is_empty() || text == "answered 401\n", "{lines:?}");
    assert!(lines.iter().any(|line| line["exit_code"].is_i64()), "{lines:?}");
}

#[test]
fn what_is_not_contained_is_not_to_be_had_over_a_token() {
    let (world, server) = started();
    let profile = "id: profile.bare\nsummary: Nothing is held\nextension:\n  policy: explicit\n  id: ext.local\nisolation: files\nnetwork: host\nscope: host\n";
    world.file("user/.config/sandboxer/profiles/profile.bare.yaml", profile);
    let ann = somebody(&world, &server, "ann", "commit");
    let request = with(wanted("web", &world.project()), json!({"profile": "profile.bare", "name": "bare"}));
    ann.post("/v1/sandboxes", &request).problem(403);
    server.local().made(&request);
    assert_eq!(ann.get("/v1/sandboxes/bare").status, 200, "it is shared with everybody");
    ann.post("/v1/sandboxes/bare/exec", &json!({"command": ["id"]})).problem(403);
    assert_eq!(server.local().shell("bare", "echo hi"), (0, "hi\n".to_owned()));
}

#[test]
fn a_shared_sandbox_is_committed_only_by_who_may_isolate_its_resource() {
    let (world, server) = started();
    let profile = "id: profile.shared\nsummary: Everybody's\nextension:\n  policy: explicit\n  id: ext.local\nisolation: standard\nnetwork: none\nscope: host\n";
    world.file("user/.config/sandboxer/profiles/profile.shared.yaml", profile);
    world.file("elsewhere/x", "x");
    let ann = somebody(&world, &server, "ann", "commit");
    let eve = server.remote().bearing(&token(&world, "eve", "api", "commit", &world.path("elsewhere")));
    ann.made(&with(wanted("web", &world.project()), json!({"profile": "profile.shared", "name": "ours"})));
    eve.put("/v1/sandboxes/ours/files/note", b"mine").ok(201);
    let problem = eve.post("/v1/sandboxes/ours/commit", &json!({})).problem(403);
    assert!(problem["detail"].as_str().unwrap().contains("may not commit"), "{problem}");
    assert!(!world.path("project/note").exists());
    ann.post("/v1/sandboxes/ours/commit", &json!({})).ok(200);
    assert_eq!(world.text("project/note"), "mine");
}

#[test]
fn a_database_is_the_one_that_the_token_names() {
    let (world, server) = started();
    let create = ["token", "create", "--principal", "ann", "--project", "web"];
    let made = world.json(&[&create[..], &["--resource", "postgres://db.example/shop"]].concat());
    let ann = server.remote().bearing(made["text"].as_str().unwrap());
    for place in [
        "postgres://db.example/shop?host=/run/postgresql&dbname=payroll",
        "postgres://db.example/shop?host=evil.example",
        "postgres://db.example/shopping",
        "postgres://user:hunter2@elsewhere.example/shop",
    ] {
        let request = with(wanted("web", &world.project()), json!({"inputs": {"db": place}}));
        let answer = ann.post("/v1/sandboxes", &request);
        answer.problem(403);
        assert!(!answer.text().contains("hunter2"), "{}", answer.text());
    }
    assert!(!server.log().contains("hunter2") && server.log().contains("may not isolate"));
}

#[test]
fn words_on_a_sandbox_are_few_and_short() {
    let (world, server) = started();
    let labelled = |labels: Value| with(wanted("web", &world.project()), json!({"labels": labels}));
    let many: Map<String, Value> = (0..33).map(|n| (format!("l{n}"), json!("x"))).collect();
    for odd in [Value::Object(many), json!({"n".repeat(900_000): "x"}), json!({"a b": "x"}), json!({"": "x"})]
    {
        server.local().post("/v1/sandboxes", &labelled(odd)).problem(400);
    }
    assert_eq!(
        server.local().made(&labelled(json!({"team": "blue"})))["environment"]["labels"]["team"],
        "blue"
    );
}

#[test]
fn a_command_that_no_kernel_takes_is_refused() {
    let (world, server) = started();
    server.local().made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    let body = json!({"command": ["true"], "env": {"LONG": "x".repeat(200_000)}});
    server.local().post("/v1/sandboxes/try/exec", &body).problem(400);
    let secret = json!({"command": ["sh", "-c", "echo $WORD; cat /proc/self/cmdline | tr '\\0' ' '"], "env": {"WORD": "hunter2"}});
    let lines = server.local().post("/v1/sandboxes/try/exec", &secret).lines();
    assert_eq!(lines[0]["stdout"].as_str().unwrap().lines().next(), Some("hunter2"), "{lines:?}");
}

#[test]
fn a_token_is_shown_once_in_a_request() {
    let (world, server) = started();
    let good = token(&world, "ann", "web", "work", &world.project());
    let text = format!("Bearer {good}");
    let headers = [("Authorization", text.as_str()), ("Authorization", "Bearer other")];
    server.remote().send("GET", "/v1/sandboxes", &headers, b"").problem(401);
}
