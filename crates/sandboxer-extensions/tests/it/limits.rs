//! Limits as the kernel holds them: bombs that do not go off, and groups that freeze, end and go away.
//!
//! Each test runs once with what the machine has and once as if it had cgroups of version 1 alone, where it has those.

use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use sandboxer_extensions::local::Limits;
use sandboxer_extensions::local::limits::{By, Enforcement, Group, Roots, apply_fallback, remove_paths};
use sandboxer_testkit::skip;

/// A group that is gone at the end of a test, however that ends.
struct Made(Group);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = remove_paths(&self.0.paths());
    }
}

impl std::ops::Deref for Made {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.0
    }
}

/// Runs `test` on each kind of machine that this one can be taken for.
fn everywhere(limits: &Limits, test: impl Fn(&Made)) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let dir = tempfile::tempdir().unwrap();
    for (kind, roots) in [("as it is", Roots::system()), ("version 1 alone", without_version_2(dir.path()))] {
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let made = Made(Group::make(&name, limits, &roots).unwrap());
        if made.can_freeze() && made.enforcement().weak().is_empty() {
            test(&made);
        } else {
            skip(&format!("{kind}: {:?}", made.enforcement()));
        }
    }
}

fn without_version_2(dir: &Path) -> Roots {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let kept: Vec<&str> = mounts.lines().filter(|line| !line.contains(" - cgroup2 ")).collect();
    fs::write(dir.join("mountinfo"), kept.join("\n")).unwrap();
    Roots { mountinfo: dir.join("mountinfo"), ..Roots::system() }
}

/// A shell in the group, which has done nothing before it was.
fn start(group: &Group, script: &str) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    group.add(Pid::from_child(&child)).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child
}

/// Waits for something that is bound to happen.
fn wait_for(what: &str, happened: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(90);
    while !happened() {
        assert!(Instant::now() < patience, "waited in vain for {what}");
        sleep(Duration::from_millis(2));
    }
}

fn size(file: &Path) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

fn processes(group: &Group) -> usize {
    fs::read_to_string(group.paths()[0].join("cgroup.procs")).unwrap().lines().count()
}

fn is_gone(paths: &[PathBuf]) -> bool {
    paths.iter().all(|path| !path.exists())
}

#[test]
fn a_memory_bomb_is_killed() {
    let limits = Limits { memory: Some(32 << 20), ..Limits::default() };
    everywhere(&limits, |group| {
        let status = start(group, "exec dd if=/dev/zero of=/dev/null bs=256M count=1").wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}");
        let usage = group.usage();
        assert!(usage.oom_kills.unwrap() >= 1, "{usage:?}");
        assert!((16 << 20..=32 << 20).contains(&usage.memory_peak.unwrap()), "{usage:?}");
        group.remove().unwrap();
        assert!(is_gone(&group.paths()));
    });
}

#[test]
fn what_stays_below_the_limit_is_left_alone() {
    let limits = Limits { memory: Some(64 << 20), pids: Some(16), cpus: Some(1.0), timeout: None };
    everywhere(&limits, |group| {
        let status =
            start(group, "dd if=/dev/zero of=/dev/null bs=8M count=1 && true | true").wait().unwrap();
        assert!(status.success(), "{status}");
        let usage = group.usage();
        assert_eq!((usage.oom_kills, usage.pids_refused), (Some(0), Some(0)));
        assert!(usage.cpu.unwrap() > Duration::ZERO && usage.memory_peak.unwrap() > 8 << 20, "{usage:?}");
        group.remove().unwrap();
    });
}

#[test]
fn a_fork_bomb_is_stopped() {
    let limits = Limits { pids: Some(8), ..Limits::default() };
    everywhere(&limits, |group| {
        let mut child = start(group, "f() { f | f & }; f; while :; do sleep 60 & done");
        wait_for("a refusal", || group.usage().pids_refused.unwrap() > 0);
        assert!(processes(group) <= 8);
        group.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(processes(group), 0);
        group.remove().unwrap();
        assert!(is_gone(&group.paths()));
    });
}

#[test]
fn half_a_processor_is_no_more_than_half() {
    let limits = Limits { cpus: Some(0.5), ..Limits::default() };
    everywhere(&limits, |group| {
        let began = Instant::now();
        let mut child = start(group, "while :; do :; done");
        let paths = group.paths();
        let throttled = |path: &PathBuf| {
            let text = fs::read_to_string(path.join("cpu.stat")).unwrap_or_default();
            text.lines().any(|line| {
                line.strip_prefix("nr_throttled ").is_some_and(|count| count.parse::<u32>().unwrap() >= 5)
            })
        };
        wait_for("throttling", || paths.iter().any(throttled));
        let (used, passed) = (group.usage().cpu.unwrap(), began.elapsed());
        // What begins in the middle of a period may have that period's share besides.
        assert!(used <= passed.mul_f64(0.5) + Duration::from_millis(150), "{used:?} of {passed:?}");
        group.kill().unwrap();
        child.wait().unwrap();
        group.remove().unwrap();
    });
}

#[test]
fn what_is_frozen_stands_still_until_it_is_thawed() {
    everywhere(&Limits::default(), |group| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("counter");
        let mut child = start(group, &format!("while :; do echo x >> {}; done", file.display()));
        wait_for("the first lines", || size(&file) > 0);
        group.freeze().unwrap();
        let then = size(&file);
        sleep(Duration::from_millis(50));
        assert_eq!(size(&file), then, "something went on");
        group.thaw().unwrap();
        wait_for("more lines", || size(&file) > then);
        group.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        group.remove().unwrap();
        assert!(is_gone(&group.paths()));
    });
}

#[test]
fn what_was_cloned_into_version_2_is_moved_into_the_rest_alone() {
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    everywhere(&limits, |group| {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        group.add_cloned(Pid::from_child(&child)).unwrap();
        let has = |path: &Path| {
            let processes = fs::read_to_string(path.join("cgroup.procs")).unwrap();
            processes.lines().any(|line| line == child.id().to_string())
        };
        for path in group.paths() {
            assert_eq!(has(&path), Some(path.as_path()) != group.unified(), "{}", path.display());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        group.remove().unwrap();
    });
}

#[test]
fn a_group_that_is_empty_can_be_frozen_and_killed() {
    everywhere(&Limits::default(), |group| {
        group.freeze().unwrap();
        group.thaw().unwrap();
        group.kill().unwrap();
        group.remove().unwrap();
        group.remove().unwrap();
    });
}

#[test]
fn kill_ends_what_is_frozen_and_what_has_left_its_parent() {
    everywhere(&Limits::default(), |group| {
        let mut child = start(group, "(setsid sleep 1000 &); (sleep 1000 &); exec sleep 1000");
        wait_for("three of them", || processes(group) == 3);
        group.freeze().unwrap();
        group.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(processes(group), 0);
        group.remove().unwrap();
        assert!(is_gone(&group.paths()));
    });
}

#[test]
fn what_a_crash_leaves_is_removed_by_its_paths() {
    let limits = Limits { memory: Some(64 << 20), pids: Some(16), ..Limits::default() };
    everywhere(&limits, |group| {
        let mut child = start(group, "sleep 1000 & exec sleep 1000");
        wait_for("both of them", || processes(group) == 2);
        group.freeze().unwrap();
        let mut paths = group.paths();
        paths.push("/sys/fs/cgroup/sandboxer-that-never-was".into());
        remove_paths(&paths).unwrap();
        assert!(is_gone(&paths));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    });
}

#[test]
fn a_group_in_use_is_not_removed() {
    everywhere(&Limits::default(), |group| {
        let mut child = start(group, "exec sleep 1000");
        assert!(group.remove().is_err());
        assert!(group.paths().iter().all(|path| path.exists()));
        group.kill().unwrap();
        child.wait().unwrap();
    });
}

/// Says which limits a process is to take upon itself, in JSON.
const TAKE: &str = "SANDBOXER_TEST_LIMITS";

/// Not a test by itself: [`by_itself`] starts it.
#[test]
fn a_process_takes_limits_upon_itself() {
    let Some(text) = std::env::var_os(TAKE) else { return };
    let (limits, enforcement): (Limits, Enforcement) = serde_json::from_str(text.to_str().unwrap()).unwrap();
    apply_fallback(&limits, &enforcement).unwrap();
    panic!("{}", Command::new("sh").args(["-c", &std::env::var("SCRIPT").unwrap()]).exec());
}

/// Runs `script` under the fallback, and returns what it printed after `answer:`.
fn by_itself(limits: &Limits, enforcement: &Enforcement, script: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "limits::a_process_takes_limits_upon_itself", "--nocapture"])
        .env(TAKE, serde_json::to_string(&(limits, enforcement)).unwrap())
        .env("SCRIPT", format!("echo answer:; {script}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_once("answer:\n").unwrap_or_else(|| panic!("{output:?}")).1.trim().to_owned()
}

#[test]
fn without_a_cgroup_memory_is_limited_for_each_process() {
    let limits = Limits { memory: Some(256 << 20), ..Limits::default() };
    let enforcement = Enforcement { memory: By::Rlimit, ..Enforcement::default() };
    let run = |size| {
        by_itself(&limits, &enforcement, &format!("dd if=/dev/zero of=/dev/null bs={size} count=1 2>&1"))
    };
    assert!(run("512M").contains("exhausted"), "{}", run("512M"));
    assert!(run("8M").contains("copied"), "{}", run("8M"));
    assert_eq!(by_itself(&limits, &enforcement, "ulimit -Sv; ulimit -Hv"), "262144\n262144");
    assert_eq!(by_itself(&limits, &Enforcement::default(), "ulimit -Hv"), "unlimited");
}

#[test]
fn without_a_cgroup_processes_and_processors_are_limited_all_the_same() {
    let limits = Limits { pids: Some(77), cpus: Some(0.5), ..Limits::default() };
    let enforcement = Enforcement { pids: By::Rlimit, cpus: By::Affinity, ..Enforcement::default() };
    let status = by_itself(&limits, &enforcement, "grep '^Max processes' /proc/self/limits; nproc");
    let words: Vec<&str> = status.split_whitespace().collect();
    assert_eq!(words, ["Max", "processes", "77", "77", "processes", "1"]);
}

#[test]
fn a_stricter_limit_that_is_there_already_stays() {
    let limits = Limits { memory: Some(u64::MAX / 2), ..Limits::default() };
    let enforcement = Enforcement { memory: By::Rlimit, ..Enforcement::default() };
    let program = std::env::current_exe().unwrap();
    let script =
        "ulimit -v 1048576; exec \"$0\" --exact limits::a_process_takes_limits_upon_itself --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(program)
        .env(TAKE, serde_json::to_string(&(&limits, &enforcement)).unwrap())
        .env("SCRIPT", "echo answer:; ulimit -v")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.ends_with("answer:\n1048576\n"), "{output:?}");
}
