//! A sandbox in a container, from the profile to its end: the command, a real docker daemon, and nothing left behind.

use sandboxer_testkit::docker::{Docker, IMAGE};
use serde_json::{Value, json};

use crate::common::World;
use crate::common::pty::Terminal;

/// A user with a docker daemon of their own, and a profile for it.
struct Harbour {
    docker: &'static Docker,
    world: World,
}

impl Harbour {
    fn new() -> Option<Self> {
        let docker = Docker::shared().map_err(|reason| sandboxer_testkit::skip(&reason)).ok()?;
        let world = World::new();
        let extension = extension(&json!({"engine": docker.client(), "host": docker.host()}));
        // JSON is YAML.
        world.file("user/.config/sandboxer/extensions/ext.container.yaml", extension.to_string());
        let profile = json!({
            "id": "profile.box", "summary": "A box", "isolation": "container",
            "extension": {"policy": "explicit", "id": "ext.container"},
            "workspace": {"mode": "filesystem_copy"},
            "inputs": {"code": {"type": "fs-directory", "required": true, "mount": "/srv/code"}},
            "options": {"image": IMAGE},
        });
        world.file("user/.config/sandboxer/profiles/profile.box.yaml", profile.to_string());
        Some(Self { docker, world })
    }

    fn create(&self, more: &[&str]) -> Value {
        let arguments = ["create", "--profile", "profile.box", "--input", "code=.", "--name", "box"];
        self.world.json(&[&arguments, more].concat())
    }

    /// The containers of a sandbox.
    fn containers(&self, sandbox: &Value) -> String {
        let label = format!("--filter=label=sandboxer.sandbox={}", sandbox["sandbox_id"].as_str().unwrap());
        self.docker.run(&["ps", "--all", "--quiet", "--no-trunc", &label])
    }

    fn kinds(&self) -> Vec<String> {
        let events = self.world.json(&["events", "box"]);
        let kind = |event: &Value| event["kind"].as_str().map(str::to_owned);
        events["events"].as_array().unwrap().iter().filter_map(kind).collect()
    }
}

pub fn extension(options: &Value) -> Value {
    json!({
        "id": "ext.container", "summary": "Containers", "provider": "container",
        "capabilities": {
            "isolation": ["container"], "network": ["none", "host"], "workspaces": "host-path",
            "exec": true, "ports": true, "limits": true, "mounts": true,
        },
        "pricing": {"model": "free"}, "options": options,
    })
}

#[test]
fn a_life_in_a_container() {
    let Some(harbour) = Harbour::new() else { return };
    let world = &harbour.world;
    let made = harbour.create(&["--label", "team=blue", "--idempotency-key", "k1"]);
    assert_eq!(harbour.create(&["--idempotency-key", "k1"])["sandbox_id"], made["sandbox_id"]);
    assert_eq!(harbour.containers(&made).lines().count(), 1);
    assert_eq!(
        world.ok(&["exec", "box", "--", "cat", "/srv/code/hello.txt"]),
        world.text("project/hello.txt")
    );
    assert_eq!(world.run(&["exec", "box", "--", "sh", "-c", "exit 7"]).code, 7);
    world.ok(&["exec", "box", "--", "sh", "-c", "echo new > new; echo gone > /tmp/x"]);
    assert_eq!(world.ok(&["exec", "box", "-w", "src", "--", "ls"]), "main.rs\n");
    let ran: Value = serde_json::from_str(&world.ok(&["exec", "box", "--json", "--", "true"])).unwrap();
    assert_eq!((&ran["isolation"], &ran["network"]), (&json!("container"), &json!("none")));
    let refused = world.run(&["exec", "box", "--network", "host", "--", "true"]);
    assert!(refused.stderr.contains("are held by ext.container"), "{}", refused.stderr);
    assert_eq!(world.ok(&["diff", "box"]), "A new\n");
    world.ok(&["commit", "box"]);
    assert_eq!(world.text("project/new"), "new\n");
    world.ok(&["destroy", "box"]);
    assert_eq!(harbour.containers(&made), "");
    assert_eq!(harbour.kinds(), ["requested", "provisioning", "ready", "active", "destroying", "destroyed"]);
}

#[test]
fn a_container_that_somebody_removes_is_lost_and_made_again() {
    let Some(harbour) = Harbour::new() else { return };
    let (world, made) = (&harbour.world, harbour.create(&[]));
    world.ok(&["exec", "box", "--", "sh", "-c", "echo kept > /srv/code/work"]);
    harbour.docker.run(&["rm", "--force", &harbour.containers(&made)]);
    let report = world.json(&["gc"]);
    assert_eq!(report["environments"]["lost"][0], made["sandbox_id"]);
    let refused = world.run(&["exec", "box", "--", "true"]);
    assert!(refused.stderr.contains("sandbox recreate box"), "{}", refused.stderr);
    world.ok(&["recreate", "box"]);
    assert_eq!(world.ok(&["exec", "box", "--", "cat", "/srv/code/work"]), "kept\n");
    assert!(harbour.kinds().ends_with(&["lost".to_owned(), "recreated".to_owned()]));
    world.ok(&["destroy", "box", "--discard"]);
    assert_eq!(harbour.containers(&made), "");
}

#[test]
fn a_terminal_reaches_into_it() {
    let Some(harbour) = Harbour::new() else { return };
    harbour.create(&[]);
    let mut terminal = Terminal::start(&harbour.world, &["shell", "box"], "true");
    terminal.press("test -t 0 && test -t 1 && cat hello.txt; exit 3\n");
    terminal.expect("world");
    assert_eq!(terminal.finish().0, Some(3));
    harbour.world.ok(&["destroy", "box", "--discard"]);
}

#[test]
fn an_engine_that_does_not_answer_is_no_route() {
    let Some(harbour) = Harbour::new() else { return };
    let world = &harbour.world;
    let nobody = json!({"engine": harbour.docker.client(), "host": "unix:///nowhere/sock"});
    world.file("user/.config/sandboxer/extensions/ext.container.yaml", extension(&nobody).to_string());
    for command in ["route", "create"] {
        let error = world.json_error(&[command, "--profile", "profile.box"], 6);
        let candidates = error["candidates"].as_array().unwrap();
        let meant = candidates.iter().find(|candidate| candidate["extension_id"] == "ext.container").unwrap();
        assert!(meant["reason"].as_str().unwrap().contains("nowhere/sock"), "{meant}");
    }
    let doctor = world.json(&["doctor"]);
    let health = doctor["extensions"].as_array().unwrap().iter().find(|e| e["extension"] == "ext.container");
    assert_eq!(health.unwrap()["healthy"], false);
    assert_eq!(world.json(&["list"])["sandboxes"], json!([]));
}

#[test]
fn a_checkout_has_the_objects_that_it_borrows() {
    let Some(harbour) = Harbour::new() else { return };
    let world = &harbour.world;
    for words in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "--quiet", "-m", "first"],
    ] {
        let git =
            std::process::Command::new("git").args(words).current_dir(world.project()).status().unwrap();
        assert!(git.success(), "{words:?}");
    }
    harbour.create(&["--strategy", "git_worktree"]);
    let script = "ls \"$(cat .git/objects/info/alternates)\" | grep -c .; touch \"$(cat .git/objects/info/alternates)/x\"";
    let ran = world.run(&["exec", "box", "--", "sh", "-c", script]);
    assert!(ran.stdout.trim().parse::<u32>().unwrap() > 2 && ran.code != 0, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
    world.ok(&["destroy", "box", "--discard"]);
}
