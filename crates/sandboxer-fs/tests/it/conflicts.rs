//! Chosen hunks, merges and the other ways out of a conflict, through the engine's front door.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandboxer_core::Error;
use sandboxer_core::model::{
    CommitRequest, CommitResult, DiffKind, HunkSelection, OnConflict, OpId, RelPath,
};
use sandboxer_fs::patch;
use sandboxer_fs::space::{Logged, Means, Space};
use sandboxer_fs::tree::{Spec, Workspace};

const BASE: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n";

struct Scene {
    temp: tempfile::TempDir,
    space: Workspace,
}

impl Scene {
    fn new() -> Self {
        Self::keeping(1 << 20)
    }

    fn keeping(keep_base: u64) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let original = temp.path().join("original");
        fs::create_dir(&original).unwrap();
        fs::write(original.join("text"), BASE).unwrap();
        fs::write(original.join("other"), "other\n").unwrap();
        fs::write(original.join("binary"), b"\0binary").unwrap();
        let space = workspace(temp.path(), "home", keep_base);
        Self { temp, space }
    }

    /// With a file in a directory.
    fn with_directory() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("original/dir")).unwrap();
        fs::write(temp.path().join("original/dir/file"), BASE).unwrap();
        let space = workspace(temp.path(), "home", 1 << 20);
        Self { temp, space }
    }

    fn original(&self, path: &str) -> PathBuf {
        self.temp.path().join("original").join(path)
    }

    fn copy(&self, path: &str) -> PathBuf {
        self.space.path().join(path)
    }

    fn commit(&self, on_conflict: OnConflict) -> sandboxer_core::Result<CommitResult> {
        commit(&self.space, CommitRequest { on_conflict, ..CommitRequest::default() }, "op_1")
    }

    fn conflicts(&self, on_conflict: OnConflict) -> Vec<String> {
        let request = CommitRequest { on_conflict, ..CommitRequest::default() };
        match commit(&self.space, request, "op_conflict") {
            Err(Error::Conflict { conflicts }) => {
                conflicts.iter().map(|c| format!("{}: {}", c.path, c.reason)).collect()
            }
            other => panic!("no conflict: {other:?}"),
        }
    }

    fn pending(&self) -> Vec<String> {
        let name = |kind: DiffKind| format!("{kind:?}").to_lowercase();
        self.space.diff().unwrap().entries.iter().map(|e| format!("{} {}", name(e.kind), e.path)).collect()
    }
}

fn workspace(temp: &Path, home: &str, keep_base: u64) -> Workspace {
    let home = temp.join(home);
    fs::create_dir(&home).unwrap();
    let original = temp.join("original");
    let spec = Spec { original, patterns: Default::default(), root: None, reflink: false, keep_base };
    Workspace::create(&home, spec, Means::default()).unwrap().0
}

fn commit(
    space: &Workspace,
    request: CommitRequest,
    operation: &str,
) -> sandboxer_core::Result<CommitResult> {
    commit_logged(
        space,
        request,
        &Logged { operation: Some(OpId::from_string(operation)), ..Logged::default() },
    )
}

fn undo(space: &Workspace, operation: &str, undoes: &str) -> sandboxer_core::Result<CommitResult> {
    let undo = Some(OpId::from_string(undoes));
    let logged = Logged { operation: Some(OpId::from_string(operation)), undo, ..Logged::default() };
    commit_logged(space, CommitRequest::default(), &logged)
}

fn commit_logged(
    space: &Workspace,
    request: CommitRequest,
    logged: &Logged,
) -> sandboxer_core::Result<CommitResult> {
    let _lock = space.lock()?;
    space.prepare(&request, logged)?;
    space.finish(logged)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

/// The base with some lines replaced.
fn with(lines: &[(usize, &str)]) -> String {
    let replaced = |at: usize, line: &str| {
        let found = lines.iter().find(|(n, _)| *n == at + 1);
        found.map_or(line.to_owned(), |(_, new)| (*new).to_owned())
    };
    BASE.lines().enumerate().map(|(at, line)| replaced(at, line) + "\n").collect()
}

/// The chosen hunks between two texts, as a patch.
fn chosen(old: &str, new: &str, which: &[usize]) -> Vec<u8> {
    let hunks = patch::hunks(old.as_bytes(), new.as_bytes());
    let mut out = Vec::new();
    which.iter().for_each(|at| patch::render_hunk(&hunks[*at], &mut out).unwrap());
    out
}

#[test]
fn one_hunk_is_committed_and_the_rest_stays_pending() {
    let scene = Scene::new();
    let changed = with(&[(2, "two"), (18, "eighteen")]);
    fs::write(scene.copy("text"), &changed).unwrap();
    fs::write(scene.copy("other"), "not chosen\n").unwrap();
    let hunks = vec![HunkSelection { path: rel("text"), patch: chosen(BASE, &changed, &[1]) }];
    let request = CommitRequest { hunks, ..CommitRequest::default() };
    let done = commit(&scene.space, request.clone(), "op_1").unwrap();
    assert_eq!(text(scene.original("text")), with(&[(18, "eighteen")]));
    assert_eq!(text(scene.original("other")), "other\n");
    assert_eq!(scene.pending(), ["modified other", "modified text"]);
    assert_eq!(text(scene.copy("text")), changed);
    // What is left is the other hunk, against the new base.
    let rest = chosen(&with(&[(18, "eighteen")]), &changed, &[0]);
    let hunks = vec![HunkSelection { path: rel("text"), patch: rest }];
    commit(&scene.space, CommitRequest { hunks, ..CommitRequest::default() }, "op_2").unwrap();
    assert_eq!(text(scene.original("text")), changed);
    assert_eq!(scene.pending(), ["modified other"]);
    undo(&scene.space, "op_3", "op_2").unwrap();
    undo(&scene.space, "op_4", "op_1").unwrap();
    assert_eq!(text(scene.original("text")), BASE);
    assert_eq!(scene.pending(), ["modified other", "modified text"]);
    // The digest is that of the selection.
    let again = CommitRequest { digest: Some(done.digest.clone()), ..request.clone() };
    assert_eq!(commit(&scene.space, again, "op_5").unwrap().digest, done.digest);
    undo(&scene.space, "op_6", "op_5").unwrap();
    let wrong = CommitRequest { digest: Some("blake3:0".into()), ..request };
    assert!(matches!(commit(&scene.space, wrong, "op_7"), Err(Error::DigestMismatch { .. })));
}

#[test]
fn hunks_that_do_not_apply_or_cannot_be_chosen_are_refused() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "two")])).unwrap();
    fs::write(scene.copy("new"), "new\n").unwrap();
    fs::write(scene.copy("binary"), b"\0other").unwrap();
    let refused = |path: &str, patch: &[u8], paths: Vec<RelPath>| {
        let hunks = vec![HunkSelection { path: rel(path), patch: patch.to_vec() }];
        commit(&scene.space, CommitRequest { hunks, paths, ..CommitRequest::default() }, "op_1").unwrap_err()
    };
    let good = b"@@ -2 +2 @@\n-2\n+two\n";
    assert!(matches!(refused("text", b"@@ -1 +1 @@\n-nowhere\n+x\n", vec![]), Error::Usage { .. }));
    assert!(matches!(refused("new", good, vec![]), Error::Usage { .. }));
    assert!(matches!(refused("binary", good, vec![]), Error::Usage { .. }));
    assert!(matches!(refused("other", good, vec![]), Error::NotFound { .. }));
    assert!(matches!(refused("text", good, vec![rel("text")]), Error::Usage { .. }));
    fs::write(scene.original("text"), with(&[(20, "moved")])).unwrap();
    assert!(matches!(refused("text", good, vec![]), Error::Conflict { .. }));
    assert_eq!(text(scene.original("text")), with(&[(20, "moved")]));
}

#[test]
fn both_sides_edits_are_merged_into_both() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    fs::write(scene.original("text"), with(&[(18, "original")])).unwrap();
    assert_eq!(scene.conflicts(OnConflict::Fail), ["text: modified in the original"]);
    let merged = with(&[(2, "sandbox"), (18, "original")]);
    scene.commit(OnConflict::Merge).unwrap();
    assert_eq!(text(scene.original("text")), merged);
    assert_eq!(text(scene.copy("text")), merged);
    assert!(scene.pending().is_empty());
    undo(&scene.space, "op_2", "op_1").unwrap();
    assert_eq!(text(scene.original("text")), with(&[(18, "original")]));
    assert_eq!(scene.pending(), ["modified text"]);
    commit(&scene.space, CommitRequest::default(), "op_3").unwrap();
    assert_eq!(text(scene.original("text")), merged);
}

#[test]
fn what_does_not_merge_is_told_hunk_by_hunk_and_nothing_is_changed() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "sandbox"), (10, "same"), (18, "sandbox")])).unwrap();
    fs::write(scene.copy("other"), "fine\n").unwrap();
    fs::write(scene.original("text"), with(&[(2, "original"), (10, "same"), (18, "original")])).unwrap();
    let Err(Error::Conflict { conflicts }) = scene.commit(OnConflict::Merge) else { panic!("no conflict") };
    assert_eq!(conflicts.len(), 1);
    let starts: Vec<_> = conflicts[0].hunks.iter().map(|h| (h.ours_start, h.theirs_start)).collect();
    assert_eq!(starts, [(2, 2), (18, 18)]);
    assert_eq!(conflicts[0].hunks[0].ours, ["original"]);
    assert_eq!(conflicts[0].hunks[0].base, ["2"]);
    assert_eq!(conflicts[0].hunks[0].theirs, ["sandbox"]);
    assert_eq!(text(scene.original("other")), "other\n");
    assert_eq!(text(scene.copy("text")), with(&[(2, "sandbox"), (10, "same"), (18, "sandbox")]));
}

#[test]
fn markers_go_into_the_sandbox_and_once_resolved_a_plain_commit_does() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    fs::write(scene.copy("other"), "other\nsandbox\n").unwrap();
    fs::write(scene.original("text"), with(&[(2, "original")])).unwrap();
    fs::write(scene.original("other"), "original\nother\n").unwrap();
    let before = text(scene.original("text"));
    let told = scene.conflicts(OnConflict::Mark);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(text(scene.original("text")), before);
    let marked = text(scene.copy("text"));
    assert!(marked.contains("<<<<<<< original\noriginal\n=======\nsandbox\n>>>>>>> sandbox\n"), "{marked}");
    assert_eq!(text(scene.copy("other")), "original\nother\nsandbox\n");
    let flagged = scene.space.diff().unwrap();
    assert_eq!(flagged.entries[1].flags, ["conflict markers"]);
    fs::write(scene.copy("text"), with(&[(2, "both")])).unwrap();
    commit(&scene.space, CommitRequest::default(), "op_2").unwrap();
    assert_eq!(text(scene.original("text")), with(&[(2, "both")]));
    assert_eq!(text(scene.original("other")), "original\nother\nsandbox\n");
    assert!(scene.pending().is_empty());
}

#[test]
fn ours_leaves_out_and_theirs_goes_over() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    fs::write(scene.copy("other"), "fine\n").unwrap();
    fs::write(scene.original("text"), "theirs entirely\n").unwrap();
    let done = scene.commit(OnConflict::Ours).unwrap();
    assert_eq!(done.notices.len(), 1);
    assert_eq!(text(scene.original("text")), "theirs entirely\n");
    assert_eq!(text(scene.original("other")), "fine\n");
    assert_eq!(scene.pending(), ["modified text"]);
    let request = CommitRequest { on_conflict: OnConflict::Theirs, ..CommitRequest::default() };
    commit(&scene.space, request, "op_2").unwrap();
    assert_eq!(text(scene.original("text")), with(&[(2, "sandbox")]));
    undo(&scene.space, "op_3", "op_2").unwrap();
    assert_eq!(text(scene.original("text")), "theirs entirely\n");
    // What was gone over is still in conflict.
    assert_eq!(scene.pending(), ["modified text"]);
    assert!(matches!(commit(&scene.space, CommitRequest::default(), "op_4"), Err(Error::Conflict { .. })));
}

#[test]
fn theirs_settles_deletions_on_either_side() {
    let scene = Scene::new();
    fs::remove_file(scene.copy("text")).unwrap();
    fs::write(scene.copy("other"), "kept\n").unwrap();
    fs::write(scene.original("text"), "edited\n").unwrap();
    fs::remove_file(scene.original("other")).unwrap();
    let told = scene.conflicts(OnConflict::Merge);
    let expected = [
        "other: deleted in the original; only text files can be merged",
        "text: modified in the original; that cannot be merged",
    ];
    assert_eq!(told, expected);
    scene.commit(OnConflict::Theirs).unwrap();
    assert!(!scene.original("text").exists());
    assert_eq!(text(scene.original("other")), "kept\n");
    undo(&scene.space, "op_2", "op_1").unwrap();
    assert_eq!(text(scene.original("text")), "edited\n");
    assert!(!scene.original("other").exists());
}

#[test]
fn deleted_and_created_alike_on_both_sides_is_no_conflict_for_a_merge() {
    let scene = Scene::new();
    fs::remove_file(scene.copy("text")).unwrap();
    fs::remove_file(scene.original("text")).unwrap();
    fs::write(scene.copy("new"), "the same\n").unwrap();
    fs::write(scene.original("new"), "the same\n").unwrap();
    scene.commit(OnConflict::Merge).unwrap();
    assert!(scene.pending().is_empty());
    assert_eq!(text(scene.original("new")), "the same\n");
}

#[test]
fn a_mode_and_an_edit_are_merged() {
    let scene = Scene::new();
    fs::set_permissions(scene.copy("text"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(scene.original("text"), with(&[(2, "original")])).unwrap();
    fs::write(scene.copy("other"), "other\nsandbox\n").unwrap();
    fs::set_permissions(scene.original("other"), fs::Permissions::from_mode(0o600)).unwrap();
    scene.commit(OnConflict::Merge).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(scene.original("text")), mode(scene.original("other"))), (0o755, 0o600));
    assert_eq!(text(scene.original("text")), with(&[(2, "original")]));
    assert_eq!(text(scene.copy("text")), with(&[(2, "original")]));
    assert_eq!(text(scene.original("other")), "other\nsandbox\n");
    assert!(scene.pending().is_empty(), "{:?}", scene.pending());
    fs::write(scene.copy("text"), with(&[(3, "again")])).unwrap();
    fs::set_permissions(scene.copy("other"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(scene.original("other"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(scene.conflicts(OnConflict::Merge).len(), 1);
}

#[test]
fn binary_files_and_lost_bases_are_not_merged() {
    let scene = Scene::keeping(0);
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    fs::write(scene.copy("binary"), b"\0sandbox").unwrap();
    fs::write(scene.original("text"), with(&[(18, "original")])).unwrap();
    fs::write(scene.original("binary"), b"\0original").unwrap();
    let told = scene.conflicts(OnConflict::Merge);
    assert!(told[0].starts_with("binary: modified in the original; "), "{told:?}");
    assert!(told[1].ends_with("its base is not kept, so it cannot be merged"), "{told:?}");
}

#[test]
fn a_base_that_another_commit_displaced_is_found_there() {
    let scene = Scene::keeping(0);
    let other = workspace(scene.temp.path(), "other-home", 0);
    fs::write(other.path().join("text"), with(&[(18, "first")])).unwrap();
    commit(&other, CommitRequest::default(), "op_7").unwrap();
    fs::write(scene.copy("text"), with(&[(2, "second")])).unwrap();
    scene.commit(OnConflict::Merge).unwrap();
    assert_eq!(text(scene.original("text")), with(&[(2, "second"), (18, "first")]));
}

#[test]
fn a_base_is_kept_again_after_a_commit() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(5, "first")])).unwrap();
    commit(&scene.space, CommitRequest::default(), "op_1").unwrap();
    fs::write(scene.copy("text"), with(&[(5, "first"), (10, "sandbox")])).unwrap();
    fs::write(scene.original("text"), with(&[(5, "first"), (15, "original")])).unwrap();
    let request = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
    commit(&scene.space, request, "op_2").unwrap();
    assert_eq!(text(scene.original("text")), with(&[(5, "first"), (10, "sandbox"), (15, "original")]));
}

#[test]
fn a_copy_that_is_written_to_after_the_decision_is_left_alone_and_still_in_conflict() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    fs::write(scene.original("text"), with(&[(18, "original")])).unwrap();
    let request = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
    let logged = Logged { operation: Some(OpId::from_string("op_1")), ..Logged::default() };
    scene.space.prepare(&request, &logged).unwrap();
    let meanwhile = with(&[(2, "sandbox"), (9, "meanwhile")]);
    fs::write(scene.copy("text"), &meanwhile).unwrap();
    scene.space.finish(&logged).unwrap();
    assert_eq!(text(scene.original("text")), with(&[(2, "sandbox"), (18, "original")]));
    assert_eq!(text(scene.copy("text")), meanwhile);
    assert_eq!(scene.conflicts(OnConflict::Fail), ["text: modified in the original"]);
    commit(&scene.space, request, "op_2").unwrap();
    let all = with(&[(2, "sandbox"), (9, "meanwhile"), (18, "original")]);
    assert_eq!((text(scene.original("text")), text(scene.copy("text"))), (all.clone(), all));
}

#[test]
fn theirs_takes_what_differs_in_its_mode_alone_as_a_whole() {
    let scene = Scene::new();
    fs::set_permissions(scene.copy("text"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scene.copy("other"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(scene.original("text"), "theirs entirely\n").unwrap();
    fs::remove_file(scene.original("other")).unwrap();
    let done = scene.commit(OnConflict::Theirs).unwrap();
    assert!(done.conflicts.is_empty(), "{done:?}");
    assert_eq!(text(scene.original("text")), BASE);
    assert_eq!(text(scene.original("other")), "other\n");
    assert!(scene.pending().is_empty());
    undo(&scene.space, "op_2", "op_1").unwrap();
    assert_eq!(text(scene.original("text")), "theirs entirely\n");
    assert!(!scene.original("other").exists());
}

#[test]
fn theirs_does_not_take_a_directory_away_from_what_the_sandbox_does_not_know() {
    let scene = Scene::with_directory();
    fs::rename(scene.copy("dir"), scene.copy("moved")).unwrap();
    fs::write(scene.original("dir/by hand"), "by hand\n").unwrap();
    let told = scene.conflicts(OnConflict::Theirs);
    assert_eq!(told, ["dir: holds by hand in the original, which the sandbox does not know"]);
    assert!(scene.original("dir/file").exists() && !scene.original("moved").exists());
}

#[test]
fn what_theirs_went_over_comes_back_and_is_still_in_conflict() {
    let scene = Scene::new();
    fs::write(scene.copy("new"), "sandbox\n").unwrap();
    fs::write(scene.original("new"), "by hand\n").unwrap();
    fs::set_permissions(scene.original("new"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    fs::write(scene.original("text"), "by hand\n").unwrap();
    fs::write(scene.copy("other"), "kept\n").unwrap();
    fs::remove_file(scene.original("other")).unwrap();
    let before = scene.conflicts(OnConflict::Fail);
    scene.commit(OnConflict::Theirs).unwrap();
    let committed =
        || (text(scene.original("new")), text(scene.original("text")), text(scene.original("other")));
    let sandbox = ("sandbox\n".to_owned(), with(&[(2, "sandbox")]), "kept\n".to_owned());
    assert_eq!(committed(), sandbox);
    undo(&scene.space, "op_2", "op_1").unwrap();
    assert_eq!(
        (text(scene.original("new")), text(scene.original("text"))),
        ("by hand\n".into(), "by hand\n".into())
    );
    assert_eq!(fs::metadata(scene.original("new")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!scene.original("other").exists());
    assert_eq!(scene.pending(), ["created new", "modified other", "modified text"]);
    assert_eq!(scene.conflicts(OnConflict::Fail), before);
    // And the undo can be taken back as well.
    undo(&scene.space, "op_3", "op_2").unwrap();
    assert_eq!(committed(), sandbox);
    assert!(scene.pending().is_empty());
}

#[test]
fn what_both_sides_deleted_is_pending_again_after_an_undo() {
    let scene = Scene::new();
    fs::remove_file(scene.copy("text")).unwrap();
    fs::remove_file(scene.original("text")).unwrap();
    scene.commit(OnConflict::Merge).unwrap();
    assert!(scene.pending().is_empty());
    undo(&scene.space, "op_2", "op_1").unwrap();
    assert!(!scene.original("text").exists());
    assert_eq!(scene.pending(), ["deleted text"]);
}

#[test]
fn a_merged_mode_reaches_the_sandbox_and_is_not_taken_back_by_the_next_commit() {
    let scene = Scene::new();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    fs::set_permissions(scene.original("text"), fs::Permissions::from_mode(0o600)).unwrap();
    scene.commit(OnConflict::Merge).unwrap();
    assert_eq!((mode(scene.original("text")), mode(scene.copy("text"))), (0o600, 0o600));
    assert!(scene.pending().is_empty());
    fs::write(scene.copy("text"), with(&[(2, "again")])).unwrap();
    commit(&scene.space, CommitRequest::default(), "op_2").unwrap();
    assert_eq!(mode(scene.original("text")), 0o600);
}

#[test]
fn a_mode_stays_pending_where_the_markers_are_resolved_in_favour_of_the_original() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "sandbox, at some length")])).unwrap();
    fs::set_permissions(scene.copy("text"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(scene.original("text"), with(&[(2, "original")])).unwrap();
    assert_eq!(scene.conflicts(OnConflict::Mark).len(), 1);
    fs::write(scene.copy("text"), with(&[(2, "original")])).unwrap();
    assert_eq!(scene.pending(), ["metadata text"]);
}

#[test]
fn a_directory_renamed_to_one_that_the_original_made_too_is_taken_back_whole() {
    let scene = Scene::with_directory();
    fs::rename(scene.copy("dir"), scene.copy("moved")).unwrap();
    fs::create_dir(scene.original("moved")).unwrap();
    scene.commit(OnConflict::Fail).unwrap();
    assert!(scene.original("moved/file").exists() && !scene.original("dir").exists());
    undo(&scene.space, "op_2", "op_1").unwrap();
    assert!(scene.original("dir/file").exists());
    assert_eq!(fs::read_dir(scene.original("moved")).unwrap().count(), 0);
}

#[test]
fn a_rename_whose_source_is_gone_leaves_nothing_pending() {
    let scene = Scene::new();
    fs::rename(scene.copy("text"), scene.copy("renamed")).unwrap();
    fs::remove_file(scene.original("text")).unwrap();
    scene.commit(OnConflict::Theirs).unwrap();
    assert_eq!(text(scene.original("renamed")), BASE);
    assert!(scene.pending().is_empty(), "{:?}", scene.pending());
    undo(&scene.space, "op_2", "op_1").unwrap();
    assert!(!scene.original("renamed").exists() && !scene.original("text").exists());
    assert_eq!(scene.pending().len(), 1, "{:?}", scene.pending());
}

#[test]
fn what_a_commit_went_over_is_nobodys_base() {
    let scene = Scene::keeping(0);
    let other = workspace(scene.temp.path(), "other-home", 0);
    let theirs = CommitRequest { on_conflict: OnConflict::Theirs, ..CommitRequest::default() };
    // The same length as the base, so that only looking closely tells them apart.
    fs::write(scene.original("text"), with(&[(10, "by")])).unwrap();
    fs::write(other.path().join("text"), with(&[(18, "other")])).unwrap();
    commit(&other, theirs, "op_7").unwrap();
    fs::write(scene.original("text"), with(&[(10, "by"), (18, "other")])).unwrap();
    fs::write(scene.copy("text"), with(&[(2, "sandbox")])).unwrap();
    let told = scene.conflicts(OnConflict::Merge);
    assert!(told[0].ends_with("its base is not kept, so it cannot be merged"), "{told:?}");
    assert_eq!(text(scene.original("text")), with(&[(10, "by"), (18, "other")]));
}

#[test]
fn an_operation_is_carried_out_once() {
    let scene = Scene::new();
    fs::write(scene.copy("text"), with(&[(2, "first")])).unwrap();
    commit(&scene.space, CommitRequest::default(), "op_1").unwrap();
    fs::write(scene.copy("text"), with(&[(2, "second")])).unwrap();
    let again = commit(&scene.space, CommitRequest::default(), "op_1");
    assert!(matches!(again, Err(Error::Refused { .. })), "{again:?}");
}
