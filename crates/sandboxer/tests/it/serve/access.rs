//! Who may what: two principals who must not see each other, scopes against every operation, resources outside of a token, tokens that are
//! no good any more, and where the text of a token must never be found.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::common::World;
use crate::common::server::{Answer, Client, Server, token, until, wanted, with};

/// A server on TCP, and the directory that everybody may isolate.
fn started() -> (World, Server) {
    let world = World::new();
    let server = Server::start_tcp(&world);
    (world, server)
}

fn somebody(world: &World, server: &Server, principal: &str, project: &str, scope: &str) -> Client {
    server.remote().bearing(&token(world, principal, project, scope, &world.project()))
}

/// Whether an answer tells something of a sandbox: its id, its name, or where it lies.
#[track_caller]
fn tells_nothing(answer: &Answer, secrets: &[&str]) {
    let text = format!("{:?} {}", answer.headers, answer.text());
    for secret in secrets {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn two_principals_do_not_see_each_other() {
    let (world, server) = started();
    let ann = somebody(&world, &server, "ann", "web", "commit");
    // Of the same project: what differs is who asks.
    let bob = somebody(&world, &server, "bob", "web", "commit");
    let request = wanted("web", &world.project());
    let hers = with(request.clone(), json!({"name": "annes", "plan": "plan-of-ann"}));
    let key = [("Idempotency-Key", "same-key")];
    let made = ann.post_with("/v1/sandboxes", &key, &hers).ok(201);
    let id = made["sandbox_id"].as_str().unwrap();
    ann.put("/v1/sandboxes/annes/files/secret.txt", b"only-anns").ok(201);
    ann.post("/v1/sandboxes/annes/checkpoints", &json!({"name": "cp-of-ann"})).ok(201);
    let path = made["sandbox_path"].as_str().unwrap();
    let secrets = [id, path, "only-anns", "cp-of-ann", "secret.txt"];
    let empty = json!({});
    for name in [id, "annes", &id[..20], &id[4..24], "@last"] {
        let at = |rest: &str| format!("/v1/sandboxes/{name}{rest}");
        let exec = json!({"command": ["cat", "secret.txt"]});
        for answer in [
            bob.get(&at("")),
            bob.get(&at("/diff")),
            bob.get(&at("/files/secret.txt")),
            bob.put(&at("/files/secret.txt"), b"mine"),
            bob.get(&at("/events")),
            bob.send("GET", &at("/events"), &[("Accept", "text/event-stream")], b""),
            bob.get(&at("/checkpoints")),
            bob.get(&at("/snapshots")),
            bob.post(&at("/checkpoints/cp-of-ann/restore"), &empty),
            bob.post(&at("/snapshots"), &empty),
            bob.post(&at("/exec"), &exec),
            bob.post(&at("/commit"), &empty),
            bob.post(&at("/undo"), &empty),
            bob.post(&at("/rollback"), &empty),
            bob.post(&at("/extend"), &json!({"ttl": "1h"})),
            bob.post(&at("/recreate"), &empty),
            bob.delete(&at("?discard=true")),
        ] {
            // As for one that never was: the same words, but for the name.
            let problem = answer.problem(404);
            assert_eq!(problem["message"], format!("no sandbox {name:?}"), "{problem}");
            assert_eq!(problem["similar"], Value::Null, "{problem}");
            let told: Vec<&str> = secrets.iter().filter(|secret| !name.contains(*secret)).copied().collect();
            tells_nothing(&answer, &told);
        }
    }
    for query in ["", "?all=true", "?plan=plan-of-ann", "?project=web", "?state=ready"] {
        let listed = bob.get(&format!("/v1/sandboxes{query}"));
        assert_eq!(listed.ok(200)["sandboxes"], json!([]), "{query}");
    }
    // Not even a page behind it tells that it is there.
    let behind = bob.get(&format!("/v1/sandboxes?after={id}")).problem(404);
    let never = bob.get("/v1/sandboxes?after=sbx_00000000000000000000000000").problem(404);
    assert_eq!(behind["kind"], never["kind"]);
    assert_eq!(bob.get("/v1/events").ok(200)["events"], json!([]));

    // The same key is another request; the same plan and name are refused, and nothing is told.
    let his = bob.post_with("/v1/sandboxes", &key, &request).ok(201);
    assert_ne!(his["sandbox_id"], made["sandbox_id"]);
    let same_plan = bob.post("/v1/sandboxes", &with(request.clone(), json!({"plan": "plan-of-ann"})));
    assert!((400..500).contains(&same_plan.status), "{}", same_plan.text());
    tells_nothing(&same_plan, &[id, "annes", path]);
    let same_name = bob.post("/v1/sandboxes", &with(request, json!({"name": "annes"})));
    assert!((400..500).contains(&same_name.status), "{}", same_name.text());
    tells_nothing(&same_name, &[id, path, "plan-of-ann"]);
    // His is his, and hers is untouched.
    assert_eq!(bob.get("/v1/sandboxes").ok(200)["sandboxes"].as_array().unwrap().len(), 1);
    assert_eq!(ann.get("/v1/sandboxes/annes/files/secret.txt").text(), "only-anns");
    let again = ann.post_with("/v1/sandboxes", &key, &hers).ok(200);
    assert_eq!(again["sandbox_id"], id);
    assert!(!world.project().join("secret.txt").exists());
}

#[test]
fn a_stream_tells_only_what_is_ones_own() {
    let (world, server) = started();
    let ann = somebody(&world, &server, "ann", "web", "work");
    let bob = somebody(&world, &server, "bob", "web", "work");
    let request = wanted("web", &world.project());
    let mut his = bob.follow("/v1/events?after=0", &[]);
    let anns = ann.made(&request);
    let bobs = bob.made(&request);
    ann.delete(&format!("/v1/sandboxes/{}", anns["sandbox_id"].as_str().unwrap())).ok(200);
    bob.delete(&format!("/v1/sandboxes/{}", bobs["sandbox_id"].as_str().unwrap())).ok(200);
    loop {
        let (_, kind, event) = his.next().unwrap();
        assert_eq!(event["sandbox_id"], bobs["sandbox_id"]);
        if kind == "destroyed" {
            break;
        }
    }
    let page = bob.get("/v1/events").ok(200);
    let events = page["events"].as_array().unwrap();
    assert!(!events.is_empty());
    assert!(events.iter().all(|event| event["sandbox_id"] == bobs["sandbox_id"]), "{page}");
}

#[test]
fn one_key_of_two_projects_is_two_requests() {
    let (world, server) = started();
    // Together they would read the same: `p/q` with `k`, and `p` with `q/k`.
    let one = somebody(&world, &server, "ann", "p/q", "work");
    let other = somebody(&world, &server, "ann", "p", "work");
    let first =
        one.post_with("/v1/sandboxes", &[("Idempotency-Key", "k")], &wanted("p/q", &world.project())).ok(201);
    let second = other
        .post_with("/v1/sandboxes", &[("Idempotency-Key", "q/k")], &wanted("p", &world.project()))
        .ok(201);
    assert_ne!(first["sandbox_id"], second["sandbox_id"]);
}

#[test]
fn profiles_share_with_a_project_or_with_everybody() {
    let (world, server) = started();
    for scope in ["project", "host"] {
        let profile = format!(
            "id: profile.{scope}\nsummary: Shared\nextension:\n  policy: explicit\n  id: ext.local\nisolation: standard\nnetwork: none\nscope: {scope}\n"
        );
        world.file(&format!("user/.config/sandboxer/profiles/profile.{scope}.yaml"), profile);
    }
    let ann = somebody(&world, &server, "ann", "web", "work");
    let colleague = somebody(&world, &server, "bob", "web", "work");
    let stranger = somebody(&world, &server, "eve", "api", "work");
    let request = wanted("web", &world.project());
    let of_project = with(request.clone(), json!({"profile": "profile.project", "name": "ours"}));
    let of_host = with(request, json!({"profile": "profile.host", "name": "everybodys"}));
    assert_eq!(ann.made(&of_project)["environment"]["scope"], "project");
    ann.made(&of_host);
    let sees = |client: &Client| {
        let listed = client.get("/v1/sandboxes").ok(200);
        let names = listed["sandboxes"].as_array().unwrap().iter();
        names.map(|s| s["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sees(&ann), ["everybodys", "ours"]);
    assert_eq!(sees(&colleague), ["everybodys", "ours"]);
    assert_eq!(sees(&stranger), ["everybodys"]);
    colleague.put("/v1/sandboxes/ours/files/note", b"hi").ok(201);
    assert_eq!(ann.get("/v1/sandboxes/ours/files/note").text(), "hi");
    stranger.get("/v1/sandboxes/ours/files/note").problem(404);
    stranger.get("/v1/sandboxes/everybodys/files/hello.txt");
    let events = stranger.get("/v1/events").ok(200);
    let events = events["events"].as_array().unwrap();
    assert!(!events.is_empty() && events.iter().all(|event| event["name"] == "everybodys"));
}

/// One operation: what it is called, which scope it takes, and how it is asked for.
type Operation<'a> = (&'a str, &'a str, Box<dyn Fn(&Client) -> Answer + 'a>);

fn operations<'a>(request: &'a Value) -> Vec<Operation<'a>> {
    fn get<'a>(path: &'a str) -> Box<dyn Fn(&Client) -> Answer + 'a> {
        Box::new(move |client| client.get(path))
    }
    fn post<'a>(path: &'a str, body: Value) -> Box<dyn Fn(&Client) -> Answer + 'a> {
        Box::new(move |client| client.post(path, &body))
    }
    vec![
        ("openapi", "read", get("/openapi.json")),
        ("list", "read", get("/v1/sandboxes")),
        ("get", "read", get("/v1/sandboxes/own")),
        ("diff", "read", get("/v1/sandboxes/own/diff")),
        ("read", "read", get("/v1/sandboxes/own/files/hello.txt")),
        ("events", "read", get("/v1/events")),
        ("events of one", "read", get("/v1/sandboxes/own/events")),
        ("checkpoints", "read", get("/v1/sandboxes/own/checkpoints")),
        ("snapshots", "read", get("/v1/sandboxes/own/snapshots")),
        ("profiles", "read", get("/v1/profiles")),
        ("extensions", "read", get("/v1/extensions")),
        ("hosts", "read", get("/v1/hosts")),
        ("metrics", "admin", get("/metrics")),
        ("create", "work", post("/v1/sandboxes", request.clone())),
        ("write", "work", Box::new(|client| client.put("/v1/sandboxes/own/files/new", b"x"))),
        ("exec", "work", post("/v1/sandboxes/own/exec", json!({"command": ["true"]}))),
        ("checkpoint", "work", post("/v1/sandboxes/own/checkpoints", json!({"name": "one"}))),
        ("restore", "work", post("/v1/sandboxes/own/checkpoints/one/restore", json!({}))),
        ("snapshot", "work", post("/v1/sandboxes/own/snapshots", json!({}))),
        ("restore snapshot", "work", post("/v1/sandboxes/own/snapshots/one/restore", json!({}))),
        ("extend", "work", post("/v1/sandboxes/own/extend", json!({"ttl": "1h"}))),
        ("recreate", "work", post("/v1/sandboxes/own/recreate", json!({}))),
        ("commit", "commit", post("/v1/sandboxes/own/commit", json!({}))),
        ("undo", "commit", post("/v1/sandboxes/own/undo", json!({}))),
        ("rollback", "work", post("/v1/sandboxes/own/rollback", json!({}))),
        ("destroy", "work", Box::new(|client| client.delete("/v1/sandboxes/own"))),
    ]
}

#[test]
fn each_scope_is_good_for_what_it_says() {
    let world = World::new();
    let project = world.project();
    let server = Server::start_tcp(&world);
    let request = with(wanted("web", &project), json!({"name": "own"}));
    for (scope, has) in [
        ("read", vec!["read"]),
        ("work", vec!["read", "work"]),
        ("commit", vec!["read", "work", "commit"]),
        ("admin", vec!["read", "admin"]),
    ] {
        // The same principal made the sandbox with a token that may more.
        let maker = somebody(&world, &server, "ann", "web", "commit");
        let client = somebody(&world, &server, "ann", "web", scope);
        maker.made(&request);
        maker.put("/v1/sandboxes/own/files/kept", b"x").ok(201);
        maker.post("/v1/sandboxes/own/checkpoints", &json!({"name": "one"})).ok(201);
        for (name, needed, ask) in operations(&with(request.clone(), json!({"name": "second"}))) {
            let answer = ask(&client);
            if has.contains(&needed) {
                // A checkpoint of that name is there, and after an undo there is something to undo: no refusal is what counts.
                assert_ne!(answer.status, 403, "{scope} token, {name}: {}", answer.text());
                assert!(answer.status < 500, "{scope} token, {name}: {}", answer.text());
            } else {
                let problem = answer.problem(403);
                let message = problem["message"].as_str().unwrap();
                assert!(
                    message.contains("ann may not") && message.contains(&format!("the scope {needed}")),
                    "{scope} token, {name}: {message}"
                );
                until("the refusal is in the log", || {
                    let told = server.said("refused");
                    told.iter().any(|line| {
                        line["message"] == message && line["status"] == 403 && line["principal"] == "ann"
                    })
                });
            }
        }
        let remaining = maker.get("/v1/sandboxes?state=ready").ok(200);
        for sandbox in remaining["sandboxes"].as_array().unwrap() {
            let place = format!("/v1/sandboxes/{}?discard=true", sandbox["sandbox_id"].as_str().unwrap());
            maker.delete(&place).ok(200);
        }
        for left in ["own", "second"] {
            let answer = maker.delete(&format!("/v1/sandboxes/{left}?discard=true"));
            assert!(matches!(answer.status, 200 | 404));
        }
        let _ = fs::remove_file(project.join("kept"));
        let _ = fs::remove_file(project.join("new"));
    }
}

#[test]
fn what_a_token_is_not_for_is_refused_whether_it_is_there_or_not() {
    let (world, server) = started();
    world.file("outside/secret/key", "k");
    world.file("project-secret/key", "k");
    symlink(world.path("outside"), world.path("project/link")).unwrap();
    symlink(world.path("nowhere"), world.path("project/dangling")).unwrap();
    // A file that would be read for its settings, were it looked at.
    world.file("outside/.sandboxer.yaml", "canary-in-settings: [");
    world.file("outside/sandboxer.yaml", "canary-in-settings: [");
    let ann = somebody(&world, &server, "ann", "web", "commit");
    let project = world.project().canonicalize().unwrap().display().to_string();
    let below = |path: &str| format!("{project}{path}");
    let pairs = [
        ("/etc/passwd".to_owned(), "/etc/no-such-file".to_owned()),
        (below("-secret"), below("-nothing")),
        (below("/.."), below("/../nothing")),
        (below("/src/../../outside"), below("/src/../../nothing")),
        (below("/link"), below("/dangling")),
        (below("/link/secret"), below("/link/nothing")),
        (below("/link/secret/key"), below("/dangling/secret/key")),
        ("postgres://127.0.0.1:1/db".to_owned(), "s3://bucket/key".to_owned()),
        ("/proc/self/root".to_owned(), "/proc/self/nothing".to_owned()),
    ];
    for (there, not_there) in pairs {
        let ask = |place: &str| {
            let answer = ann.post(
                "/v1/sandboxes",
                &with(wanted("web", &world.project()), json!({"inputs": {"repo": place}})),
            );
            let problem = answer.problem(403);
            tells_nothing(&answer, &["canary", "outside\"", "nowhere"]);
            let message = problem["message"].as_str().unwrap();
            assert!(message.starts_with("ann may not isolate"), "{message}");
            problem.to_string().replace(place, "[PLACE]")
        };
        assert_eq!(ask(&there), ask(&not_there), "{there} and {not_there}");
    }
    for root in ["/", "//", "/.", "/tmp"] {
        let request = with(wanted("web", &world.project()), json!({"inputs": {"repo": root}}));
        ann.post("/v1/sandboxes", &request).problem(403);
    }
    assert_eq!(ann.get("/v1/sandboxes?all=true").ok(200)["sandboxes"], json!([]), "nothing was made");
    // What is inside is told of as it is; one of several is enough to refuse them all.
    let missing = with(wanted("web", &world.project()), json!({"inputs": {"repo": below("/nothing")}}));
    ann.post("/v1/sandboxes", &missing).problem(404);
    let both = with(wanted("web", &world.project()), json!({"inputs": {"a": project, "b": "/etc"}}));
    ann.post("/v1/sandboxes", &both).problem(403);
    ann.made(&with(wanted("web", &world.project()), json!({"inputs": {"repo": below("/src")}})));
}

#[test]
fn tokens_that_are_no_good_are_refused_with_the_reason() {
    let (world, server) = started();
    let good = token(&world, "ann", "web", "work", &world.project());
    let client = server.remote().bearing(&good);
    client.get("/v1/sandboxes").ok(200);
    let wrong = format!("{}{}", &good[..good.len() - 1], if good.ends_with('a') { 'b' } else { 'a' });
    let unknown = good.replace(&good[5..9], if good[5..9] == *"aaaa" { "bbbb" } else { "aaaa" });
    let id = &good[5..21];
    for (shown, why) in [
        (wrong.as_str(), "is not known here"),
        (unknown.as_str(), "is not known here"),
        ("sbxt_", "is not a token of sandboxer"),
        ("", "is not"),
    ] {
        let answer = server.remote().bearing(shown).get("/v1/sandboxes");
        let problem = answer.problem(401);
        assert!(problem["message"].as_str().unwrap().contains(why), "{shown}: {problem}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let scheme = [("Authorization", "Basic YTpi")];
    server.remote().send("GET", "/v1/sandboxes", &scheme, b"").problem(401);
    // Over the socket a token is taken for what it is, too: less than the socket.
    let local = server.local().bearing(&good);
    local.get("/metrics").problem(403);
    server.local().bearing(&wrong).get("/v1/sandboxes").problem(401);
    // A stream that was begun with it ends with it.
    let mut stream = client.follow("/v1/events", &[]);
    world.ok(&["token", "revoke", id]);
    let problem = client.get("/v1/sandboxes").problem(401);
    let message = problem["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("the token {id} was revoked at")), "{message}");
    assert!(stream.next().is_none(), "a stream outlived its token");
    until("the refusal is in the log", || server.said("refused").iter().any(|l| l["message"] == message));
}

#[test]
fn a_token_ends_with_its_time() {
    let (world, server) = started();
    let made = world.json(&[
        "token",
        "create",
        "--principal",
        "ann",
        "--project",
        "web",
        "--scope",
        "read",
        "--ttl",
        "1s",
    ]);
    let client = server.remote().bearing(made["text"].as_str().unwrap());
    until("it has expired", || client.get("/v1/sandboxes").status == 401);
    let problem = client.get("/v1/sandboxes").problem(401);
    assert!(problem["message"].as_str().unwrap().contains("expired at"), "{problem}");
}

#[test]
fn nobody_asks_in_anothers_name() {
    let (world, server) = started();
    let ann = somebody(&world, &server, "ann", "web", "work");
    for consumer in [
        json!({"actor_type": "agt", "project": "api"}),
        json!({"actor_type": "adm", "project": "web"}),
        json!({"actor_type": "", "project": ""}),
    ] {
        let request = with(wanted("web", &world.project()), json!({"consumer": consumer}));
        let answer = ann.post("/v1/sandboxes", &request);
        let problem = answer.problem(403);
        assert!(problem["message"].as_str().unwrap().contains("its token is for agt of web"), "{problem}");
    }
    assert_eq!(server.local().get("/v1/sandboxes?all=true").ok(200)["sandboxes"], json!([]));
    // Administrators do, where they may also make something.
    let arguments = ["token", "create", "--principal", "root", "--project", "ops"];
    let more = ["--scope", "admin", "--scope", "work", "--resource", world.project().to_str().unwrap()]
        .map(str::to_owned);
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let text = world.json(&[&arguments[..], &more].concat())["text"].as_str().unwrap().to_owned();
    let admin = server.remote().bearing(&text);
    admin.made(&wanted("api", &world.project()));
    let anns = ann.made(&wanted("web", &world.project()));
    let place = format!("/v1/sandboxes/{}", anns["sandbox_id"].as_str().unwrap());
    admin.get(&place).ok(200);
    assert_eq!(admin.get("/v1/sandboxes").ok(200)["sandboxes"].as_array().unwrap().len(), 2);
}

#[test]
fn the_text_of_a_token_is_nowhere() {
    let (world, server) = started();
    let text = token(&world, "ann", "web", "commit", &world.project());
    let secret = text.rsplit('_').next().unwrap().to_owned();
    let client = server.remote().bearing(&text);
    client.made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    client.shell("try", "env; echo done");
    client.put("/v1/sandboxes/try/files/new", b"x").ok(201);
    client.post("/v1/sandboxes/try/commit", &json!({})).ok(200);
    let mut answers = vec![
        client.get("/metrics"),
        client.get("/v1/sandboxes/nope"),
        client.get("/v1/events"),
        client.get("/v1/sandboxes"),
        client.post("/v1/sandboxes", &json!({})),
        client.post(
            "/v1/sandboxes",
            &with(wanted("web", &world.project()), json!({"inputs": {"repo": "/etc"}})),
        ),
        // In the query, where it is no token.
        server.remote().get(&format!("/v1/sandboxes?token={text}")),
        server.remote().get(&format!("/v1/sandboxes?access_token={text}")),
    ];
    assert!(answers[6..].iter().all(|answer| answer.status == 401));
    world.ok(&["token", "revoke", &text[5..21]]);
    answers.push(client.get("/v1/sandboxes"));
    answers.push(server.local().get("/v1/events"));
    for answer in &answers {
        assert!(!answer.text().contains(&secret), "{}", answer.text());
    }
    for listed in [world.ok(&["token", "list"]), world.ok(&["token", "list", "--json"])] {
        assert!(listed.contains(&text[5..21]) && !listed.contains(&secret), "{listed}");
    }
    until("the refusals are in the log", || server.said("refused").len() >= 4);
    assert!(!server.log().contains(&secret), "{}", server.log());
    let mut looked_into = 0;
    for entry in fs::read_dir(world.path("home")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "the secret is in {}", path.display());
            looked_into += usize::from(path.file_name().unwrap().to_str().unwrap().starts_with("state.db"));
        }
    }
    assert!(looked_into >= 2, "state.db and its log were not there");
}
