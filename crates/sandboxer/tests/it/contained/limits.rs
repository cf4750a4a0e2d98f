//! What a contained command may use: memory, processes, processors and time, and what it can fill.

use std::time::{Duration, Instant};

use crate::common::contained::{PYTHON, everybody, sandbox, shell};
use crate::common::user::User;
use crate::common::{self, Ran};

/// Python inside, with these flags.
fn python(user: &User, flags: &[&str], code: &str) -> Ran {
    let words = [&["run", "--discard"], flags, &["--", PYTHON, "-c", code]].concat();
    Ran::of(sandbox(user, &words).output().unwrap())
}

#[test]
fn memory_is_bounded() {
    for user in everybody() {
        let ran = python(&user, &["--memory", "96M"], "x = bytearray(400 << 20); print('HAD', len(x))");
        assert_ne!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert!(!ran.stdout.contains("HAD"), "{}", ran.stdout);
        let within = python(&user, &["--memory", "512M"], "x = bytearray(40 << 20); print('HAD', len(x))");
        assert_eq!((within.code, within.stdout.as_str()), (0, "HAD 41943040\n"), "{}", within.stderr);
        assert!(
            within.stderr.contains("memory 512 MiB: by "),
            "it is said what enforces it: {}",
            within.stderr
        );
    }
}

/// Stops by itself, whatever the limit does.
const BOMB: &str = "
import os, time
made = 0
for _ in range(400):
    try:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
    except OSError:
        break
print(made)";

#[test]
fn processes_are_bounded() {
    for user in everybody() {
        let ran = python(&user, &["--pids", "40"], BOMB);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let made: u32 = ran.stdout.trim().parse().unwrap();
        assert!((10..40).contains(&made), "{made} processes were made: {}", ran.stderr);
        // What is left of the bomb ended with the command.
        let again = python(&user, &["--pids", "40"], BOMB);
        assert_eq!(again.code, 0, "{}", again.stderr);
    }
}

#[test]
fn a_bomb_that_grows_is_over_when_its_time_is() {
    for user in everybody() {
        let bomb = "
import os, time
end = time.time() + 10
depth = 0
while time.time() < end:
    try:
        if os.fork() == 0: depth += 1
    except OSError:
        time.sleep(0.01)
    if depth > 12: time.sleep(0.05)";
        let ran = python(&user, &["--pids", "64", "--timeout", "1s"], bomb);
        assert_eq!(ran.code, 124, "{}", ran.stderr);
        let after = shell(&user, &[], "echo fine");
        assert_eq!(after.stdout, "fine\n", "{}", after.stderr);
    }
}

#[test]
fn processors_are_bounded() {
    for user in everybody() {
        let code = "
import os, time
end = time.monotonic() + 1
while time.monotonic() < end: pass
t = os.times(); print(t.user + t.system)";
        let ran = python(&user, &["--cpus", "0.25"], code);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("cpus 0.25: by "), "{}", ran.stderr);
        if ran.stderr.contains("by cgroup") {
            let used: f64 = ran.stdout.trim().parse().unwrap();
            assert!(used < 0.7, "{used} of a second");
        } else {
            sandboxer_testkit::skip(
                "no cgroup is writable for this user, so a part of a processor cannot be enforced",
            );
        }
    }
}

#[test]
fn time_ends_everything_and_leaves_the_sandbox() {
    for user in everybody() {
        let script = "echo before > made; trap '' TERM INT HUP; (setsid sh -c \"trap '' TERM; sleep 3600.5; echo after > late\" &) ; \
                      sh -c 'sleep 3600.5' & echo ready; sleep 3600.5; echo after > late";
        let started = Instant::now();
        let words = ["run", "--name", "timed", "--timeout", "3s", "--", "sh", "-c", script];
        let ran = Ran::of(sandbox(&user, &words).output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (124, "ready\n"), "{}", ran.stderr);
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(ran.stderr.contains("everything inside was ended"), "{}", ran.stderr);
        assert_eq!(user.diff("timed"), ["A made"]);
        let left = common::Ran::of(
            user.command("sh")
                .args(["-c", "grep -la '3600[.]5' /proc/[0-9]*/cmdline 2>/dev/null; true"])
                .output()
                .unwrap(),
        );
        assert_eq!(left.stdout, "", "something is still asleep");
        user.ok(&["commit", "timed"]);
        assert_eq!(user.world.text("project/made"), "before\n");
        assert!(!user.world.path("project/late").exists());
    }
}

#[test]
fn a_command_in_time_is_not_touched() {
    for user in everybody() {
        let ran = shell(&user, &["--timeout", "30s"], "exit 5");
        assert_eq!(ran.code, 5, "{}", ran.stderr);
    }
}

/// How many bytes fit into a place, at most 192 MiB.
fn fits(user: &User, flags: &[&str], place: &str) -> u64 {
    let code = format!(
        "
import os
file = os.open(os.path.expanduser('{place}/filler'), os.O_CREAT | os.O_WRONLY)
had = 0
try:
    while had < 192 << 20: had += os.write(file, bytes(1 << 20))
except OSError: pass
print(had, flush=True)"
    );
    let ran = python(user, flags, &code);
    assert_eq!(ran.code, 0, "{place}: {}{}", ran.stdout, ran.stderr);
    ran.stdout.trim().parse().unwrap()
}

#[test]
fn what_is_kept_in_memory_counts_as_memory() {
    for user in everybody() {
        for place in ["/tmp", "/dev/shm", "/var/tmp", "/run", "~"] {
            if place == "/run" && shell(&user, &[], "test -w /run").code != 0 {
                continue;
            }
            let had = fits(&user, &["--memory", "128M"], place);
            assert!(had < 160 << 20, "{place} took {had} bytes of 128 MiB");
        }
    }
}

#[test]
fn filling_a_private_place_is_an_error_like_any_other() {
    for user in everybody() {
        let ran = shell(
            &user,
            &["--memory", "128M"],
            "head -c 300000000 /dev/zero > /tmp/filler; rm /tmp/filler; echo still here",
        );
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "still here\n"), "{}", ran.stderr);
    }
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    for user in everybody() {
        for (flag, value) in [
            ("--memory", "lots"),
            ("--memory", "0"),
            ("--pids", "0"),
            ("--cpus", "0"),
            ("--cpus", "-1"),
            ("--cpus", "nan"),
            ("--timeout", "soon"),
            ("--isolation", "some"),
        ] {
            let ran = Ran::of(
                sandbox(&user, &["run", "--discard", &format!("{flag}={value}"), "--", "touch", "made"])
                    .output()
                    .unwrap(),
            );
            assert!([2, 125].contains(&ran.code), "{flag} {value}: {} {}", ran.code, ran.stderr);
            assert!(ran.stderr.contains(flag.trim_start_matches('-')), "{flag} {value}: {}", ran.stderr);
        }
    }
}

#[test]
fn strict_takes_no_second_best() {
    for user in everybody() {
        let words = ["run", "--discard", "--isolation", "strict", "--memory", "256M", "--", "echo", "ran"];
        let ran = Ran::of(sandbox(&user, &words).output().unwrap());
        match ran.code {
            0 => assert!(ran.stderr.contains("memory 256 MiB: by cgroup"), "{}", ran.stderr),
            6 => assert!(
                ran.stdout.is_empty() && ran.stderr.contains("--isolation files"),
                "{}{}",
                ran.stdout,
                ran.stderr
            ),
            other => panic!("{other}: {}", ran.stderr),
        }
    }
}

#[test]
fn a_command_that_fills_the_disk_is_ended_while_something_is_left() {
    let disk = match sandboxer_testkit::mounts::Mounted::tmpfs(64 << 20) {
        Ok(disk) => disk,
        Err(why) => return sandboxer_testkit::skip(&why),
    };
    let project = disk.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let world = common::World::new();
    let sandbox = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("SANDBOXER_HOME", disk.path().join("state")).env("SANDBOXER_DISK_RESERVE", "20M");
        Ran::of(command.current_dir(&project).output().unwrap())
    };
    let script = "head -c 60000000 /dev/zero > fill; sleep 3600";
    let ran = sandbox(&["run", "--name", "full", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 137, "{}", ran.stderr);
    assert!(ran.stderr.contains("the disk is nearly full"), "{}", ran.stderr);
    assert!(sandbox(&["diff", "full"]).stdout.contains("A fill"), "the sandbox remains");
    assert_eq!(sandbox(&["destroy", "full", "--discard"]).code, 0);
    assert!(!project.join("fill").exists());
}
