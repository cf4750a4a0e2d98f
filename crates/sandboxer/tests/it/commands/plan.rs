//! All sandboxes of a plan as one: looked at, committed, rolled back.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::World;

/// A directory of one file, with a sandbox of plan `plan` over it in which that is changed and another is added.
fn add(world: &World, plan: &str, directory: &str, strategy: &str) -> String {
    let name = format!("{plan}-{directory}");
    let path = world.path(directory);
    if !path.exists() {
        world.file(&format!("{directory}/a"), "old\n");
    }
    let path = path.to_str().unwrap();
    world.ok(&["create", path, "--plan", plan, "--name", &name, "-s", strategy]);
    fs::write(world.inside(&name).join("a"), "new\n").unwrap();
    fs::write(world.inside(&name).join(format!("by-{plan}")), "added\n").unwrap();
    name
}

fn git(world: &World, directory: &str, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    world.furnish(&mut git);
    let who = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
    let output = git.args(who).args(arguments).current_dir(world.path(directory)).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Two directories and a git checkout, in one plan.
fn plan() -> World {
    let world = World::new();
    add(&world, "fix", "one", "filesystem_copy");
    add(&world, "fix", "two", "copy_on_write");
    world.file("code/a", "old\n");
    git(&world, "code", &["init", "-q"]);
    git(&world, "code", &["add", "."]);
    git(&world, "code", &["commit", "-qm", "first"]);
    git(&world, "code", &["config", "user.name", "T"]);
    git(&world, "code", &["config", "user.email", "t@example.org"]);
    add(&world, "fix", "code", "git_worktree");
    world
}

const ALL: [&str; 3] = ["one", "two", "code"];

fn contents(world: &World) -> [String; 3] {
    ALL.map(|directory| world.text(&format!("{directory}/a")))
}

fn digest(document: &Value) -> String {
    document["digest"].as_str().unwrap().to_owned()
}

#[test]
fn everything_of_a_plan_is_committed_as_one() {
    let world = plan();
    let before = world.run(&["diff", "--plan", "fix"]);
    insta::assert_snapshot!("plan_diff", before.transcript(&world));
    let tried = world.run(&["commit", "--plan", "fix", "--dry-run"]);
    insta::assert_snapshot!("plan_dry_run", tried.transcript(&world));
    assert_eq!(contents(&world), ["old\n"; 3]);
    let done = world.run(&["commit", "--plan", "fix", "-m", "one change"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    for line in ["committed 2 changes of fix-one: ", "committed 2 changes of fix-code as "] {
        assert!(done.stdout.contains(line), "{}", done.stdout);
    }
    assert!(done.stderr.contains("sandbox undo fix-two"), "{}", done.stderr);
    assert_eq!(contents(&world), ["new\n"; 3]);
    assert_eq!(git(&world, "code", &["log", "-1", "--format=%s"]), "one change\n");
    assert_eq!(world.run(&["diff", "--plan", "fix", "--exit-code"]).code, 0);
    world.ok(&["undo", "fix-two"]);
    assert_eq!(contents(&world), ["new\n", "old\n", "new\n"], "each part is taken back by itself");
    assert_eq!(world.run(&["diff", "--plan", "fix", "--exit-code"]).code, 1);
}

#[test]
fn a_conflict_in_one_sandbox_leaves_all_as_they_were() {
    let world = plan();
    fs::write(world.path("two/a"), "by hand\n").unwrap();
    let refused = world.run(&["commit", "--plan", "fix"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("sandbox commit --plan fix --on-conflict merge"), "{}", refused.stderr);
    assert!(refused.stderr.contains("sandbox rollback fix-two:two a"), "{}", refused.stderr);
    assert_eq!(contents(&world), ["old\n", "by hand\n", "old\n"]);
    assert!(!world.path("one/by-fix").exists());
    assert_eq!(git(&world, "code", &["rev-list", "--count", "HEAD"]), "1\n");
    world.ok(&["rollback", "fix-two", "a"]);
    world.ok(&["commit", "--plan", "fix"]);
    assert_eq!(contents(&world), ["new\n", "by hand\n", "new\n"]);
}

#[test]
fn a_plan_is_rolled_back() {
    let world = plan();
    let back = world.json(&["rollback", "--plan", "fix"]);
    assert_eq!((&back["plan_id"], &back["success"]), (&"fix".into(), &true.into()));
    assert_eq!(back["restored_files"], 6);
    assert_eq!(back["sandboxes"].as_array().unwrap().len(), 3);
    assert_eq!(world.json(&["diff", "--plan", "fix"])["summary"]["total"], 0);
    let again = world.ok(&["rollback", "--plan", "fix"]);
    assert_eq!(again.lines().count(), 3, "{again}");
    assert!(again.lines().all(|line| line.starts_with("fix-")), "{again}");
}

#[test]
fn what_was_reviewed_is_what_is_committed() {
    let world = plan();
    let reviewed = world.json(&["diff", "--plan", "fix"]);
    assert_eq!((&reviewed["plan_id"], &reviewed["summary"]["total"]), (&"fix".into(), &6.into()));
    let names: Vec<_> = reviewed["sandboxes"].as_array().unwrap().iter().map(|s| s["name"].clone()).collect();
    assert_eq!(names, ["fix-one", "fix-two", "fix-code"]);
    let tried = world.json(&["commit", "--plan", "fix", "--dry-run"]);
    assert_eq!((&tried["dry_run"], digest(&tried)), (&true.into(), digest(&reviewed)));
    fs::write(world.inside("fix-two").join("a"), "newer\n").unwrap();
    let refused = world.json_error(&["commit", "--plan", "fix", "--digest", &digest(&reviewed)], 5);
    assert!(refused["hints"][0].as_str().unwrap().contains("sandbox diff --plan fix --json"), "{refused}");
    let done = world.json(&[
        "commit",
        "--plan",
        "fix",
        "--digest",
        &digest(&world.json(&["diff", "--plan", "fix"])),
    ]);
    for sandbox in done["sandboxes"].as_array().unwrap() {
        assert!(sandbox["op_id"].as_str().unwrap().starts_with("op_"), "{sandbox}");
        assert_eq!(sandbox["entries"].as_array().unwrap().len(), 2);
    }
    assert!(done.get("dry_run").is_none());
    let log = world.json(&["log", "fix-one"]);
    let plan = &log["operations"][0]["details"]["plan_commit"];
    assert_eq!((&plan["plan_id"], plan["operations"].as_array().unwrap().len()), (&"fix".into(), 3));
}

#[test]
fn rules_hold_over_the_whole_plan() {
    let world = plan();
    let refused = world.json_error(&["commit", "--plan", "fix", "--if", "max-files=5"], 5);
    assert_eq!(refused["rules"][0]["rule"], "max-files=5");
    assert_eq!(contents(&world), ["old\n"; 3]);
    world.ok(&["commit", "--plan", "fix", "--if", "max-files=6"]);
}

#[test]
fn a_plan_and_a_sandbox_are_not_named_at_once_and_no_part_of_a_plan_is() {
    let world = plan();
    for command in [
        &["commit", "fix-one", "--plan", "fix"][..],
        &["rollback", "fix-one", "--plan", "fix"],
        &["diff", "fix-one", "--plan", "fix"],
        &["commit", "--plan", "fix", "-p"],
        &["diff", "--plan", "fix", "--patch"],
        &["commit"],
        &["rollback"],
    ] {
        assert_eq!(world.run(command).code, 2, "{command:?}");
    }
    let unknown = world.json_error(&["commit", "--plan", "fux"], 4);
    assert_eq!(unknown["hints"][0], "did you mean fix?");
    assert_eq!(contents(&world), ["old\n"; 3]);
}

#[test]
fn two_plans_over_the_same_directories_are_committed_at_once() {
    let world = World::new();
    let pairs = [("p", ["one", "two", "three"]), ("q", ["three", "two", "one"])];
    for (plan, directories) in pairs {
        for directory in directories {
            let name = add(&world, plan, directory, "filesystem_copy");
            world.ok(&["rollback", &name, "a"]);
        }
    }
    let start = |(plan, _): &(&str, _)| {
        let mut command = world.command(&["commit", "--plan", plan]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<_> = pairs.iter().chain(&pairs).map(start).collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for directory in pairs[0].1 {
        for plan in ["p", "q"] {
            assert_eq!(world.text(&format!("{directory}/by-{plan}")), "added\n");
        }
    }
}
