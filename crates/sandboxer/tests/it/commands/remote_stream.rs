//! `sandbox --server URL`: what comes as it happens, and what shows a server who asks.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::serving::Serving;
use crate::common::{Ran, World};

fn with_sandbox<'a>(world: &'a World, server: &Serving<'_>) -> &'a World {
    server.ok(&["create", world.project().to_str().unwrap(), "--name", "try"]);
    world
}

/// The text of a new token.
fn token(world: &World, scope: &str) -> String {
    let place = world.path("").display().to_string();
    let arguments =
        ["token", "create", "--principal", "ci", "--actor", "adm", "--project", "local", "--scope", scope];
    let made = world.json(&[&arguments[..], &["--resource", &place]].concat());
    made["text"].as_str().unwrap().to_owned()
}

fn started(world: &World, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = world.command(arguments);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn line(out: &mut impl BufRead) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line
}

#[test]
fn output_comes_as_it_is_written_and_the_exit_code_is_the_commands() {
    let world = World::new();
    let server = Serving::start(&world);
    with_sandbox(&world, &server);
    let script = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo second; echo odd >&2; exit 7";
    let (child, mut out) =
        started(&world, &["--server", &server.socket, "exec", "try", "--", "sh", "-c", script]);
    assert_eq!(line(&mut out), "first\n");
    server.ok(&["exec", "try", "--", "touch", "go"]);
    assert_eq!((line(&mut out), line(&mut out)), ("second\n".into(), String::new()));
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (7, "odd\n"));
}

#[test]
fn commands_get_what_travels_and_nothing_else() {
    let world = World::new();
    let server = Serving::start(&world);
    with_sandbox(&world, &server);
    let exec = |arguments: &[&str], input: &[u8]| {
        world.run_with_input(&[&["--server", &server.socket, "exec", "try"], arguments].concat(), input)
    };
    assert_eq!(exec(&["--", "cat"], "z\u{fc}rich\n".as_bytes()).stdout, "z\u{fc}rich\n");
    assert_eq!(
        exec(&["-w", "src", "--env", "A=b c", "--", "sh", "-c", "echo $A; ls"], b"").stdout,
        "b c\nmain.rs\n"
    );
    assert_eq!(exec(&["--", "printf", "\\377\\n"], b"").raw, b"\xff\n");
    assert_eq!(exec(&["--timeout", "1s", "--", "sleep", "30"], b"").code, 124);
    assert_eq!(exec(&["--", "no-such-program"], b"").code, 127);
    let odd = exec(&["--", "cat"], b"\xff");
    assert_eq!(odd.code, 125, "{}", odd.stderr);
    assert!(odd.stderr.contains("not UTF-8"), "{}", odd.stderr);
    assert_eq!(server.run(&["exec", "nope", "--", "true"]).code, 125);
    let document = server.run(&["--json", "exec", "try", "--", "sh", "-c", "echo out; exit 3"]);
    assert_eq!((document.code, document.stderr.as_str()), (3, "out\n"));
    assert_eq!(serde_json::from_str::<Value>(&document.stdout).unwrap()["exit_code"], 3);
}

#[test]
fn a_token_shows_who_asks_and_is_seen_nowhere() {
    let world = World::new();
    let (commit, read) = (token(&world, "commit"), token(&world, "read"));
    // The server's own surroundings do not reach commands either.
    let server = Serving::with(&world, &[("SANDBOXER_TOKEN", &commit)]);
    let project = world.project().display().to_string();
    let made = server.with_token(&commit, &["create", &project, "--name", "try", "--json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let seen = server.with_token(&commit, &["exec", "try", "--", "env"]);
    assert_eq!(seen.code, 0, "{}", seen.stderr);
    assert!(
        seen.stdout.contains("SANDBOX_NAME=try") && !seen.stdout.contains("SANDBOXER_"),
        "{}",
        seen.stdout
    );
    for level in ["files", "standard", "strict"] {
        let mut command = world.command(&["exec", "try", "--isolation", level, "--", "env"]);
        let here = Ran::of(command.env("SANDBOXER_TOKEN", &commit).output().unwrap());
        assert_eq!(here.code, 0, "{level}: {}", here.stderr);
        assert!(!here.stdout.contains(&commit), "{level}: {}", here.stdout);
    }

    let file = world.path("token");
    std::fs::write(&file, format!("{commit}\n")).unwrap();
    world.ok(&["--server", &server.url, "--token-file", file.to_str().unwrap(), "get", "try"]);

    let wrong = format!("{}x", &commit[..commit.len() - 1]);
    let elsewhere = format!("{}/elsewhere", std::env::temp_dir().display());
    for (refused, why) in [
        (server.with_token(&read, &["commit", "try"]), "commit"),
        (server.with_token(&commit, &["create", &elsewhere]), "may not isolate"),
        (server.with_token(&wrong, &["list"]), "SANDBOXER_TOKEN"),
        (server.with_token("", &["list"]), "sandbox token create"),
    ] {
        assert_eq!(refused.code, 5, "{}", refused.stderr);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
        for secret in [&commit, &read, &wrong] {
            assert!(!refused.stderr.contains(secret.as_str()), "{}", refused.stderr);
        }
    }
    let mut plain = world.command(&["--server", "http://sandboxes.example:7070", "list"]);
    let plain = Ran::of(plain.env("SANDBOXER_TOKEN", &commit).output().unwrap());
    assert_eq!(plain.code, 5, "{}", plain.stderr);
    assert!(
        plain.stderr.contains("without encryption") && !plain.stderr.contains(&commit),
        "{}",
        plain.stderr
    );
}

#[test]
fn events_go_on_across_a_restart_of_the_server() {
    let world = World::new();
    let server = Serving::start(&world);
    with_sandbox(&world, &server);
    let (child, mut out) = started(&world, &["--server", &server.socket, "events", "--follow", "--json"]);
    let mut kinds = |count: usize| -> Vec<(u64, String)> {
        let event = |_| {
            let event: Value = serde_json::from_str(&line(&mut out)).unwrap();
            (event["seq"].as_u64().unwrap(), event["kind"].as_str().unwrap().to_owned())
        };
        (0..count).map(event).collect()
    };
    let first = kinds(3);
    assert_eq!(first[2].1, "ready");
    server.ok(&["extend", "try", "2h"]);
    assert_eq!(kinds(1)[0].1, "extended");
    server.stop();
    // While nobody answers, something happens.
    world.ok(&["extend", "try", "3h"]);
    let server = Serving::start(&world);
    let missed = kinds(1);
    assert_eq!((missed[0].0, missed[0].1.as_str()), (first[2].0 + 2, "extended"), "once, and none left out");
    server.ok(&["recreate", "try"]);
    assert_eq!(kinds(1)[0].0, missed[0].0 + 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "--json has nothing but errors on stderr");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_command() {
    let world = World::new();
    let server = Serving::start(&world);
    with_sandbox(&world, &server);
    let (mut child, mut out) = started(&world, &["--server", &server.socket, "exec", "try", "--", "yes"]);
    assert_eq!(line(&mut out), "y\n");
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(0), "a closed pipe is no error");
    // Soon nothing runs in it any more, and it can end.
    let ends = || server.run(&["destroy", "try"]).code == 0;
    let waited = |_: &i32| std::thread::sleep(std::time::Duration::from_millis(100));
    assert!((0..100).inspect(waited).any(|_| ends()), "the command goes on with nobody there");
}
