//! What only a checkout has: what comes along, what is left behind, and where commits go. Files as such are the conformance suite's affair.

use std::path::PathBuf;

use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{
    CommitRequest, History, OnConflict, OpId, PlanId, RelPath, Resource, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyOptions};
use sandboxer_core::{Error, Result};
use sandboxer_testkit::git::GitRepo;
use serde_json::{Value, json};

use super::*;

#[path = "branch_tests.rs"]
mod branches;
#[path = "way_tests.rs"]
mod in_the_way;

/// A checkout with two files of text, an ignored directory, and a sandbox of it.
pub(super) struct Scene {
    pub(super) temp: tempfile::TempDir,
    pub(super) repo: GitRepo,
    pub(super) strategy: GitWorktree,
    pub(super) sandbox: Option<SandboxRef>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            self.strategy.cleanup(&sandbox).unwrap();
        }
    }
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::with(&StrategyOptions::new())
    }

    /// Its files are a copy.
    pub(super) fn copied() -> Self {
        Self::with(&StrategyOptions::from([("files".to_owned(), json!("copy"))]))
    }

    pub(super) fn with(options: &StrategyOptions) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let repo = GitRepo::new(temp.path().join("repo"));
        let lines: String = (1..=40).map(|n| format!("{n}\n")).collect();
        repo.write("a", lines.as_bytes());
        repo.write("dir/b", b"b\n");
        repo.write(".gitignore", b"/out/\n*.o\n");
        repo.commit_all("one");
        repo.write("out/cache", b"cached\n");
        let context = StrategyContext::quiet(temp.path().join("home"));
        let strategy = GitWorktree::new(NAME, options, &context).unwrap();
        Self { temp, repo, strategy, sandbox: None }
    }

    pub(super) fn open(self) -> Self {
        self.open_with(&[])
    }

    pub(super) fn open_with(mut self, properties: &[(&str, Value)]) -> Self {
        let made = self.create(properties).unwrap();
        self.sandbox = Some(made);
        self
    }

    pub(super) fn create(&self, properties: &[(&str, Value)]) -> Result<SandboxRef> {
        let mut resource = Resource::at_path("git-checkout", &self.repo.path().canonicalize().unwrap());
        resource.properties.insert("sandbox_name".to_owned(), json!("try"));
        for (key, value) in properties {
            resource.properties.insert((*key).to_owned(), value.clone());
        }
        self.strategy.create(&PlanId::from_string("pln_1"), &resource)
    }

    pub(super) fn sandbox(&self) -> &SandboxRef {
        self.sandbox.as_ref().unwrap()
    }

    /// The sandbox's tree as a checkout.
    pub(super) fn inside(&self) -> GitRepo {
        GitRepo::at(self.sandbox().sandbox_path().unwrap())
    }

    pub(super) fn diff(&self) -> Vec<String> {
        let view = self.strategy.diff(self.sandbox()).unwrap();
        view.entries.iter().map(|entry| format!("{:?} {}", entry.kind, entry.path)).collect()
    }

    pub(super) fn commit_as(&self, operation: &str, request: &CommitRequest) -> Result<CommitResult> {
        let sandbox = self.sandbox().clone().for_operation(&OpId::from_string(operation));
        self.strategy.commit(&sandbox, request)
    }

    pub(super) fn commit(&self) -> Result<CommitResult> {
        self.commit_as("op_1", &CommitRequest::default())
    }

    pub(super) fn undo(&self, operation: &str, undone: &str) -> Result<CommitResult> {
        let sandbox = self.sandbox().clone().for_operation(&OpId::from_string(operation));
        self.strategy.commit(&sandbox.undoing(&OpId::from_string(undone)), &CommitRequest::default())
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.inside().path().join(path).exists()
    }

    /// Nothing of ours is left in the user's git directory.
    pub(super) fn assert_tidy(&self) {
        let left = std::fs::read_dir(self.repo.path().join(".git")).unwrap();
        let names: Vec<String> =
            left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        assert!(!names.iter().any(|n| n.contains("sandboxer") || n.ends_with(".lock")), "{names:?}");
        self.repo.git(&["fsck", "--strict", "--no-dangling"]);
    }
}

pub(super) fn conflicts(result: Result<CommitResult>) -> Vec<String> {
    match result {
        Err(Error::Conflict { conflicts }) => {
            conflicts.iter().map(|c| format!("{}: {}", c.path, c.reason)).collect()
        }
        other => panic!("no conflict: {other:?}"),
    }
}

pub(super) fn refusal(result: Result<impl std::fmt::Debug>) -> String {
    match result {
        Err(Error::Refused { reason, hint }) => format!("{reason} ({})", hint.unwrap_or_default()),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn uncommitted_and_ignored_files_come_along_and_are_no_difference() {
    [Scene::new(), Scene::copied()].into_iter().for_each(come_along);
}

fn come_along(scene: Scene) {
    scene.repo.write("a", b"dirty\n");
    scene.repo.write("untracked", b"u\n");
    scene.repo.write("staged", b"s\n");
    scene.repo.git(&["add", "staged"]);
    let before = scene.repo.hash_of_git_dir();
    let scene = scene.open();
    assert_eq!(scene.diff(), [""; 0]);
    assert!(scene.has("untracked") && scene.has("out/cache"));
    assert_eq!(scene.inside().read("a"), b"dirty\n");
    assert_eq!(scene.inside().status(), scene.repo.status());
    assert_eq!(scene.inside().git(&["branch", "--show-current"]), "sandbox/try");
    assert_eq!(scene.repo.hash_of_git_dir(), before);
}

#[test]
fn clean_leaves_uncommitted_work_behind() {
    [Scene::new(), Scene::copied()].into_iter().for_each(leave_work);
}

fn leave_work(scene: Scene) {
    scene.repo.write("a", b"dirty\n");
    scene.repo.write("untracked", b"u\n");
    std::fs::remove_file(scene.repo.path().join("dir/b")).unwrap();
    let scene = scene.open_with(&[("clean", json!(true))]);
    assert_eq!(scene.diff(), [""; 0]);
    assert!(!scene.has("untracked") && scene.has("dir/b") && scene.has("out/cache"));
    assert!(scene.inside().read("a").starts_with(b"1\n2\n"));
    assert_eq!(scene.inside().status(), "");
    scene.inside().write("a", b"changed\n");
    scene.inside().write("dir/b", b"changed\n");
    assert_eq!(scene.diff(), ["Modified a", "Modified dir/b"]);
    let found = conflicts(scene.commit());
    assert!(found[0].starts_with("a: "), "{found:?}");
    assert_eq!(scene.repo.read("a"), b"dirty\n");
    let only = scene.sandbox().clone().scoped(&[RelPath::parse("dir").unwrap()]);
    scene.strategy.rollback(&only).unwrap();
    assert_eq!(
        (scene.diff(), scene.inside().read("dir/b")),
        (vec!["Modified a".to_owned()], b"b\n".to_vec())
    );
    scene.strategy.rollback(scene.sandbox()).unwrap();
    assert_eq!(scene.diff(), [""; 0]);
    assert_eq!(scene.inside().status(), "");
}

#[test]
fn another_commit_can_be_begun_from_and_becomes_a_branch() {
    [Scene::new(), Scene::copied()].into_iter().for_each(begin_elsewhere);
}

fn begin_elsewhere(scene: Scene) {
    scene.repo.write("a", b"two\n");
    scene.repo.write("later/c", b"c\n");
    scene.repo.commit_all("two");
    let scene = scene.open_with(&[("from", json!("HEAD~1"))]);
    assert_eq!(scene.diff(), [""; 0]);
    assert_eq!(scene.inside().status(), "");
    assert!(!scene.has("later/c"));
    scene.inside().write("dir/b", b"changed\n");
    let told = refusal(scene.commit());
    assert!(told.contains("--to BRANCH"), "{told}");
    let request = CommitRequest { branch: Some("review".into()), ..CommitRequest::default() };
    let done = scene.commit_as("op_2", &request).unwrap();
    let revision = done.revision.unwrap();
    assert_eq!(revision.branch.as_deref(), Some("review"));
    assert_eq!(scene.repo.git(&["rev-parse", "review"]), revision.commit);
    assert_eq!(scene.repo.git(&["diff", "--name-only", "HEAD~1", "review"]), "dir/b");
    assert_eq!(scene.repo.status(), "");
    scene.assert_tidy();
}

#[test]
fn ignored_files_can_be_left_behind() {
    let scene = Scene::new().open_with(&[("ignored", json!(false))]);
    assert!(!scene.has("out/cache") && !scene.has("out"));
    assert_eq!(scene.diff(), [""; 0]);
    scene.inside().write("out/cache", b"mine\n");
    scene.inside().write("x.o", b"o\n");
    assert_eq!(scene.diff(), [""; 0]);
    assert_eq!(scene.repo.read("out/cache"), b"cached\n");
}

#[test]
fn a_commit_is_one_of_the_branch_too() {
    [Scene::new(), Scene::copied()].into_iter().for_each(commit_to_branch);
}

fn commit_to_branch(scene: Scene) {
    let scene = scene.open();
    let inside = scene.inside();
    inside.write("new", b"new\n");
    inside.git(&["add", "new"]);
    inside.git(&["commit", "-qm", "inside"]);
    inside.git(&["mv", "dir/b", "dir/c"]);
    let request = CommitRequest { message: Some("why".into()), ..CommitRequest::default() };
    let done = scene.commit_as("op_1", &request).unwrap();
    assert_eq!(done.revision.unwrap().commit, scene.repo.head());
    assert_eq!(scene.repo.git(&["log", "--format=%s|%an", "-1"]), "why|Tess Tester");
    assert_eq!(scene.repo.git(&["rev-list", "--count", "HEAD"]), "2");
    assert_eq!(scene.repo.status(), "");
    assert_eq!(scene.diff(), [""; 0]);
    scene.assert_tidy();
}

#[test]
fn commits_made_inside_can_be_kept() {
    let scene = Scene::new().open();
    let inside = scene.inside();
    for name in ["one", "two"] {
        inside.write(name, name.as_bytes());
        inside.commit_all(name);
    }
    let keep = CommitRequest { history: History::Keep, ..CommitRequest::default() };
    let done = scene.commit_as("op_1", &keep).unwrap().revision.unwrap();
    assert_eq!((done.kept, &*done.commit), (2, &*inside.head()));
    assert_eq!(scene.repo.git(&["log", "--format=%s"]), "two\none\none");
    inside.write("three", b"3");
    inside.commit_all("three");
    inside.write("four", b"4");
    let rest = CommitRequest { message: Some("the rest".into()), ..keep.clone() };
    scene.commit_as("op_2", &rest).unwrap();
    assert_eq!(scene.repo.git(&["log", "--format=%s", "-2"]), "the rest\nthree");
    assert_eq!(scene.repo.status(), "");
    scene.assert_tidy();
}

#[test]
fn kept_commits_are_merged_with_a_branch_that_has_moved() {
    let scene = Scene::new().open();
    scene.inside().write("mine", b"m");
    scene.inside().commit_all("mine");
    scene.repo.write("theirs", b"t");
    scene.repo.commit_all("theirs");
    let keep = CommitRequest { history: History::Keep, ..CommitRequest::default() };
    scene.commit_as("op_1", &keep).unwrap();
    assert_eq!(scene.repo.git(&["rev-list", "--merges", "--count", "HEAD"]), "1");
    assert_eq!(scene.repo.git(&["ls-tree", "--name-only", "HEAD", "mine", "theirs"]), "mine\ntheirs");
    assert_eq!(scene.repo.status(), "");
    scene.assert_tidy();
}

#[test]
fn what_both_changed_is_merged_if_it_is_committed() {
    [Scene::new(), Scene::copied()].into_iter().for_each(merge_committed);
}

fn merge_committed(scene: Scene) {
    let scene = scene.open();
    let text = String::from_utf8(scene.repo.read("a")).unwrap();
    scene.inside().write("a", text.replace("35\n", "thirty-five\n").as_bytes());
    scene.repo.write("a", text.replace("3\n4\n", "3\nfour\n").as_bytes());
    // Uncommitted, it is in the way.
    let before = scene.repo.hash_of_git_dir();
    let found = conflicts(scene.commit());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(scene.repo.hash_of_git_dir(), before);
    scene.repo.commit_all("four");
    scene.commit().unwrap();
    let merged = String::from_utf8(scene.repo.read("a")).unwrap();
    assert!(merged.contains("four\n") && merged.contains("thirty-five\n"), "{merged}");
    assert_eq!(scene.repo.git(&["show", "HEAD:a"]) + "\n", merged);
    assert_eq!(scene.repo.status(), "");
    assert_eq!(scene.diff(), [""; 0]);
}

#[test]
fn the_same_lines_are_a_conflict_and_nothing_changes() {
    let scene = Scene::new().open();
    scene.inside().write("a", b"inside\n");
    scene.repo.write("a", b"outside\n");
    scene.repo.commit_all("outside");
    let before = scene.repo.hash_of_git_dir();
    let found = conflicts(scene.commit());
    assert!(found[0].starts_with("a: "), "{found:?}");
    assert_eq!((scene.repo.hash_of_git_dir(), scene.repo.read("a")), (before, b"outside\n".to_vec()));
    scene.assert_tidy();
}

#[test]
fn work_in_the_way_is_never_overwritten() {
    let scene = Scene::new();
    scene.repo.write("untracked", b"mine\n");
    let scene = scene.open();
    scene.inside().write("untracked", b"agent\n");
    scene.inside().write("dir/b", b"agent\n");
    scene.repo.write("dir/b", b"staged\n");
    scene.repo.git(&["add", "dir/b"]);
    scene.repo.git(&["restore", "--source=HEAD", "--worktree", "dir/b"]);
    let found = conflicts(scene.commit());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|c| c.starts_with("dir/b: staged")), "{found:?}");
    assert!(found.iter().any(|c| c.contains("not tracked")), "{found:?}");
    // Whoever says so gets the sandbox's version.
    let theirs = CommitRequest { on_conflict: OnConflict::Theirs, ..CommitRequest::default() };
    scene.commit_as("op_2", &theirs).unwrap();
    assert_eq!(scene.repo.read("untracked"), b"agent\n");
    assert_eq!(scene.repo.status(), "");
}

#[test]
fn an_uncommitted_change_stays_one_when_it_is_merged_with() {
    let scene = Scene::new();
    let text = String::from_utf8(scene.repo.read("a")).unwrap();
    scene.repo.write("a", text.replace("3\n4\n", "3\nfour\n").as_bytes());
    let scene = scene.open();
    let seen = String::from_utf8(scene.inside().read("a")).unwrap();
    scene.inside().write("a", seen.replace("35\n", "thirty-five\n").as_bytes());
    assert_eq!(conflicts(scene.commit()).len(), 1);
    let merge = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
    scene.commit_as("op_2", &merge).unwrap();
    let committed = scene.repo.git(&["show", "HEAD:a"]);
    assert!(committed.contains("thirty-five") && !committed.contains("four"), "{committed}");
    let file = String::from_utf8(scene.repo.read("a")).unwrap();
    assert!(file.contains("four\n") && file.contains("thirty-five\n"), "{file}");
    assert_eq!(scene.repo.status(), " M a");
}

#[test]
fn a_commit_is_taken_back_and_made_again() {
    [Scene::new(), Scene::copied()].into_iter().for_each(take_back);
}

fn take_back(scene: Scene) {
    let scene = scene.open();
    let first = scene.repo.head();
    scene.inside().write("new", b"new\n");
    std::fs::remove_file(scene.inside().path().join("dir/b")).unwrap();
    scene.commit().unwrap();
    let second = scene.repo.head();
    scene.undo("op_2", "op_1").unwrap();
    assert_eq!((scene.repo.head(), scene.repo.status()), (first.clone(), String::new()));
    assert_eq!(scene.diff(), ["Deleted dir/b", "Created new"]);
    scene.undo("op_3", "op_2").unwrap();
    assert_eq!((scene.repo.head(), scene.repo.status()), (second, String::new()));
    scene.repo.write("more", b"m");
    scene.repo.commit_all("on top");
    let told = refusal(scene.undo("op_4", "op_3"));
    assert!(told.contains("git revert"), "{told}");
    scene.assert_tidy();
}

#[test]
fn the_branch_has_to_be_the_one_it_was_made_from() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"new\n");
    scene.repo.git(&["switch", "-qc", "other"]);
    let told = refusal(scene.commit());
    assert!(told.contains("git switch main") && told.contains("--to BRANCH"), "{told}");
    let to = |branch: &str| CommitRequest { branch: Some(branch.into()), ..CommitRequest::default() };
    let told = refusal(scene.commit_as("op_2", &to("other")));
    assert!(told.contains("checked out"), "{told}");
    scene.commit_as("op_3", &to("review")).unwrap();
    assert_eq!(scene.diff(), ["Created new"]);
    // Once more: the branch gets what is new.
    scene.inside().write("newer", b"newer\n");
    scene.commit_as("op_4", &to("review")).unwrap();
    assert_eq!(scene.repo.git(&["rev-list", "--count", "main..review"]), "2");
    assert_eq!(scene.repo.status(), "");
    scene.assert_tidy();
}

#[test]
fn a_detached_head_and_an_unborn_branch_take_commits() {
    let scene = Scene::new();
    scene.repo.git(&["switch", "-q", "--detach"]);
    let scene = scene.open();
    scene.inside().write("new", b"new\n");
    let revision = scene.commit().unwrap().revision.unwrap();
    assert_eq!((revision.branch, revision.commit), (None, scene.repo.head()));
    assert_eq!(scene.repo.git(&["rev-list", "--count", "main"]), "1");

    let mut scene = Scene::new();
    std::fs::remove_dir_all(scene.repo.path()).unwrap();
    scene.repo = GitRepo::new(scene.temp.path().join("repo"));
    let scene = scene.open();
    scene.inside().write("first", b"1\n");
    assert_eq!(scene.diff(), ["Created first"]);
    scene.commit().unwrap();
    assert_eq!(scene.repo.git(&["log", "--format=%D"]), "HEAD -> main");
    assert_eq!(scene.repo.status(), "");
}

#[test]
fn checkpoints_hold_the_index_and_the_branch() {
    [Scene::new(), Scene::copied()].into_iter().for_each(checkpoint_index);
}

fn checkpoint_index(scene: Scene) {
    let scene = scene.open();
    let inside = scene.inside();
    inside.write("staged", b"s\n");
    inside.git(&["add", "staged"]);
    let (head, status) = (inside.head(), inside.status());
    let id = CheckpointId::from_string("one");
    scene.strategy.checkpoint(scene.sandbox(), &id).unwrap();
    inside.commit_all("later");
    inside.write("a", b"gone\n");
    let restored = scene.strategy.restore_checkpoint(scene.sandbox(), &id).unwrap();
    assert_eq!(restored.restored_files, 1);
    let inside = scene.inside();
    assert_eq!((inside.head(), inside.status()), (head, status));
    scene.strategy.rollback(scene.sandbox()).unwrap();
    assert_eq!((scene.inside().status(), scene.diff()), (String::new(), vec![]));
}

#[test]
fn what_git_cannot_track_is_shown_and_refused() {
    let scene = Scene::new().open();
    let nested = GitRepo::new(scene.inside().path().join("vendor/lib"));
    nested.write("file", b"x");
    nested.commit_all("theirs");
    scene.inside().write("dir/.GIT/config", b"x");
    let view = scene.strategy.diff(scene.sandbox()).unwrap();
    let refused: Vec<_> =
        view.entries.iter().filter(|e| e.refused.is_some()).map(|e| e.path.to_string()).collect();
    assert!(refused.contains(&"vendor/lib/file".to_owned()), "{refused:?}");
    assert!(refused.contains(&"dir/.GIT/config".to_owned()), "{refused:?}");
    assert!(matches!(scene.commit(), Err(Error::Uncommittable { .. })));
    scene.inside().write("a", b"changed\n");
    let some = CommitRequest { paths: vec![RelPath::parse("a").unwrap()], ..CommitRequest::default() };
    scene.commit_as("op_2", &some).unwrap();
    assert_eq!(scene.repo.git(&["diff", "--name-only", "HEAD~1", "HEAD"]), "a");
}

#[test]
fn filters_do_not_run_and_pointers_pass() {
    let scene = Scene::new();
    scene.repo.write(".gitattributes", b"*.bin filter=lfs\n");
    scene.repo.commit_all("attributes");
    let scene = scene.open();
    scene.inside().write("x.bin", b"content\n");
    assert!(matches!(scene.commit(), Err(Error::Uncommittable { entries }) if entries[0].1.contains("lfs")));
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 3\n", "0".repeat(64));
    scene.inside().write("x.bin", pointer.as_bytes());
    scene.commit().unwrap();
    assert_eq!(scene.repo.git(&["show", "HEAD:x.bin"]) + "\n", pointer);
}

#[test]
fn line_ends_are_stored_as_git_stores_them() {
    let scene = Scene::new();
    scene.repo.write(".gitattributes", b"* text=auto\n");
    scene.repo.commit_all("attributes");
    let scene = scene.open();
    scene.inside().write("dos", b"one\r\ntwo\r\n");
    scene.commit().unwrap();
    assert_eq!(scene.repo.git(&["cat-file", "-s", "HEAD:dos"]), "8");
    assert_eq!(scene.repo.read("dos"), b"one\r\ntwo\r\n");
    assert_eq!(scene.repo.status(), "");
}

#[test]
fn unfit_checkouts_are_refused() {
    let scene = Scene::new();
    scene.repo.git(&["switch", "-qc", "side"]);
    scene.repo.write("a", b"side\n");
    scene.repo.commit_all("side");
    scene.repo.git(&["switch", "-q", "main"]);
    scene.repo.write("a", b"main\n");
    scene.repo.commit_all("main");
    assert!(!scene.repo.command(&["merge", "side"]).output().unwrap().status.success());
    let told = refusal(scene.create(&[]));
    assert!(told.contains("merge") && told.contains("--abort"), "{told}");
    scene.repo.git(&["merge", "--abort"]);
    assert!(matches!(scene.create(&[("from", json!("nowhere"))]), Err(Error::NotFound { .. })));
    let homes: PathBuf = scene.temp.path().join("home/scratch");
    let left = std::fs::read_dir(homes).map_or(0, Iterator::count);
    assert_eq!(left, 0, "a workspace was left behind");
}
