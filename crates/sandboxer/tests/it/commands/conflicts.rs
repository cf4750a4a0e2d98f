//! What happens where the original has changed too: refuse, merge, mark, or take one side.

use std::fs;

use crate::common::{Ran, World};

const BASE: &str = "one\ntwo\nthree\nfour\nfive\nsix\n";

/// A sandbox `try` of a project with `list.txt` and `plain.txt`; then `list.txt` becomes `ours` in the original and
/// `theirs` in the sandbox, and `plain.txt` changes in the sandbox alone.
fn diverged(ours: &str, theirs: &str) -> World {
    let world = World::new();
    world.file("project/list.txt", BASE);
    world.file("project/plain.txt", "plain\n");
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    world.file("project/list.txt", ours);
    inside(&world, "list.txt", theirs);
    inside(&world, "plain.txt", "changed\n");
    world
}

/// The same with both sides at odds over one line.
fn at_odds() -> World {
    diverged(&BASE.replace("two", "ours"), &BASE.replace("two", "theirs"))
}

fn inside(world: &World, name: &str, content: &str) {
    fs::write(world.inside("try").join(name), content).unwrap();
}

fn both(world: &World) -> (String, String) {
    (world.text("project/list.txt"), world.text("project/plain.txt"))
}

fn refused(world: &World, arguments: &[&str]) -> Ran {
    let before = both(world);
    let ran = world.run(&[&["commit", "try"], arguments].concat());
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(both(world), before, "the original was touched");
    ran
}

#[test]
fn without_a_word_nothing_is_written_and_the_ways_out_are_named() {
    let world = at_odds();
    insta::assert_snapshot!("conflict_fail", refused(&world, &[]).transcript(&world));
    refused(&world, &["--on-conflict", "fail"]);
    let some = refused(&world, &["list.txt"]);
    assert!(some.stderr.contains("`sandbox commit try list.txt --on-conflict merge`"), "{}", some.stderr);
}

#[test]
fn changes_apart_from_each_other_are_merged() {
    let world = diverged(&BASE.replace("one", "ONE"), &BASE.replace("six", "SIX"));
    world.ok(&["commit", "try", "--on-conflict", "merge"]);
    let merged = BASE.replace("one", "ONE").replace("six", "SIX");
    assert_eq!(both(&world), (merged.clone(), "changed\n".to_owned()));
    assert_eq!(fs::read_to_string(world.inside("try").join("list.txt")).unwrap(), merged);
    assert_eq!(world.ok(&["diff", "try"]), "");
    // Taken back, the original has what somebody else made of it, not what the sandbox was made from.
    world.ok(&["undo"]);
    assert_eq!(both(&world), (BASE.replace("one", "ONE"), "plain\n".to_owned()));
}

#[test]
fn the_same_lines_are_shown_from_both_sides() {
    let world = at_odds();
    insta::assert_snapshot!(
        "conflict_merge",
        refused(&world, &["--on-conflict", "merge"]).transcript(&world)
    );
    let error = world.json_error(&["commit", "try", "--on-conflict", "merge"], 3);
    let hunk = &error["paths"][0]["hunks"][0];
    assert_eq!((&hunk["ours_start"], &hunk["theirs_start"]), (&2.into(), &2.into()));
    assert_eq!(
        (&hunk["ours"][0], &hunk["base"][0], &hunk["theirs"][0]),
        (&"ours".into(), &"two".into(), &"theirs".into())
    );
    assert_eq!(
        fs::read_to_string(world.inside("try").join("list.txt")).unwrap(),
        BASE.replace("two", "theirs")
    );
}

#[test]
fn hostile_lines_are_escaped() {
    let world = diverged(&BASE.replace("two", "\x1b[2J"), &BASE.replace("two", "hint: \u{202e}type this"));
    let ran = refused(&world, &["--on-conflict", "merge", "--color=always"]);
    assert!(
        ran.stderr.contains("-\\x1b[2J") && ran.stderr.contains("+hint: \\u{202e}type"),
        "{:?}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("\x1b[2J"), "{:?}", ran.stderr);
}

#[test]
fn markers_go_into_the_sandbox_and_are_resolved_there() {
    let world = at_odds();
    let ran = refused(&world, &["--on-conflict", "merge", "--write-conflicts"]);
    insta::assert_snapshot!("conflict_marked", ran.transcript(&world));
    let marked = fs::read_to_string(world.inside("try").join("list.txt")).unwrap();
    assert_eq!(marked, BASE.replace("two\n", "<<<<<<< original\nours\n=======\ntheirs\n>>>>>>> sandbox\n"));
    // Forgotten markers are not committed by accident.
    assert_eq!(world.run(&["commit", "try"]).code, 5);
    inside(&world, "list.txt", &BASE.replace("two", "ours and theirs"));
    world.ok(&["commit", "try"]);
    assert_eq!(both(&world), (BASE.replace("two", "ours and theirs"), "changed\n".to_owned()));
}

#[test]
fn a_merge_that_succeeds_needs_no_markers() {
    let world = diverged(&BASE.replace("one", "ONE"), &BASE.replace("six", "SIX"));
    world.ok(&["commit", "try", "--on-conflict", "merge", "--write-conflicts"]);
    assert_eq!(world.text("project/list.txt"), BASE.replace("one", "ONE").replace("six", "SIX"));
}

#[test]
fn what_cannot_be_merged_is_taken_from_one_side() {
    let world = diverged("\0ours", "\0theirs");
    let ran = refused(&world, &["--on-conflict", "merge"]);
    assert!(
        !ran.stderr.contains("--write-conflicts") && ran.stderr.contains("--on-conflict theirs"),
        "{}",
        ran.stderr
    );
    let marked = refused(&world, &["--on-conflict", "merge", "--write-conflicts"]);
    assert!(marked.stderr.contains("nothing was written"), "{}", marked.stderr);
    world.ok(&["commit", "try", "--on-conflict", "theirs"]);
    assert_eq!(world.text("project/list.txt"), "\0theirs");
}

#[test]
fn ours_leaves_it_out_and_pending() {
    let world = at_odds();
    let ran = world.run(&["commit", "try", "--on-conflict", "ours"]);
    insta::assert_snapshot!("conflict_ours", ran.transcript(&world));
    assert_eq!(both(&world), (BASE.replace("two", "ours"), "changed\n".to_owned()));
    assert!(world.ok(&["diff", "try"]).starts_with("M list.txt"));
}

#[test]
fn theirs_wins_and_can_be_taken_back() {
    let world = at_odds();
    world.ok(&["commit", "try", "--on-conflict", "theirs"]);
    assert_eq!(both(&world), (BASE.replace("two", "theirs"), "changed\n".to_owned()));
    world.ok(&["undo", "try"]);
    assert_eq!(both(&world), (BASE.replace("two", "ours"), "plain\n".to_owned()));
}

#[test]
fn a_dry_run_tells_all_and_changes_nothing() {
    let world = diverged(&BASE.replace("one", "ONE"), &BASE.replace("six", "SIX"));
    inside(&world, ".envrc", "x\n");
    let (before, diff) = (both(&world), world.ok(&["diff", "try"]));
    let dry = ["commit", "try", "--on-conflict", "merge", "--dry-run"];
    assert_eq!(world.run(&dry).code, 5, "flags are refused as they would be");
    assert_eq!(world.run(&["commit", "try", "--dry-run"]).code, 3);
    let accepting = [&dry[..], &["--accept-flags"]].concat();
    insta::assert_snapshot!("dry_run", world.run(&accepting).transcript(&world));
    let document = world.json(&accepting);
    assert_eq!((&document["dry_run"], &document["summary"]["total"]), (&true.into(), &3.into()));
    assert!(document.get("undo_bytes").is_none());
    assert_eq!((both(&world), world.ok(&["diff", "try"])), (before, diff));
    assert_eq!(world.run(&["undo"]).code, 4, "nothing was committed");
    let digest = document["digest"].as_str().unwrap();
    world.ok(&["commit", "try", "--on-conflict", "merge", "--accept-flags", "--digest", digest]);
    assert_eq!(world.text("project/list.txt"), BASE.replace("one", "ONE").replace("six", "SIX"));
    assert!(world.json(&["log", "-n", "1"])["operations"][0].get("dry_run").is_none());
}

#[test]
fn a_dry_run_of_nothing_says_so() {
    let world = World::with_sandbox();
    let ran = world.run(&["commit", "try", "--dry-run"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "nothing to commit in try\n", ""));
}

#[test]
fn run_merges_where_it_is_told_to() {
    let world = World::new();
    let script = "echo end >> hello.txt; echo ready; read line";
    let meet = |way: &[&str]| {
        world.file("project/hello.txt", "hello\nworld\n");
        let run = [&["run", "-s", "filesystem_copy", "--commit"], way, &["--", "sh", "-c", script]].concat();
        world.run_while(&run, || world.file("project/hello.txt", "HELLO\nworld\n"))
    };
    let refused = meet(&[]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("`sandbox commit project --on-conflict merge`"), "{}", refused.stderr);
    assert_eq!(world.text("project/hello.txt"), "HELLO\nworld\n");
    world.ok(&["destroy", "project"]);
    assert_eq!(meet(&["--on-conflict", "merge"]).code, 0);
    assert_eq!(world.text("project/hello.txt"), "HELLO\nworld\nend\n");
    assert_eq!(meet(&["--on-conflict", "theirs"]).code, 0);
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\nend\n");
    assert_eq!(world.ok(&["list"]), "");
}

#[test]
fn run_keeps_what_ours_leaves_out() {
    let world = World::new();
    let script = "echo mine > hello.txt; echo new > new.txt; echo ready; read line";
    let run = ["run", "--commit", "--on-conflict", "ours", "--", "sh", "-c", script];
    let ran = world.run_while(&run, || world.file("project/hello.txt", "other\n"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        (world.text("project/hello.txt"), world.text("project/new.txt")),
        ("other\n".into(), "new\n".into())
    );
    assert!(ran.stderr.contains("the sandbox is kept as project"), "{}", ran.stderr);
    assert_eq!(world.ok(&["read", "project", "hello.txt"]), "mine\n");
}

#[test]
fn a_file_by_itself_is_merged_too() {
    let world = World::new();
    world.file("project/list.txt", BASE);
    world.ok(&["create", "list.txt", "--name", "one", "-s", "filesystem_copy"]);
    fs::write(world.inside("one"), BASE.replace("six", "SIX")).unwrap();
    world.file("project/list.txt", BASE.replace("one", "ONE"));
    world.ok(&["commit", "one", "--on-conflict", "merge"]);
    assert_eq!(world.text("project/list.txt"), BASE.replace("one", "ONE").replace("six", "SIX"));
    fs::write(world.inside("one"), "mine\n").unwrap();
    world.file("project/list.txt", "theirs\n");
    let marked = world.run(&["commit", "one", "--on-conflict", "merge", "--write-conflicts"]);
    assert_eq!(marked.code, 3, "{}", marked.stderr);
    assert!(fs::read_to_string(world.inside("one")).unwrap().starts_with("<<<<<<< original\ntheirs\n"));
    assert_eq!(world.text("project/list.txt"), "theirs\n");
}

#[test]
fn in_several_workspaces_the_hints_name_the_one() {
    let world = World::new();
    world.file("other/list.txt", BASE);
    let other = format!("second={}", world.path("other").display());
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy", ".", "--input", &other]);
    fs::write(world.inside("try:second").join("list.txt"), BASE.replace("two", "theirs")).unwrap();
    fs::write(world.inside("try:project").join("hello.txt"), "x\n").unwrap();
    world.file("other/list.txt", BASE.replace("two", "ours"));
    let ran = world.run(&["commit", "try", "--on-conflict", "merge"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("`sandbox rollback try:second list.txt`"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("`sandbox commit try --on-conflict"),
        "all or nothing is given up: {}",
        ran.stderr
    );
    assert_eq!(world.text("project/hello.txt"), "hello\nworld\n", "half of it was committed");
    world.ok(&["commit", "try", "--on-conflict", "theirs"]);
    assert_eq!(world.text("other/list.txt"), BASE.replace("two", "theirs"));
    assert_eq!(world.text("project/hello.txt"), "x\n");
}
