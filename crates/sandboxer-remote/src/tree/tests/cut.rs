//! Fetches that were cut, and what the host does before the next.

use std::ffi::OsStr;
use std::fs;

use sandboxer_core::Result;

use super::services::{Forgetful, run};
use super::world::{CutBack, World};
use crate::shell::{Answer, Call, Here, Running, Shell};
use crate::tree::{Moved, scripts};

/// Ends us when the host is to remember.
struct Deadly;

impl Shell for Deadly {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        assert!(call.script != scripts::ACCEPT, "killed");
        Here.run(call)
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        Here.start(script, arguments)
    }

    fn name(&self) -> &str {
        "the deadly host"
    }
}

fn cut(world: &World, shell: &dyn Shell) {
    let fetched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.with(shell, |m| m.fetch())));
    assert!(!matches!(fetched, Ok(Ok(_))), "it was not cut");
}

/// What a service writes under another name first comes in that instant, and is gone when the fetch is tried again.
#[test]
fn what_a_cut_fetch_has_brought_and_the_host_took_back_goes_here_too() {
    for shell in [&Forgetful as &dyn Shell, &CutBack(30_000), &Deadly] {
        let world = World::new();
        fs::create_dir_all(world.here("dir/below")).unwrap();
        fs::write(world.here("dir/below/file"), "old").unwrap();
        world.send().unwrap();
        run(
            &world,
            "mkdir new; echo x > new/a.tmp; mv dir away; echo x > b.tmp; head -c 90000 /dev/urandom > z",
        );
        cut(&world, shell);
        assert!(world.here("b.tmp").exists() && !world.here("dir").exists());
        run(&world, "mv b.tmp b; rm -r new z; mv away dir");
        world.fetch().unwrap();
        world.assert_equal("what came for a moment");
        assert_eq!((world.fetch().unwrap(), world.send().unwrap()), Default::default());
    }
}

#[test]
fn what_is_made_here_after_a_cut_fetch_was_taken_back_is_work() {
    let world = World::new();
    world.send().unwrap();
    let mtime = fs::metadata(world.there("")).unwrap().modified().unwrap();
    fs::write(world.there("a.tmp"), "x").unwrap();
    world.with(&Forgetful, |m| m.fetch()).unwrap_err();
    fs::remove_file(world.there("a.tmp")).unwrap();
    fs::remove_file(world.here("a.tmp")).unwrap();
    fs::File::open(world.there("")).unwrap().set_modified(mtime).unwrap();
    assert_eq!(world.fetch().unwrap(), Moved::default(), "nothing differs");
    fs::write(world.here("a.tmp"), "mine").unwrap();
    world.fetch().unwrap();
    assert_eq!(fs::read(world.here("a.tmp")).unwrap(), b"mine");
}

#[test]
fn what_a_cut_fetch_did_not_reach_is_still_whosever_it_was() {
    let world = World::new();
    fs::write(world.here("mine"), "old").unwrap();
    world.send().unwrap();
    fs::write(world.there("mine"), "theirs").unwrap();
    world.with(&CutBack(0), |m| m.fetch()).unwrap_err();
    fs::write(world.here("mine"), "by hand").unwrap();
    assert!(world.fetch().unwrap_err().to_string().contains("mine"));
}

#[test]
fn what_is_done_here_to_what_had_come_is_work() {
    let world = World::new();
    fs::write(world.here("a"), "old").unwrap();
    world.send().unwrap();
    run(&world, "echo theirs > a; echo x > b; echo x > c; head -c 90000 /dev/urandom > z");
    world.with(&CutBack(30_000), |m| m.fetch()).unwrap_err();
    for name in ["a", "b"] {
        assert!(fs::read(world.here(name)).unwrap() != b"old");
        fs::write(world.here(name), "by hand").unwrap();
    }
    let error = world.fetch().unwrap_err().to_string();
    assert!(error.contains("a, b") && !error.contains('z'), "{error}");
    run(&world, "rm b c");
    fs::write(world.here("a"), "theirs\n").unwrap();
    let mtime = fs::metadata(world.there("a")).unwrap().modified().unwrap();
    fs::File::open(world.here("a")).unwrap().set_modified(mtime).unwrap();
    world.fetch().unwrap();
    assert_eq!(fs::read(world.here("b")).unwrap(), b"by hand");
    assert!(!world.here("c").exists());
}

/// The host remembers, and its answer is lost.
struct Mumbling;

impl Shell for Mumbling {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        let answer = Here.run(call);
        if call.script == scripts::ACCEPT { Forgetful.run(call) } else { answer }
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        Here.start(script, arguments)
    }

    fn name(&self) -> &str {
        "the mumbling host"
    }
}

#[test]
fn what_is_done_here_after_the_host_has_remembered_is_work() {
    let world = World::new();
    world.send().unwrap();
    fs::write(world.there("file"), "theirs").unwrap();
    world.with(&Mumbling, |m| m.fetch()).unwrap_err();
    fs::write(world.here("file"), "by hand").unwrap();
    world.fetch().unwrap();
    assert_eq!(fs::read(world.here("file")).unwrap(), b"by hand");
}
