//! `sandbox exec`, `shell`, `ps` and `events`: commands in a sandbox that is there, and what is told of them.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use crate::common::pty::Terminal;
use crate::common::{self, Ran, World};

/// A command that runs in the sandbox `try` until it is told to end.
struct Waiting(Child);

impl Waiting {
    /// Starts it, and waits until it runs. It ends when its standard input does.
    fn start(world: &World, flags: &[&str]) -> Self {
        let command = ["--", "sh", "-c", "echo mine > /tmp/shared; echo ready; read line; exit 0"];
        let mut command = world.command(&[&["exec", "try"], flags, &command].concat());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Self(child)
    }

    fn finish(mut self) -> Ran {
        self.0.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        Ran::of(self.0.wait_with_output().unwrap())
    }
}

#[test]
fn it_works_in_the_sandbox_and_nowhere_else() {
    let world = World::with_sandbox();
    let script = "pwd; echo changed > hello.txt; echo $SANDBOX_NAME $SANDBOX_PATH";
    let ran = world.run(&["exec", "try", "--", "sh", "-c", script]);
    let project = fs::canonicalize(world.project()).unwrap().display().to_string();
    assert_eq!((ran.code, ran.stdout), (0, format!("{project}\ntry {project}\n")));
    assert_eq!(ran.stderr, "", "nobody asked for words");
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    assert_eq!(world.ok(&["read", "try", "hello.txt"]), "changed\n");
    assert_eq!(world.json(&["get", "try"])["state"], "active");
}

#[test]
fn exit_codes_are_those_of_run() {
    let world = World::with_sandbox();
    let code = |arguments: &[&str]| world.run(&[&["exec", "try"], arguments].concat()).code;
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(code(&["--", "sh", "-c", "kill -KILL $$"]), 137);
    assert_eq!(code(&["--timeout", "100ms", "--", "sleep", "60"]), 124);
    assert_eq!(code(&["--", "./hello.txt"]), 126);
    assert_eq!(code(&["--", "no-such-command-at-all"]), 127);
    assert_eq!(code(&["-w", "no-such-directory", "--", "true"]), 125);
    assert_eq!(code(&["--memory", "nothing", "--", "true"]), 2);
    assert_eq!(world.run(&["exec", "nobody", "--", "true"]).code, 125);
    assert_eq!(world.run(&["exec", "try"]).code, 2);
}

#[test]
fn a_directory_of_the_workspace_can_be_worked_in() {
    let world = World::with_sandbox();
    assert_eq!(world.ok(&["exec", "try", "-w", "src", "--", "ls"]), "main.rs\n");
    let files_only = ["exec", "try", "-w", "src", "--isolation", "files", "--", "ls"];
    assert_eq!(world.ok(&files_only), "main.rs\n");
}

#[test]
fn the_workspace_that_is_named_is_worked_in() {
    let world = World::new();
    world.file("conf/app.yaml", "port: 80\n");
    world.ok(&["create", "--name", "both", ".", "--input", "conf=../conf"]);
    assert_eq!(world.ok(&["exec", "both:conf", "--", "ls"]), "app.yaml\n");
    let there = "cat ../conf/app.yaml; echo 'port: 81' > ../conf/app.yaml; cat ../conf/app.yaml";
    assert_eq!(world.ok(&["exec", "both", "--", "sh", "-c", there]), "port: 80\nport: 81\n");
    assert_eq!(world.text("conf/app.yaml"), "port: 80\n");
}

#[test]
fn another_command_joins_the_one_that_runs() {
    let world = World::with_sandbox();
    let first = Waiting::start(&world, &[]);
    let script = "cat /tmp/shared; ps -e -o args= | grep -c '[r]ead line'";
    assert_eq!(world.ok(&["exec", "try", "--", "sh", "-c", script]), "mine\n1\n");
    let ran = first.finish();
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let gone = world.run(&["exec", "try", "--", "test", "-e", "/tmp/shared"]);
    assert_eq!(gone.code, 1, "a new runtime has a new /tmp");
}

#[test]
fn what_runs_cannot_be_changed_by_joining_it() {
    let world = World::with_sandbox();
    let first = Waiting::start(&world, &["--pids", "64"]);
    for flags in [&["--network", "host"][..], &["--isolation", "strict"], &["--pids", "32"]] {
        let error = world.json_error(&[&["exec", "try"], flags, &["--", "true"]].concat(), 5);
        assert_eq!(error["kind"], "refused");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("standard isolation and no network"), "{message}");
    }
    let same = ["exec", "try", "--network", "none", "--pids", "64", "--", "true"];
    assert_eq!(world.run(&same).code, 0);
    first.finish();
}

#[test]
fn what_runs_is_shown_and_keeps_the_sandbox() {
    let world = World::with_sandbox();
    assert_eq!(world.ok(&["ps", "try"]), "nothing runs in try\n");
    assert_eq!(world.json(&["ps", "try"])["running"], false);
    let first = Waiting::start(&world, &[]);
    let shown = world.ok(&["ps", "try"]);
    assert!(shown.starts_with("PID  STATE "), "{shown}");
    assert!(shown.contains("sh -c echo mine"), "{shown}");
    let document = world.json(&["ps", "try"]);
    assert_eq!((&document["isolation"], &document["network"]), (&"standard".into(), &"none".into()));
    assert!(document["processes"][0]["host_pid"].as_u64().unwrap() > 0);
    let refused = world.json_error(&["destroy", "try"], 1);
    assert!(refused["hints"][0].as_str().unwrap().contains("`sandbox ps try`"), "{refused}");
    first.finish();
    world.ok(&["destroy", "try"]);
}

#[test]
fn a_hostile_command_line_plays_no_tricks_on_whoever_looks() {
    let world = World::with_sandbox();
    let script = "exec -a \"$(printf 'nice\\033[2Jname')\" sleep 60 & echo ready; read line; kill $!";
    let mut command = world.command(&["exec", "try", "--", "bash", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let listings = std::iter::repeat_with(|| world.ok(&["ps", "try"]));
    let shown = listings.take(200).find(|shown| shown.contains("nice")).expect("it never ran");
    assert!(shown.contains("nice\\x1b[2Jname") && !shown.contains('\x1b'), "{shown:?}");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child.wait().unwrap();
}

#[test]
fn the_environment_is_what_is_needed_and_what_was_named() {
    let world = World::with_sandbox();
    let printed = |flags: &[&str]| {
        let mut command = world.command(&[&["exec", "try"], flags, &["--", "env"]].concat());
        command.env("SSH_AUTH_SOCK", "/x").env("MY_API_KEY", "secret").env("LANG", "C").env("MINE", "1");
        command.env("XDG_RUNTIME_DIR", "/run/user/0");
        Ran::of(command.output().unwrap()).stdout
    };
    let plain = printed(&[]);
    assert!(plain.contains("LANG=C\n") && plain.contains("SANDBOX_ID=sbx_"), "{plain}");
    for absent in ["SSH_AUTH_SOCK", "MY_API_KEY", "MINE", "XDG_RUNTIME_DIR", "PROXY"] {
        assert!(!plain.contains(absent), "{absent}:\n{plain}");
    }
    let named = printed(&["--env", "MY_API_KEY", "--env", "MINE=2", "--env", "SANDBOX_ID=fake"]);
    assert!(named.contains("MY_API_KEY=secret\n") && named.contains("MINE=2\n"), "{named}");
    assert!(!named.contains("fake"), "{named}");
    let proxied = printed(&["--allow-host", "a.example"]);
    for variable in
        ["HTTPS_PROXY=http://127.0.0.1:3128\n", "all_proxy=socks5h://127.0.0.1:3128\n", "NO_PROXY="]
    {
        assert!(proxied.contains(variable), "{variable}:\n{proxied}");
    }
}

#[test]
fn settings_of_the_isolated_place_count_wherever_it_is_typed() {
    let world = World::with_sandbox();
    world.file("project/sandboxer.yaml", "run:\n  isolation: strict\n");
    let mut command = world.command(&["exec", "try", "--json", "--", "true"]);
    let ran = Ran::of(command.current_dir(world.path("user")).output().unwrap());
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["isolation"], "strict", "{}", ran.stderr);
}

#[test]
fn a_document_tells_what_came_of_it() {
    let world = World::with_sandbox();
    let script = "echo noise; touch /usr/not-mine; exit 4";
    let ran = world.run(&["exec", "try", "--json", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.starts_with("noise\n"), "{}", ran.stderr);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&document["exit_code"], &document["ended"]), (&4.into(), &"exited".into()));
    assert_eq!((&document["isolation"], &document["network"]), (&"standard".into(), &"none".into()));
    assert!(document["resources"]["wall_ms"].is_u64() && document["resources"]["cpu_ms"].is_u64());
    assert_eq!(document["refused"]["writes"][0], "/usr/not-mine");
}

#[test]
fn what_was_reached_for_is_written_down() {
    let world = World::with_sandbox();
    world.run(&["exec", "try", "--", "touch", "/usr/not-mine"]);
    let told = world.ok(&["events", "try"]);
    assert!(told.contains("Z  adm/local  write  refused /usr/not-mine\n"), "{told}");
    let document = world.json(&["events", "try"]);
    let all = document["events"].as_array().unwrap();
    let event = all.iter().find(|event| event["what"].is_object()).unwrap();
    assert_eq!(all.iter().filter(|event| event["seq"].is_u64()).count(), 4, "{document}");
    assert_eq!((&event["kind"], &event["what"]["path"]), (&"write".into(), &"/usr/not-mine".into()));
    assert!(event["at_ms"].is_u64());
}

#[test]
fn a_shell_needs_a_terminal() {
    let world = World::with_sandbox();
    let error = world.json_error(&["shell", "try"], 2);
    assert!(error["hints"][0].as_str().unwrap().contains("sandbox exec try"), "{error}");
}

#[test]
fn a_shell_says_where_one_is() {
    let world = World::with_sandbox();
    let mut terminal = Terminal::start(&world, &["shell", "try"], "false");
    terminal.expect("in sandbox try, at ");
    terminal.expect("with standard isolation and no network; leave with `exit`");
    terminal.press("echo $SANDBOX_NAME > where; exit 9\n");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(9), "{screen}");
    assert_eq!(world.ok(&["read", "try", "where"]), "try\n");
}

/// Runs where no process namespace can be had, or says why that cannot be arranged.
fn without_namespaces(world: &World, arguments: &str) -> Option<Ran> {
    let script = format!("echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$0\" {arguments}");
    let mut command = Command::new("unshare");
    world.furnish(&mut command);
    command.args(["--user", "--map-root-user", "sh", "-c", "true"]);
    if !command.status().is_ok_and(|status| status.success()) {
        sandboxer_testkit::skip("no user namespace can be made to take namespaces away in");
        return None;
    }
    let mut command = Command::new("unshare");
    world.furnish(&mut command);
    command.args(["--user", "--map-root-user", "sh", "-c", &script, common::SANDBOX]);
    Some(Ran::of(command.output().unwrap()))
}

#[test]
fn what_cannot_be_contained_is_not_started_and_leaves_nothing() {
    let world = World::new();
    let Some(ran) = without_namespaces(&world, "run -s filesystem_copy --json -- touch started") else {
        return;
    };
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "unavailable");
    assert!(error["error"]["message"].as_str().unwrap().contains("cannot make namespaces"), "{error}");
    assert!(error["error"]["hints"].to_string().contains("--isolation files"), "{error}");
    assert_eq!(world.ok(&["list"]), "");
    assert_eq!(fs::read_dir(world.path("home/scratch")).unwrap().count(), 0);
    let files = without_namespaces(&world, "run -s filesystem_copy --isolation files -- echo ran").unwrap();
    assert_eq!((files.code, files.stdout.as_str()), (0, "ran\n"), "{}", files.stderr);
}

#[test]
fn the_doctor_tells_whether_commands_can_be_contained() {
    let world = World::new();
    let ran =
        Ran::of(world.command(&["doctor", "--json"]).env("TMPDIR", world.path("user")).output().unwrap());
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let containment = report["containment"].as_array().unwrap();
    assert_eq!((&containment[0]["about"], &containment[0]["ok"]), (&"containment".into(), &true.into()));
    assert!(containment.iter().any(|check| check["about"] == "limits"), "{containment:?}");
    assert_eq!(fs::read_dir(world.path("user")).unwrap().count(), 0, "it left something behind");
    assert!(!world.path("home").exists());
    let Some(ran) = without_namespaces(&world, "doctor") else { return };
    assert!(ran.stdout.contains("no  containment      cannot make namespaces"), "{}", ran.stdout);
    assert!(ran.stderr.contains("commands in them cannot be contained"), "{}", ran.stderr);
}
