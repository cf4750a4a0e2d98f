//! What people see: a day's work, command by command.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{self, World};

/// Changes of every kind in the sandbox `try`.
fn change_everything(world: &World) {
    let inside = world.inside("try");
    fs::write(inside.join("hello.txt"), "hello\nthere\n").unwrap();
    fs::write(inside.join("new.txt"), "one\ntwo\n").unwrap();
    fs::write(inside.join("blob.bin"), b"\0\x01\x02").unwrap();
    fs::remove_dir_all(inside.join("src")).unwrap();
    fs::set_permissions(inside.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("hello.txt", inside.join("link")).unwrap();
}

macro_rules! shows {
    ($world:expr, $name:literal, $arguments:expr) => {
        insta::assert_snapshot!($name, $world.run(&$arguments).transcript(&$world))
    };
}

#[test]
fn an_empty_state_says_what_to_type() {
    let world = World::new();
    shows!(world, "empty_list", ["list"]);
    shows!(world, "empty_status", ["status"]);
    shows!(world, "empty_log", ["log"]);
    shows!(world, "empty_gc", ["gc"]);
    assert!(!world.path("home").exists(), "looking made a state directory");
}

#[test]
fn a_day_of_work() {
    let world = World::new();
    shows!(world, "create", ["create", "--name", "try", "-s", "filesystem_copy", "--ttl", "2h"]);
    shows!(world, "get", ["get", "try"]);
    shows!(world, "list", ["list"]);
    shows!(world, "diff_nothing", ["diff", "try"]);
    change_everything(&world);
    shows!(world, "status", ["status"]);
    shows!(world, "diff", ["diff", "try"]);
    shows!(world, "diff_paths", ["diff", "try", "src", "new.txt"]);
    shows!(world, "diff_stat", ["diff", "try", "--stat"]);
    shows!(world, "diff_patch", ["diff", "try", "--patch"]);
    shows!(world, "checkpoint", ["checkpoint", "try", "half-way"]);
    shows!(world, "checkpoints", ["checkpoints", "try"]);
    shows!(world, "rollback_path", ["rollback", "try", "src"]);
    shows!(world, "restore", ["restore", "try", "half-way"]);
    shows!(world, "commit_path", ["commit", "try", "new.txt", "-m", "one file"]);
    assert_eq!(world.text("project/new.txt"), "one\ntwo\n");
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    shows!(world, "commit", ["commit", "try"]);
    assert!(!world.path("project/src").exists());
    shows!(world, "commit_nothing", ["commit", "try"]);
    shows!(world, "log", ["log"]);
    shows!(world, "destroy", ["destroy", "try"]);
    shows!(world, "destroy_again", ["destroy", "try"]);
    shows!(world, "list_all", ["list", "--all"]);
}

#[test]
fn checkpoints_that_are_not_there() {
    let world = World::with_sandbox();
    shows!(world, "checkpoints_none", ["checkpoints", "try"]);
    shows!(world, "restore_unknown", ["restore", "try", "nope"]);
}

#[test]
fn write_and_read_go_through() {
    let world = World::with_sandbox();
    let wrote = world.run_with_input(&["write", "try", "deep/er/note.txt"], b"bytes \xff\n");
    insta::assert_snapshot!("write", wrote.transcript(&world));
    assert_eq!(world.run(&["read", "try", "deep/er/note.txt"]).raw, b"bytes \xff\n");
    assert!(!world.path("project/deep").exists());
}

#[test]
fn several_workspaces_have_headings() {
    let world = World::new();
    world.file("other/a.txt", "a\n");
    let other = world.path("other");
    let input = format!("second={}", other.display());
    shows!(world, "create_two", ["create", "--name", "two", "-s", "filesystem_copy", ".", "--input", &input]);
    fs::write(world.inside("two:second").join("a.txt"), "b\n").unwrap();
    fs::write(world.inside("two:project").join("hello.txt"), "x\n").unwrap();
    shows!(world, "diff_two", ["diff", "two"]);
    shows!(world, "diff_two_stat", ["diff", "two", "--stat"]);
    shows!(world, "diff_two_patch", ["diff", "two", "--patch"]);
    shows!(world, "path_two", ["path", "two"]);
    assert!(world.ok(&["diff", "two:second", "--patch"]).contains("+b\n"));
    shows!(world, "commit_two", ["commit", "two"]);
    assert_eq!(world.text("other/a.txt"), "b\n");
    assert_eq!(world.text("project/hello.txt"), "x\n");
    shows!(world, "rollback_two", ["rollback", "two"]);
}

#[test]
fn a_conflict_says_what_to_do() {
    let world = World::with_sandbox();
    change_everything(&world);
    world.file("project/hello.txt", "changed meanwhile\n");
    shows!(world, "conflict_diff", ["diff", "try", "hello.txt"]);
    shows!(world, "conflict", ["commit", "try"]);
    assert_eq!(world.text("project/hello.txt"), "changed meanwhile\n");
    assert!(!world.path("project/new.txt").exists());
}

#[test]
fn catalogues_are_listed() {
    let world = World::new();
    shows!(world, "strategies", ["strategies"]);
    shows!(world, "types", ["types"]);
}

#[test]
fn trust_is_given_and_taken() {
    let world = World::new();
    shows!(world, "trust_nothing", ["trust"]);
    world.file("project/sandboxer.yaml", "sandbox:\n  strategy: none\n");
    shows!(world, "untrusted_create", ["create"]);
    shows!(world, "trust", ["trust"]);
    shows!(world, "trust_list", ["trust", "--list"]);
    assert!(world.ok(&["create", "--name", "direct"]).contains("none"));
    world.ok(&["trust", "--revoke"]);
    shows!(world, "trust_list_empty", ["trust", "--list"]);
    let listed = world.run(&["list"]);
    assert_eq!(listed.code, 0, "an untrusted file must not hide sandboxes: {}", listed.stderr);
    assert!(listed.stderr.contains("left out"), "{}", listed.stderr);
}

#[test]
fn hostile_names_are_escaped_on_the_screen_and_exact_in_json() {
    let world = World::with_sandbox();
    let hostile = b"evil\n\x1b[31mred\xff\xe2\x80\xae";
    fs::write(world.inside("try").join(Path::new(std::ffi::OsStr::from_bytes(hostile))), "x\n").unwrap();
    let shown = world.run(&["diff", "try", "--color=always"]);
    assert!(shown.stdout.contains("evil\\n\\x1b[31mred\\xff\\u{202e}"), "{:?}", shown.stdout);
    let entry = world.json(&["diff", "try"])["entries"][0].clone();
    assert_eq!(entry["path_b64"], "ZXZpbAobWzMxbXJlZP/igK4=");
}

#[test]
fn hostile_content_is_escaped_on_a_screen_and_exact_elsewhere() {
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("hello.txt"), "hello\n\x1b[2J\tx\n").unwrap();
    let coloured = world.ok(&["diff", "try", "--patch", "--color=always"]);
    assert!(coloured.contains("+\\x1b[2J\tx"), "{coloured:?}");
    assert!(world.ok(&["diff", "try", "--patch"]).contains("+\x1b[2J\tx"));
}

#[test]
fn a_patch_applies_with_git() {
    let world = World::with_sandbox();
    change_everything(&world);
    let patch = world.run(&["diff", "try", "--patch"]).raw;
    let mut apply = Command::new("git");
    world.furnish(&mut apply);
    let mut child = apply.arg("apply").stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &patch).unwrap();
    assert!(child.wait().unwrap().success());
    let compare =
        Command::new("diff").arg("-r").arg(world.project()).arg(world.inside("try")).output().unwrap();
    assert!(compare.status.success(), "{}", String::from_utf8_lossy(&compare.stdout));
}

#[test]
fn colour_only_where_it_is_wanted() {
    let world = World::with_sandbox();
    change_everything(&world);
    assert!(!world.ok(&["diff", "try"]).contains('\x1b'));
    assert!(world.ok(&["diff", "try", "--color=always"]).contains("\x1b[32mA\x1b[0m new.txt"));
    assert!(!world.ok(&["diff", "try", "--color=never", "--patch"]).contains('\x1b'));
}

#[test]
fn quiet_leaves_the_data() {
    let world = World::with_sandbox();
    change_everything(&world);
    let ran = world.run(&["diff", "try", "-q"]);
    assert_eq!((ran.stderr.as_str(), ran.stdout.lines().count()), ("", 7), "{}", ran.stdout);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let world = World::with_sandbox();
    let mut shell = Command::new("bash");
    world.furnish(&mut shell);
    let script = format!("set -o pipefail; {} log --json | true", common::SANDBOX);
    let output = shell.args(["-c", &script]).output().unwrap();
    assert_eq!(output.stderr, b"");
}

#[test]
fn doctor_finds_a_usable_machine() {
    let world = World::with_sandbox();
    let ran = world.run(&["doctor"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for part in [
        "state directory",
        "$SANDBOXER_HOME",
        "1 open sandbox",
        "openat2 works",
        "filesystem_copy",
        "copy.exclude",
    ] {
        assert!(ran.stdout.contains(part), "{part} is missing:\n{}", ran.stdout);
    }
}

#[test]
fn doctor_says_who_decided_and_what_is_wrong() {
    let world = World::new();
    world.file("user/.config/sandboxer/config.yaml", "copy:\n  threads: 3\n");
    assert!(world.ok(&["doctor"]).contains("user file"));
    world.file("user/.config/sandboxer/config.yaml", "copy:\n  thread: 3\n");
    let ran = world.run(&["doctor"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("config.yaml:2") && ran.stdout.contains("threads"), "{}", ran.stdout);
}

#[test]
fn a_lost_database_is_made_up_for_by_adopt() {
    let world = World::with_sandbox();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(world.path("home").join(name));
    }
    shows!(world, "adopt", ["adopt"]);
    assert!(world.ok(&["list"]).contains("try"));
    assert_eq!(world.json(&["adopt"])["adopted"].as_array().unwrap().len(), 0);
}

#[test]
fn what_has_expired_goes_unless_something_is_pending() {
    let world = World::new();
    world.ok(&["create", "--name", "clean", "-s", "filesystem_copy", "--ttl", "1ms"]);
    world.ok(&["create", "--name", "busy", "-s", "filesystem_copy"]);
    let ran = world.run(&["list"]);
    assert!(!ran.stdout.contains("clean") && ran.stdout.contains("busy"), "{}", ran.stdout);
    assert!(world.ok(&["gc", "--dry-run"]).is_empty());
}

#[test]
fn a_file_is_edited_and_not_entered() {
    let world = World::new();
    let told = world.run(&["create", "hello.txt", "--name", "one", "-s", "filesystem_copy"]).stderr;
    assert!(told.contains("edit it: \"$(sandbox path one)\"") && !told.contains("cd "), "{told}");
    // By its name it is there, changed or not.
    assert_eq!(world.run(&["commit", "one", "hello.txt"]).code, 0);
    assert_eq!(world.run(&["commit", "one", "other.txt"]).code, 4);
}

#[test]
fn a_file_larger_than_a_piece_is_read_to_its_end() {
    let world = World::with_sandbox();
    let content: Vec<u8> = (0..9_000_001_u32).map(|n| (n % 251) as u8).collect();
    fs::write(world.inside("try").join("big"), &content).unwrap();
    let ran = world.run(&["read", "try", "big"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.raw == content, "{} bytes of {} arrived as they are", ran.raw.len(), content.len());
}

#[test]
fn a_file_larger_than_memory_is_read() {
    let world = World::with_sandbox();
    let big = fs::File::create(world.inside("try").join("big")).unwrap();
    big.set_len((1 << 30) + 1).unwrap();
    let mut limited = Command::new("sh");
    let script = "ulimit -v 500000; \"$0\" read try big | wc -c";
    limited.args(["-c", script, common::SANDBOX]);
    world.furnish(&mut limited);
    let ran = limited.output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((String::from_utf8_lossy(&ran.stdout).trim(), &*told), ("1073741825", ""));
}

#[test]
fn whoever_has_read_enough_of_a_large_file_is_told_nothing() {
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("big"), vec![7; 9_000_000]).unwrap();
    let mut read = world.command(&["read", "try", "big"]);
    let mut child = read.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}
