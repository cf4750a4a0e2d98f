//! Several at once on one host, some of them killed in the middle: in the end there is nothing.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::World;
use crate::common::stack::{ONE, Yard, nothing_here, what_is_there};

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Runs a command, and kills it in the middle if that is how the dice fall. What it ended with, where it was not killed.
fn perhaps_killed(mut command: Command, dice: &mut Dice) -> Option<i32> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    if dice.roll(3) > 0 {
        return child.wait().unwrap().code();
    }
    std::thread::sleep(Duration::from_millis(dice.roll(3_000)));
    let _ = child.kill();
    child.wait().unwrap();
    None
}

/// One who creates, works and destroys until the time is over.
fn work(world: &World, me: u64, until: Instant) {
    let mut dice = Dice(me);
    for round in 0.. {
        let name = format!("s{me}-{round}");
        let make =
            ["create", "--profile", "profile.stack", "--input", "repo=.", "--host", "h1", "--name", &name];
        let made = perhaps_killed(world.command(&make), &mut dice) == Some(0);
        for _ in 0..dice.roll(3) {
            let script = format!("echo {round} >> f; mkdir -p d; echo {round} > d/{round}");
            perhaps_killed(world.command(&["exec", &name, "--", "sh", "-c", &script]), &mut dice);
            perhaps_killed(world.command(&["diff", &name]), &mut dice);
        }
        if made {
            // Whatever became of the others, this one is whole.
            let ran = world.run(&["exec", &name, "--", "cat", "hello.txt"]);
            assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello\nworld\n"), "{name}: {}", ran.stderr);
        }
        perhaps_killed(world.command(&["destroy", &name, "--discard"]), &mut dice);
        if Instant::now() >= until {
            return;
        }
    }
}

#[test]
fn many_at_once_some_of_them_killed_leave_nothing() {
    let Some(yard) = Yard::new(ONE) else { return };
    let world = &yard.world;
    let seconds = if sandboxer_testkit::full() { 180 } else { 10 };
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for me in 1..=3 {
            scope.spawn(move || work(world, me, until));
        }
    });
    for sandbox in world.json(&["list"])["sandboxes"].as_array().unwrap() {
        let id = sandbox["sandbox_id"].as_str().unwrap();
        let ran = world.run(&["destroy", id, "--discard"]);
        assert!(ran.code == 0 || ran.code == 4, "{id}: {}", ran.stderr);
    }
    // What was begun on the host by those that were killed may go on there for a moment.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        world.ok(&["reconcile", "--grace", "0s"]);
        world.ok(&["hosts", "sweep", "h1", "--grace", "0s"]);
        let left = what_is_there(world, yard.host);
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < until, "{left:#?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    nothing_here(world);
}
