//! Lifecycle events on the command line, and on their way to a hub: a real HTTP server, the real courier.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, World, remains};

const TOKEN: &str = "correct-horse-battery-staple";

/// More than any of this takes, and less than a test may hang.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} has not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a hub was sent, as it came.
#[derive(Clone, Debug)]
struct Post {
    authorization: Option<String>,
    event: Value,
}

/// A hub that takes everything, or answers with another status; 0 is no answer at all.
struct Hub {
    url: String,
    status: Arc<AtomicU16>,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Hub {
    fn start() -> Self {
        Self::at("127.0.0.1:0")
    }

    fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let hub = Self { url, status: Arc::new(AtomicU16::new(202)), posts: Arc::default() };
        let (status, posts) = (hub.status.clone(), hub.posts.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (status, posts) = (status.clone(), posts.clone());
                std::thread::spawn(move || serve(client.unwrap(), &status, &posts));
            }
        });
        hub
    }

    fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    /// The kinds that it was told of one sandbox, repetitions left out.
    fn kinds(&self, name: &str) -> Vec<String> {
        let mut kinds = Vec::new();
        let mut ids = Vec::new();
        for post in self.posts() {
            let data = &post.event["data"];
            if data["name"] == name && !ids.contains(&post.event["id"]) {
                ids.push(post.event["id"].clone());
                kinds.push(data["kind"].as_str().unwrap().to_owned());
            }
        }
        kinds
    }
}

/// Answers one connection's requests. What is not taken is not remembered.
fn serve(client: TcpStream, status: &AtomicU16, posts: &Mutex<Vec<Post>>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    while let Some(post) = read_post(&mut reader) {
        let status = match status.load(Ordering::SeqCst) {
            0 => loop {
                std::thread::park();
            },
            other => other,
        };
        if status < 300 {
            posts.lock().unwrap().push(post);
        }
        let answer = format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n\r\n{TOKEN}", TOKEN.len());
        if (&client).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn read_post(reader: &mut impl BufRead) -> Option<Post> {
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(": ").map(|(name, value)| (name.to_lowercase(), value)) {
            Some((name, value)) if name == "content-length" => length = value.parse().unwrap(),
            Some((name, value)) if name == "authorization" => authorization = Some(value.to_owned()),
            _ if line == "\r\n" => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Post { authorization, event: serde_json::from_slice(&body).unwrap() })
}

/// A world whose user has named a hub.
fn world_with(hub: &str, token: &str) -> World {
    let world = World::new();
    world.file(
        "user/.config/sandboxer/config.yaml",
        format!("events: {{hub: \"{hub}\", token: \"{token}\"}}\n"),
    );
    world.file("token", format!("{TOKEN}\n"));
    world
}

fn with_token_file(hub: &str) -> World {
    let world = World::new();
    let token = world.path("token");
    world.file("token", format!("{TOKEN}\n"));
    let config = format!("events: {{hub: \"{hub}\", token: \"file:{}\"}}\n", token.display());
    world.file("user/.config/sandboxer/config.yaml", config);
    world
}

fn couriers(world: &World) -> Vec<i32> {
    let home = world.path("home");
    let all = remains::keepers(&std::fs::canonicalize(&home).unwrap_or(home));
    let is_courier = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().starts_with(b"sandbox-courier\0")
    };
    all.into_iter().filter(is_courier).collect()
}

fn nobody_there() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn waiting(world: &World) -> bool {
    let report = world.json(&["doctor"]);
    let checks = report["checks"].as_array().unwrap();
    let hub = checks.iter().find(|check| check["about"] == "hub").unwrap();
    hub["detail"].as_str().unwrap().contains("wait")
}

#[test]
fn every_transition_reaches_the_hub_once_and_in_order() {
    let hub = Hub::start();
    let world = with_token_file(&hub.url);
    for name in ["one", "two"] {
        world.ok(&["create", "--name", name, "-s", "filesystem_copy", "--actor", "agt", "--project", "shop"]);
        world.ok(&["destroy", name, "--discard"]);
    }
    let life = ["requested", "provisioning", "ready", "destroying", "destroyed"];
    for name in ["one", "two"] {
        until("the last event", || hub.kinds(name) == life);
    }
    let post = &hub.posts()[0];
    assert_eq!(post.authorization.as_deref(), Some(format!("Bearer {TOKEN}").as_str()));
    assert_eq!(post.event["type"], "dev.sandboxer.sandbox.requested.v1");
    assert_eq!(post.event["specversion"], "1.0");
    assert_eq!(post.event["data"]["consumer"], serde_json::json!({"actor_type": "agt", "project": "shop"}));
    assert_eq!(post.event["subject"], post.event["data"]["sandbox_id"]);
    let sequences: Vec<String> =
        hub.posts().iter().map(|post| post.event["sequence"].as_str().unwrap().to_owned()).collect();
    assert!(sequences.is_sorted(), "{sequences:?}");
    until("the end of the courier", || couriers(&world).is_empty());
    assert!(!waiting(&world));
    assert!(world.ok(&["events", "--deliver"]).contains("taken 0 events; 0 events left"));
}

#[test]
fn a_hub_that_was_down_hears_everything_later() {
    let address = nobody_there();
    let world = with_token_file(&format!("http://{address}/events"));
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    let ran = world.run(&["events", "--deliver"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(&address) && ran.stderr.contains("hint"), "{}", ran.stderr);
    assert!(waiting(&world));
    let hub = Hub::at(&address);
    world.ok(&["destroy", "try", "--discard"]);
    until("everything", || hub.kinds("try").last().is_some_and(|kind| kind == "destroyed"));
    assert_eq!(hub.kinds("try"), ["requested", "provisioning", "ready", "destroying", "destroyed"]);
}

#[test]
fn a_courier_of_another_hub_makes_room() {
    let hub = Hub::start();
    let world = with_token_file(&format!("http://{}/events", nobody_there()));
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    until("a courier that fails", || world.path("home/courier/failure.json").exists());
    world.file("user/.config/sandboxer/config.yaml", format!("events: {{hub: \"{}\"}}\n", hub.url));
    until("the new hub's events", || {
        world.ok(&["list"]);
        hub.kinds("try").len() == 3
    });
    assert_eq!(hub.posts()[0].authorization, None);
}

#[test]
fn what_the_hub_refuses_is_kept_and_told() {
    let hub = Hub::start();
    hub.answer_with(400);
    let world = with_token_file(&hub.url);
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    assert_eq!(world.run(&["events", "--deliver"]).code, 1);
    let log = world.text("home/courier/log");
    assert!(log.contains("refused: event evt_") && log.contains("HTTP 400"), "{log}");
    hub.answer_with(200);
    world.ok(&["events", "--deliver"]);
    assert_eq!(hub.kinds("try"), ["requested", "provisioning", "ready"]);
    assert!(!waiting(&world));
}

#[test]
fn a_hub_that_hangs_holds_nobody_up() {
    let hub = Hub::start();
    hub.answer_with(0);
    let world = with_token_file(&hub.url);
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    world.ok(&["destroy", "try", "--discard"]);
    until("one courier, which waits still", || couriers(&world).len() == 1);
    assert!(hub.posts().is_empty());
}

#[test]
fn another_courier_goes_on_where_one_was_killed() {
    let hub = Hub::start();
    hub.answer_with(0);
    let world = with_token_file(&hub.url);
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    until("a courier", || couriers(&world).len() == 1);
    couriers(&world).into_iter().for_each(remains::end);
    hub.answer_with(202);
    world.ok(&["destroy", "try", "--discard"]);
    until("everything", || hub.kinds("try").len() == 5);
    assert_eq!(hub.kinds("try"), ["requested", "provisioning", "ready", "destroying", "destroyed"]);
}

#[test]
fn the_token_is_nowhere_but_on_its_way() {
    for reference in ["env", "file"] {
        let hub = Hub::start();
        hub.answer_with(401);
        let world = match reference {
            "env" => world_with(&hub.url, "env:HUB_TOKEN"),
            _ => with_token_file(&hub.url),
        };
        let run = |arguments: &[&str]| {
            let mut command = world.command(arguments);
            if reference == "env" {
                command.env("HUB_TOKEN", TOKEN);
            }
            common::Ran::of(command.output().unwrap())
        };
        assert_eq!(run(&["create", "--name", "try", "-s", "filesystem_copy"]).code, 0);
        until("a courier", || !couriers(&world).is_empty());
        for pid in couriers(&world) {
            for file in ["cmdline", "environ"] {
                let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                assert!(!String::from_utf8_lossy(&text).contains(TOKEN), "{reference}: {file}");
            }
        }
        let failed = run(&["events", "--deliver"]);
        assert_eq!(failed.code, 1);
        assert!(failed.stderr.contains("HTTP 401"), "{}", failed.stderr);
        let doctor = run(&["doctor"]);
        let events = run(&["events", "try", "--json"]);
        for ran in [&failed, &doctor, &events] {
            assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(TOKEN), "{}{}", ran.stdout, ran.stderr);
        }
        hub.answer_with(202);
        assert_eq!(run(&["events", "--deliver"]).code, 0);
        assert_eq!(hub.posts()[0].authorization.as_deref(), Some(format!("Bearer {TOKEN}").as_str()));
        assert!(!contains(&world.path("home"), TOKEN.as_bytes()), "{reference}: in the state directory");
    }
}

/// Whether any file below `dir` holds `bytes`.
fn contains(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap().file_type() {
            kind if kind.is_dir() => contains(&path, bytes),
            kind if kind.is_file() => {
                std::fs::read(&path).unwrap().windows(bytes.len()).any(|part| part == bytes)
            }
            _ => false,
        }
    })
}

#[test]
fn a_token_that_is_not_there_is_named() {
    let hub = Hub::start();
    let world = world_with(&hub.url, "env:HUB_TOKEN");
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    let ran = world.run(&["events", "--deliver"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("HUB_TOKEN"), "{}", ran.stderr);
    assert!(hub.posts().is_empty());
    let none = World::new();
    let ran = none.run(&["events", "--deliver"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("SANDBOXER_HUB"), "{}", ran.stderr);
}

#[test]
fn events_are_listed_for_one_and_for_all() {
    let world = World::new();
    assert_eq!(world.json(&["events"]), serde_json::json!({"events": []}));
    for name in ["one", "two"] {
        world.ok(&["create", "--name", name, "-s", "filesystem_copy", "--actor-type", "agt"]);
    }
    world.ok(&["destroy", "one", "--discard"]);
    let all = world.json(&["events"])["events"].as_array().unwrap().clone();
    let kinds = |events: &[Value]| {
        events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(all.len(), 8);
    assert!(all.iter().all(|event| event["consumer"]["actor_type"] == "agt"));
    let one = world.json(&["events", "one"]);
    assert_eq!(one["name"], "one");
    let life = ["requested", "provisioning", "ready", "destroying", "destroyed"];
    assert_eq!(kinds(one["events"].as_array().unwrap()), life);
    let since = world.json(&["events", "--since", "6"])["events"].as_array().unwrap().clone();
    assert_eq!(kinds(&since), ["destroying", "destroyed"]);
    let text = world.ok(&["events"]);
    assert!(text.lines().next().unwrap().ends_with("Z  agt/local  one  requested"), "{text}");
    assert!(!world.path("home/courier").exists(), "nobody is told, so there is no courier");
    let log = world.json(&["log"]);
    assert_eq!(log["operations"][0]["consumer"]["actor_type"], "agt");
}

/// `sandbox events --follow`, and its lines as they come.
struct Following {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Following {
    fn start(world: &World, arguments: &[&str]) -> Self {
        let mut command: Command = world.command(&[&["events", "--follow"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (reader, kept) = (BufReader::new(child.stdout.take().unwrap()), lines.clone());
        std::thread::spawn(move || {
            reader.lines().map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line));
        });
        Self { child, lines }
    }

    fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }
}

#[test]
fn what_happens_is_followed_until_somebody_stops_it() {
    let world = World::with_sandbox();
    let mut following = Following::start(&world, &["--json"]);
    until("what was there", || following.count() == 3);
    world.ok(&["write", "try", "new.txt"]);
    world.ok(&["destroy", "try", "--discard"]);
    until("the last event", || {
        let last: Value = serde_json::from_str(following.lines.lock().unwrap().last().unwrap()).unwrap();
        last["kind"] == "destroyed" && last["name"] == "try"
    });
    let pid = rustix::process::Pid::from_child(&following.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(following.child.wait().unwrap().code(), Some(0));
}
