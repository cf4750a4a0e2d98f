//! What makes, remakes and removes an environment killed at a system call, then what somebody would type next.
//!
//! The environments are a plugin's: no command starts it that has nothing to do with it, so a `list` leaves alone what was left in them. `reconcile`
//! asks every extension anyway, and puts it right; so does whoever uses the sandbox next.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandboxer_core::model::SandboxId;
use sandboxer_testkit::faults::{Created, Ended, Hosted, Point, Trace, sample};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::{full, skip};
use serde_json::json;

const PROFILE: &str = "profile.served";
/// The commands that are killed: together they are one sweep.
const COMMANDS: usize = 6;
const RECONCILE: [&str; 3] = ["reconcile", "--grace", "0s"];

/// The catalogue: one extension on one host, and no engine whatever is installed here. JSON is YAML.
fn catalogue(waits_for: Option<&Path>) -> Vec<(&'static str, String)> {
    let extension = |id: &str, provider, isolation, options| {
        json!({
            "id": id, "summary": "made by the tests", "provider": provider, "pricing": {"model": "free"},
            "capabilities": {"isolation": [isolation], "network": ["none"], "workspaces": "any"},
            "options": options,
        })
    };
    let plugin = json!({"plugin": {"module": format!("exec:{}", env!("CARGO_BIN_EXE_served-extension"))}});
    let waits = waits_for.map_or(json!({}), |file| json!({"waits_for": file}));
    let engine = json!({"engine": "/nonexistent/docker"});
    let binding = json!({"policy": "explicit", "id": "ext.served"});
    let profile = json!({"id": PROFILE, "summary": "served", "extension": binding, "isolation": "files"});
    let host = json!({"id": "local", "summary": "here", "address": "local", "extensions": ["ext.served"]});
    vec![
        ("extensions/served.yaml", extension("ext.served", plugin, "files", waits).to_string()),
        (
            "extensions/none.yaml",
            extension("ext.container", json!("container"), "container", engine).to_string(),
        ),
        ("profiles/served.yaml", profile.to_string()),
        ("hosts/local.yaml", host.to_string()),
    ]
}

/// Sandboxes of a plugin, whose environments are directories.
struct Served {
    hosted: Hosted,
}

impl Served {
    fn new() -> Self {
        Self { hosted: Hosted::new(&catalogue(None)) }
    }

    /// With one sandbox that has work in it.
    fn with_sandbox() -> (Self, Created) {
        let served = Self::new();
        let made = served.hosted.create(PROFILE);
        (served, made)
    }

    fn room(&self) -> PathBuf {
        self.hosted.cli.home().join("plugins/extension/state/ext.served/made")
    }

    /// Whose environments there are.
    fn there(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.room()).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    /// What somebody types who does not know what was left: any command says what to type where something was.
    #[track_caller]
    fn converge(&self, context: &str) {
        let said = String::from_utf8(self.hosted.cli.ok(&["list"]).stderr).unwrap();
        let is_stuck = self.hosted.rows().iter().any(|row| row.is_under_way());
        assert!(!is_stuck || said.contains("`sandbox reconcile`"), "{context}: nobody is told: {said}");
        self.hosted.cli.ok(&RECONCILE);
        self.check(context);
    }

    #[track_caller]
    fn check(&self, context: &str) {
        self.hosted.check(&self.there(), context);
    }

    /// The end of everything leaves nothing.
    #[track_caller]
    fn finish(&self, context: &str) {
        self.hosted.open().iter().for_each(|id| drop(self.hosted.cli.ok(&["destroy", "--discard", id])));
        self.check(context);
        assert!(self.there().is_empty(), "{context}");
    }

    fn trace(&self) -> Trace<'_> {
        Trace::new(&self.hosted.cli).on_one_processor()
    }

    /// Kills a command; whether it was hit. What it has started comes to its own end before this returns.
    fn kill<S: AsRef<std::ffi::OsStr>>(&self, point: &Point, arguments: &[S]) -> bool {
        matches!(self.trace().kill(point, arguments), Ended::Killed)
    }

    /// The points worth a kill: all in a full sweep, else those that change something.
    fn points<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Vec<Point> {
        let points = self.trace().points(arguments);
        let changing: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
        assert!(changing.len() > 10, "hardly a call was seen: {changing:?}");
        changing
    }
}

fn can_trace() -> bool {
    let reason = Trace::unavailable();
    reason.iter().for_each(|reason| skip(reason));
    reason.is_none()
}

/// Every other time the command is repeated at once, by somebody who has a key or has not; else after the state was looked at.
#[test]
fn a_killed_create_is_whole_or_gone_and_can_be_repeated() {
    if !can_trace() {
        return;
    }
    let first = Served::new();
    let points = sample(&first.points(&first.hosted.create_arguments(PROFILE, &[])), COMMANDS);
    let mut killed = 0;
    for (index, point) in points.iter().enumerate() {
        let (served, context) = (Served::new(), format!("create killed at {point:?}"));
        let key: &[&str] = if index % 4 < 2 { &["--idempotency-key", "k"] } else { &[] };
        let arguments = served.hosted.create_arguments(PROFILE, key);
        killed += usize::from(served.kill(point, &arguments));
        if index % 2 == 0 {
            served.converge(&context);
        }
        let survived = served.hosted.open().len();
        served.hosted.cli.ok(&arguments);
        let expected = if key.is_empty() { survived + 1 } else { 1 };
        assert_eq!(served.hosted.open().len(), expected, "{context}: after it was repeated");
        served.converge(&context);
        assert_eq!(served.hosted.open().len(), expected, "{context}: after all was put right");
        served.finish(&context);
    }
    assert!(killed * 2 > points.len(), "only {killed} of {} points were reached", points.len());
}

/// The tree that is worked in, as it has to stay.
fn work(made: &Created) -> Manifest {
    Manifest::capture(&made.path)
}

#[test]
fn a_killed_destroy_leaves_the_work_or_nothing() {
    if !can_trace() {
        return;
    }
    let (first, made) = Served::with_sandbox();
    for (index, point) in
        sample(&first.points(&["destroy", "--discard", &made.id]), COMMANDS).into_iter().enumerate()
    {
        let ((served, made), context) = (Served::with_sandbox(), format!("destroy killed at {point:?}"));
        let before = work(&made);
        served.kill(&point, &["destroy", "--discard", &made.id]);
        if index % 2 == 0 {
            served.converge(&context);
        }
        if !served.hosted.open().is_empty() {
            before.assert_same(&work(&made), Facets::UNTOUCHED, &context);
        }
        served.hosted.cli.ok(&["destroy", "--discard", &made.id]);
        assert!(served.hosted.open().is_empty(), "{context}: the repeated one did nothing");
        served.finish(&context);
    }
}

/// Without `--discard` the work is put away, and the environment is not.
#[test]
fn a_killed_destroy_that_parks_keeps_the_work() {
    if !can_trace() {
        return;
    }
    let (first, made) = Served::with_sandbox();
    for point in sample(&first.points(&["destroy", &made.id]), COMMANDS) {
        let ((served, made), context) = (Served::with_sandbox(), format!("parking killed at {point:?}"));
        let before = work(&made);
        served.kill(&point, &["destroy", &made.id]);
        served.converge(&context);
        served.hosted.cli.ok(&["destroy", &made.id]);
        assert!(served.there().is_empty(), "{context}: it is parked with its environment");
        served.hosted.cli.ok(&["unpark", &made.id]);
        before.assert_same(&work(&made), Facets::WRITTEN, &context);
        served.hosted.cli.ok(&["recreate", &made.id]);
        served.check(&context);
        served.finish(&context);
    }
}

#[test]
fn a_killed_recreate_loses_no_work_and_can_be_repeated() {
    if !can_trace() {
        return;
    }
    let (first, made) = Served::with_sandbox();
    let points = sample(&first.points(&["recreate", &made.id]), COMMANDS);
    for (index, point) in points.iter().enumerate() {
        let ((served, made), context) = (Served::with_sandbox(), format!("recreate killed at {point:?}"));
        let before = work(&made);
        served.kill(point, &["recreate", &made.id]);
        if index % 2 == 0 {
            served.converge(&context);
        }
        served.hosted.cli.ok(&["recreate", &made.id]);
        assert_eq!(
            served.there(),
            BTreeSet::from([made.id.clone()]),
            "{context}: the repeated one made nothing"
        );
        assert!(
            served.hosted.rows().iter().all(|row| row.failure.is_none()),
            "{context}: it is told as lost"
        );
        before.assert_same(&work(&made), Facets::UNTOUCHED, &context);
        served.check(&context);
        served.finish(&context);
    }
}

/// A sandbox that is there, and an environment of which nobody knows.
fn with_orphan() -> (Served, Created, PathBuf) {
    let (served, made) = Served::with_sandbox();
    let orphan = served.room().join(SandboxId::generate().as_str());
    fs::create_dir(&orphan).unwrap();
    fs::write(orphan.join("request.json"), "{}").unwrap();
    (served, made, orphan)
}

#[test]
fn a_killed_reconcile_takes_nothing_that_is_known_and_can_be_repeated() {
    if !can_trace() {
        return;
    }
    let (first, ..) = with_orphan();
    for point in sample(&first.points(&RECONCILE), COMMANDS) {
        let ((served, made, orphan), context) = (with_orphan(), format!("reconcile killed at {point:?}"));
        let before = work(&made);
        served.kill(&point, &RECONCILE);
        assert!(served.there().contains(&made.id), "{context}: it took the wrong one");
        served.converge(&context);
        assert!(!orphan.exists(), "{context}: the repeated one left it");
        assert_eq!(served.hosted.open(), std::slice::from_ref(&made.id), "{context}");
        before.assert_same(&work(&made), Facets::UNTOUCHED, &context);
        served.finish(&context);
    }
}

#[test]
fn a_killed_extend_has_extended_or_not() {
    if !can_trace() {
        return;
    }
    let (first, made) = Served::with_sandbox();
    for point in sample(&first.points(&["extend", &made.id, "4h"]), COMMANDS) {
        let ((served, made), context) = (Served::with_sandbox(), format!("extend killed at {point:?}"));
        let before = work(&made);
        served.kill(&point, &["extend", &made.id, "4h"]);
        served.hosted.cli.ok(&["list"]);
        served.check(&context);
        served.hosted.cli.ok(&["extend", &made.id, "4h"]);
        assert!(served.hosted.cli.json(&["get", &made.id])["expires_at"].is_string(), "{context}");
        before.assert_same(&work(&made), Facets::UNTOUCHED, &context);
        served.check(&context);
    }
}

/// What puts right is killed as well, and put right in its turn.
#[test]
fn a_killed_recovery_is_recovered() {
    if !can_trace() {
        return;
    }
    let first = Served::new();
    let creates = first.points(&first.hosted.create_arguments(PROFILE, &[]));
    // The first half is before anything is made; these are around the plugin's calls.
    for at in [5, 7, 9] {
        let point = &creates[(creates.len() * at / 10).min(creates.len() - 1)];
        let left = || {
            let served = Served::new();
            served.kill(point, &served.hosted.create_arguments(PROFILE, &[]));
            served
        };
        for second in sample(&left().points(&RECONCILE), 20) {
            let (served, context) = (left(), format!("create killed at {point:?}, reconcile at {second:?}"));
            served.kill(&second, &RECONCILE);
            served.converge(&context);
            served.finish(&context);
        }
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A plugin may finish the call that it is in when its host is killed, long after the sandbox was written off.
#[test]
fn what_a_plugin_makes_after_its_host_was_killed_goes_with_the_next_reconcile() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    let served = Served { hosted: Hosted::new(&catalogue(Some(&gate))) };
    let mut create = served.hosted.cli.command(&served.hosted.create_arguments(PROFILE, &[]));
    let mut create =
        create.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_for("the plugin's call", || gate.with_extension("waiting").exists());
    create.kill().unwrap();
    create.wait().unwrap();
    served.converge("while the plugin is still at it");
    assert_eq!(served.hosted.rows()[0].state, "failed");
    fs::write(&gate, "").unwrap();
    let id = &served.hosted.rows()[0].id;
    wait_for("what the plugin makes", || served.room().join(id).join("request.json").exists());
    served.converge("after the plugin has made it");
    assert!(served.there().is_empty());
}
