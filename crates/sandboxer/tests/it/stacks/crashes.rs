//! Processes that are killed, disks that are full, hosts that are gone, and others on the same host.

use std::process::Stdio;
use std::time::{Duration, Instant};

use sandboxer_testkit::host::{CuttingProxy, RemoteHost};
use serde_json::json;

use crate::common::World;
use crate::common::stack::{
    self, ONE, Yard, create, nothing_here, nothing_there, own, what_is_there, write_host,
};

/// Kills a command after a while. Whether it was still running.
fn killed_after(world: &World, words: &[&str], wait: Duration) -> bool {
    let mut command = world.command(words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(wait);
    let ran_out = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    child.wait().unwrap();
    ran_out
}

/// How long a command takes that is not killed.
fn taken(world: &World, words: &[&str]) -> Duration {
    let begun = Instant::now();
    world.ok(words);
    begun.elapsed()
}

/// Whatever was left is gone when these two are through.
fn reconciles(world: &World, host: &RemoteHost, told: &str) {
    for words in [&["reconcile", "--grace", "0s"][..], &["hosts", "sweep", "h1", "--grace", "0s"]] {
        // What was begun on the host may go on there for a moment, and make what was not there yet.
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let ran = world.run(words);
            if ran.code == 0 && what_is_there(world, host).is_empty() {
                break;
            }
            assert!(Instant::now() < until, "{told}\n{}{:#?}", ran.stderr, what_is_there(world, host));
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

/// Nobody there hears that a connection is gone: what was started goes on, unless somebody ends it.
#[test]
fn a_start_whose_connection_is_cut_is_ended_before_anything_is_removed() {
    let Some(yard) = Yard::with_own_host(ONE) else { return };
    let slow = "#!/bin/sh\necho $$ > /root/begun\nsleep 5\nexec docker-compose \"$@\"\n";
    std::fs::write(yard.host.home().join("slow"), slow).unwrap();
    yard.host.there("chmod", &["755", "/root/slow"]);
    let mut creating = yard.world.command(&create("profile.stack", "h1"));
    creating.env("SANDBOXER_COMPOSE_CMD", "/root/slow").stdout(Stdio::null()).stderr(Stdio::null());
    let mut creating = creating.spawn().unwrap();
    let (begun, until) = (yard.host.home().join("begun"), Instant::now() + Duration::from_secs(60));
    while !begun.exists() {
        assert!(Instant::now() < until, "nothing was started");
        std::thread::sleep(Duration::from_millis(20));
    }
    yard.host.cut_connections();
    assert!(!creating.wait().unwrap().success());
    let process = std::fs::read_to_string(&begun).unwrap();
    let lives =
        || yard.host.in_namespace("kill").args(["-0", process.trim()]).output().unwrap().status.success();
    assert!(!lives(), "it goes on");
    yard.is_clean();
}

#[test]
fn a_creation_that_is_killed_leaves_nothing_once_it_is_reconciled() {
    let Some(yard) = Yard::new(ONE) else { return };
    let world = &yard.world;
    let whole = taken(world, &create("profile.stack", "h1"));
    world.ok(&["destroy", "e2e", "--discard"]);
    let instants = if sandboxer_testkit::full() { 30 } else { 3 };
    for n in 0..instants {
        let wait = whole * (2 * n + 1) / (2 * instants);
        killed_after(world, &create("profile.stack", "h1"), wait);
        world.ok(&["list"]);
        let left = world.json(&["list"])["sandboxes"].as_array().unwrap().clone();
        for sandbox in left {
            let ran = world.run(&["destroy", sandbox["sandbox_id"].as_str().unwrap(), "--discard"]);
            assert!(ran.code == 0 || ran.code == 4, "killed after {wait:?}: {}", ran.stderr);
        }
        reconciles(world, yard.host, &format!("killed after {wait:?} of {whole:?}"));
        nothing_here(world);
    }
}

#[test]
fn a_destruction_that_is_killed_is_finished_by_the_next() {
    let Some(yard) = Yard::new(ONE) else { return };
    let world = &yard.world;
    yard.create();
    let whole = taken(world, &["destroy", "e2e", "--discard"]);
    let instants = if sandboxer_testkit::full() { 20 } else { 2 };
    for n in 0..instants {
        yard.create();
        let wait = whole * (2 * n + 1) / (2 * instants);
        killed_after(world, &["destroy", "e2e", "--discard"], wait);
        let ran = world.run(&["destroy", "e2e", "--discard"]);
        assert!(ran.code == 0 || ran.code == 4, "killed after {wait:?}: {}", ran.stderr);
        reconciles(world, yard.host, &format!("killed after {wait:?} of {whole:?}"));
        nothing_here(world);
    }
}

#[test]
fn a_look_that_is_killed_leaves_nobody_standing_still() {
    let Some(yard) = Yard::new(ONE) else { return };
    yard.create();
    let whole = taken(&yard.world, &["diff", "e2e"]);
    for n in 0..4 {
        yard.inside("web", &format!("echo {n} > f"));
        killed_after(&yard.world, &["diff", "e2e"], whole * (2 * n + 1) / 8);
        assert_eq!(yard.inside("web", "cat f"), format!("{n}\n"));
    }
    assert_eq!(yard.world.ok(&["diff", "e2e"]), "A f\n");
    yard.destroy();
}

#[test]
fn a_disk_that_is_full_is_told_and_what_was_begun_is_gone() {
    let Some(host) = own(RemoteHost::with_small_home(2 << 20)) else { return };
    let world = stack::world(&host, ONE);
    world.file("project/large", vec![7; 8 << 20]);
    let ran = world.run(&create("profile.stack", "h1"));
    assert!(ran.code == 1 && ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    world.run(&["destroy", "e2e", "--discard"]);
    nothing_there(&world, &host);
    nothing_here(&world);
    std::fs::remove_file(world.path("project/large")).unwrap();
    world.ok(&create("profile.stack", "h1"));
    // What does not fit any more is said.
    let refused = world.run_with_input(&["write", "e2e", "large"], &vec![7; 8 << 20]);
    // The end of a disk in the middle of a block has other words.
    let is_full = |said: &str| said.contains("No space left on device") || said.contains("Wrote only");
    assert!(refused.code != 0 && is_full(&refused.stderr), "{}", refused.stderr);
    world.ok(&["destroy", "e2e", "--discard"]);
    nothing_there(&world, &host);
}

#[test]
fn two_state_directories_with_one_host_leave_each_other_alone() {
    let Some(yard) = Yard::new(ONE) else { return };
    let other = stack::world(yard.host, ONE);
    yard.create();
    other.ok(&create("profile.stack", "h1"));
    other.ok(&["exec", "e2e", "--", "sh", "-c", "echo mine > mine"]);
    // Labels are listed in no order.
    let names = || -> Vec<String> {
        let lines = what_is_there(&other, yard.host);
        lines.iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let before = names();
    assert!(before.len() >= 3, "{before:?}");
    for words in [&["hosts", "sweep", "h1", "--grace", "0s"][..], &["reconcile", "--grace", "0s"], &["gc"]] {
        yard.world.ok(words);
    }
    yard.destroy();
    yard.world.ok(&["hosts", "sweep", "h1", "--grace", "0s"]);
    assert_eq!(names(), before);
    assert_eq!(other.ok(&["diff", "e2e"]), "A mine\n");
    // A copy of a state directory does not take the original's for what nobody knows.
    let word = std::fs::read(other.path("home/controller")).unwrap();
    let third = stack::world(yard.host, ONE);
    third.ok(&["hosts", "sweep", "h1", "--grace", "0s"]);
    assert_eq!(names(), before);
    third.file("home/controller", word);
    let refused = third.run(&["hosts", "sweep", "h1", "--grace", "0s"]);
    assert!(refused.code == 1 && refused.stderr.contains("was copied from elsewhere"), "{}", refused.stderr);
    assert_eq!(names(), before);
    other.ok(&["destroy", "e2e", "--discard"]);
    nothing_there(&other, yard.host);
}

#[test]
fn work_on_a_host_that_is_away_is_not_thrown_away_unasked() {
    let Some(yard) = Yard::new(ONE) else { return };
    let (world, proxy) = (&yard.world, CuttingProxy::to(yard.host));
    write_host(world, "h1", yard.host.name(), &yard.host.ssh_config_through(&proxy), &json!({}));
    yard.create();
    yard.inside("web", "echo work > work");
    proxy.refuse();
    proxy.cut();
    let refused = world.run(&["destroy", "e2e"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("cannot be brought here") && refused.stderr.contains("--discard"),
        "{}",
        refused.stderr
    );
    for words in
        [&["diff", "e2e"][..], &["exec", "e2e", "--", "true"], &["commit", "e2e"], &["checkpoint", "e2e"]]
    {
        let ran = world.run(words);
        assert!(ran.code != 0 && !ran.stderr.contains("panicked"), "{words:?}: {}", ran.stderr);
    }
    proxy.admit();
    assert_eq!(world.ok(&["diff", "e2e"]), "A work\n");
    assert_eq!(yard.inside("web", "cat work"), "work\n");
    proxy.refuse();
    proxy.cut();
    // Without the work it is begun, and cannot be finished.
    let begun = world.run(&["destroy", "e2e", "--discard"]);
    assert!(begun.code != 0 && begun.stderr.contains("error: "), "{}{}", begun.stdout, begun.stderr);
    let half = world.run(&["diff", "e2e"]);
    assert!(half.code == 5 && half.stderr.contains("destroy e2e --force"), "{}", half.stderr);
    let forced = world.run(&["destroy", "e2e", "--force"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    assert!(forced.stderr.contains("may be left"), "{}", forced.stderr);
    assert_eq!(world.json(&["list"])["sandboxes"], json!([]));
    proxy.admit();
    // It was there all the while, and is found.
    assert!(!what_is_there(world, yard.host).is_empty());
    world.ok(&["hosts", "sweep", "h1", "--grace", "0s"]);
    yard.is_clean();
}
