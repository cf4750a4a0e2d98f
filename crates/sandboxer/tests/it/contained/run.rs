//! `sandbox run`: the command's exit code, what happens to the sandbox, and what is asked.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::pty::Terminal;
use crate::common::{Ran, World};

fn open_sandboxes(world: &World) -> usize {
    world.json(&["list"])["sandboxes"].as_array().unwrap().len()
}

/// A transcript without what a command used, which differs from run to run.
fn transcript(ran: &Ran, world: &World) -> String {
    without_resources(&ran.transcript(world))
}

fn without_resources(text: &str) -> String {
    let redacted = |line: &str| match line.trim_start() {
        used if used.starts_with("used ") => "used [RESOURCES]".to_owned(),
        field
            if ["\"wall_ms\"", "\"cpu_ms\"", "\"memory_peak\""]
                .iter()
                .any(|name| field.starts_with(name)) =>
        {
            let (name, _) = line.split_once(": ").unwrap();
            format!("{name}: [RESOURCES]")
        }
        _ => line.to_owned(),
    };
    text.lines().map(|line| redacted(line) + "\n").collect()
}

#[test]
fn exit_codes_are_the_commands_own_and_ours() {
    let world = World::new();
    let code = |command: &[&str]| world.run(&[&["run", "--"], command].concat()).code;
    assert_eq!(code(&["true"]), 0);
    assert_eq!(code(&["sh", "-c", "exit 7"]), 7);
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), 143);
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), 137);
    assert_eq!(code(&["no-such-command-at-all"]), 127);
    assert_eq!(code(&["./hello.txt"]), 126);
    assert_eq!(world.run(&["run"]).code, 2);
    assert_eq!(open_sandboxes(&world), 0, "runs that changed nothing left sandboxes behind");
}

#[test]
fn nothing_changed_removes_the_sandbox_and_says_so() {
    let world = World::new();
    let ran = world.run(&["run", "-s", "filesystem_copy", "--", "cat", "hello.txt"]);
    insta::assert_snapshot!("run_unchanged", transcript(&ran, &world));
}

#[test]
fn without_a_terminal_the_sandbox_is_kept() {
    let world = World::new();
    let ran =
        world.run(&["run", "-s", "filesystem_copy", "--", "sh", "-c", "echo new > new.txt; rm hello.txt"]);
    insta::assert_snapshot!("run_kept", transcript(&ran, &world));
    assert!(world.path("project/hello.txt").exists() && !world.path("project/new.txt").exists());
    assert_eq!(open_sandboxes(&world), 1);
    world.ok(&["commit", "project"]);
    assert!(!world.path("project/hello.txt").exists() && world.path("project/new.txt").exists());
}

#[test]
fn commit_is_for_commands_that_succeed() {
    let world = World::new();
    let ran =
        world.run(&["run", "-s", "filesystem_copy", "--commit", "--", "sh", "-c", "echo new > new.txt"]);
    insta::assert_snapshot!("run_commit", transcript(&ran, &world));
    assert_eq!(world.text("project/new.txt"), "new\n");
    assert_eq!(open_sandboxes(&world), 0);

    let failed = world.run(&["run", "--commit", "--name", "failed", "--", "sh", "-c", "echo x > x; exit 3"]);
    assert_eq!(failed.code, 3);
    assert!(!world.path("project/x").exists());
    assert!(failed.stderr.contains("the command failed, so nothing was committed"), "{}", failed.stderr);
    assert!(failed.stderr.contains("sandbox commit failed"), "{}", failed.stderr);
    assert_eq!(open_sandboxes(&world), 1);
}

#[test]
fn discard_leaves_nothing() {
    let world = World::new();
    let ran =
        world.run(&["run", "-s", "filesystem_copy", "--discard", "--", "sh", "-c", "echo new > new.txt"]);
    insta::assert_snapshot!("run_discard", transcript(&ran, &world));
    assert_eq!(open_sandboxes(&world), 0);
    assert!(!world.path("project/new.txt").exists());
}

#[test]
fn keep_keeps_even_what_is_unchanged() {
    let world = World::new();
    world.ok(&["run", "--keep", "--name", "mine", "--", "true"]);
    assert_eq!(world.json(&["get", "mine"])["state"], "active");
}

#[test]
fn a_plan_uses_its_sandbox_again() {
    let world = World::new();
    world.ok(&["run", "--plan", "p", "--", "sh", "-c", "echo 1 > one"]);
    let ran = world.run(&["run", "--plan", "p", "--", "cat", "one"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1\n"), "{}", ran.stderr);
    assert_eq!(open_sandboxes(&world), 1);
}

#[test]
fn a_conflict_of_commit_is_three_and_keeps_the_sandbox() {
    let world = World::new();
    let original = world.path("project/hello.txt");
    let script = "echo mine > hello.txt; echo ready; read line";
    let run = ["run", "--commit", "--name", "c", "--", "sh", "-c", script];
    let ran = world.run_while(&run, || fs::write(&original, "theirs\n").unwrap());
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("sandbox rollback c hello.txt"), "{}", ran.stderr);
    assert_eq!(world.text("project/hello.txt"), "theirs\n");
    assert_eq!(open_sandboxes(&world), 1);
}

#[test]
fn json_comes_alone_on_stdout() {
    let world = World::new();
    let ran = world.run(&[
        "run",
        "-s",
        "filesystem_copy",
        "--json",
        "--",
        "sh",
        "-c",
        "echo noise; echo new > new.txt; exit 4",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (4, "noise\n"));
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&document["outcome"], &document["exit_code"]), (&"kept".into(), &4.into()));
    assert_eq!(document["entries"][0]["path"], "new.txt");
    assert!(document["sandbox_path"].is_string());
    insta::assert_snapshot!("run_json", without_resources(&world.redact(&ran.stdout)));
}

#[test]
fn no_isolation_has_to_be_asked_for() {
    let world = World::new();
    world.file("user/.config/sandboxer/config.yaml", "sandbox:\n  strategy: none\n");
    let refused = world.run(&["run", "--", "touch", "x"]);
    assert_eq!(refused.code, 125);
    assert!(refused.stderr.contains("isolates nothing"), "{}", refused.stderr);
    assert!(!world.path("project/x").exists());
    assert_eq!(open_sandboxes(&world), 0);
    let meant = world.run(&["run", "--strategy", "none", "--", "touch", "x"]);
    assert_eq!(meant.code, 0, "{}", meant.stderr);
    assert!(meant.stderr.contains("files are not isolated"), "{}", meant.stderr);
    assert!(meant.stderr.contains("contained: standard isolation, no network"), "{}", meant.stderr);
    assert!(world.path("project/x").exists());
}

#[test]
fn a_relative_command_is_the_sandboxs_own() {
    let world = World::new();
    fs::set_permissions(world.path("project/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(world.ok(&["run", "--", "./run.sh"]), "hi\n");
    let elsewhere = world.ok(&["run", "-C", "src", "--", "ls"]);
    assert_eq!(elsewhere, "main.rs\n");
}

#[test]
fn a_signal_to_us_reaches_the_command() {
    let world = World::new();
    let script = "trap 'echo got it > got; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = world.command(&["run", "--", "bash", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 9, "{}", ran.stderr);
    assert!(ran.stderr.contains("the sandbox is kept"), "{}", ran.stderr);
    assert!(world.inside("@last").join("got").exists());
}

#[test]
fn a_sandbox_does_not_end_while_its_command_runs() {
    let world = World::new();
    let script = "echo mine > new.txt; echo ready; read line; cat new.txt";
    let mut command =
        world.command(&["run", "-s", "filesystem_copy", "--name", "r", "--commit", "--", "sh", "-c", script]);
    command.env("SANDBOXER_DEFAULT_TTL", "1s");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(open_sandboxes(&world), 1, "its time was up, and it went from under the command");
    let refused = world.json_error(&["destroy", "r", "--discard"], 1);
    assert_eq!(refused["kind"], "busy");
    assert!(refused["message"].as_str().unwrap().contains("a command is running in it"), "{refused}");
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "mine\n"), "{}", ran.stderr);
    assert_eq!(world.text("project/new.txt"), "mine\n");
    assert_eq!(open_sandboxes(&world), 0);
}

/// Whether a process with exactly these arguments is alive anywhere.
fn runs(arguments: &str) -> bool {
    let wanted = arguments.replace(' ', "\0") + "\0";
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line == wanted.as_bytes())
}

#[test]
fn what_a_command_leaves_running_ends_with_it() {
    let world = World::new();
    let sleeper = format!("sleep {}", 40_000 + std::process::id());
    let script = format!("touch new; setsid {sleeper} >/dev/null 2>&1 & {sleeper} & true");
    let ran = world.run(&["run", "--keep", "--name", "r", "--", "sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!runs(&sleeper), "it outlived its sandbox's last command");
    let destroyed = world.run(&["destroy", "r", "--discard"]);
    assert_eq!(destroyed.code, 0, "{}", destroyed.stderr);
    assert_eq!(fs::read_dir(world.path("home/scratch")).unwrap().count(), 0, "something was left behind");
}

const CHANGE: [&str; 5] = ["run", "--", "sh", "-c", "echo new > new.txt"];

/// Runs in a terminal, and types each answer when it is asked for.
fn in_terminal(world: &World, answers: &[&str]) -> (Option<i32>, String) {
    let mut terminal = Terminal::start(world, &CHANGE, "false");
    for answer in answers {
        terminal.expect("[x] discard? ");
        terminal.press(&format!("{answer}\n"));
    }
    terminal.finish()
}

#[test]
fn a_terminal_is_asked_and_can_commit() {
    let world = World::new();
    let (code, screen) = in_terminal(&world, &["what", "d", "c"]);
    assert_eq!(code, Some(0), "{screen}");
    for part in ["[c]ommit, [d]iff, [k]eep (default)", "type c, d, k or x", "+new", "committed 1 change"] {
        assert!(screen.contains(part), "{part} is missing:\n{screen}");
    }
    assert_eq!(world.text("project/new.txt"), "new\n");
    assert_eq!(open_sandboxes(&world), 0);
}

#[test]
fn what_has_changed_since_it_was_shown_is_not_committed() {
    let world = World::new();
    let arguments = ["run", "--name", "r", "--", "sh", "-c", "echo shown > new.txt"];
    let mut terminal = Terminal::start(&world, &arguments, "false");
    terminal.expect("[x] discard? ");
    fs::write(world.inside("r").join("new.txt"), "slipped in\n").unwrap();
    terminal.press("c\n");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(5), "{screen}");
    assert!(screen.contains("the sandbox has changed since its difference was shown"), "{screen}");
    assert!(!world.path("project/new.txt").exists());
    assert_eq!(open_sandboxes(&world), 1, "it is kept");
}

#[test]
fn what_is_merged_is_committed_though_it_is_not_what_was_shown() {
    let world = World::new();
    let original = world.path("project/hello.txt");
    let script = "echo mine >> hello.txt; echo ready; read line";
    // A copy keeps its base; what an overlay showed of a file is gone once that was edited by hand.
    let run = ["run", "-s", "copy_on_write", "--commit", "--on-conflict", "merge", "--", "sh", "-c", script];
    let ran = world.run_while(&run, || fs::write(&original, "first\nhello\nworld\n").unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(world.text("project/hello.txt"), "first\nhello\nworld\nmine\n");
}

#[test]
fn a_terminal_can_discard_or_keep() {
    let world = World::new();
    in_terminal(&world, &["x"]);
    assert_eq!(open_sandboxes(&world), 0);
    in_terminal(&world, &["k"]);
    assert_eq!(open_sandboxes(&world), 1);
    in_terminal(&world, &[""]);
    assert_eq!(open_sandboxes(&world), 2, "Enter keeps");
    assert!(!world.path("project/new.txt").exists());
}

#[test]
fn it_is_said_what_holds_the_command_and_what_was_refused() {
    let world = World::new();
    let script = "touch /usr/not-mine; echo kept > kept; echo gone > ~/gone";
    let mut command = world.command(&["run", "--pids", "64", "--", "sh", "-c", script]);
    let ran = Ran::of(command.env("MY_API_KEY", "x").output().unwrap());
    for line in [
        "contained: standard isolation by ",
        ", no network\n",
        "limits: pids 64: by ",
        "1 variable looks like a secret and was not passed on (MY_API_KEY); name it with --env",
        "1 write outside refused: /usr/not-mine",
        "1 file written in the home directory is gone (gone)",
        "used ",
    ] {
        assert!(ran.stderr.contains(line), "{line:?} is missing:\n{}", ran.stderr);
    }
    assert!(!world.path("user/gone").exists());
}

#[test]
fn a_time_out_is_124_and_keeps_the_sandbox() {
    let world = World::new();
    let ran = world.run(&["run", "--timeout", "200ms", "--commit", "--name", "t", "--", "sleep", "60"]);
    assert_eq!(ran.code, 124, "{}", ran.stderr);
    assert!(ran.stderr.contains("ended after 200ms: everything inside was ended"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the sandbox is kept as t"), "{}", ran.stderr);
    let discarded = world.run(&["run", "--timeout", "200ms", "--discard", "--json", "--", "sleep", "60"]);
    let document: serde_json::Value = serde_json::from_str(&discarded.stdout).unwrap();
    assert_eq!((discarded.code, &document["ended"]), (124, &"timed_out".into()));
    assert_eq!(open_sandboxes(&world), 1);
}

#[test]
fn only_files_are_isolated_where_that_is_asked_for() {
    let world = World::new();
    let outside = world.path("user/outside");
    let script = format!("touch '{}'; echo new > new.txt; echo $MY_API_KEY", outside.display());
    let mut command = world.command(&["run", "--isolation", "files", "--discard", "--", "sh", "-c", &script]);
    let ran = Ran::of(command.env("MY_API_KEY", "x").output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "x\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("files below this directory only, nothing else"), "{}", ran.stderr);
    assert!(outside.exists() && !world.path("project/new.txt").exists());
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_is_made() {
    let world = World::new();
    for flags in [
        &["--isolation", "files", "--memory", "1G"][..],
        &["--isolation", "most"],
        &["--allow-host", "*"],
        &["--allow-host", "a.example", "--network", "host"],
        &["--memory", "1"],
        &["--timeout", "soon"],
        &["--env", "=x"],
    ] {
        let ran = world.run(&[&["run"], flags, &["--", "touch", "x"]].concat());
        assert_eq!(ran.code, 2, "{flags:?}: {}", ran.stderr);
    }
    assert!(!world.path("home").exists(), "something was made");
}
