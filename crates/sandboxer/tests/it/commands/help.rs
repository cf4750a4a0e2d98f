//! Help, completions and man pages.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::World;

const COMMANDS: [&str; 45] = [
    "run",
    "exec",
    "shell",
    "ps",
    "logs",
    "forward",
    "events",
    "create",
    "list",
    "get",
    "extend",
    "recreate",
    "status",
    "path",
    "read",
    "write",
    "diff",
    "commit",
    "undo",
    "refresh",
    "rollback",
    "checkpoint",
    "checkpoints",
    "restore",
    "log",
    "show",
    "destroy",
    "parked",
    "unpark",
    "usage",
    "gc",
    "reconcile",
    "adopt",
    "serve",
    "token",
    "trust",
    "strategies",
    "types",
    "profiles",
    "extensions",
    "hosts",
    "route",
    "doctor",
    "completions",
    "man",
];

fn listed_commands(help: &str) -> Vec<String> {
    let section =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    section
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| *word != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_of_every_command() {
    let world = World::new();
    let help = world.ok(&["--help"]);
    assert_eq!(listed_commands(&world.ok(&["-h"])), COMMANDS);
    insta::assert_snapshot!("help", help);
    for command in COMMANDS {
        insta::assert_snapshot!(format!("help_{command}"), world.ok(&[command, "--help"]));
    }
    for what in ["create", "list", "revoke"] {
        insta::assert_snapshot!(format!("help_token_{what}"), world.ok(&["token", what, "--help"]));
    }
    for what in ["check", "sweep"] {
        insta::assert_snapshot!(format!("help_hosts_{what}"), world.ok(&["hosts", what, "--help"]));
    }
}

#[test]
fn version_is_told() {
    let world = World::new();
    assert_eq!(world.ok(&["--version"]), format!("sandbox {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn nothing_at_all_is_answered_with_help() {
    let ran = World::new().run(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("Usage: sandbox"), "{}", ran.stderr);
}

/// Feeds a script to a shell that only checks its syntax.
fn parses(shell: &str, arguments: &[&str], script: &str) {
    let spawned = Command::new(shell).args(arguments).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        return sandboxer_testkit::skip(&format!("{shell} is not installed: its completions are not parsed"));
    };
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn completions_know_every_command_and_parse() {
    let world = World::new();
    // Elvish has no way to check a completion script without a terminal: `edit:` is not there then.
    let shells: [(&str, Option<&[&str]>); 4] =
        [("bash", Some(&["-n"])), ("zsh", Some(&["-n"])), ("fish", Some(&["-n"])), ("elvish", None)];
    for (shell, check) in shells {
        let script = world.ok(&["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} completions lack {command}");
        }
        if let Some(check) = check {
            parses(shell, check, &script);
        }
    }
    assert!(world.json(&["completions", "bash"])["script"].as_str().unwrap().contains("complete"));
    assert_eq!(world.run(&["completions", "tcsh"]).code, 2);
}

#[test]
fn man_pages_render() {
    let world = World::new();
    let page = world.ok(&["man"]);
    assert!(page.contains(".TH sandbox 1"), "{page}");
    let directory = world.path("man1");
    world.ok(&["man", directory.to_str().unwrap()]);
    for command in COMMANDS {
        let page = std::fs::read_to_string(directory.join(format!("sandbox-{command}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{command}");
    }
    let rendered =
        Command::new("man").args(["-l", "--warnings"]).arg(directory.join("sandbox-commit.1")).output();
    match rendered {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("sandbox-commit") && output.stderr.is_empty(), "{output:?}");
        }
        _ => sandboxer_testkit::skip("man is not installed: the pages are not rendered"),
    }
}
