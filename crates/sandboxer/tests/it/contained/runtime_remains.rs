//! Nothing of a runtime is left: after its command, after `destroy`, and after the worst that can happen followed by `gc`.

use std::collections::BTreeSet;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::contained::{everybody, sandbox};
use crate::common::runtimes::{
    asleep, cgroups, eventually, kill, nothing_is_left, nothing_runs, processes, sandboxes,
};
use crate::common::user::User;
use crate::common::{self, Ran};

/// How many points of a sweep there are.
fn samples(few: u32, many: u32) -> u32 {
    if sandboxer_testkit::full() { many } else { few }
}

/// `sandbox` itself, with nothing between it and us, saying nothing. Killed when dropped.
struct Client(Child);

impl Client {
    fn start(user: &User, arguments: &[&str]) -> Self {
        let mut command = user.sandbox();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// A run of something that takes an hour.
    fn long(user: &User, name: &str, hour: &str) -> Self {
        let script = format!("echo x > made; sleep {hour}; true");
        Self::start(user, &["run", "--keep", "--name", name, "--memory", "1G", "--", "sh", "-c", &script])
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    fn wait(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A time to sleep that nobody else sleeps for.
fn an_hour() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("3600.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}

/// Waits until the command of a long run is there.
fn wait_for_command(hour: &str) {
    assert!(eventually(|| !asleep(hour).is_empty()), "the command did not start");
}

/// `gc`, until it succeeds: what was killed a moment ago may still be about to end, and is in use until then.
fn collect(user: &User) {
    let mut said = String::new();
    let collected = eventually(|| {
        let ran = user.run(&["gc", "--discard"]);
        said = ran.stderr;
        ran.code == 0
    });
    assert!(collected, "{said}");
}

/// Everything that is listed is destroyed; then nothing is left.
fn clear_away(user: &User, mut ids: BTreeSet<String>) {
    ids.extend(sandboxes(&user.world));
    for sandbox in user.json(&["list"])["sandboxes"].as_array().unwrap() {
        user.ok(&["destroy", sandbox["sandbox_id"].as_str().unwrap(), "--discard"]);
    }
    collect(user);
    nothing_is_left(&user.world, &ids);
}

#[test]
fn nothing_is_left_of_commands_that_ended() {
    for user in everybody() {
        let hour = an_hour();
        let words = [
            "run",
            "--keep",
            "--name",
            "kept",
            "--memory",
            "1G",
            "--pids",
            "100",
            "--",
            "sh",
            "-c",
            &format!("echo x > made; sleep {hour} &"),
        ];
        assert_eq!(Ran::of(sandbox(&user, &words).output().unwrap()).code, 0);
        let ids = sandboxes(&user.world);
        nothing_runs(&user.world, &ids);
        assert_eq!(asleep(&hour), Vec::<i32>::new());
        user.ok(&["destroy", "kept", "--discard"]);
        nothing_is_left(&user.world, &ids);
    }
}

#[test]
fn a_runtime_has_a_cgroup_while_it_runs() {
    for user in everybody() {
        let hour = an_hour();
        let child = Client::long(&user, "long", &hour);
        wait_for_command(&hour);
        let ids = sandboxes(&user.world);
        let (running, groups) = (processes(&user.world).len(), cgroups(&ids).len());
        child.kill();
        assert_eq!(running, 2, "a supervisor and an init");
        if groups == 0 {
            sandboxer_testkit::skip("no cgroup is writable for this user");
        }
        assert!(eventually(|| asleep(&hour).is_empty()), "the command goes on without its client");
        collect(&user);
        nothing_runs(&user.world, &ids);
        clear_away(&user, ids);
    }
}

/// How long a run takes here, from its start to its command.
fn usual_time(user: &User) -> Duration {
    let started = Instant::now();
    user.ok(&["run", "--discard", "--", "true"]);
    started.elapsed()
}

#[test]
fn a_client_that_is_killed_at_any_time_leaves_nothing() {
    for user in everybody() {
        let hour = an_hour();
        let span = usual_time(&user) * 3 / 2;
        let count = samples(16, 60);
        let mut ids = BTreeSet::new();
        for sample in 0..count {
            let child = Client::long(&user, &format!("swept-{sample}"), &hour);
            std::thread::sleep(span * sample / count);
            child.kill();
            ids.extend(sandboxes(&user.world));
        }
        assert!(eventually(|| asleep(&hour).is_empty()), "commands go on without their clients");
        collect(&user);
        nothing_runs(&user.world, &ids);
        clear_away(&user, ids);
    }
}

#[test]
fn a_client_that_is_killed_at_any_system_call_leaves_nothing() {
    for user in everybody() {
        if !user.command("strace").arg("-V").output().is_ok_and(|ran| ran.status.success()) {
            return sandboxer_testkit::skip("strace is not there");
        }
        let script = ["run", "--keep", "--memory", "1G", "--", "sh", "-c", "echo x > made"];
        let traced = |inject: &[&str], name: &str| {
            let mut command = user.command("timeout");
            command
                .args(["-k", "5", "60", "strace", "-qq", "-o", "/dev/null"])
                .args(inject)
                .arg(user.binary());
            command.args(["run", "--name", name]).args(&script[1..]);
            Ran::of(command.output().unwrap())
        };
        user.ok(&["run", "--discard", "--", "true"]);
        let total = calls_of(&user, &script);
        let count = samples(14, 80);
        let mut ids = BTreeSet::new();
        for sample in 0..count {
            let at = (total * sample / count).max(1);
            traced(
                &["-e", "trace=all", "-e", &format!("inject=all:signal=KILL:when={at}")],
                &format!("call-{sample}"),
            );
            ids.extend(sandboxes(&user.world));
        }
        collect(&user);
        nothing_runs(&user.world, &ids);
        clear_away(&user, ids);
    }
}

/// How many system calls such a run makes in its client.
fn calls_of(user: &User, arguments: &[&str]) -> u32 {
    let file = user.world.path("user/trace");
    let mut command = user.command("strace");
    command
        .arg("-qq")
        .arg("-o")
        .arg(&file)
        .arg(user.binary())
        .args(["run", "--name", "counted"])
        .args(&arguments[1..]);
    assert!(command.output().unwrap().status.success());
    let lines = std::fs::read_to_string(&file).unwrap().lines().count();
    u32::try_from(lines).unwrap()
}

#[test]
fn a_supervisor_that_is_killed_takes_everything_along() {
    for user in everybody() {
        let hour = an_hour();
        let count = samples(8, 40);
        let mut ids = BTreeSet::new();
        for sample in 0..count {
            let mut child = Client::long(&user, &format!("super-{sample}"), &hour);
            assert!(eventually(|| !processes(&user.world).is_empty() || child.has_ended()));
            std::thread::sleep(Duration::from_millis(2) * sample);
            if let Some(supervisor) = processes(&user.world).first() {
                kill(*supervisor);
            }
            let ended = child.wait().code();
            assert!(matches!(ended, Some(125 | 137 | 1)), "{ended:?}");
            ids.extend(sandboxes(&user.world));
            assert!(eventually(|| asleep(&hour).is_empty()), "the command goes on without its supervisor");
        }
        collect(&user);
        nothing_runs(&user.world, &ids);
        clear_away(&user, ids);
    }
}

#[test]
fn an_init_that_is_killed_is_the_end_of_the_command() {
    for user in everybody() {
        let hour = an_hour();
        let child = Client::long(&user, "init", &hour);
        wait_for_command(&hour);
        let ids = sandboxes(&user.world);
        kill(*processes(&user.world).last().unwrap());
        assert_eq!(child.wait().code(), Some(137));
        assert!(eventually(|| asleep(&hour).is_empty()));
        nothing_runs(&user.world, &ids);
        assert_eq!(user.diff("init"), ["A made"]);
        clear_away(&user, ids);
    }
}

#[test]
fn a_keeper_that_is_killed_does_not_lose_what_was_written() {
    for user in everybody() {
        let hour = an_hour();
        let root = std::fs::canonicalize(user.world.path("")).unwrap();
        let child = Client::long(&user, "kept", &hour);
        wait_for_command(&hour);
        let keepers = common::remains::keepers(&root);
        keepers.iter().copied().for_each(kill);
        if keepers.is_empty() {
            sandboxer_testkit::skip("root needs no keeper");
        }
        child.kill();
        assert!(eventually(|| asleep(&hour).is_empty()));
        assert_eq!(user.diff("kept"), ["A made"]);
        clear_away(&user, BTreeSet::new());
    }
}

#[test]
fn a_sandbox_that_is_used_is_not_destroyed() {
    for user in everybody() {
        let hour = an_hour();
        let mut child = Client::long(&user, "used", &hour);
        wait_for_command(&hour);
        let refused = user.run(&["destroy", "used", "--discard"]);
        let alive = !child.has_ended();
        child.kill();
        assert!(refused.code != 0 && alive, "{}", refused.stderr);
        assert!(eventually(|| processes(&user.world).is_empty()));
        clear_away(&user, BTreeSet::new());
    }
}

#[test]
fn the_runtime_ends_with_its_last_client_and_not_before() {
    for user in everybody() {
        let hour = an_hour();
        let another = an_hour();
        user.ok(&["create", "--name", "shared"]);
        let first = Client::start(&user, &["exec", "shared", "--", "sleep", &hour]);
        wait_for_command(&hour);
        let seen = user.ok(&[
            "exec",
            "shared",
            "--",
            "sh",
            "-c",
            "cat /proc/*/cmdline | tr '\\0' ' '; echo shared > made; cat made",
        ]);
        assert!(seen.contains(&hour) && seen.ends_with("shared\n"), "{seen}");
        let second = Client::start(&user, &["exec", "shared", "--", "sleep", &another]);
        wait_for_command(&another);
        assert_eq!(processes(&user.world).len(), 2, "one runtime for all");
        first.kill();
        assert!(eventually(|| asleep(&hour).is_empty()), "the first command goes on without its client");
        assert!(!asleep(&another).is_empty(), "the second command ended with the first");
        let ids = sandboxes(&user.world);
        second.kill();
        assert!(eventually(|| asleep(&another).is_empty()));
        assert!(eventually(|| processes(&user.world).is_empty()));
        nothing_runs(&user.world, &ids);
        assert_eq!(user.diff("shared"), ["A made"]);
        clear_away(&user, ids);
    }
}
