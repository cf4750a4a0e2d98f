//! D07 to D10 and D13: nothing outside the root is read or written, whatever is put in the way.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{CommitRequest, RelPath, SandboxRef};
use sandboxer_strategies::filesystem_copy;
use sandboxer_testkit::conformance::Fixture;

use super::{Bench, SECRET};

#[test]
fn d07_a_link_is_shown_and_its_target_never_read() {
    let bench = Bench::new();
    symlink("/etc/passwd", bench.tree("passwd")).unwrap();
    symlink(bench.outside.join("secret"), bench.tree("leak")).unwrap();
    for name in ["passwd", "leak"] {
        let output = bench.run("read", &[name]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{name} was followed");
    }
    for options in [&["--patch"][..], &["--json"], &["--stat"], &[]] {
        let shown = String::from_utf8_lossy(&bench.ok("diff", options).stdout).into_owned();
        assert!(shown.contains("passwd"), "{options:?} does not show the link: {shown}");
        assert!(!shown.contains("root:x:0") && !shown.contains(SECRET.trim()), "{options:?} read the target");
    }
    bench.assert_code(5, "commit", &[]);
    assert!(!bench.resource.join("passwd").is_symlink(), "a link out of the tree needs a word");
    bench.ok("commit", &["--accept-flags"]);
    assert_eq!(fs::read_link(bench.resource.join("passwd")).unwrap(), Path::new("/etc/passwd"));
    bench.assert_secret_kept();
}

#[test]
fn d08_a_write_through_a_link_is_refused() {
    let bench = Bench::new();
    symlink("/", bench.tree("d")).unwrap();
    symlink(&bench.outside, bench.tree("e")).unwrap();
    symlink(bench.outside.join("secret"), bench.tree("f")).unwrap();
    let below_root = format!("d{}/planted", bench.outside.display());
    for path in [below_root.as_str(), "d/x", "e/planted", "e/secret"] {
        let output = bench.run("write", &[path]);
        assert!(!output.status.success(), "{path} was written through a link");
        assert!(!output.stderr.is_empty());
    }
    let _replaced_or_refused = bench.run("write", &["f"]);
    assert!(!Path::new("/x").exists());
    bench.assert_secret_kept();
}

#[test]
fn d10_paths_that_leave_are_refused() {
    let bench = Bench::new();
    let absolute = bench.outside.join("secret");
    let through_proc = format!("/proc/self/root{}", absolute.display());
    let up = format!("../{}", "../".repeat(12)) + absolute.to_str().unwrap().trim_start_matches('/');
    let bad = ["..", "", "a//b", "dir/../../x", ".", absolute.to_str().unwrap(), &through_proc, &up];
    let before = bench.manifest();
    for path in bad {
        for command in ["read", "write", "commit", "rollback", "diff"] {
            let output = bench.run(command, &["--", path]);
            assert_eq!(output.status.code(), Some(2), "{command} {path:?}: {}", super::told(&output));
        }
    }
    bench.assert_untouched(&before);
    bench.assert_secret_kept();
}

#[test]
fn d13_a_hard_link_to_an_outside_file_is_not_committed() {
    let bench = Bench::new();
    fs::hard_link(bench.outside.join("secret"), bench.tree("leak")).unwrap();
    fs::write(bench.tree("a.txt"), "changed\n").unwrap();
    let output = bench.run("commit", &[]);
    let told = super::told(&output);
    assert!(told.contains("leak"), "the link is not reported: {told}");
    bench.assert_secret_kept();
    assert!(!bench.resource.join("leak").exists());
    bench.ok("commit", &["a.txt"]);
    bench.assert_secret_kept();
}

/// How long a race goes on, and how many rounds it has at most; it goes on longer until enough has happened in it.
const RACE: (Duration, u32) = (Duration::from_millis(900), 50_000);
const MIN_SWAPS: u64 = 10;
const RACE_LIMIT: Duration = Duration::from_secs(60);

/// Swaps two paths for one another until told to stop, and counts the swaps.
fn swap_until(stop: &AtomicBool, swaps: &AtomicU64, a: &Path, b: &Path) {
    while !stop.load(Ordering::Relaxed) {
        // One of the two may be gone for a moment: a commit replaces what we swap.
        if renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).is_ok() {
            swaps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sets a flag when it goes out of scope, also by a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` again and again while `dir` and `evil` are swapped; returns how often it worked and how often not. With
/// `needs_success` it goes on until `work` has worked once.
fn race(dir: &Path, evil: &Path, needs_success: bool, work: impl Fn() -> bool) -> (u32, u32) {
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut worked, mut failed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| swap_until(&stop, &swaps, dir, evil));
        let _stop = StopOnDrop(&stop);
        let started = Instant::now();
        loop {
            let is_over = started.elapsed() >= RACE.0 || worked + failed >= RACE.1;
            let is_enough = swaps.load(Ordering::Relaxed) > MIN_SWAPS && (worked > 0 || !needs_success);
            if is_over && is_enough || started.elapsed() > RACE_LIMIT {
                break;
            }
            if work() { worked += 1 } else { failed += 1 }
        }
    });
    let swaps = swaps.into_inner();
    assert!(swaps > MIN_SWAPS, "only {swaps} swaps in {RACE_LIMIT:?}");
    (worked, failed)
}

struct Race<'a> {
    fixture: &'a Fixture,
    strategy: std::sync::Arc<dyn SandboxStrategy>,
    sandbox: SandboxRef,
}

impl Race<'_> {
    fn path(&self, path: &str) -> RelPath {
        RelPath::parse(path).unwrap()
    }

    #[track_caller]
    fn assert_outside_is_intact(&self) {
        let names: Vec<_> =
            fs::read_dir(self.fixture.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"], "something was planted outside");
        let content = fs::read_to_string(self.fixture.outside().join("secret")).unwrap();
        assert_eq!(content, "secret\n", "the outside was written to");
    }
}

/// D09: the parent directory is swapped for a link to the outside, in a loop, during reads, writes and commits.
#[test]
fn d09_a_swap_race_escapes_nowhere() {
    let fixture = Fixture::new(filesystem_copy::entry());
    fs::write(fixture.original("dir/secret"), "inside\n").unwrap();
    let open = fixture.open();
    let race_at = Race { fixture: &fixture, strategy: open.strategy.clone(), sandbox: open.sandbox.clone() };
    let (dir, evil) = (open.path("dir"), open.path("evil"));
    symlink(fixture.outside(), &evil).unwrap();
    let secret = race_at.path("dir/secret");

    let reads = race(&dir, &evil, true, || match race_at.strategy.read(&race_at.sandbox, &secret) {
        Ok(content) => {
            assert_eq!(content, b"inside\n", "a read escaped");
            true
        }
        Err(_) => false,
    });
    let writes = race(&dir, &evil, true, || {
        let planted =
            race_at.strategy.write(&race_at.sandbox, &race_at.path("dir/planted"), b"mine\n").is_ok();
        race_at.strategy.write(&race_at.sandbox, &secret, b"inside\n").is_ok() || planted
    });
    race_at.assert_outside_is_intact();
    let commits = race(&dir, &evil, false, || commit_is_harmless(&race_at));
    race_at.assert_outside_is_intact();
    println!("worked and failed: reads {reads:?}, writes {writes:?}, commits {commits:?}");
    assert!(reads.0 > 0 && writes.0 > 0, "the race was never lost, so nothing was tried");
}

/// Commits whatever is there now: a link may be committed as a link, but never what it points to.
fn commit_is_harmless(race: &Race<'_>) -> bool {
    let result = race.strategy.commit(&race.sandbox, &CommitRequest::default());
    for name in ["dir/secret", "evil/secret"] {
        let parent = race.fixture.original(name).parent().unwrap().to_path_buf();
        if fs::symlink_metadata(&parent).is_ok_and(|m| m.is_dir()) {
            let content = fs::read_to_string(race.fixture.original(name));
            assert!(content.is_err() || content.unwrap() == "inside\n", "a commit read the outside");
        }
    }
    result.is_ok()
}

/// D09, the other side: a directory of the original is swapped while a commit writes into it.
#[test]
fn d09_a_swapped_original_leads_no_commit_astray() {
    let fixture = Fixture::new(filesystem_copy::entry());
    let open = fixture.open();
    let race_at = Race { fixture: &fixture, strategy: open.strategy.clone(), sandbox: open.sandbox.clone() };
    let (dir, evil) = (fixture.original("dir"), fixture.outside().with_file_name("evil"));
    symlink(fixture.outside(), &evil).unwrap();
    let round = std::cell::Cell::new(0);
    let commits = race(&dir, &evil, false, || {
        round.set(round.get() + 1);
        open.write("dir/c.txt", &format!("round {}\n", round.get()));
        open.write("dir/planted", &format!("round {}\n", round.get()));
        race_at.strategy.commit(&race_at.sandbox, &CommitRequest::default()).is_ok()
    });
    race_at.assert_outside_is_intact();
    println!("commits that worked and failed: {commits:?}");
    assert!(commits.0 + commits.1 > 0);
}
