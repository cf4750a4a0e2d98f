//! Uncommitted work that is put away, and budgets, through the command.

use std::fs;

use crate::common::{Ran, World};

fn with_work() -> World {
    let world = World::with_sandbox();
    world.run_with_input(&["write", "try", "hello.txt"], b"mine\n");
    world
}

fn parked(world: &World) -> Vec<serde_json::Value> {
    world.json(&["parked"])["parked"].as_array().unwrap().clone()
}

#[test]
fn destroy_parks_and_unpark_brings_back() {
    let world = with_work();
    let document = world.json(&["destroy", "try"]);
    assert_eq!((&document["state"], &document["parked_changes"]), (&"parked".into(), &1.into()));
    assert_eq!(world.json(&["list"])["sandboxes"].as_array().unwrap().len(), 0);
    let found = parked(&world);
    assert_eq!((found.len(), &found[0]["name"]), (1, &"try".into()));
    assert!(found[0]["summary"].as_str().unwrap().contains("1 uncommitted change"));
    assert_eq!(world.run(&["read", found[0]["id"].as_str().unwrap(), "hello.txt"]).code, 4);
    let again = world.run(&["destroy", found[0]["id"].as_str().unwrap()]);
    assert!(again.stdout.starts_with("parked already: sandbox try"), "{}", again.stdout);
    // The name is free meanwhile.
    world.ok(&["create", "--name", "try"]);
    assert_eq!(world.run(&["unpark", "try", "--name", "try"]).code, 2);
    let back = world.json(&["unpark", "try", "--name", "mine"]);
    assert_eq!((&back["name"], &back["state"]), (&"mine".into(), &"ready".into()));
    assert_eq!(world.ok(&["read", "mine", "hello.txt"]), "mine\n");
    assert_eq!(world.run(&["unpark", "mine"]).code, 4);
    world.ok(&["commit", "mine"]);
    assert_eq!(fs::read_to_string(world.project().join("hello.txt")).unwrap(), "mine\n");
}

#[test]
fn discard_throws_away_what_is_pending_and_what_is_parked() {
    let world = with_work();
    assert!(world.ok(&["destroy", "try", "--discard"]).starts_with("removed sandbox try"));
    assert!(parked(&world).is_empty());
    let world = with_work();
    world.ok(&["destroy", "try"]);
    let id = parked(&world)[0]["id"].as_str().unwrap().to_owned();
    assert!(world.ok(&["destroy", "--discard", &id]).starts_with("removed sandbox try"));
    assert!(parked(&world).is_empty());
}

#[test]
fn an_expired_sandbox_is_parked_by_the_next_command_and_gc_discards_if_told() {
    let world = World::new();
    world.ok(&["create", "--name", "short", "--ttl", "1ms"]);
    // Its time was over before anything could be done in it, so it is gone.
    world.ok(&["list"]);
    assert_eq!(world.json(&["list"])["sandboxes"].as_array().unwrap().len(), 0);
    for (discard, left) in [(false, 1), (true, 0)] {
        let world = World::new();
        let created = world.json(&["create", "--name", "short", "--ttl", "1s"]);
        fs::write(created["sandbox_path"].as_str().unwrap().to_owned() + "/new.txt", "new").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        if discard {
            // `gc --discard` is a command like any other: what expired before it was parked on its way in.
            let ran = world.run(&["gc", "--discard"]);
            assert!(ran.stderr.contains("was parked"), "{}", ran.stderr);
            let id = parked(&world)[0]["id"].as_str().unwrap().to_owned();
            world.ok(&["destroy", "--discard", &id]);
        } else {
            let ran = world.run(&["list"]);
            assert!(ran.stderr.contains("expired with uncommitted work, and was parked"), "{}", ran.stderr);
        }
        assert_eq!(parked(&world).len(), left);
    }
}

#[test]
fn budgets_remove_the_oldest_and_say_so() {
    let world = World::with_sandbox();
    let with = |name: &str, value: &str, args: &[&str]| {
        Ran::of(world.command(args).env(name, value).output().unwrap())
    };
    let tight = |args: &[&str]| with("SANDBOXER_MAX_SIZE", "10", args);
    world.run_with_input(&["write", "try", "hello.txt"], b"one\n");
    let ran = tight(&["commit", "try"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: removed what takes back op_"), "{}", ran.stderr);
    assert!(world.ok(&["log", "try"]).contains("to keep within `state.max_size`"));
    assert_eq!(world.run(&["undo", "try"]).code, 5);
    let ran = tight(&["checkpoint", "try"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("state.max_size") && ran.stderr.contains("sandbox usage --disk"),
        "{}",
        ran.stderr
    );
    assert!(world.json(&["checkpoints", "try"])["checkpoints"].as_array().unwrap().is_empty());
    let full = with("SANDBOXER_MIN_FREE", "100%", &["checkpoint", "try"]);
    assert!(full.code == 5 && full.stderr.contains("state.min_free"), "{}", full.stderr);
    let report = world.json(&["usage", "--disk"]);
    assert!(report["sandboxes"][0]["copies"].as_u64().unwrap() > 0);
    assert_eq!(report["kept"].as_array().unwrap().len(), 0);
    assert_eq!(world.json(&["usage"])["total"]["disk"], report["sandboxes"][0]["total"]);
}

#[test]
fn the_commit_of_a_run_can_be_taken_back() {
    let world = World::new();
    let ran = world.run(&["run", "--commit", "--", "sh", "-c", "echo new > hello.txt"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(world.json(&["list"])["sandboxes"].as_array().unwrap().len(), 0);
    assert!(world.ok(&["undo"]).contains("1 modified"));
    assert_eq!(fs::read_to_string(world.project().join("hello.txt")).unwrap(), "hello\nworld\n");
    let pending = world.json(&["diff", "project"]);
    assert_eq!(pending["entries"][0]["path"], "hello.txt");
}

#[test]
fn work_whose_original_is_gone_stays_parked_and_is_found() {
    let world = with_work();
    world.ok(&["destroy", "try"]);
    let project = world.project();
    let aside = world.path("aside");
    fs::rename(&project, &aside).unwrap();
    let refusal = |what: &str| {
        let mut command = world.command(&["unpark", "try"]);
        let ran = Ran::of(command.current_dir(world.path("user")).output().unwrap());
        assert_eq!(ran.code, 5, "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("{what}; the work is still parked")), "{}", ran.stderr);
        let tree = ran.stderr.split("its files are in ").nth(1).unwrap().lines().next().unwrap();
        assert!(std::path::Path::new(tree).is_dir(), "{tree}");
    };
    refusal("is gone");
    fs::write(&project, "a file\n").unwrap();
    refusal("is not a directory any more");
    fs::remove_file(&project).unwrap();
    fs::rename(&aside, &project).unwrap();
    assert_eq!(parked(&world).len(), 1);
    world.ok(&["unpark", "try"]);
}

#[test]
fn a_pinned_checkpoint_outlasts_the_budget() {
    let world = World::with_sandbox();
    world.ok(&["checkpoint", "try", "kept"]);
    world.ok(&["checkpoint", "try", "other"]);
    let pinned = world.json(&["checkpoints", "try", "--pin", "kept"]);
    assert_eq!(pinned["checkpoints"][0]["pinned"], true);
    assert_eq!(world.run(&["checkpoints", "try", "--pin", "none"]).code, 4);
    let gc = Ran::of(world.command(&["gc"]).env("SANDBOXER_MAX_SIZE", "1").output().unwrap());
    assert!(gc.stderr.contains("removed checkpoint other"), "{}", gc.stderr);
    let left = world.json(&["checkpoints", "try", "--unpin", "kept"]);
    assert_eq!(left["checkpoints"].as_array().unwrap().len(), 1);
    assert_eq!(left["checkpoints"][0]["checkpoint_id"], "kept");
}

#[test]
fn what_the_original_got_in_a_directory_that_became_a_file_is_not_deleted() {
    let world = World::with_sandbox();
    fs::remove_dir_all(world.inside("try").join("src")).unwrap();
    fs::write(world.inside("try").join("src"), "a file\n").unwrap();
    world.file("project/src/new.rs", "by hand\n");
    world.ok(&["destroy", "try"]);
    world.ok(&["unpark", "try"]);
    assert_eq!(world.run(&["commit", "try"]).code, 3);
    assert_eq!(world.text("project/src/new.rs"), "by hand\n");
}

#[test]
fn work_comes_back_where_the_original_replaced_its_directory_by_a_file() {
    for depth in ["src", "src/deep/deeper"] {
        let world = World::new();
        world.file(&format!("project/{depth}/main.rs"), "fn main() {}\n");
        world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
        fs::write(world.inside("try").join(depth).join("main.rs"), "mine\n").unwrap();
        fs::remove_dir_all(world.project().join("src")).unwrap();
        world.file("project/src", "a file\n");
        world.ok(&["destroy", "try"]);
        world.ok(&["unpark", "try"]);
        assert_eq!(world.ok(&["read", "try", &format!("{depth}/main.rs")]), "mine\n");
        assert_eq!(world.run(&["commit", "try"]).code, 3);
        assert_eq!(world.text("project/src"), "a file\n");
        world.ok(&["rollback", "try"]);
    }
}
