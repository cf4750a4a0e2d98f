//! A stack on another machine, from the compose file to its end: the command, a real sshd, a real docker, and nothing left behind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::stack::{self, ONE, Yard, create, diff, write_profile};

const SHOP: &str = "
services:
  web:
    image: busybox:test
    command: httpd -f -p 8080 -h /shop
    working_dir: /shop
    volumes: ['..:/shop']
    ports: ['8080:8080']
    healthcheck: {test: [CMD, wget, -q, -O, '-', 'http://127.0.0.1:8080/hello.txt'], interval: 1s}
  store:
    image: busybox:test
    command: sh -c 'echo opened; echo trouble >&2; exec sleep infinity'
    init: true
    volumes: ['goods:/goods']
volumes: {goods: {}}
";

/// A program that is ended with the test.
struct Tunnel(Child);

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a server at a port of this machine answers to `GET /hello.txt`, once it does.
fn answer(port: u16) -> String {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(said) = ask(port).filter(|said| said.contains("200 OK")) {
            return said;
        }
        assert!(Instant::now() < until, "nobody answers at {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ask(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /hello.txt HTTP/1.0\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}

/// `sandbox forward`, and the port that it says.
fn forward(yard: &Yard, endpoint: &str) -> (Tunnel, u16) {
    let port = sandboxer_testkit::reserve_port().to_string();
    let mut command = yard.world.command(&["forward", "e2e", endpoint, "--port", &port, "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let tunnel = Tunnel(child);
    let mut text = String::new();
    // It goes on: the document is what comes up to its last bracket.
    while !text.contains('}') {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["endpoint"], "web:8080/tcp");
    (tunnel, u16::try_from(document["port"].as_u64().unwrap()).unwrap())
}

/// The line that `sandbox get` says comes to the same, typed with another port of this machine.
fn by_hand(yard: &Yard, line: &str) -> (Tunnel, u16) {
    let port = sandboxer_testkit::reserve_port();
    let typed = line.replacen("-L 8080:", &format!("-L {port}:"), 1);
    let mut shell = Command::new("sh");
    yard.world.furnish(&mut shell);
    (Tunnel(shell.args(["-c", &format!("exec {typed}")]).spawn().unwrap()), port)
}

#[test]
fn services_are_reached_from_each_other_and_from_here() {
    let Some(yard) = Yard::new(SHOP) else { return };
    let (world, made) = (&yard.world, yard.create());
    assert_eq!((&made["state"], &made["host"]), (&json!("ready"), &json!("h1")));
    let endpoint = &world.json(&["get", "e2e"])["environment"]["endpoints"][0];
    assert_eq!((&endpoint["name"], &endpoint["port"]), (&json!("web:8080/tcp"), &json!(8080)));
    assert_eq!(yard.inside("store", "wget -q -O - http://web:8080/hello.txt"), "hello\nworld\n");
    for (_tunnel, port) in [forward(&yard, "web"), by_hand(&yard, endpoint["forward"].as_str().unwrap())] {
        assert!(answer(port).ends_with("hello\nworld\n"));
    }
    for named in ["nobody", "8081"] {
        let error = world.json_error(&["forward", "e2e", named], 4);
        assert!(error["hints"].to_string().contains("web:8080/tcp"), "{error}");
    }
    assert!(world.ok(&["get", "e2e"]).contains("ssh -F"));
    let logs = world.run(&["logs", "e2e", "store"]);
    assert!(
        logs.stdout.contains("opened") && logs.stdout.contains("trouble"),
        "{} {}",
        logs.stdout,
        logs.stderr
    );
    assert_eq!(world.ok(&["logs", "e2e", "store", "--tail", "1"]).matches(" | ").count(), 1);
    assert!(world.ok(&["logs", "e2e"]).contains("opened"));
    world.json_error(&["logs", "e2e", "stroe"], 4);
    yard.destroy();
}

#[test]
fn what_services_change_is_looked_at_taken_back_and_committed() {
    let Some(yard) = Yard::new(ONE) else { return };
    let world = &yard.world;
    yard.create();
    yard.inside(
        "web",
        "echo more >> hello.txt; rm src/main.rs; mkdir d; echo new > d/a; chmod 700 run.sh; ln -s d l",
    );
    let all = ["A d/", "A d/a", "M hello.txt", "A l", "m run.sh  mode 0644 → 0700", "D src/main.rs"];
    assert_eq!(diff(world), all);
    let patch = world.ok(&["diff", "e2e", "--patch"]);
    assert!(patch.contains("+more") && patch.contains("new mode 100755"), "{patch}");
    assert_eq!(world.ok(&["read", "e2e", "d/a"]), "new\n");
    let written = world.run_with_input(&["write", "e2e", "d/b"], b"from here\n");
    assert_eq!(written.code, 0, "{}", written.stderr);
    assert_eq!(yard.inside("web", "cat d/b"), "from here\n");
    world.ok(&["checkpoint", "e2e", "one"]);
    yard.inside("web", "rm -r d; echo worse > hello.txt");
    world.ok(&["restore", "e2e", "one"]);
    assert_eq!(
        yard.inside("web", "cat d/a d/b; tail -n 1 hello.txt; stat -c %a run.sh; readlink l"),
        "new\nfrom here\nmore\n700\nd\n"
    );
    world.ok(&["rollback", "e2e", "hello.txt", "src", "run.sh"]);
    assert_eq!(
        yard.inside("web", "cat hello.txt src/main.rs; stat -c %a run.sh"),
        "hello\nworld\nfn main() {}\n644\n"
    );
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    world.ok(&["commit", "e2e"]);
    assert_eq!(
        (world.text("project/d/a"), world.text("project/d/b")),
        ("new\n".into(), "from here\n".into())
    );
    assert_eq!(diff(world), Vec::<String>::new());
    world.ok(&["undo", "e2e"]);
    assert!(!world.path("project/d").exists());
    assert_eq!(yard.inside("web", "cat d/a"), "new\n");
    yard.inside("web", "echo last > last");
    // What is only there is brought here before it ends.
    let ended = world.run(&["destroy", "e2e"]);
    assert!(ended.stdout.starts_with("parked sandbox e2e"), "{}{}", ended.stdout, ended.stderr);
    stack::nothing_there(world, yard.host);
    let parked = world.json(&["parked"]);
    assert!(parked.to_string().contains("e2e"), "{parked}");
}

#[test]
fn a_stack_is_made_again_with_its_volumes() {
    let Some(yard) = Yard::new(SHOP) else { return };
    let world = &yard.world;
    yard.create();
    yard.inside("store", "mkdir /goods/d; echo apples > /goods/list; ln -s list /goods/l; chmod 640 /goods/list; chown 7:8 /goods/list");
    yard.inside("web", "echo then > then");
    world.ok(&["checkpoint", "e2e", "stocked"]);
    yard.inside("store", "rm -r /goods/*; echo pears > /goods/others");
    yard.inside("web", "rm then; echo now > now");
    world.ok(&["recreate", "e2e", "--from", "stocked"]);
    let found = yard.inside("store", "cd /goods; ls; cat l; stat -c '%a %u %g' list");
    assert_eq!(found, "d\nl\nlist\napples\n640 7 8\n");
    assert_eq!(diff(world), ["A then"]);
    // Without a checkpoint it begins with the workspace as it is, and with empty volumes.
    yard.inside("web", "echo kept > kept");
    world.ok(&["recreate", "e2e"]);
    assert_eq!(yard.inside("store", "ls /goods"), "");
    assert_eq!(yard.inside("web", "cat kept then"), "kept\nthen\n");
    yard.destroy();
}

#[test]
fn what_cannot_be_brought_here_is_told() {
    let Some(yard) = Yard::new(ONE) else { return };
    yard.create();
    yard.inside("web", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkfifo p$i; done; echo more >> hello.txt");
    let ran = yard.world.run(&["diff", "e2e"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "M hello.txt\n"), "{}", ran.stderr);
    let warned = "warning: left out, or not as it was: p1: a device, socket or pipe";
    assert!(ran.stderr.contains(warned) && ran.stderr.contains("warning: and 2 more"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("socket or pipe").count(), 10, "{}", ran.stderr);
    // It is said when it happens, and not of what is as it was.
    assert!(!yard.world.run(&["diff", "e2e"]).stderr.contains("warning"));
    yard.destroy();
}

/// An image with files of its own where a volume is mounted, and a service that has ended and alone has another.
const STOCKED: &str = "
services:
  store: {build: ../image, command: sleep infinity, init: true, volumes: ['goods:/goods']}
  seed: {image: 'busybox:test', command: sh -c 'echo once >> /log/log', volumes: ['log:/log']}
volumes: {goods: {}, log: {}}
";

#[test]
fn a_checkpoint_has_every_volume_and_nothing_that_was_removed() {
    let Some(yard) = Yard::new(STOCKED) else { return };
    let world = &yard.world;
    let stocked =
        "FROM busybox:test\nRUN mkdir /goods; cd /goods; touch old new; chown 7:8 /goods; chmod 750 /goods\n";
    world.file("project/image/Dockerfile", stocked);
    let id = yard.create()["sandbox_id"].as_str().unwrap().to_owned();
    assert_eq!(yard.inside("store", "ls /goods"), "new\nold\n");
    yard.inside("store", "rm /goods/old");
    let tidy_up = || {
        let of = format!("label=sandboxer.sandbox={id}");
        let filters = ["--filter", &of, "--filter", "label=com.docker.compose.service=seed"];
        let seed = yard.host.run(&[&["ps", "--all", "--quiet"][..], &filters].concat());
        yard.host.run(&["rm", &seed]);
    };
    tidy_up();
    world.ok(&["checkpoint", "e2e", "stocked"]);
    world.ok(&["recreate", "e2e", "--from", "stocked"]);
    assert_eq!(yard.inside("store", "ls /goods; stat -c '%a %u %g' /goods"), "new\n750 7 8\n");
    let log = format!("sandboxer-{}_log", id.to_lowercase());
    let at = yard.host.run(&["volume", "inspect", "--format", "{{.Mountpoint}}", &log]);
    assert_eq!(yard.host.there("cat", &[&format!("{at}/log")]), "once\nonce");
    // What cannot be kept is not left out.
    tidy_up();
    yard.host.run(&["volume", "rm", &log]);
    let error = world.json_error(&["checkpoint", "e2e", "less"], 5);
    assert!(error["message"].as_str().unwrap().contains("volume log of the stack"), "{error}");
    assert!(error["hints"].to_string().contains("sandbox recreate"), "{error}");
    let left = yard.host.inventory(&id);
    assert!(!left.iter().any(|line| line.contains("sandboxer-volumes")), "{left:#?}");
    yard.destroy();
}

#[test]
fn a_checkout_is_a_repository_there_too() {
    let Some(yard) = Yard::new(ONE) else { return };
    let world = &yard.world;
    for words in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "--quiet", "-m", "first"],
    ] {
        let git = Command::new("git").args(words).current_dir(world.project()).status().unwrap();
        assert!(git.success(), "{words:?}");
    }
    world.ok(&[&create("profile.compose-e2e", "h1")[..], &["--strategy", "git_worktree"]].concat());
    assert_eq!(yard.inside("web", "test -e .git/HEAD && cat hello.txt"), "hello\nworld\n");
    yard.inside("web", "echo more >> hello.txt; echo new > new");
    assert_eq!(diff(world), ["M hello.txt", "A new"]);
    world.ok(&["rollback", "e2e", "hello.txt"]);
    assert_eq!(yard.inside("web", "cat hello.txt"), "hello\nworld\n");
    world.ok(&["commit", "e2e", "-m", "by a stack"]);
    world.ok(&["destroy", "e2e"]);
    yard.is_clean();
}

#[test]
fn a_stack_has_every_input_that_it_is_given() {
    let Some(yard) = Yard::with_own_host(ONE) else { return };
    let world = &yard.world;
    world.file("data/rows", "1\n2\n");
    let inputs =
        json!({"repo": {"type": "fs-directory", "required": true}, "data": {"type": "fs-directory"}});
    write_profile(world, "two", &json!({"inputs": inputs, "options": {"input": "repo"}}));
    let data = format!("data={}", world.path("data").display());
    let made = world.json(&[&create("profile.two", "h1")[..], &["--input", &data]].concat());
    assert_eq!(made["workspaces"].as_array().unwrap().len(), 2);
    let there = yard.host.there("sh", &["-c", "cat /root/.sandboxer/*/*/workspaces/data/rows"]);
    assert_eq!(there, "1\n2");
    yard.inside("web", "echo x > x");
    assert!(world.ok(&["diff", "e2e"]).contains("A x"));
    yard.destroy();
}
