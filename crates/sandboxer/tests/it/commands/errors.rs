//! Bad input: each gets an error that names the path and what to do, its own exit code, and nothing is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{self, Ran, World};

/// Arguments, exit code, kind, and what the message or a hint must contain.
const TABLE: &[(&[&str], i32, &str, &str)] = &[
    (&["create", "no-such-dir"], 4, "not_found", "no-such-dir"),
    (&["create", "sr"], 4, "not_found", "src"),
    (&["create", "hello.txt/x"], 1, "error", "hello.txt/x"),
    (&["create", "--strategy", "filesystem_cpy"], 4, "not_found", "filesystem_copy"),
    (&["create", "--ttl", "soon"], 2, "usage", "soon"),
    (&["create", "--ttl", "0s"], 2, "usage", "0s"),
    (&["create", "--input", "nothing"], 2, "usage", "NAME=RESOURCE"),
    (&["create", ".", "src"], 5, "refused", "overlap"),
    (&["create", "--name", "try"], 2, "usage", "taken"),
    (&["create", "postgres://u:secret@h/db"], 2, "usage", "postgres"),
    (&["get", "tri"], 4, "not_found", "did you mean try"),
    (&["get", "try:nope"], 4, "not_found", "workspace"),
    (&["path", "nobody"], 4, "not_found", "sandbox list"),
    (&["read", "try", "missing.txt"], 4, "not_found", "missing.txt"),
    (&["read", "try", "../outside"], 2, "usage", "outside"),
    (&["read", "try", "/etc/passwd"], 2, "usage", "absolute"),
    (&["read", "try", ""], 2, "usage", "empty"),
    (&["diff", "try", "a//b"], 2, "usage", "a//b"),
    (&["create", "../home"], 5, "refused", "state directory"),
    (&["diff", "try", "tpyo"], 4, "not_found", "tpyo"),
    (&["commit", "try", "tpyo"], 4, "not_found", "tpyo"),
    (&["rollback", "try", "tpyo", "hello.txt"], 4, "not_found", "tpyo"),
    (&["commit", "try", ".."], 2, "usage", ".."),
    (&["rollback", "try", "/"], 2, "usage", "/"),
    (&["restore", "try", "nope"], 4, "not_found", "sandbox checkpoints try"),
    (&["commit", "try", "--digest", "blake3:0"], 5, "refused", "sandbox diff try --json"),
    (&["commit", "try", "--write-conflicts"], 2, "usage", "--on-conflict merge"),
    (&["commit", "try", "--write-conflicts", "--on-conflict", "ours"], 2, "usage", "--on-conflict merge"),
    (&["commit", "try", "--write-conflicts", "--on-conflict", "merge", "--dry-run"], 2, "usage", "--dry-run"),
    (&["commit", "try", "--on-conflict", "mine"], 2, "usage", "theirs"),
    (&["run", "--write-conflicts", "--", "true"], 125, "usage", "--on-conflict merge"),
    (&["undo"], 4, "not_found", "no commit to take back"),
    (&["undo", "try"], 4, "not_found", "no commit of try to take back"),
    (&["undo", "tri"], 4, "not_found", "did you mean try"),
    (&["undo", "try:nope"], 4, "not_found", "workspace"),
    (&["undo", "try:project"], 2, "usage", "sandbox undo try"),
    (&["undo", "op_nope"], 4, "not_found", "sandbox log"),
    (&["show", "op_nope"], 4, "not_found", "sandbox log"),
    (&["show", "op"], 4, "not_found", "sandbox log"),
    (&["destroy", "nobody"], 4, "not_found", "nobody"),
    (&["log", "nobody"], 4, "not_found", "nobody"),
    (&["trust", "src"], 4, "not_found", "sandboxer.yaml"),
    (&["--config", "no-such.yaml", "list"], 1, "error", "no-such.yaml"),
    (&["frobnicate"], 2, "usage", "frobnicate"),
    (&["diff", "try", "--stat", "--patch"], 2, "usage", "--patch"),
    (&["run", "-C", "hello.txt", "--", "true"], 125, "usage", "not a directory"),
    (&["run", "-C", "no-such-dir", "--", "true"], 125, "not_found", "no-such-dir"),
    (&["run", "--strategy", "nope", "--", "true"], 125, "not_found", "nope"),
];

#[test]
fn every_bad_input_is_told_and_leaves_nothing() {
    let world = World::with_sandbox();
    let before = world.json(&["list", "--all"])["sandboxes"].as_array().unwrap().len();
    for (arguments, code, kind, part) in TABLE {
        let error = world.json_error(arguments, *code);
        assert_eq!(error["kind"], *kind, "{arguments:?}: {error}");
        assert!(error.to_string().contains(part), "{arguments:?} does not say {part:?}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        let human = world.run(arguments);
        assert_eq!((human.code, human.stdout.as_str()), (*code, ""), "{arguments:?}");
        assert!(human.stderr.starts_with("error: "), "{arguments:?}: {}", human.stderr);
    }
    let open = world.json(&["list"])["sandboxes"].as_array().unwrap().len();
    assert_eq!((before, open), (1, 1));
    assert_eq!(scratch_count(&world), 1, "something was left behind");
}

/// How many workspaces lie in the state directory.
fn scratch_count(world: &World) -> usize {
    fs::read_dir(world.path("home/scratch")).map(Iterator::count).unwrap_or(0)
}

#[test]
fn errors_for_people() {
    let world = World::with_sandbox();
    let shown = |arguments: &[&str]| world.run(arguments).transcript(&world);
    insta::assert_snapshot!("error_missing_resource", shown(&["create", "no-such-dir"]));
    insta::assert_snapshot!("error_unknown_sandbox", shown(&["get", "tri"]));
    insta::assert_snapshot!("error_outside", shown(&["read", "try", "../x"]));
    insta::assert_snapshot!("error_digest", shown(&["commit", "try", "--digest", "blake3:0"]));
    insta::assert_snapshot!("error_strategy", shown(&["create", "-s", "filesystem_cpy"]));
    insta::assert_snapshot!("error_plan_taken", {
        world.ok(&["create", "--plan", "p", "--name", "p1", "-s", "filesystem_copy"]);
        shown(&["create", "--plan", "p", "-s", "none"])
    });
}

#[test]
fn a_newer_state_is_refused_and_left_alone() {
    let world = World::with_sandbox();
    let database = world.path("home/state.db");
    // What is in SQLite's log would count for more than the file.
    let log = world.path("home/state.db-wal");
    let _ = fs::remove_file(log);
    let mut bytes = fs::read(&database).unwrap();
    // SQLite keeps user_version at byte 60, big-endian.
    bytes[60..64].copy_from_slice(&999_u32.to_be_bytes());
    fs::write(&database, &bytes).unwrap();
    for arguments in [&["list"][..], &["create"], &["commit", "try"], &["gc"]] {
        let error = world.json_error(arguments, 1);
        assert_eq!(error["kind"], "newer_state", "{arguments:?}: {error}");
        assert!(error.to_string().contains("999") && error.to_string().contains("--home"), "{error}");
    }
    assert_eq!(world.run(&["doctor"]).code, 1);
    assert_eq!(fs::read(&database).unwrap(), bytes);
}

#[test]
fn a_corrupt_state_says_how_to_get_out() {
    let world = World::with_sandbox();
    let database = world.path("home/state.db");
    for name in ["state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(world.path("home").join(name));
    }
    fs::write(&database, vec![b'x'; 8192]).unwrap();
    let error = world.json_error(&["list"], 1);
    assert_eq!(error["kind"], "corrupt");
    let hint = error["hints"][0].as_str().unwrap();
    let command = hint.split('`').nth(1).unwrap();
    let mut shell = Command::new("sh");
    world.furnish(&mut shell);
    assert!(shell.args(["-c", command]).status().unwrap().success(), "{command}");
    world.ok(&["adopt"]);
    assert!(world.ok(&["list"]).contains("try"));
}

#[test]
fn a_broken_configuration_names_file_line_and_word() {
    let world = World::new();
    world.file("user/.config/sandboxer/config.yaml", "sandbox:\n  stratgy: none\n");
    let error = world.json_error(&["create"], 1);
    assert_eq!(error["kind"], "config");
    let text = error.to_string();
    assert!(text.contains("config.yaml:2") && text.contains("strategy"), "{text}");
}

/// The command as an ordinary user; `None` where that cannot be had.
fn as_nobody(world: &World, arguments: &[&str]) -> Option<Ran> {
    let binary = world.path("sandbox-bin");
    fs::copy(common::SANDBOX, &binary).unwrap();
    for directory in ["", "project", "user"] {
        fs::set_permissions(world.path(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let home = world.path("nobody");
    fs::create_dir_all(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("setpriv");
    world.furnish(&mut command);
    command.env("SANDBOXER_HOME", home).args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&binary).args(arguments).output().ok().map(Ran::of).filter(|ran| ran.code < 126)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

#[test]
fn an_unreadable_resource_is_named_and_nothing_is_left() {
    let world = World::new();
    world.file("project/secret", "x");
    fs::set_permissions(world.path("project/secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let ran = match is_root() {
        false => world.run(&["create", "-s", "filesystem_copy", "--json"]),
        true => match as_nobody(&world, &["create", "-s", "filesystem_copy", "--json"]) {
            Some(ran) => ran,
            None => return sandboxer_testkit::skip("setpriv is not there to drop root's rights"),
        },
    };
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("secret") && ran.stderr.contains("Permission denied"), "{}", ran.stderr);
    let scratch = if is_root() { "nobody/scratch" } else { "home/scratch" };
    let left = fs::read_dir(world.path(scratch)).map(Iterator::count).unwrap_or(0);
    assert_eq!(left, 0, "something was left behind");
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let world = World::new();
    let ran = world.run(&["--home", "/proc/nope", "create"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("/proc/nope"), "{}", ran.stderr);
    let doctor = world.run(&["--home", "/proc/nope", "doctor"]);
    assert_eq!(doctor.code, 1, "{}", doctor.stdout);
    assert!(doctor.stdout.contains("no  state directory"), "{}", doctor.stdout);
}

#[test]
fn ctrl_c_while_writing_ends_the_command() {
    use std::process::Stdio;
    let world = World::with_sandbox();
    let mut command = world.command(&["write", "try", "x"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It waits for stdin before anything is taken over: the signal's usual meaning holds.
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    assert!(!status.success());
    assert!(!world.inside("try").join("x").exists());
}

/// Holds the lock of the sandbox `try` until dropped.
fn hold_lock(world: &World) -> fs::File {
    let id = world.json(&["get", "try"])["sandbox_id"].as_str().unwrap().to_owned();
    let lock =
        fs::File::options().write(true).open(world.path("home/sandboxes").join(id).join("lock")).unwrap();
    lock.lock().unwrap();
    lock
}

#[test]
fn a_second_process_is_waited_for_and_then_told_of() {
    let world = World::with_sandbox();
    let _held = hold_lock(&world);
    let mut command = world.command(&["commit", "try", "--json"]);
    let ran = Ran::of(command.env("SANDBOXER_LOCK_WAIT", "50ms").output().unwrap());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "busy");
}

/// Waits until the process has taken over SIGINT.
fn wait_for_handler(pid: u32) {
    let catches_interrupt = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap() & (1 << (2 - 1)) != 0
    };
    while !catches_interrupt() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn ctrl_c_while_waiting_changes_nothing() {
    use std::process::Stdio;
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("hello.txt"), "changed\n").unwrap();
    let _held = hold_lock(&world);
    let mut command = world.command(&["commit", "try"]);
    let child = command.env("SANDBOXER_LOCK_WAIT", "1h").stderr(Stdio::piped()).spawn().unwrap();
    wait_for_handler(child.id());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    assert!(ran.stderr.contains("nothing was changed"), "{}", ran.stderr);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
}

#[test]
fn a_full_disk_is_told_and_nothing_is_left_on_it() {
    let disk = match sandboxer_testkit::mounts::Mounted::tmpfs(4 << 20) {
        Ok(disk) => disk,
        Err(why) => return sandboxer_testkit::skip(&why),
    };
    let world = World::new();
    world.file("project/large", vec![7; 5 << 20]);
    let home = disk.path().join("home");
    let create = ["--home", home.to_str().unwrap(), "create", "-s", "filesystem_copy"];
    let error = world.json_error(&create, 1);
    assert!(error["message"].as_str().unwrap().contains("No space left"), "{error}");
    assert!(error["hints"][0].as_str().unwrap().contains("sandbox gc"), "{error}");
    assert!(error["path"].is_string(), "{error}");
    let left: Vec<_> = walk(&home)
        .into_iter()
        .filter(|path| path.components().any(|c| c.as_os_str() == "scratch"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(world.json(&["--home", home.to_str().unwrap(), "list"])["sandboxes"], serde_json::json!([]));
}

/// Everything below a directory.
fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| if path.is_dir() { walk(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

#[test]
fn a_lost_state_points_at_adopt() {
    let world = World::with_sandbox();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(world.path("home").join(name));
    }
    assert!(world.run(&["list"]).stderr.contains("sandbox adopt"));
    let hints = world.json_error(&["get", "try"], 4)["hints"].to_string();
    assert!(hints.contains("sandbox adopt"), "{hints}");
    world.ok(&["adopt"]);
    assert!(!world.json_error(&["get", "nobody"], 4)["hints"].to_string().contains("adopt"));
}

#[test]
fn a_sandbox_of_a_strategy_that_is_not_configured_any_more_is_told_and_logged_once() {
    let world = World::new();
    let config = "user/.config/sandboxer/config.yaml";
    let mine = "sandbox:\n  custom_strategies:\n    mine: {module: 'builtin:filesystem_copy'}\n";
    world.file(config, mine);
    world.ok(&["create", "--name", "try", "-s", "mine"]);
    fs::remove_file(world.path(config)).unwrap();
    let error = world.json_error(&["destroy", "try"], 4);
    assert!(error["hints"].to_string().contains("custom_strategies"), "{error}");
    let error = world.json_error(&["destroy", "--discard", "try"], 4);
    assert!(error["hints"].to_string().contains("custom_strategies"), "{error}");
    let listed = world.run(&["list"]);
    assert!(!listed.stderr.contains("recover"), "no command is troubled by it: {}", listed.stderr);
    let collected = world.run(&["gc"]);
    assert!(collected.stderr.contains("sbx_") && collected.stderr.contains("mine"), "{}", collected.stderr);
    let logged = |world: &World| world.json(&["log"])["operations"].as_array().unwrap().len();
    assert_eq!(logged(&world), logged(&world));
    world.file(config, mine);
    world.ok(&["list"]);
    assert_eq!(world.json(&["list"])["sandboxes"], serde_json::json!([]));
}

/// A world with a type for URLs of scheme `s3`.
fn with_buckets(strategy: &str) -> World {
    let world = World::new();
    let text = format!(
        "name: s3-bucket\nsummary: A bucket\nhandler: generic\ndetect: {{kind: url, schemes: [S3]}}\n\
         default_strategy: {strategy}\nstrategies: [{strategy}]\n"
    );
    world.file("user/.config/sandboxer/resource-types/bucket.yaml", text);
    world
}

#[test]
fn a_url_is_no_place_for_a_contained_command_and_nothing_is_made_for_one() {
    let world = with_buckets("filesystem_copy");
    let run = ["run", "-C", "s3://stock", "--", "true"];
    let error = world.json_error(&run, 6);
    assert!(error["message"].as_str().unwrap().contains("s3://stock has no path of its own"), "{error}");
    assert!(error["hints"].to_string().contains("--isolation files"), "{error}");
    let files = ["run", "-C", "s3://stock", "--isolation", "files", "--", "true"];
    let error = world.json_error(&files, 125);
    assert_eq!(error["message"], "s3://stock is no path on this machine");
    assert!(world.run(&["list"]).stdout.is_empty());
    let log = world.json(&["log"])["operations"].clone();
    assert!(log.as_array().unwrap().iter().all(|operation| operation["state"] == "failed"), "{log}");
}

#[test]
fn a_type_that_names_a_strategy_that_is_not_there_is_told_by_its_file() {
    let world = with_buckets("bucket");
    let error = world.json_error(&["create", "s3://stock"], 1);
    assert_eq!(error["kind"], "config");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("bucket.yaml") && message.contains("\"bucket\""), "{error}");
    assert!(error["hints"].to_string().contains("custom_strategies"), "{error}");
}

#[test]
fn urls_are_told_without_what_is_secret_in_them() {
    let world = with_buckets("filesystem_copy");
    let error = world.json_error(&["create", "gs://me:hunter2@stock"], 2);
    assert!(error["hints"].to_string().contains("file, mariadb, mysql, postgres, postgresql, s3"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    for command in
        [&["create", "s3://me:hunter2@stock"][..], &["run", "-C", "s3://me:hunter2@stock", "--", "true"]]
    {
        let ran = world.run(command);
        assert_ne!(ran.code, 0);
        assert!(ran.stderr.contains("password") && !ran.stderr.contains("hunter2"), "{}", ran.stderr);
    }
}

#[test]
fn types_for_urls_are_listed_with_their_schemes() {
    let world = with_buckets("filesystem_copy");
    assert!(world.ok(&["types"]).contains("s3-bucket"));
    let types = world.json(&["types"])["types"].clone();
    let bucket = types.as_array().unwrap().iter().find(|ty| ty["name"] == "s3-bucket").unwrap();
    assert_eq!(bucket["detect"]["schemes"], serde_json::json!(["s3"]));
}
