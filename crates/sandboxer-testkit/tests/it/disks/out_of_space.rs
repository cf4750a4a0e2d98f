//! D05: the disk is full. Commands fail with a word, the resource is untouched, nothing is orphaned, and once there is
//! room again everything goes on.

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_testkit::faults::{Case, Cli, Created, Interruption, Outcome, Seen, Task, UNFINISHED};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::skip;
use tempfile::TempDir;

const MEGABYTE: usize = 1 << 20;

/// Runs `test` on a small tmpfs and on a small ext4.
fn on_small_filesystems(megabytes: u64, test: impl Fn(&Path)) {
    let bytes = megabytes * MEGABYTE as u64;
    for (name, mounted) in [("tmpfs", Mounted::tmpfs(bytes)), ("ext4", Mounted::ext4(bytes))] {
        match mounted {
            Ok(mounted) => {
                println!("on {name}");
                test(mounted.path());
            }
            Err(reason) => skip(&format!("{name}: {reason}")),
        }
    }
}

/// Bytes that do not compress and are not a hole.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Fills the filesystem at `dir` but for about `spare` bytes; removing the file makes room again.
fn fill_up(dir: &Path, spare: u64) -> PathBuf {
    let ballast = dir.join("ballast");
    let file = fs::File::create(&ballast).unwrap();
    let (flags, mut length) = (rustix::fs::FallocateFlags::empty(), 0);
    // In smaller and smaller pieces: the filesystem needs some blocks to write down where the others are.
    for piece in [1 << 20, 64 << 10, 4 << 10] {
        while free(dir) >= spare + piece && rustix::fs::fallocate(&file, flags, length, piece).is_ok() {
            length += piece;
        }
    }
    ballast
}

fn free(dir: &Path) -> u64 {
    let stat = rustix::fs::statvfs(dir).unwrap();
    stat.f_bavail * stat.f_frsize
}

fn tree(dir: &Path, megabytes: usize) -> PathBuf {
    let resource = dir.join("resource");
    fs::create_dir(&resource).unwrap();
    for i in 0..megabytes * 4 {
        fs::write(resource.join(format!("{i:03}")), noise(MEGABYTE / 4)).unwrap();
    }
    resource
}

/// What is left of workspaces anywhere below `dir`.
fn workspaces_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ws_") {
            found.push(entry.path());
        } else if entry.file_type().is_ok_and(|t| t.is_dir()) {
            found.extend(workspaces_below(&entry.path()));
        }
    }
    found
}

#[track_caller]
fn assert_fails(cli: &Cli, arguments: &[&str]) {
    let output = cli.run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    assert!(stderr.contains("error"), "{arguments:?} failed without a word");
}

/// State directory and resource both on a filesystem that cannot hold the copy.
#[test]
fn d05_create_on_a_full_disk() {
    on_small_filesystems(24, |dir| {
        let resource = tree(dir, 14);
        let before = Manifest::capture(&resource);
        let cli = Cli::new(&dir.join("home"));
        assert_fails(&cli, &["create", resource.to_str().unwrap(), "--strategy", "filesystem_copy"]);
        cli.ok(&["list"]);
        before.assert_same(&Manifest::capture(&resource), Facets::UNTOUCHED, "create on a full disk");
        assert_eq!(workspaces_below(dir), Vec::<PathBuf>::new());
        assert_eq!(cli.json(&["list"])["sandboxes"], serde_json::json!([]));
    });
}

struct Small {
    cli: Cli,
    resource: PathBuf,
    sandbox: Created,
    before: Manifest,
}

impl Small {
    fn new(dir: &Path, home: &Path) -> Self {
        let resource = tree(dir, 2);
        let cli = Cli::new(home);
        let sandbox = cli.create(&resource, &["--strategy", "filesystem_copy"]);
        let before = Manifest::capture(&resource);
        Self { cli, resource, sandbox, before }
    }

    #[track_caller]
    fn assert_untouched(&self, context: &str) {
        self.before.assert_same(&Manifest::capture(&self.resource), Facets::UNTOUCHED, context);
    }
}

#[test]
fn d05_checkpoint_on_a_full_disk() {
    on_small_filesystems(40, |dir| {
        let small = Small::new(dir, &dir.join("home"));
        let id = &small.sandbox.id;
        fs::write(small.sandbox.path.join("new"), noise(4 * MEGABYTE)).unwrap();
        let (pending, inventory) = (Manifest::capture(&small.sandbox.path), small.cli.inventory());
        let ballast = fill_up(dir, 2 * MEGABYTE as u64);
        assert_fails(&small.cli, &["checkpoint", id, "one"]);
        small.assert_untouched("checkpoint on a full disk");
        let tree = Manifest::capture(&small.sandbox.path);
        pending.assert_same(&tree, Facets::UNTOUCHED, "checkpoint on a full disk");
        let now = small.cli.inventory();
        let orphans: Vec<_> = now.iter().filter(|path| !inventory.contains(path)).collect();
        assert!(orphans.is_empty(), "orphaned: {orphans:?}");
        fs::remove_file(ballast).unwrap();
        small.cli.ok(&["checkpoint", id, "one"]);
        small.cli.ok(&["destroy", id]);
    });
}

#[test]
fn d05_commit_on_a_full_disk() {
    on_small_filesystems(40, |dir| {
        let outside = TempDir::new().unwrap();
        let small = Small::new(dir, outside.path());
        let id = &small.sandbox.id;
        fs::write(small.sandbox.path.join("new"), noise(4 * MEGABYTE)).unwrap();
        fs::write(small.sandbox.path.join("000"), "changed\n").unwrap();
        fs::remove_file(small.sandbox.path.join("001")).unwrap();
        let expected = Manifest::capture(&small.sandbox.path);
        let ballast = fill_up(dir, MEGABYTE as u64);
        assert_fails(&small.cli, &["commit", id]);
        small.cli.ok(&["list"]);
        small.assert_untouched("commit on a full disk");
        fs::remove_file(ballast).unwrap();
        small.cli.ok(&["commit", id]);
        expected.assert_same(
            &Manifest::capture(&small.resource),
            Facets::WRITTEN,
            "commit once there is room",
        );
        small.cli.ok(&["destroy", id]);
        assert_eq!(workspaces_below(dir), Vec::<PathBuf>::new());
        assert_eq!(workspaces_below(outside.path()), Vec::<PathBuf>::new());
    });
}

/// The state directory's disk is full, the resource's is not.
#[test]
fn d05_state_directory_on_a_full_disk() {
    on_small_filesystems(24, |dir| {
        let outside = TempDir::new().unwrap();
        let resource = tree(outside.path(), 2);
        let before = Manifest::capture(&resource);
        let cli = Cli::new(&dir.join("home"));
        cli.ok(&["list"]);
        let ballast = fill_up(dir, 0);
        let output = cli.run(&["create", resource.to_str().unwrap(), "--strategy", "filesystem_copy"]);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        before.assert_same(
            &Manifest::capture(&resource),
            Facets::UNTOUCHED,
            "state directory on a full disk",
        );
        fs::remove_file(ballast).unwrap();
        assert_eq!(cli.json(&["list"])["sandboxes"], serde_json::json!([]));
        let sandbox = cli.create(&resource, &["--strategy", "filesystem_copy"]);
        cli.ok(&["destroy", &sandbox.id]);
        assert_eq!(workspaces_below(dir), Vec::<PathBuf>::new());
    });
}

/// What a task comes to undisturbed.
fn undisturbed(task: Task) -> Seen {
    let twin = Case::new(task);
    twin.cli.ok(&twin.arguments());
    twin.look()
}

/// The disk is full at once, or a little later: each time the task is done or fails with a word, and once there is room again it is
/// whole and goes on.
fn on_full_disks(task: Task) {
    let twin = undisturbed(task);
    on_small_filesystems(24, |dir| {
        for spare in [0, 96, 256] {
            let temp = TempDir::new_in(dir).unwrap();
            let (home, resource) = (temp.path().join("home"), temp.path().join("resource"));
            let case = Case::at(task, &home, resource, temp);
            let ballast = fill_up(dir, spare << 10);
            let output = case.cli.run(&case.arguments());
            fs::remove_file(ballast).unwrap();
            let (code, stderr) = (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
            let context = format!("{task:?} with {spare} KiB free (exit {code:?}: {})", stderr.trim());
            println!("{context}");
            assert!(matches!(code, Some(0 | 1 | 5 | UNFINISHED)), "{context}");
            assert!(code == Some(0) || stderr.contains("error"), "{context}: failed without a word");
            let outcome = case.recover_and_check(Interruption::FailedForGood, &twin, &context);
            assert!(code != Some(0) || outcome == Outcome::New, "{context}: false success");
        }
    });
}

#[test]
fn d05_undo_and_merge_on_a_full_disk() {
    on_full_disks(Task::Undo);
    on_full_disks(Task::Merge);
}

#[test]
fn d05_checkpoint_and_restore_on_a_full_disk() {
    on_full_disks(Task::Checkpoint);
    on_full_disks(Task::Restore);
}

#[test]
fn d05_park_and_unpark_on_a_full_disk() {
    on_full_disks(Task::Park);
    on_full_disks(Task::Unpark);
}
