//! Commits taken back, and operations looked at.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{self, World};

/// A world whose sandbox `try` has committed a changed and a new file; the operation's id.
fn committed() -> (World, String) {
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("hello.txt"), "hello\nthere\n").unwrap();
    fs::write(world.inside("try").join("new.txt"), "new\n").unwrap();
    let operation = commit(&world, &["-m", "say there"]);
    (world, operation)
}

fn commit(world: &World, more: &[&str]) -> String {
    text(&world.json(&[&["commit", "try"], more].concat()), "op_id")
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().unwrap_or_else(|| panic!("no {field} in {document}")).to_owned()
}

/// The directories in which workspaces keep what takes commits back.
fn undo_directories(world: &World) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![world.path("home")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            match entry.file_type().unwrap().is_dir() {
                true if entry.file_name() == "undo" => found.push(path),
                true => left.push(path),
                false => {}
            }
        }
    }
    found
}

#[test]
fn a_commit_is_taken_back_and_pending_again() {
    let (world, operation) = committed();
    let ran = world.run(&["undo"]);
    insta::assert_snapshot!("undo", ran.transcript(&world));
    assert!(ran.stdout.contains(&operation), "{}", ran.stdout);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    assert!(!world.path("project/new.txt").exists());
    assert_eq!(world.ok(&["diff", "try"]), "M hello.txt\nA new.txt\n");
    commit(&world, &[]);
    assert_eq!(world.text("project/hello.txt"), "hello\nthere\n");
}

#[test]
fn an_undo_is_a_document_like_a_commit() {
    let (world, operation) = committed();
    let undone = world.json(&["undo", &operation]);
    assert_eq!((&undone["undone"], &undone["name"]), (&operation.as_str().into(), &"try".into()));
    assert_ne!(undone["op_id"], undone["undone"]);
    assert!(
        text(&undone, "digest").starts_with("blake3:") && text(&undone, "sandbox_id").starts_with("sbx_")
    );
    assert_eq!((&undone["summary"]["deleted"], &undone["summary"]["modified"]), (&1.into(), &1.into()));
    assert_eq!(undone["entries"].as_array().unwrap().len(), 2);
    assert!(undone["undo_bytes"].is_u64() && undone["notices"].is_array());
}

#[test]
fn the_beginning_of_an_id_is_enough() {
    let (world, operation) = committed();
    let whole = operation.strip_prefix("op_").unwrap().to_owned();
    // The last characters are random: what comes before may be the same for both.
    let other = world.json(&["log"])["operations"][1]["id"].as_str().unwrap().to_owned();
    let shared = operation.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let ambiguous = world.json_error(&["undo", &operation[..shared]], 2);
    assert!(ambiguous.to_string().contains("several"), "{ambiguous}");
    world.ok(&["undo", &whole[..shared + 1]]);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
}

#[test]
fn what_changed_on_top_is_named_with_the_commit_that_did_it() {
    let (world, operation) = committed();
    fs::write(world.inside("try").join("hello.txt"), "hello\nagain\n").unwrap();
    let later = commit(&world, &[]);
    let ran = world.run(&["undo", &operation]);
    insta::assert_snapshot!("undo_refused", ran.transcript(&world));
    assert!(ran.stderr.contains(&format!("(by commit {later})")), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("`sandbox undo {later}`")), "{}", ran.stderr);
    assert_eq!(world.text("project/hello.txt"), "hello\nagain\n");
    assert!(world.path("project/new.txt").exists());
    // What the hint says helps.
    world.ok(&["undo", &later]);
    world.ok(&["undo", &operation]);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
}

#[test]
fn an_edit_by_hand_is_not_overwritten() {
    let (world, operation) = committed();
    world.file("project/hello.txt", "mine\n");
    let error = world.json_error(&["undo"], 3);
    assert_eq!((&error["kind"], &error["path"]), (&"conflict".into(), &"hello.txt".into()));
    assert!(text(&error, "message").contains(&operation), "{error}");
    assert_eq!(error["paths"][0]["reason"], "modified since that operation");
    assert_eq!(world.text("project/hello.txt"), "mine\n");
}

#[test]
fn twice_is_once_too_often() {
    let (world, operation) = committed();
    world.ok(&["undo", "try"]);
    let error = world.json_error(&["undo", &operation], 5);
    assert!(text(&error, "message").contains("taken back already"), "{error}");
    assert_eq!(world.run(&["undo"]).code, 4);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
}

#[test]
fn one_after_the_other_leads_back_to_the_beginning() {
    let (world, _) = committed();
    fs::remove_file(world.inside("try").join("run.sh")).unwrap();
    commit(&world, &[]);
    world.ok(&["undo", "try"]);
    assert!(world.path("project/run.sh").exists() && world.path("project/new.txt").exists());
    world.ok(&["undo", "try"]);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
}

#[test]
fn an_undo_can_be_taken_back() {
    let (world, _) = committed();
    let undo = text(&world.json(&["undo"]), "op_id");
    let again = world.run(&["undo", &undo]);
    assert!(
        again.stdout.starts_with(&format!("took back undo {undo} of try, 2 changes: ")),
        "{}",
        again.stdout
    );
    assert!(again.stderr.contains("committed again"), "{}", again.stderr);
    assert_eq!(world.text("project/hello.txt"), "hello\nthere\n");
    assert_eq!(world.ok(&["diff", "try"]), "");
    // Now the commit stands, and can be taken back as before.
    let third = world.run(&["undo"]);
    assert_eq!(third.code, 0, "{}", third.stderr);
    assert!(third.stderr.contains("pending again"), "{}", third.stderr);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
}

#[test]
fn only_commits_can_be_taken_back() {
    let (world, _) = committed();
    let operations = world.json(&["log"])["operations"].clone();
    let create = operations.as_array().unwrap().iter().find(|o| o["kind"] == "create").unwrap();
    let error = world.json_error(&["undo", create["id"].as_str().unwrap()], 5);
    assert!(text(&error, "message").contains("only commits can be taken back"), "{error}");
}

#[test]
fn after_destroy_nothing_is_taken_back() {
    let (world, operation) = committed();
    world.ok(&["destroy", "try"]);
    for arguments in [&["undo"][..], &["undo", "try"], &["undo", &operation]] {
        let error = world.json_error(arguments, 5);
        assert!(text(&error, "message").contains("sandbox is gone"), "{arguments:?}: {error}");
    }
    assert_eq!(world.text("project/hello.txt"), "hello\nthere\n");
}

#[test]
fn an_older_commit_is_not_taken_for_the_newest() {
    let (world, operation) = committed();
    world.ok(&["create", "src", "--name", "other", "-s", "filesystem_copy"]);
    fs::write(world.inside("other").join("main.rs"), "fn main() { run() }\n").unwrap();
    world.ok(&["commit", "other"]);
    world.ok(&["destroy", "other"]);
    let error = world.json_error(&["undo"], 5);
    assert!(error["hints"][0].as_str().unwrap().contains(&format!("`sandbox undo {operation}`")), "{error}");
    assert!(world.path("project/new.txt").exists());
    assert_eq!(world.text("project/src/main.rs"), "fn main() { run() }\n");
}

#[test]
fn what_a_run_has_committed_is_taken_back() {
    let world = World::new();
    let ran = world.run(&["run", "-s", "filesystem_copy", "--commit", "--", "sh", "-c", "echo 1 > one"]);
    assert!(ran.code == 0 && ran.stderr.contains("sandbox undo"), "{}", ran.stderr);
    assert_eq!(world.ok(&["list"]), "");
    let undone = world.run(&["undo"]);
    assert_eq!(undone.code, 0, "{}", undone.stderr);
    assert!(!world.path("project/one").exists());
    assert_eq!(world.ok(&["diff", "project"]), "A one\n");
}

#[test]
fn several_workspaces_are_committed_and_taken_back_as_one() {
    let world = World::new();
    world.file("other/a.txt", "a\n");
    let other = format!("second={}", world.path("other").display());
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy", ".", "--input", &other]);
    fs::write(world.inside("try:second").join("a.txt"), "b\n").unwrap();
    fs::write(world.inside("try:project").join("hello.txt"), "x\n").unwrap();
    let operation = commit(&world, &[]);
    insta::assert_snapshot!("show_two", world.run(&["show", &operation]).transcript(&world));
    // What has changed on top in one of them keeps the other as it is.
    world.file("other/a.txt", "mine\n");
    let error = world.json_error(&["undo"], 3);
    assert!(text(&error, "message").contains("workspace second"), "{error}");
    assert_eq!(world.text("project/hello.txt"), "x\n");
    // The very same content: nothing has changed.
    world.file("other/a.txt", "b\n");
    world.ok(&["undo"]);
    assert_eq!(
        (world.text("other/a.txt"), world.text("project/hello.txt")),
        ("a\n".into(), "hello\nworld\n".into())
    );
    assert_eq!(world.json(&["diff", "try"])["summary"]["total"], 2);
}

#[test]
fn an_operation_is_shown_with_its_diff() {
    let (world, operation) = committed();
    insta::assert_snapshot!("show", world.run(&["show"]).transcript(&world));
    let shown = world.json(&["show", &operation]);
    assert_eq!(
        (&shown["id"], &shown["kind"], &shown["name"]),
        (&operation.as_str().into(), &"commit".into(), &"try".into())
    );
    assert_eq!(shown["details"]["message"], "say there");
    let patch = &shown["patches"][0];
    assert_eq!(patch["workspace"], "project");
    assert!(text(patch, "patch").contains("-world\n+there\n"), "{patch}");
    assert_eq!(fs::read_to_string(text(patch, "path")).unwrap(), text(patch, "patch"));
}

#[test]
fn without_a_name_the_newest_that_did_something_is_shown() {
    let (world, operation) = committed();
    commit(&world, &[]);
    world.file("project/hello.txt", "changed meanwhile\n");
    fs::write(world.inside("try").join("hello.txt"), "mine\n").unwrap();
    assert_eq!(world.run(&["commit", "try"]).code, 3);
    assert_eq!(world.json(&["show"])["id"], operation.as_str());
}

#[test]
fn where_nothing_was_done_nothing_is_made() {
    let world = World::new();
    for arguments in [&["show"][..], &["show", "op_1234"], &["undo"], &["undo", "try"]] {
        assert_eq!(world.json_error(arguments, 4)["kind"], "not_found", "{arguments:?}");
    }
    assert!(!world.path("home").exists(), "looking made a state directory");
}

#[test]
fn a_file_by_itself_is_taken_back_too() {
    let world = World::new();
    world.ok(&["create", "hello.txt", "--name", "one", "-s", "filesystem_copy"]);
    fs::write(world.inside("one"), "hello\nthere\n").unwrap();
    world.ok(&["commit", "one"]);
    assert!(world.ok(&["show"]).contains("-world\n+there\n"));
    world.ok(&["undo", "one"]);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n");
    assert_eq!(world.ok(&["diff", "one"]), "M hello.txt\n");
}

#[test]
fn the_log_names_operations_and_marks_what_was_taken_back() {
    let (world, operation) = committed();
    world.ok(&["undo"]);
    insta::assert_snapshot!("log_undone", world.run(&["log"]).transcript(&world));
    assert!(world.ok(&["log"]).contains(&operation));
    let newest = world.json(&["log", "-n", "1"])["operations"][0].clone();
    assert_eq!((&newest["kind"], &newest["name"]), (&"undo".into(), &"try".into()));
    assert_eq!(newest["details"]["undoes"], operation.as_str());
    let shown = world.run(&["show", &operation]);
    assert!(shown.stdout.contains("(undone)") && !shown.stderr.contains("sandbox undo"), "{}", shown.stderr);
}

#[test]
fn what_is_no_longer_kept_is_said_to_be_gone() {
    let (world, operation) = committed();
    let directories = undo_directories(&world);
    assert_eq!(directories.len(), 1);
    fs::remove_dir_all(&directories[0]).unwrap();
    let shown = world.run(&["show", &operation]);
    assert_eq!(shown.code, 0);
    assert!(shown.stdout.contains("M hello.txt") && !shown.stdout.contains("diff --git"), "{}", shown.stdout);
    assert_eq!(shown.stderr, "its diff is no longer kept\n");
    assert_eq!(world.json(&["show", &operation])["patches"], serde_json::json!([]));
    let error = world.json_error(&["undo", &operation], 5);
    assert!(text(&error, "message").contains("no longer kept"), "{error}");
    assert_eq!(world.text("project/hello.txt"), "hello\nthere\n");
}

#[test]
fn nobody_is_sent_to_what_had_no_room() {
    let world = World::with_sandbox();
    fs::write(world.inside("try").join("hello.txt"), "there\n").unwrap();
    let ran =
        common::Ran::of(world.command(&["commit", "try"]).env("SANDBOXER_MAX_SIZE", "0").output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("warning: removed") && !ran.stderr.contains("sandbox undo"),
        "{}",
        ran.stderr
    );
    assert_eq!(world.json(&["show"])["kind"], "commit");
    let error = world.json_error(&["undo"], 5);
    assert!(text(&error, "message").contains("no longer kept"), "{error}");
}

#[test]
fn hostile_names_and_words_are_escaped() {
    let world = World::with_sandbox();
    let hostile = Path::new(std::ffi::OsStr::from_bytes(b"evil\n\x1b[31mred\xff\xe2\x80\xae"));
    fs::write(world.inside("try").join(hostile), "\x1b[2Jx\n").unwrap();
    fs::write(world.inside("try").join("blob\n+fake"), b"\0\x01").unwrap();
    commit(&world, &["-m", "why\n\x1b[2J"]);
    let shown = world.ok(&["show", "--color=always"]);
    assert!(shown.contains("evil\\n\\x1b[31mred\\xff\\u{202e}"), "{shown:?}");
    assert!(shown.contains("why\\n\\x1b[2J") && shown.contains("+\\x1b[2Jx"), "{shown:?}");
    for hostile in ["\x1b[31mred", "\x1b[2J", "\n+fake"] {
        assert!(!shown.contains(hostile), "{hostile:?} is live: {shown:?}");
        assert!(!world.ok(&["log", "--color=always"]).contains(hostile));
    }
    let piped = world.ok(&["show"]);
    assert!(piped.contains("+\x1b[2Jx"), "a patch in a pipe is exact: {piped:?}");
    assert!(!piped.lines().any(|line| line.starts_with("+fake")), "a name passes for a line: {piped:?}");
}
