//! `sandbox --server URL`: the same commands, done by a `sandbox serve`, with the same words and the same exit codes.

use crate::common::World;
use crate::common::serving::Serving;

/// A server, and a sandbox `try` of the project that it has made.
fn with_sandbox(world: &World) -> Serving<'_> {
    let server = Serving::start(world);
    server.ok(&["create", &project(world), "--name", "try"]);
    server
}

fn project(world: &World) -> String {
    world.project().display().to_string()
}

#[test]
fn a_tour_of_every_command() {
    let world = World::new();
    let server = Serving::start(&world);
    let made = server.run(&[
        "create",
        &project(&world),
        "--name",
        "try",
        "--ttl",
        "2h",
        "--plan",
        "fix-1",
        "--profile",
        "profile.local",
        "--label",
        "team=blue",
        "--idempotency-key",
        "k1",
        "--actor",
        "agt",
        "--project",
        "shop",
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    for part in ["try  sbx_", "expires   in 2h", "plan      fix-1", "agt shop", "team=blue"] {
        assert!(made.stdout.contains(part), "{part}: {}", made.stdout);
    }
    assert!(made.stderr.contains("then: sandbox --server unix:/"), "{}", made.stderr);
    let other = ["create", "/no/such/place", "--profile", "profile.local", "--idempotency-key", "k1"];
    let refused = server.json_error(&other, 2);
    assert!(refused["message"].as_str().unwrap().contains("used for another request"), "{refused}");

    assert!(server.ok(&["list"]).contains("try"));
    assert!(server.ok(&["get", "@last"]).contains("profile   profile.local"));
    let socket = ["--server", &server.socket];
    let written =
        world.run_with_input(&[&socket[..], &["write", "try", "new dir/a\u{e9}.txt"]].concat(), b"hi\n");
    assert_eq!(written.code, 0, "{}", written.stderr);
    assert!(written.stderr.contains("created in the sandbox, 3 B"), "{}", written.stderr);
    assert_eq!(server.ok(&["read", "try", "new dir/a\u{e9}.txt"]), "hi\n");
    assert_eq!(server.json(&["read", "try", "hello.txt"]), world.json(&["read", "try", "hello.txt"]));

    assert_eq!(server.ok(&["diff", "try"]), world.ok(&["diff", "try"]));
    assert_eq!(server.ok(&["diff", "try", "--patch"]), world.ok(&["diff", "try", "--patch"]));
    assert_eq!(server.ok(&["diff", "try", "src"]), "");
    assert_eq!(server.run(&["diff", "try", "--exit-code"]).code, 1);
    assert_eq!(server.run(&["diff", "try", "src", "--patch", "--exit-code"]).code, 0);

    assert_eq!(server.ok(&["checkpoint", "try", "one"]), "one\n");
    assert!(server.ok(&["checkpoints", "try"]).contains("one"));
    server.ok(&["exec", "try", "--", "rm", "hello.txt"]);
    assert!(server.ok(&["diff", "try"]).contains("D hello.txt"));
    assert!(server.ok(&["restore", "try", "one"]).contains("restored checkpoint one"));

    let tried = server.ok(&["commit", "try", "--dry-run"]);
    assert!(tried.starts_with("would commit 2 changes of try: 2 created\n  A new dir/"), "{tried}");
    let digest = server.json(&["diff", "try"])["digest"].as_str().unwrap().to_owned();
    let committed = server.ok(&["commit", "try", "--digest", &digest, "-m", "why", "--if", "max-files=5"]);
    assert_eq!(committed, "committed 2 changes of try: 2 created\n");
    assert_eq!(world.text("project/new dir/a\u{e9}.txt"), "hi\n");
    assert!(server.ok(&["undo", "try"]).starts_with("took back commit op_"));
    assert!(!world.path("project/new dir").exists());
    assert!(server.ok(&["rollback", "try", "new dir"]).contains("changed back"));
    assert_eq!(server.ok(&["diff", "try"]), "");

    assert_eq!(server.ok(&["extend", "try", "30m"]), "try expires in 30m\n");
    let recreated = server.ok(&["recreate", "try"]);
    assert_eq!(recreated, "made the environment of try again, by ext.local on local\n");
    let events = server.ok(&["events", "try"]);
    assert!(events.contains("agt/shop  requested") && events.contains("recreated"), "{events}");
    assert_eq!(server.ok(&["events", "--since", "1"]).lines().count() + 1, events.lines().count());
    for list in ["profiles", "extensions", "hosts"] {
        assert_eq!(server.ok(&[list]), world.ok(&[list]), "{list}");
        assert_eq!(server.json(&[list]), world.json(&[list]), "{list}");
    }
    assert_eq!(server.ok(&["profiles", "profile.local"]), world.ok(&["profiles", "profile.local"]));

    world.file("home/x", "");
    server.ok(&["exec", "try", "--", "touch", "left"]);
    let ended = server.run(&["destroy", "try"]);
    assert!(ended.stdout.starts_with("parked sandbox try (sbx_"), "{}", ended.stdout);
    assert!(ended.stderr.contains("bring it back: sandbox --server unix:/"), "{}", ended.stderr);
    let id = server.json(&["list", "--all"])["sandboxes"][0]["sandbox_id"].as_str().unwrap().to_owned();
    assert!(server.ok(&["unpark", &id]).contains("is back"));
    assert!(server.ok(&["usage", "--by", "project"]).contains("PROJECT"));
    server.ok(&["destroy", "try"]);
    assert!(server.ok(&["destroy", &id, "--discard"]).starts_with("removed sandbox try"));
    assert_eq!(server.json(&["list"]), serde_json::json!({ "sandboxes": [] }));
}

#[test]
fn documents_are_those_of_the_local_commands() {
    let world = World::new();
    let server = with_sandbox(&world);
    server.ok(&["exec", "try", "--", "sh", "-c", "echo more >> hello.txt; mkdir d"]);
    let mut local = world.json(&["get", "try"]);
    for part in ["/workspaces/0", ""] {
        let part = local.pointer_mut(part).unwrap().as_object_mut().unwrap();
        part.remove("notices");
        part.remove("git");
    }
    assert_eq!(server.json(&["get", "try"]), local);
    for same in [&["list"][..], &["diff", "try"], &["checkpoints", "try"]] {
        let arguments = [same, &["--json"]].concat();
        assert_eq!(server.ok(&arguments), world.ok(&arguments), "{same:?}, to the byte");
    }
    assert_eq!(server.json(&["events", "try"])["events"], world.json(&["events", "try"])["events"]);
    for same in [&["list"][..], &["diff", "try"]] {
        assert_eq!(world.redact(&server.ok(same)), world.redact(&world.ok(same)), "{same:?}");
    }
}

#[test]
fn failures_are_those_of_the_local_commands() {
    let world = World::new();
    let server = with_sandbox(&world);
    world.ok(&["exec", "try", "--", "sh", "-c", "echo inside >> hello.txt; chmod u+s run.sh"]);
    world.file("project/hello.txt", "outside\n");
    for (arguments, code) in [
        (&["get", "nope"][..], 4),
        (&["read", "try", "nope"], 4),
        (&["restore", "try", "nope"], 4),
        (&["diff", "try:nope"], 4),
        (&["profiles", "nope"], 4),
        (&["commit", "try", "hello.txt"], 3),
        (&["commit", "try", "hello.txt", "--on-conflict", "merge"], 3),
        (&["commit", "try", "--digest", "blake3:00", "src"], 5),
        (&["commit", "try", "run.sh"], 5),
        (&["commit", "try", "--if", "max-files=0", "--accept-flags", "run.sh"], 5),
        (&["commit", "try", "--if", "max-fils=0"], 2),
        (&["read", "try", "../x"], 2),
        (&["extend", "try", "soon"], 2),
        (&["undo", "try"], 4),
    ] {
        let (there, here) = (server.json_error(arguments, code), world.json_error(arguments, code));
        assert_eq!(there, here, "{arguments:?}");
    }
    let told = server.run(&["commit", "try", "hello.txt"]);
    let here = world.run(&["commit", "try", "hello.txt"]).stderr;
    assert_eq!(told.stderr, here.replace("`sandbox ", &format!("`sandbox --server {} ", server.socket)));
    let taken = server.run(&["create", &project(&world), "--name", "try"]);
    assert_eq!(taken.code, world.run(&["create", "--name", "try"]).code, "{}", taken.stderr);
}

#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let world = World::new();
    let nowhere = ["--server", "unix:/no/such/socket"];
    for (arguments, named) in [
        (&["run", "--", "true"][..], "`sandbox run` works on this machine only"),
        (&["status"], "`sandbox status` works"),
        (&["serve"], "`sandbox serve` works"),
        (&["token", "list"], "`sandbox token` works"),
        (&["shell", "try"], "`sandbox shell` works"),
        (&["extensions", "check", "x"], "`sandbox extensions check` works"),
        (&["create", "/x", "--strategy", "none", "--clean"], "--strategy, --clean"),
        (&["create", "/x", "--exclude", "a"], "--exclude"),
        (&["create"], "the current directory"),
        (&["create", "."], "\".\" is relative"),
        (&["create", "--input", "a=b"], "\"b\" is relative"),
        (&["create", "/a/x", "/b/x"], "two inputs are named \"x\""),
        (&["create", "env:URL"], "a variable of this machine"),
        (&["exec", "try", "--network", "host", "--", "true"], "--network"),
        (&["exec", "try", "--env", "HOME", "--", "true"], "the variable HOME"),
        (&["diff", "--plan", "p"], "--plan"),
        (&["diff", "try", "--stat"], "--stat"),
        (&["diff", "try", "a", "b"], "one path at a time"),
        (&["commit", "try", "-p"], "--patch"),
        (&["commit", "try", "--hunks", "-"], "--hunks"),
        (&["commit", "--plan", "p"], "--plan"),
        (&["commit", "try", "--policy", "f"], "--policy"),
        (&["rollback", "try", "-p"], "--patch"),
        (&["checkpoints", "try", "--pin", "a"], "--pin"),
        (&["destroy", "try", "--force"], "--force"),
        (&["events", "--deliver"], "--deliver"),
        (&["undo"], "has to be named"),
        (&["undo", "op_01"], "has to be named"),
        (&["--home", "/x", "list"], "--home"),
    ] {
        let error = world.json_error(&[&nowhere, arguments].concat(), 2);
        assert!(error["message"].as_str().unwrap().contains(named), "{arguments:?}: {error}");
        assert!(!error["hints"].as_array().unwrap().is_empty(), "{arguments:?}: {error}");
    }
    for odd in ["nonsense", "tcp:127.0.0.1:1", "http://host/path", "http://me:hunter2@host"] {
        let error = world.json_error(&["--server", odd, "list"], 2);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert_eq!(world.json_error(&["--token-file", "/x", "list"], 2)["kind"], "usage");
    // Shells start with these, whatever is in the environment.
    world.ok(&[&nowhere[..], &["completions", "bash"]].concat());
}

#[test]
fn nobody_there_is_told_with_what_to_type() {
    let world = World::new();
    let socket = format!("unix:{}", world.path("none.sock").display());
    for (server, start) in [
        (socket.as_str(), "sandbox serve --listen unix:"),
        ("http://127.0.0.1:1", "--listen tcp:127.0.0.1:1"),
    ] {
        let error = world.json_error(&["--server", server, "list"], 1);
        assert!(error["message"].as_str().unwrap().contains(server), "{error}");
        assert!(error["hints"][0].as_str().unwrap().contains(start), "{error}");
        let ours = world.run(&["--server", server, "exec", "try", "--", "true"]);
        assert_eq!(ours.code, 125, "{}", ours.stderr);
    }
    // A variable names it as well; an empty one, or an empty flag, names none.
    let mut named = world.command(&["list"]);
    assert_eq!(named.env("SANDBOXER_SERVER", &socket).output().unwrap().status.code(), Some(1));
    for (variable, flag) in [("", &["list"][..]), (&socket, &["--server", "", "list"])] {
        let mut unnamed = world.command(flag);
        assert!(unnamed.env("SANDBOXER_SERVER", variable).output().unwrap().status.success());
    }
}
