//! The ways out of a conflict: merged, marked, left out, gone over.

use std::fs;

use sandboxer_core::Error;
use sandboxer_core::model::{DiffKind, OnConflict};

use super::fixture::{Fixture, Open, lines, resolving};

/// A file that the sandbox has changed in one line and the original in another.
fn both(fixture: &Fixture, here: usize, there: usize) -> Open<'_> {
    fs::write(fixture.original("a.txt"), lines(&[])).unwrap();
    let open = fixture.open();
    open.write("a.txt", &lines(&[(here, "sandbox")]));
    open.write("b.txt", "no conflict\n");
    fs::write(fixture.original("a.txt"), lines(&[(there, "by hand")])).unwrap();
    open
}

fn original(fixture: &Fixture, path: &str) -> String {
    fs::read_to_string(fixture.original(path)).unwrap()
}

fn conflicts(open: &Open<'_>, on_conflict: OnConflict) -> Vec<String> {
    match open.try_commit(&resolving(on_conflict)) {
        Err(Error::Conflict { conflicts }) => conflicts.iter().map(|c| c.path.to_string()).collect(),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

pub(super) fn merge_takes_both_sides(fixture: &Fixture) {
    let open = both(fixture, 2, 18);
    open.assert_conflict(&["a.txt"]);
    open.try_commit(&resolving(OnConflict::Merge)).unwrap();
    let merged = lines(&[(2, "sandbox"), (18, "by hand")]);
    assert_eq!((original(fixture, "a.txt"), open.read("a.txt")), (merged.clone(), merged));
    assert_eq!(original(fixture, "b.txt"), "no conflict\n");
    open.assert_clean();
}

pub(super) fn merge_refuses_the_same_line(fixture: &Fixture) {
    let open = both(fixture, 2, 2);
    let before = fixture.manifest();
    assert_eq!(conflicts(&open, OnConflict::Merge), ["a.txt"]);
    fixture.assert_untouched(&before);
    assert_eq!(open.read("a.txt"), lines(&[(2, "sandbox")]));
}

pub(super) fn merge_knows_the_base_after_a_commit(fixture: &Fixture) {
    fs::write(fixture.original("a.txt"), lines(&[])).unwrap();
    let open = fixture.open();
    open.write("a.txt", &lines(&[(10, "committed")]));
    open.commit();
    open.write("a.txt", &lines(&[(10, "committed"), (2, "sandbox")]));
    fs::write(fixture.original("a.txt"), lines(&[(10, "committed"), (18, "by hand")])).unwrap();
    open.try_commit(&resolving(OnConflict::Merge)).unwrap();
    let merged = lines(&[(2, "sandbox"), (10, "committed"), (18, "by hand")]);
    assert_eq!(original(fixture, "a.txt"), merged);
}

pub(super) fn ours_leaves_it_pending(fixture: &Fixture) {
    let open = both(fixture, 2, 18);
    let result = open.try_commit(&resolving(OnConflict::Ours)).unwrap();
    assert_eq!(result.notices.iter().map(|n| n.path.to_string()).collect::<Vec<_>>(), ["a.txt"]);
    assert_eq!(original(fixture, "a.txt"), lines(&[(18, "by hand")]));
    assert_eq!(original(fixture, "b.txt"), "no conflict\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn theirs_goes_over_it(fixture: &Fixture) {
    let open = both(fixture, 2, 2);
    open.try_commit(&resolving(OnConflict::Theirs)).unwrap();
    assert_eq!(original(fixture, "a.txt"), lines(&[(2, "sandbox")]));
    open.assert_clean();
}

pub(super) fn mark_asks_a_person(fixture: &Fixture) {
    let open = both(fixture, 2, 2);
    let before = fixture.manifest();
    assert_eq!(conflicts(&open, OnConflict::Mark), ["a.txt"]);
    fixture.assert_untouched(&before);
    let marked = open.read("a.txt");
    assert!(
        marked.contains("by hand\n") && marked.contains("sandbox\n") && marked.contains("<<<<<<<"),
        "{marked}"
    );
    open.write("a.txt", &lines(&[(2, "agreed")]));
    if fixture.capabilities().branches {
        // What was edited by hand is not committed yet, and stays in the way until somebody says that it need not.
        open.assert_conflict(&["a.txt"]);
        open.try_commit(&resolving(OnConflict::Theirs)).unwrap();
    } else {
        open.commit();
    }
    assert_eq!(original(fixture, "a.txt"), lines(&[(2, "agreed")]));
    open.assert_clean();
}

pub(super) fn mark_without_need_is_a_merge(fixture: &Fixture) {
    let open = both(fixture, 2, 18);
    open.try_commit(&resolving(OnConflict::Mark)).unwrap();
    assert_eq!(original(fixture, "a.txt"), lines(&[(2, "sandbox"), (18, "by hand")]));
    open.assert_clean();
}

pub(super) fn none_needed(fixture: &Fixture) {
    let ways = [OnConflict::Merge, OnConflict::Mark, OnConflict::Ours, OnConflict::Theirs];
    let open = fixture.open();
    for (number, way) in ways.into_iter().enumerate() {
        open.write("a.txt", &format!("commit {number}\n"));
        let result = open.try_commit(&resolving(way)).unwrap();
        assert_eq!((result.entries.len(), result.notices.len()), (1, 0), "{way:?}");
        assert_eq!(original(fixture, "a.txt"), format!("commit {number}\n"));
    }
}
