//! What clients send who mean harm, or know no better: foreign names and pages, slow and endless requests, paths that lead out, and bytes
//! that are no HTTP. The server says no in its own words, and goes on serving everybody else.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::common::World;
use crate::common::server::{Answer, Client, Server, Wire, token, until, wanted, with};

/// A server on TCP, and somebody who may nearly everything, with a sandbox `try`.
fn started() -> (World, Server, Client) {
    let world = World::new();
    let server = Server::start_tcp(&world);
    let client = server.remote().bearing(&token(&world, "ann", "web", "commit", &world.project()));
    client.made(&with(wanted("web", &world.project()), json!({"name": "try"})));
    (world, server, client)
}

/// A request whose every line is given.
fn lines(client: &Client, lines: &[&str]) -> Answer {
    client.raw_answer(format!("{}\r\nConnection: close\r\n\r\n", lines.join("\r\n")).as_bytes())
}

fn is_well(client: &Client) {
    assert_eq!(client.get("/health").ok(200)["status"], "ok");
}

#[test]
fn who_calls_it_by_another_name_is_refused() {
    let (_world, server, client) = started();
    let token = format!("Authorization: Bearer {}", client.token.as_ref().unwrap());
    let own = client.host();
    let ask = |first: &str, more: &[&str]| lines(&client, &[&[first, &token], more].concat()).status;
    let host = |name: &str| format!("Host: {name}");
    let get = "GET /v1/sandboxes HTTP/1.1";
    for fine in [own.as_str(), "localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80"] {
        assert_eq!(ask(get, &[&host(fine)]), 200, "{fine}");
    }
    for foreign in [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "",
        ":80",
        "0.0.0.0",
        "[::]",
    ] {
        assert_eq!(ask(get, &[&host(foreign)]), 403, "{foreign:?}");
    }
    assert_eq!(ask(get, &[]), 403, "no Host at all");
    assert_eq!(ask(get, &[&host(&own), &host("evil.example")]), 403, "two of them");
    assert_eq!(ask(get, &[&host(&own), &host(&own)]), 403, "twice the same");
    let absolute = "GET http://evil.example/v1/sandboxes HTTP/1.1";
    assert_eq!(ask(absolute, &[&host(&own)]), 403, "another name in the address");
    assert_eq!(ask(absolute, &[&host("evil.example")]), 403);
    let own_absolute = format!("GET http://{own}/v1/sandboxes HTTP/1.1");
    assert_eq!(ask(&own_absolute, &[&host(&own)]), 200);
    // Whoever has no token learns no more from it.
    let bare = lines(&client, &["GET /health HTTP/1.1", &host("evil.example")]);
    bare.problem(403);
    until("it is in the log", || server.said("refused").len() >= 10);
    let told = server.said("refused");
    assert!(told.iter().any(|line| line["message"].as_str().unwrap().contains("evil.example")));
    assert!(told.iter().all(|line| line["peer"].as_str().unwrap().starts_with("127.0.0.1:")));
}

#[test]
fn pages_of_others_are_refused() {
    let (_world, server, client) = started();
    let own = format!("http://{}", client.host());
    for (origin, status) in [
        (own.as_str(), 200),
        ("http://localhost:3000", 200),
        ("http://evil.example", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("file://", 403),
        ("http://localhost.evil.example", 403),
        ("chrome-extension://localhost", 403),
    ] {
        let answer = client.send("GET", "/v1/sandboxes", &[("Origin", origin)], b"");
        assert_eq!(answer.status, status, "{origin:?} {}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), None, "{origin:?}");
    }
    // On the socket, too: a program that hands requests on may sit in between.
    server.local().send("GET", "/v1/sandboxes", &[("Origin", "null")], b"").problem(403);
    // What a page can send without asking: a form.
    let body = json!({"command": ["touch", "/tmp/x"]}).to_string();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "text/plain; application/json",
    ] {
        let headers: &[_] = if kind.is_empty() { &[] } else { &[("Content-Type", kind)] };
        client.send("POST", "/v1/sandboxes/try/exec", headers, body.as_bytes()).problem(415);
        server.local().send("POST", "/v1/sandboxes/try/exec", headers, body.as_bytes()).problem(415);
        client.send("PUT", "/v1/sandboxes/try/files/x", headers, b"x").problem(415);
    }
    client.send("OPTIONS", "/v1/sandboxes", &[("Origin", "http://evil.example")], b"").problem(403);
}

#[test]
fn without_a_token_there_is_health_and_nothing_else() {
    let (_world, server, client) = started();
    let nobody = server.remote();
    is_well(&nobody);
    let text = client.token.clone().unwrap();
    for path in
        ["/v1/sandboxes", "/metrics", "/openapi.json", "/v1/nothing", "/", "/health/", "//health", "/Health"]
    {
        let problem = nobody.get(path).problem(401);
        assert!(problem["hints"][0].as_str().unwrap().contains("Bearer"), "{path}");
    }
    for query in ["token", "access_token", "authorization"] {
        nobody.get(&format!("/v1/sandboxes?{query}={text}")).problem(401);
    }
    nobody.send("GET", "/v1/sandboxes", &[("Cookie", &format!("token={text}"))], b"").problem(401);
    nobody.send("GET", "/v1/sandboxes", &[("X-Forwarded-For", "127.0.0.1")], b"").problem(401);
    nobody.send("DELETE", "/v1/sandboxes/try", &[], b"").problem(401);
    assert_eq!(client.get("/v1/sandboxes/try").ok(200)["state"], "ready");
    // A body that nobody asked for is not waited for.
    let refused = nobody.raw_answer(
        format!("POST /v1/sandboxes HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 1000000000\r\n\r\n", nobody.host())
            .as_bytes(),
    );
    refused.problem(401);
}

#[test]
fn other_methods_are_told_so() {
    let (_world, _server, client) = started();
    for (method, path) in [
        ("OPTIONS", "/v1/sandboxes"),
        ("TRACE", "/v1/sandboxes"),
        ("PATCH", "/v1/sandboxes/try"),
        ("PUT", "/v1/sandboxes"),
        ("DELETE", "/v1/sandboxes"),
        ("POST", "/health"),
        ("PROPFIND", "/v1/sandboxes"),
        ("get", "/v1/sandboxes"),
        ("X-ODD", "/v1/sandboxes/try/files/hello.txt"),
    ] {
        let answer = client.send(method, path, &[], b"");
        answer.problem(405);
        assert!(answer.header("allow").is_some_and(|allow| !allow.is_empty()), "{method} {path}");
    }
    let proxied = client.send("CONNECT", "evil.example:443", &[], b"");
    assert!((400..500).contains(&proxied.status), "{}", proxied.text());
    is_well(&client);
}

#[test]
fn what_is_too_long_is_refused_before_all_of_it_came() {
    let (_world, _server, client) = started();
    let head = |path: &str, method: &str, kind: &str, length: u64| {
        let headers =
            [("Content-Type", kind), ("Connection", "close"), ("Content-Length", &length.to_string())];
        client.head(method, path, &headers) + "\r\n"
    };
    // A terabyte is announced, and two megabytes are sent.
    let mut bytes = head("/v1/sandboxes", "POST", "application/json", 1 << 40).into_bytes();
    bytes.resize(bytes.len() + (2 << 20), b' ');
    client.raw_answer(&bytes).problem(413);
    // The same without saying how long it is.
    let mut bytes = client
        .head(
            "POST",
            "/v1/sandboxes",
            &[
                ("Content-Type", "application/json"),
                ("Transfer-Encoding", "chunked"),
                ("Connection", "close"),
            ],
        )
        .into_bytes();
    bytes.extend(b"\r\n");
    for _ in 0..40 {
        bytes.extend(b"10000\r\n");
        bytes.resize(bytes.len() + (64 << 10), b' ');
        bytes.extend(b"\r\n");
    }
    client.raw_answer(&bytes).problem(413);
    let long = |length: usize| format!("/v1/sandboxes/{}", "a".repeat(length));
    client.get(&long(9 << 10)).problem(414);
    assert!(matches!(client.get(&long(40 << 10)).status, 414 | 431));
    assert!(matches!(client.get(&long(100 << 10)).status, 414 | 431));
    let header = "a".repeat(40 << 10);
    assert_eq!(client.send("GET", "/v1/sandboxes", &[("X-Long", &header)], b"").status, 431);
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("X-{n}"), "x".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(client.send("GET", "/v1/sandboxes", &many, b"").status, 431);
    is_well(&client);
}

#[test]
fn no_path_leads_out_of_a_sandbox() {
    let (world, _server, client) = started();
    world.file("outside/secret", "canary");
    world.file("project/inside", "fine");
    let at = |path: &str| format!("/v1/sandboxes/try/files/{path}");
    for trick in [
        "..",
        "../secret",
        "%2e%2e/secret",
        "%2E%2e%2Fsecret",
        "src/../../secret",
        "src/%2e%2e/%2e%2e/secret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "a%00b",
        "hello.txt%00.png",
        "./hello.txt",
        "src//main.rs",
        "%",
        "%zz",
        ".",
    ] {
        let read = client.get(&at(trick));
        assert!(matches!(read.status, 400 | 404), "{trick}: {} {}", read.status, read.text());
        let written = client.put(&at(trick), b"planted");
        assert!(matches!(written.status, 400 | 404), "{trick}: {} {}", written.status, written.text());
    }
    // Links that whoever works inside has made.
    let outside = world.path("outside").display().to_string();
    let (code, said) = client.shell(
        "try",
        &format!("ln -s {outside}/secret abs; ln -s {outside} dir; ln -s ../outside/secret rel; ln -s /proc/self/root root; ln -s abs twice"),
    );
    assert_eq!(code, 0, "{said}");
    for link in ["abs", "rel", "dir/secret", "root/etc/passwd", "twice"] {
        let read = client.get(&at(link));
        assert!((400..500).contains(&read.status), "{link}: {}", read.status);
        assert!(!read.text().contains("canary") && !read.text().contains("root:"), "{link}: {}", read.text());
    }
    for link in ["dir/secret", "dir/new", "root/tmp/planted", "abs/x"] {
        let written = client.put(&at(link), b"planted");
        assert!((400..500).contains(&written.status), "{link}: {} {}", written.status, written.text());
    }
    // Writing to a link itself replaces it, or is refused; what it leads to stays.
    client.put(&at("abs"), b"planted");
    client.put(&at("rel"), b"planted");
    assert_eq!(fs::read_to_string(world.path("outside/secret")).unwrap(), "canary");
    assert_eq!(fs::read_dir(world.path("outside")).unwrap().count(), 1);
    let diff = client.get("/v1/sandboxes/try/diff?format=patch");
    assert!(!diff.text().contains("canary"), "{}", diff.text());
    for odd in ["../x", "/etc", "a//b"] {
        client.get(&format!("/v1/sandboxes/try/diff?path={odd}")).problem(400);
        client.post("/v1/sandboxes/try/rollback", &json!({"paths": [odd]})).problem(400);
        client.post("/v1/sandboxes/try/commit", &json!({"paths": [odd]})).problem(400);
    }
    let moved = client.post("/v1/sandboxes/try/exec", &json!({"command": ["pwd"], "directory": "../.."}));
    let ran = moved.status == 200 && moved.lines().last().unwrap()["exit_code"] == 0;
    assert!(!ran, "{}", moved.text());
    symlink(world.path("outside"), world.path("project/later")).unwrap();
    assert!((400..500).contains(&client.get(&at("later/secret")).status));
}

#[test]
fn names_that_are_arguments_are_names() {
    let (_world, _server, client) = started();
    // The command is run by the program itself: nothing of a request may become an option of it.
    for body in [
        json!({"command": ["--help"]}),
        json!({"command": ["true"], "directory": "--help"}),
        json!({"command": ["true"], "workspace": "--help"}),
        json!({"command": ["true"], "timeout": "--help"}),
        json!({"command": ["true"], "timeout": "1s --isolation=none"}),
    ] {
        let answer = client.post("/v1/sandboxes/try/exec", &body);
        let ran = answer.status == 200 && answer.lines().last().unwrap()["exit_code"] == 0;
        assert!(!ran, "{body}: {}", answer.text());
        assert!(!answer.text().contains("Usage: sandbox"), "{body}: {}", answer.text());
    }
    let echoed = client.post("/v1/sandboxes/try/exec", &json!({"command": ["printf", "%s", "--home=/x"]}));
    assert_eq!(echoed.lines()[0]["stdout"], "--home=/x");
    for name in ["--help", "-h", "try:repo:x", "try%20", "%00", "..", "*", "sbx_"] {
        let answer = client.get(&format!("/v1/sandboxes/{name}"));
        assert!(matches!(answer.status, 400 | 404), "{name}: {} {}", answer.status, answer.text());
    }
}

#[test]
fn garbage_is_answered_once_and_the_connection_ends() {
    let (_world, _server, client) = started();
    for garbage in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut wire = client.connect().unwrap();
        let _ = wire.write_all(garbage);
        wire.finish();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut wire, &mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || text.starts_with("HTTP/1.") && text.contains(" 4"),
            "{garbage:?}: {text}"
        );
        assert!(text.matches("HTTP/1.").count() <= 1, "{garbage:?}: {text}");
    }
    is_well(&client);
}

#[test]
fn one_request_is_not_taken_for_two() {
    let (_world, _server, client) = started();
    let inner = format!(
        "DELETE /v1/sandboxes/try HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        client.host(),
        client.token.as_ref().unwrap()
    );
    let json = ("Content-Type", "application/json");
    let length = (inner.len() + 5).to_string();
    for headers in [
        vec![json, ("Content-Length", &length), ("Transfer-Encoding", "chunked")],
        vec![json, ("Transfer-Encoding", "chunked"), ("Content-Length", &length)],
        vec![json, ("Content-Length", "5"), ("Content-Length", &length)],
        vec![json, ("Transfer-Encoding", "xchunked"), ("Content-Length", &length)],
        vec![json, ("Transfer-Encoding", "chunked, identity"), ("Content-Length", &length)],
        vec![json, ("Transfer-Encoding", "identity, chunked"), ("Transfer-Encoding", "x")],
        vec![json, ("Content-Length", "+5")],
        vec![json, ("Content-Length", "-1")],
        vec![json, ("Content-Length", "0x5")],
    ] {
        let mut bytes = client.head("POST", "/v1/sandboxes", &headers).into_bytes();
        bytes.extend(format!("\r\n0\r\n\r\n{inner}").bytes());
        let mut wire = client.connect().unwrap();
        let _ = wire.write_all(&bytes);
        wire.finish();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut wire, &mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(!text.contains("\"destroyed\""), "{headers:?}: {text}");
        assert_eq!(client.get("/v1/sandboxes/try").ok(200)["state"], "ready", "{headers:?}: {text}");
    }
    for chunks in ["zz\r\n{}\r\n0\r\n\r\n", "fffffffffffffffff\r\n", "-1\r\n", "2;\r\n{}", "2\r\n{}x\r\n"] {
        let headers = [json, ("Transfer-Encoding", "chunked"), ("Connection", "close")];
        let mut bytes = client.head("POST", "/v1/sandboxes/try/rollback", &headers).into_bytes();
        bytes.extend(format!("\r\n{chunks}").bytes());
        let mut wire = client.connect().unwrap();
        let _ = wire.write_all(&bytes);
        wire.finish();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut wire, &mut answer);
        if let Some(answer) = Answer::parse(&answer) {
            answer.problem(400);
        }
    }
    is_well(&client);
}

#[test]
fn requests_behind_one_another_are_answered_in_order() {
    let (_world, _server, client) = started();
    let mut bytes = Vec::new();
    for path in ["/health", "/v1/nothing", "/v1/sandboxes/try"] {
        bytes.extend((client.head("GET", path, &[]) + "\r\n").bytes());
    }
    bytes.extend((client.head("GET", "/v1/profiles", &[("Connection", "close")]) + "\r\n").bytes());
    let text = String::from_utf8_lossy(&client.raw(&bytes)).into_owned();
    let statuses: Vec<&str> = text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "404", "200", "200"], "{text}");
}

/// How many connections the server has.
fn connections(server: &Server) -> u64 {
    let metrics = server.local().get("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with("sandboxer_connections ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn slow_clients_keep_nobody_waiting_and_are_gone_when_they_go() {
    let (_world, server, client) = started();
    let mut slow: Vec<Box<dyn Wire>> = Vec::new();
    let json = ("Content-Type", "application/json");
    for n in 0..200 {
        let mut wire = client.connect().unwrap();
        let sent = match n % 4 {
            // Nothing; half a line; headers without an end; a body that does not come.
            0 => String::new(),
            1 => "GET /v1/sandb".to_owned(),
            2 => client.head("GET", "/v1/sandboxes", &[("X-Slow", "x")]),
            _ => client.head("POST", "/v1/sandboxes", &[json, ("Content-Length", "100")]) + "\r\n{",
        };
        wire.write_all(sent.as_bytes()).unwrap();
        slow.push(wire);
    }
    until("all of them are there", || connections(&server) > 200);
    for round in 0..20 {
        for wire in &mut slow {
            // A byte at a time; one that was broken off meanwhile is fine.
            let _ = wire.write_all(b"x");
        }
        is_well(&client);
        client.get("/v1/sandboxes/try").ok(200);
        assert_eq!(client.put("/v1/sandboxes/try/files/new", format!("{round}").as_bytes()).status / 100, 2);
    }
    drop(slow);
    until("all of them are gone", || connections(&server) == 1);
    is_well(&client);
}

#[test]
fn clients_that_take_nothing_keep_nobody_waiting() {
    let (_world, server, client) = started();
    // More than the socket's buffers hold, for more clients than there are threads.
    client.put("/v1/sandboxes/try/files/large", &vec![b'x'; 24 << 20]).ok(201);
    let mut hanging: Vec<Box<dyn Wire>> = Vec::new();
    for _ in 0..200 {
        let mut wire = client.connect().unwrap();
        let head = client.head("GET", "/v1/sandboxes/try/files/large", &[]) + "\r\n";
        wire.write_all(head.as_bytes()).unwrap();
        hanging.push(wire);
    }
    until("all of them are there", || connections(&server) > 200);
    for _ in 0..20 {
        is_well(&client);
        client.get("/v1/sandboxes/try").ok(200);
        client.put("/v1/sandboxes/try/files/new", b"x");
    }
    drop(hanging);
    until("all of them are gone", || connections(&server) == 1);
    assert_eq!(client.get("/v1/sandboxes/try/files/large").body.len(), 24 << 20);
}
