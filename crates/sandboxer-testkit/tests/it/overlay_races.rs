//! Two overlays over one directory, committed at the same time by two processes, again and again.
//!
//! Each commit protects the other sandbox while that one's commit may protect it. Whatever comes out has to be what one after the other
//! gives, in either order; nobody waits for ever, and nothing stays behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use sandboxer_keeper::mount;
use sandboxer_testkit::faults::{Cli, Created};
use sandboxer_testkit::manifest::Manifest;
use sandboxer_testkit::mounts::{DetachBelow, mounts_below};
use sandboxer_testkit::skip;
use tempfile::TempDir;

const ROUNDS: usize = 15;
const OVERLAY: [&str; 3] = ["--strategy", "overlay", "--no-fallback"];
/// How long one commit may take. Far longer than any does: whoever waits for as long waits for ever.
const LIMIT: Duration = Duration::from_secs(60);
const CONFLICT: i32 = 3;

/// Files by path, with their content.
type Files = BTreeMap<String, String>;

/// What the two change in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changes {
    /// One file by both, and others by one each.
    Overlapping,
    /// Files of one directory, each by one.
    Disjoint,
    /// A directory by one, a file in it by the other.
    Nested,
}

/// One of the two, with the state directory that it is in.
struct Contender {
    name: &'static str,
    cli: Cli,
    sandbox: Created,
}

/// A directory that is fought for, and where the contenders keep their state.
struct Arena {
    resource: PathBuf,
    homes: [&'static str; 2],
    _mounts: DetachBelow,
    dir: TempDir,
}

impl Arena {
    fn new(homes: [&'static str; 2]) -> Self {
        let dir = TempDir::with_prefix("sandboxer-races-").unwrap();
        let resource = dir.path().join("resource");
        fs::create_dir_all(resource.join("sub")).unwrap();
        for path in ["shared", "left", "right", "sub/left", "sub/right"] {
            fs::write(resource.join(path), "at first\n").unwrap();
        }
        let _mounts = DetachBelow(dir.path().to_path_buf());
        Self { resource, homes, _mounts, dir }
    }

    fn contender(&self, index: usize) -> Contender {
        let cli = Cli::new(&self.dir.path().join(self.homes[index]));
        let sandbox = cli.create(&self.resource, &OVERLAY);
        Contender { name: ["left", "right"][index], cli, sandbox }
    }

    /// Whether neither knows of the other.
    fn are_strangers(&self) -> bool {
        self.homes[0] != self.homes[1]
    }

    fn files(&self) -> Files {
        files(&self.resource)
    }

    /// Nothing is mounted, and no workspace is left.
    #[track_caller]
    fn assert_swept(&self, context: &str) {
        assert_eq!(mounts_below(self.dir.path()), Vec::<PathBuf>::new(), "{context}: mounts are left over");
        for home in self.homes {
            let mut left = Cli::new(&self.dir.path().join(home)).inventory();
            left.retain(|path| path.iter().any(|name| name.to_string_lossy().starts_with("ws_")));
            assert!(left.is_empty(), "{context}: left over: {left:?}");
        }
    }
}

fn files(root: &Path) -> Files {
    let names = Manifest::capture(root).entries.into_keys();
    let found = names.filter(|name| root.join(name).is_file());
    let text = |name: &Path| fs::read_to_string(root.join(name)).unwrap();
    found.map(|name| (name.to_str().unwrap().to_owned(), text(Path::new(&name)))).collect()
}

impl Contender {
    /// Changes what is this one's part, in the sandbox.
    fn work(&self, changes: Changes, round: usize) {
        let text = format!("{} {round}\n", self.name);
        let write = |path: &str| {
            let path = self.sandbox.path.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &text).unwrap();
        };
        write(self.name);
        write(&format!("sub/{}", self.name));
        write(&format!("new {} {round}/file", self.name));
        match changes {
            Changes::Overlapping => write("shared"),
            Changes::Disjoint => (),
            Changes::Nested if self.name == "left" => {
                fs::remove_dir_all(self.sandbox.path.join("sub")).unwrap()
            }
            Changes::Nested => write("sub/deep/file"),
        }
    }

    fn commit(&self) -> Running {
        let mut command = self.cli.command(&["commit", &self.sandbox.id]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Running { name: self.name, child }
    }

    /// The sandbox shows what it showed, won or lost. Where the other one is a stranger, nobody keeps its files from showing
    /// through, and only this one's own changes are looked at.
    #[track_caller]
    fn assert_kept(&self, pending: &Files, base: &Files, strangers: bool, context: &str) {
        let is_own = |path: &String| pending.get(path) != base.get(path);
        let kept: Files =
            pending.clone().into_iter().filter(|(path, _)| !strangers || is_own(path)).collect();
        let mut seen = files(&self.sandbox.path);
        seen.retain(|path, _| !strangers || kept.contains_key(path));
        assert_eq!(seen, kept, "{context}: what {} shows", self.name);
    }

    fn is_clean(&self) -> bool {
        self.cli.json(&["diff", &self.sandbox.id])["entries"] == serde_json::json!([])
    }
}

/// A commit under way; killed where nobody waits for it any more.
struct Running {
    name: &'static str,
    child: Child,
}

impl Running {
    fn code(mut self) -> i32 {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(started.elapsed() < LIMIT, "the commit of {} hangs", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the original is when `pending` (all of a sandbox's files) is committed to it: `before` with the changes against `base`.
fn applied(before: &Files, base: &Files, pending: &Files) -> Files {
    let mut after = before.clone();
    after.retain(|path, _| !base.contains_key(path) || pending.contains_key(path));
    let changed = pending.iter().filter(|(path, text)| base.get(*path) != Some(text));
    after.extend(changed.map(|(path, text)| (path.clone(), text.clone())));
    after
}

/// Both commit at once, the second of them first in every other round. Returns the exit codes.
fn commit_both(both: &[Contender; 2], round: usize) -> [i32; 2] {
    let [left, right] = both;
    let (first, second) = if round.is_multiple_of(2) { (left, right) } else { (right, left) };
    let (first, second) = (first.commit(), second.commit());
    let running = if round.is_multiple_of(2) { [first, second] } else { [second, first] };
    running.map(Running::code)
}

/// One round: both work, both commit at once. Returns how many succeeded.
fn round(arena: &Arena, changes: Changes, round: usize) -> usize {
    let context = format!("{changes:?}, round {round}");
    let base = arena.files();
    let both = [0, 1].map(|index| arena.contender(index));
    both.iter().for_each(|one| one.work(changes, round));
    let pending = both.each_ref().map(|one| files(&one.sandbox.path));
    let codes = commit_both(&both, round);
    assert!(codes.iter().all(|code| [0, CONFLICT].contains(code)), "{context}: {codes:?}");
    let won = codes.map(|code| code == 0);
    let winners = pending.iter().zip(won).filter(|(_, won)| *won);
    let lawful = winners.fold(base.clone(), |original, (pending, _)| applied(&original, &base, pending));
    assert_eq!(arena.files(), lawful, "{context}: {codes:?}");
    for ((one, won), pending) in both.iter().zip(won).zip(&pending) {
        assert_eq!(one.is_clean(), won, "{context}: what is pending in {}", one.name);
        one.assert_kept(pending, &base, arena.are_strangers(), &context);
        one.cli.ok(&["destroy", "--discard", &one.sandbox.id]);
    }
    arena.assert_swept(&context);
    won.into_iter().filter(|won| *won).count()
}

fn race(homes: [&'static str; 2], changes: Changes, expected: usize) {
    if let Err(reason) = mount::try_host(&std::env::temp_dir()) {
        return skip(&reason);
    }
    for number in 0..ROUNDS {
        // What is removed in one round is there again in the next.
        let arena = Arena::new(homes);
        let winners = round(&arena, changes, number);
        assert_eq!(winners, expected, "{changes:?}, round {number}: so many commits succeeded");
    }
}

#[test]
fn the_same_file_goes_to_one_of_two() {
    race(["home", "home"], Changes::Overlapping, 1);
}

#[test]
fn different_files_are_both_committed() {
    race(["home", "home"], Changes::Disjoint, 2);
}

#[test]
fn a_directory_is_removed_or_worked_in() {
    race(["home", "home"], Changes::Nested, 1);
}

/// Sandboxes of other state directories are not known: only the lock on the original keeps the two apart.
#[test]
fn the_same_file_goes_to_one_of_two_state_directories() {
    race(["one", "two"], Changes::Overlapping, 1);
}

/// The same two for all rounds: each keeps for itself, commit by commit, what the other one replaces.
#[test]
fn the_same_two_commit_again_and_again() {
    if let Err(reason) = mount::try_host(&std::env::temp_dir()) {
        return skip(&reason);
    }
    let arena = Arena::new(["home", "home"]);
    let (both, base) = ([0, 1].map(|index| arena.contender(index)), arena.files());
    for round in 0..ROUNDS {
        let context = format!("round {round}");
        both.iter().for_each(|one| one.work(Changes::Disjoint, round));
        let pending = both.each_ref().map(|one| files(&one.sandbox.path));
        assert_eq!(commit_both(&both, round), [0, 0], "{context}");
        let lawful =
            pending.iter().fold(base.clone(), |original, pending| applied(&original, &base, pending));
        assert_eq!(arena.files(), lawful, "{context}");
        for (one, pending) in both.iter().zip(&pending) {
            assert!(one.is_clean(), "{context}: something is pending in {}", one.name);
            one.assert_kept(pending, &base, false, &context);
        }
    }
    both.iter().for_each(|one| drop(one.cli.ok(&["destroy", &one.sandbox.id])));
    arena.assert_swept("in the end");
}
