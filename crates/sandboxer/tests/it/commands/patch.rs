//! Choosing hunks: on a real terminal, and with a patch.

use std::fs;

use crate::common::World;
use crate::common::pty::Terminal;

/// A world whose sandbox `try` has changed lines 2, 10, 12 and 25 of thirty: three hunks, the middle one of two changes.
fn world() -> World {
    let world = World::new();
    world.file("project/text", lines(&[]));
    world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
    fs::write(world.inside("try").join("text"), lines(&[2, 10, 12, 25])).unwrap();
    world
}

/// Thirty lines, some of them changed.
fn lines(changed: &[u32]) -> String {
    (1..=30)
        .map(|n| if changed.contains(&n) { format!("LINE {n}\n") } else { format!("line {n}\n") })
        .collect()
}

fn original(world: &World) -> String {
    world.text("project/text")
}

fn inside(world: &World) -> String {
    fs::read_to_string(world.inside("try").join("text")).unwrap()
}

#[test]
fn commit_asks_hunk_by_hunk() {
    let world = world();
    let mut terminal = Terminal::start(&world, &["commit", "try", "-p"], "false");
    terminal.expect("M text");
    terminal.expect("+LINE 2\r\n");
    terminal.answer("(1/3) Commit this hunk [y,n,q,a,d,j,e,?", "y");
    terminal.answer("(2/3) Commit this hunk [y,n,q,a,d,j,s,e,?", "n");
    terminal.answer("(3/3) Commit this hunk [y,n,q,a,d,e,?", "y");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("committed 1 change of try"), "{screen}");
    assert_eq!(original(&world), lines(&[2, 25]));
    assert_eq!(inside(&world), lines(&[2, 10, 12, 25]), "the sandbox keeps everything");
    let rest = world.ok(&["diff", "try", "--patch"]);
    assert!(rest.contains("+LINE 10") && !rest.contains("+LINE 25"), "{rest}");
}

#[test]
fn commit_splits_edits_helps_and_quits() {
    let world = world();
    let editor = "sed -i 's/^+LINE 10$/+zehn/'";
    let mut terminal = Terminal::start(&world, &["commit", "try", "-p", "text"], editor);
    terminal.answer("(1/3)", "?");
    terminal.expect("y - commit this");
    terminal.expect("? - show this help");
    terminal.answer("(1/3)", "n");
    terminal.answer("(2/3)", "s");
    terminal.expect("split into 2 hunks");
    terminal.answer("(2/4)", "e");
    terminal.answer("(3/4)", "q");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(original(&world), lines(&[]).replace("line 10\n", "zehn\n"));
    let left: Vec<_> = fs::read_dir(world.path("user")).unwrap().collect();
    assert!(left.is_empty(), "the editor's file is left: {left:?}");
}

#[test]
fn an_edit_that_does_not_apply_is_asked_about_again() {
    let world = world();
    let mut terminal = Terminal::start(&world, &["commit", "try", "-p"], "sed -i 's/^ line 1$/ line one/'");
    terminal.answer("(1/3)", "e");
    terminal.expect("the edited hunk does not apply: hunk `@@ -1,5 +1,5 @@`");
    terminal.answer("(1/3)", "d");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("nothing selected; nothing committed"), "{screen}");
    assert_eq!(original(&world), lines(&[]));
}

#[test]
fn rollback_asks_splits_edits_and_quits() {
    let world = world();
    let editor = "sed -i '/^ line 3$/d'";
    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], editor);
    terminal.answer("(1/3) Discard this hunk [", "?");
    terminal.expect("y - throw this away");
    terminal.answer("(1/3)", "e");
    terminal.expect("the edited hunk does not apply");
    terminal.answer("(1/3)", "n");
    terminal.answer("(2/3)", "s");
    terminal.answer("(2/4)", "y");
    terminal.answer("(3/4)", "n");
    terminal.answer("(4/4)", "q");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("threw chosen hunks of 1 file away"), "{screen}");
    assert_eq!(inside(&world), lines(&[2, 12, 25]));
    assert_eq!(original(&world), lines(&[]));
}

#[test]
fn rollback_of_an_edited_hunk_throws_away_what_is_left_in_it() {
    let world = world();
    let editor = "sed -i -e 's/^+LINE 12$/ LINE 12/' -e '/^-line 12$/d'";
    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], editor);
    terminal.answer("(1/3)", "n");
    terminal.answer("(2/3)", "e");
    terminal.answer("(3/3)", "n");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(inside(&world), lines(&[2, 12, 25]));
}

#[test]
fn whole_entries_are_chosen_beside_hunks() {
    let world = world();
    let tree = world.inside("try");
    fs::remove_file(tree.join("hello.txt")).unwrap();
    fs::create_dir(tree.join("new")).unwrap();
    fs::write(tree.join("new/file"), "evil \x1b]0;title\x07\n").unwrap();
    fs::write(tree.join("zero"), b"\0\x01").unwrap();
    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], "false");
    terminal.answer("(1/1) Discard this deletion [", "y");
    terminal.answer("(1/1) Discard this new file [", "n");
    terminal.answer("(1/3) Discard this hunk [", "a");
    terminal.answer("(1/1) Discard this new file [", "y");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains('\x1b') && !screen.contains('\x07'), "{screen:?}");
    assert!(screen.contains("evil \\x1b]0;title\\x07"), "{screen}");
    assert_eq!(inside(&world), lines(&[]));
    assert!(tree.join("hello.txt").exists() && tree.join("new/file").exists() && !tree.join("zero").exists());
}

#[test]
fn ctrl_c_does_nothing_and_the_end_of_the_input_keeps_what_was_chosen() {
    let world = world();
    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], "false");
    terminal.answer("(1/3)", "y");
    terminal.expect("(2/3)");
    terminal.expect("]? ");
    terminal.press("\x03");
    let (code, screen) = terminal.finish();
    assert_ne!(code, Some(0), "{screen}");
    assert_eq!(inside(&world), lines(&[2, 10, 12, 25]));

    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], "false");
    terminal.answer("(1/3)", "y");
    terminal.expect("(2/3)");
    terminal.expect("]? ");
    terminal.press("\x04");
    assert_eq!(terminal.finish().0, Some(0));
    assert_eq!(inside(&world), lines(&[10, 12, 25]));
}

#[test]
fn a_file_that_changes_while_somebody_chooses_is_left_alone() {
    let world = world();
    let tree = world.inside("try");
    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], "false");
    terminal.answer("(1/3)", "a");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");

    fs::write(tree.join("text"), lines(&[2])).unwrap();
    fs::write(tree.join("zero"), "as seen\n").unwrap();
    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], "false");
    terminal.expect("(1/1) Discard this hunk");
    fs::write(tree.join("text"), lines(&[2, 3])).unwrap();
    terminal.answer("[", "y");
    terminal.answer("this new file", "n");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(3), "{screen}");
    assert!(screen.contains("text has changed in the sandbox since it was shown"), "{screen}");
    assert_eq!(inside(&world), lines(&[2, 3]));

    let mut terminal = Terminal::start(&world, &["commit", "try", "-p", "zero"], "false");
    terminal.expect("this new file");
    fs::write(tree.join("zero"), "slipped in\n").unwrap();
    terminal.answer("[", "y");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(3), "{screen}");
    assert!(!world.project().join("zero").exists());
}

#[test]
fn without_a_terminal_there_is_nobody_to_ask() {
    let world = world();
    for arguments in [&["commit", "try", "-p"][..], &["rollback", "try", "--patch"]] {
        let ran = world.run(arguments);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("--hunks FILE"), "{}", ran.stderr);
        assert_eq!(world.json_error(arguments, 2)["kind"], "usage");
    }
    for conflicting in
        [&["commit", "try", "-p", "--hunks", "x"][..], &["rollback", "try", "text", "--hunks", "x"]]
    {
        assert_eq!(world.run(conflicting).code, 2);
    }
}

/// The patch of the sandbox without its middle hunk.
fn two_hunks(world: &World) -> String {
    let patch = world.ok(&["diff", "try", "--patch", "text"]);
    let hunks: Vec<&str> = patch.split("@@ -").collect();
    assert_eq!(hunks.len(), 4);
    format!("{}@@ -{}@@ -{}", hunks[0], hunks[1], hunks[3])
}

#[test]
fn commit_takes_the_hunks_of_a_patch() {
    let world = world();
    world.file("choice.patch", two_hunks(&world));
    let file = world.path("choice.patch");
    let document = world.json(&["commit", "try", "--hunks", file.to_str().unwrap()]);
    assert_eq!(document["summary"]["total"], 1);
    assert_eq!(original(&world), lines(&[2, 25]));
    let patch = world.ok(&["diff", "try", "--patch"]);
    let ran = world.run_with_input(&["commit", "try", "--hunks", "-"], patch.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(original(&world), lines(&[2, 10, 12, 25]));
    assert_eq!(world.ok(&["diff", "try", "-q"]), "");
}

#[test]
fn commit_takes_part_of_a_hunk() {
    let world = world();
    let patch = world.ok(&["diff", "try", "--patch"]);
    let part = patch.replace("-line 12\n", " line 12\n").replace("+LINE 12\n", "");
    let ran = world.run_with_input(&["commit", "try", "--hunks", "-"], part.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(original(&world), lines(&[2, 10, 25]));
}

#[test]
fn rollback_takes_the_hunks_of_a_patch() {
    let world = world();
    let tree = world.inside("try");
    fs::write(tree.join("new file"), "x\n").unwrap();
    fs::remove_file(tree.join("hello.txt")).unwrap();
    let patch = two_hunks(&world) + &world.ok(&["diff", "try", "--patch", "hello.txt"]);
    let ran = world.run_with_input(&["rollback", "try", "--hunks", "-"], patch.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(inside(&world), lines(&[10, 12]));
    assert_eq!(world.ok(&["diff", "try", "-q"]), "A new file\nM text\n");
}

#[test]
fn modes_are_kept_and_come_with_the_whole_file() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: std::path::PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let world = world();
    let tree = world.inside("try");
    fs::set_permissions(tree.join("text"), fs::Permissions::from_mode(0o755)).unwrap();
    let patch = world.ok(&["diff", "try", "--patch"]);
    let ran = world.run_with_input(&["rollback", "try", "--hunks", "-"], two_hunks(&world).as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!((inside(&world), mode(tree.join("text"))), (lines(&[10, 12]), 0o755));
    fs::write(tree.join("text"), lines(&[2, 10, 12, 25])).unwrap();
    let ran = world
        .run_with_input(&["commit", "try", "--accept-flags", "--hunks", "-"], two_hunks(&world).as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!((original(&world), mode(world.project().join("text"))), (lines(&[2, 25]), 0o644));
    let rest = world.ok(&["diff", "try", "--patch"]);
    assert_ne!(rest, patch);
    let ran = world.run_with_input(&["commit", "try", "--accept-flags", "--hunks", "-"], rest.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!((original(&world), mode(world.project().join("text"))), (lines(&[2, 10, 12, 25]), 0o755));
}

#[test]
fn what_comes_below_a_chosen_directory_is_not_taken_unseen() {
    let world = World::with_sandbox();
    let tree = world.inside("try");
    fs::remove_dir_all(tree.join("src")).unwrap();
    let mut terminal = Terminal::start(&world, &["rollback", "try", "-p"], "false");
    terminal.expect("D src/main.rs");
    terminal.expect("Discard this deletion, with everything below it");
    fs::create_dir(tree.join("src")).unwrap();
    fs::write(tree.join("src/other"), "slipped in\n").unwrap();
    terminal.answer("[", "y");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(3), "{screen}");
    assert!(tree.join("src/other").exists());
}

#[test]
fn whole_entries_of_a_patch_are_committed_as_a_whole() {
    let world = World::with_sandbox();
    let tree = world.inside("try");
    fs::remove_file(tree.join("hello.txt")).unwrap();
    fs::create_dir(tree.join("new")).unwrap();
    fs::write(tree.join("new/file"), "x\n").unwrap();
    fs::write(tree.join("bin"), b"\0\x01").unwrap();
    fs::write(tree.join("left"), "not in the patch\n").unwrap();
    let patch = world.ok(&["diff", "try", "--patch", "hello.txt", "new", "bin"]);
    let ran = world.run_with_input(&["commit", "try", "--hunks", "-"], patch.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let project = world.project();
    assert!(
        !project.join("hello.txt").exists()
            && project.join("new/file").exists()
            && project.join("bin").exists()
    );
    assert_eq!(world.ok(&["diff", "try", "-q"]), "A left\n");
}

#[test]
fn patches_that_choose_nothing_sensible_are_refused() {
    let world = world();
    let whole = two_hunks(&world);
    let cases = [
        (2, "no patch in stdin", String::new()),
        (2, "line 2 of the patch", "x\n@@ -1 +1 @@\n-a\n".to_owned()),
        (2, "`@@ -1,5 +1,5 @@`", whole.replace(" line 1\n", " line one\n")),
        (5, "`@@ -1,5 +1,5 @@`", whole.replace("+LINE 2\n", "+made up\n")),
        (4, "other", whole.replace("/text", "/other")),
        (2, "..", whole.replace("/text", "/../text")),
    ];
    for command in ["commit", "rollback"] {
        for (code, told, patch) in &cases {
            if command == "rollback" && told.starts_with('`') {
                continue;
            }
            let ran = world.run_with_input(&[command, "try", "--hunks", "-"], patch.as_bytes());
            assert_eq!(ran.code, *code, "{command} {told}: {}", ran.stderr);
            assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
        }
    }
    assert_eq!(world.run(&["commit", "try", "--hunks", "missing.patch"]).code, 4);
    assert_eq!((original(&world), inside(&world)), (lines(&[]), lines(&[2, 10, 12, 25])));
}

#[test]
fn rollback_refuses_what_the_sandbox_does_not_have() {
    let world = world();
    let patch = two_hunks(&world);
    for (code, wrong) in
        [(2, patch.replace("+LINE 2\n", "+made up\n")), (5, patch.replace("-line 2\n", "-made up\n"))]
    {
        let ran = world.run_with_input(&["rollback", "try", "--hunks", "-"], wrong.as_bytes());
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.contains("text") && ran.stderr.contains("`@@ -1,5 +1,5 @@`"), "{}", ran.stderr);
    }
    assert_eq!(inside(&world), lines(&[2, 10, 12, 25]));
}

#[test]
fn hunks_are_chosen_in_one_workspace() {
    let world = World::new();
    let (one, two) = (world.path("project/src"), world.path("user"));
    world.ok(&[
        "create",
        "--name",
        "both",
        "-s",
        "filesystem_copy",
        one.to_str().unwrap(),
        two.to_str().unwrap(),
    ]);
    fs::write(world.inside("both:src").join("main.rs"), "fn main() { }\n").unwrap();
    let patch = world.ok(&["diff", "both:src", "--patch"]);
    let ran = world.run_with_input(&["commit", "both", "--hunks", "-"], patch.as_bytes());
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("both:src"), "{}", ran.stderr);
    let ran = world.run_with_input(&["commit", "both:src", "--hunks", "-"], patch.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn a_strategy_that_knows_no_hunks_says_so_before_it_asks() {
    let world = World::new();
    world.ok(&["create", "--name", "straight", "-s", "none"]);
    let mut terminal = Terminal::start(&world, &["commit", "straight", "-p"], "false");
    terminal.expect("strategy none cannot commit chosen hunks");
    assert_eq!(terminal.finish().0, Some(1));
}
