//! Commits decided by rules: flags, `--if`, policy files, and what a refusal says.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::pty::Terminal;
use crate::common::{self, Ran, World};

/// A sandbox `try` with a change in each of these files.
fn changed(paths: &[&str]) -> World {
    let world = World::with_sandbox();
    let inside = world.inside("try");
    for path in paths {
        let path = inside.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "changed\n").unwrap();
    }
    world
}

fn rules(error: &Value) -> Vec<&str> {
    error["rules"].as_array().unwrap().iter().map(|rule| rule["rule"].as_str().unwrap()).collect()
}

#[test]
fn flagged_paths_need_a_word() {
    let world = changed(&[".envrc", "hello.txt"]);
    let refused = world.run(&["commit", "try"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""));
    assert!(refused.stderr.starts_with("error: refused by the rule flags\n"), "{}", refused.stderr);
    assert!(refused.stderr.contains("\n    .envrc: runs by itself\n"), "{}", refused.stderr);
    assert!(refused.stderr.contains("`sandbox commit try --accept-flags`"), "{}", refused.stderr);
    assert!(!world.project().join(".envrc").exists());
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n", "nothing is committed by halves");

    world.ok(&["commit", "try", "hello.txt"]);
    assert_eq!(world.text("project/hello.txt"), "changed\n");
    world.ok(&["commit", "try", "--accept-flags"]);
    assert!(world.project().join(".envrc").exists());
}

#[test]
fn an_answer_that_nobody_gives_is_no() {
    let world = changed(&[".envrc"]);
    assert_eq!(world.run_with_input(&["commit", "try"], b"y\n").code, 5, "a pipe is not a person");
    assert!(!world.project().join(".envrc").exists());
}

/// Runs a command on a terminal of its own and types `answer`.
fn on_a_terminal(world: &World, arguments: &str, answer: &str) -> Ran {
    let mut command = Command::new("script");
    world.furnish(&mut command);
    let line = format!("'{}' {arguments}", common::SANDBOX);
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

#[test]
fn a_person_decides_about_what_is_flagged() {
    if Command::new("script").arg("--version").output().is_err() {
        return sandboxer_testkit::skip("script(1) is not there to make a terminal");
    }
    let world = changed(&[".envrc", "hello.txt"]);
    for answer in ["n\n", "\n"] {
        let refused = on_a_terminal(&world, "commit try", answer);
        assert_eq!(refused.code, 5, "{}", refused.stdout);
        assert!(refused.stdout.contains(".envrc: runs by itself"), "{}", refused.stdout);
        assert!(refused.stdout.contains("commit them all the same? [y/N]"), "{}", refused.stdout);
    }
    assert!(!world.project().join(".envrc").exists());
    let other = on_a_terminal(&world, "commit try --if max-files=1", "y\n");
    assert_eq!(other.code, 5, "a rule that was asked for is not waved through: {}", other.stdout);
    assert!(!other.stdout.contains("[y/N]"), "{}", other.stdout);

    let done = on_a_terminal(&world, "commit try", "y\n");
    assert_eq!(done.code, 0, "{}", done.stdout);
    assert!(world.project().join(".envrc").exists());
}

#[test]
fn a_yes_is_for_the_content_that_was_about_to_be_committed() {
    let world = changed(&[".envrc"]);
    let mut terminal = Terminal::start(&world, &["commit", "try"], "false");
    terminal.expect("commit them all the same? [y/N] ");
    fs::write(world.inside("try").join(".envrc"), "slipped in\n").unwrap();
    terminal.press("y\n");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(5), "{screen}");
    assert!(screen.contains("has changed since you were asked"), "{screen}");
    assert!(!world.project().join(".envrc").exists());
}

#[test]
fn a_commit_goes_ahead_if_every_rule_holds() {
    let world = changed(&["src/main.rs", "src/new/deep.rs"]);
    let policy = "paths=src/**; not-paths=*.lock; max-files=2; max-bytes=1KiB; kinds=created,modified; \
                  no-deletes; no-binary; no-flags; no-exec; no-links";
    world.ok(&["commit", "try", "--if", policy]);
    assert_eq!(world.text("project/src/new/deep.rs"), "changed\n");
}

#[test]
fn a_refusal_lists_every_rule_that_failed() {
    let world = changed(&[".envrc", "hello.txt", "src/main.rs"]);
    fs::remove_file(world.inside("try").join("run.sh")).unwrap();
    world.file("policy.yaml", "max_bytes: 10\nlinks: false\n");
    let file = world.path("policy.yaml");
    let typed = [
        "commit",
        "try",
        "--if",
        "paths=src/**; max-files=9; no-deletes",
        "--policy",
        file.to_str().unwrap(),
    ];
    let error = world.json_error(&typed, 5);
    assert_eq!(error["kind"], "refused");
    assert_eq!(rules(&error), ["flags", "max-bytes=10", "paths=src/**", "no-deletes"]);
    assert_eq!(error["rules"][0]["paths"][0]["reason"], "runs by itself");
    assert_eq!(error["rules"][1]["source"], file.to_str().unwrap());
    assert_eq!(error["rules"][1]["detail"], "what changed has 24 bytes together");
    let outside: Vec<_> =
        error["rules"][2]["paths"].as_array().unwrap().iter().map(|p| p["path"].clone()).collect();
    assert_eq!(outside, [json!(".envrc"), json!("hello.txt"), json!("run.sh")]);

    let told = world.run(&typed);
    assert_eq!(told.code, 5);
    for line in
        ["  max-bytes=10 (", "  paths=src/** (--if): 3 paths match none of these", "    run.sh: deleted"]
    {
        assert!(told.stderr.contains(line), "{line:?} in {}", told.stderr);
    }
    assert_eq!(world.text("project/src/main.rs"), "fn main() {}\n");
}

#[test]
fn no_flags_is_stronger_than_accept_flags() {
    let world = changed(&[".envrc"]);
    let error = world.json_error(&["commit", "try", "--accept-flags", "--if", "no-flags"], 5);
    assert_eq!(rules(&error), ["no-flags"]);
    let error = world.json_error(&["commit", "try", "--if", "max-files=5"], 5);
    assert_eq!(rules(&error), ["flags"], "a policy without a word on flags lets none through");
    world.ok(&["commit", "try", "--if", "max-files=5", "--accept-flags"]);
}

#[test]
fn many_paths_are_cut_short_for_people_only() {
    let paths: Vec<String> = (0..25).map(|n| format!("docs/{n:02}.txt")).collect();
    let world = changed(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = world.run(&["commit", "try", "--if", "paths=src/**"]);
    assert!(refused.stderr.contains("    docs/09.txt\n    and 15 more\n"), "{}", refused.stderr);
    let error = world.json_error(&["commit", "try", "--if", "paths=src/**"], 5);
    assert_eq!(error["rules"][0]["paths"].as_array().unwrap().len(), 25);
}

#[test]
fn a_rule_that_is_not_known_is_a_usage_error() {
    let world = changed(&["hello.txt"]);
    let error = world.json_error(&["commit", "try", "--if", "max-file=3"], 2);
    assert_eq!(error["message"], "--if: unknown rule \"max-file\"");
    let hint = error["hints"][0].as_str().unwrap();
    assert!(hint.starts_with("did you mean \"max-files\"? the rules are paths,"), "{hint}");
    assert_eq!(world.run(&["commit", "try", "--if", ""]).code, 2, "an unset variable is no policy");
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
}

#[test]
fn a_policy_file_with_a_mistake_names_file_line_and_word() {
    let world = changed(&["hello.txt"]);
    world.file("project/p.yaml", "paths: [\"*.txt\"]\nmax_file: 3\n");
    let refused = world.run(&["commit", "try", "--policy", "p.yaml"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.starts_with("error: p.yaml:2:1: unknown key \"max_file\"\n"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("did you mean \"max_files\"?"), "{}", refused.stderr);
    assert_eq!(world.run(&["commit", "try", "--policy", "missing.yaml"]).code, 1);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    world.file("project/p.yaml", "paths: [\"*.txt\"]\nmax_files: 3\n");
    world.ok(&["commit", "try", "--policy", "p.yaml"]);
}

#[test]
fn the_configuration_adds_a_policy_that_always_holds() {
    let world = changed(&["hello.txt", "src/main.rs"]);
    world.file("policy.yaml", "paths: [\"src/**\"]\n");
    let config = format!("commit:\n  policy: {}\n", world.path("policy.yaml").display());
    world.file("user/.config/sandboxer/config.yaml", &config);
    let error = world.json_error(&["commit", "try", "--accept-flags", "--if", "max-files=9"], 5);
    assert_eq!(rules(&error), ["paths=src/**"]);
    world.ok(&["commit", "try", "src"]);

    world.file("project/sandboxer.yaml", &config);
    world.file("user/.config/sandboxer/config.yaml", "");
    let ran = world.run(&["run", "--commit", "--", "true"]);
    assert!(ran.stderr.contains("commit.policy is not for an untrusted project to set"), "{}", ran.stderr);
}

#[test]
fn a_run_commits_under_rules_and_keeps_the_sandbox_otherwise() {
    let world = World::new();
    let run = |rule: &str, script: &str| {
        world.run(&[
            "run",
            "-s",
            "filesystem_copy",
            "--name",
            "r",
            "--commit",
            "--if",
            rule,
            "--",
            "sh",
            "-c",
            script,
        ])
    };
    assert_eq!(run("paths=*.txt", "echo x > hello.txt").code, 0);
    assert_eq!(world.text("project/hello.txt"), "x\n");

    let refused = run("paths=src/**", "echo y > hello.txt");
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("paths=src/** (--if): 1 path matches none of these"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("`sandbox commit r PATH…`"), "{}", refused.stderr);
    assert_eq!(world.text("project/hello.txt"), "x\n");
    world.ok(&["commit", "r"]);
    assert_eq!(world.text("project/hello.txt"), "y\n");
}

#[test]
fn a_run_refuses_bad_rules_before_the_command_starts() {
    let world = World::new();
    let ran = world.run(&["run", "--commit", "--if", "no-way", "--", "touch", "started"]);
    assert_eq!(ran.code, 125);
    assert!(ran.stderr.contains("unknown rule \"no-way\""), "{}", ran.stderr);
    assert_eq!(world.json(&["list"])["sandboxes"], json!([]));
    let flagged =
        world.run(&["run", "-s", "filesystem_copy", "--commit", "--accept-flags", "--", "touch", ".envrc"]);
    assert_eq!(flagged.code, 0, "{}", flagged.stderr);
    assert!(world.project().join(".envrc").exists());
}

#[test]
fn status_tells_how_many_are_flagged_and_which() {
    let world = changed(&[".envrc", "AGENTS.md", ".vscode/tasks.json", ".npmrc", "hello.txt"]);
    let shown = world.ok(&["status", "try"]);
    let expected = "4 paths to look at before a commit: .envrc (runs by itself), .npmrc (runs by itself), \
                    .vscode/tasks.json (runs by itself), 1 more";
    assert!(shown.contains(expected), "{shown}");
    assert_eq!(world.run(&["status", "other"]).code, 4);
    assert_eq!(world.json(&["status"])["sandboxes"][0]["warnings"][0], expected);
}

#[test]
fn large_binaries_are_flagged_and_large_texts_are_not() {
    let world = World::with_sandbox();
    let inside = world.inside("try");
    fs::write(inside.join("model.bin"), vec![0; (5 << 20) + 1]).unwrap();
    fs::write(inside.join("log.txt"), vec![b'x'; (5 << 20) + 1]).unwrap();
    let error = world.json_error(&["commit", "try"], 5);
    let paths = error["rules"][0]["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 1);
    assert_eq!((&paths[0]["path"], &paths[0]["reason"]), (&json!("model.bin"), &json!("large binary")));
}
