//! Some of the hunks of a file are committed, the others stay pending.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind, HunkSelection};

use super::fixture::{Fixture, Open, lines, only, rel};

const SECOND: &str = "@@ -2 +2 @@\n-2\n+two\n";
const EIGHTEENTH: &str = "@@ -18 +18 @@\n-18\n+eighteen\n";

fn hunk(path: &str, patch: &str) -> CommitRequest {
    let hunks = vec![HunkSelection { path: rel(path), patch: patch.as_bytes().to_vec() }];
    CommitRequest { hunks, ..CommitRequest::default() }
}

/// A file with two hunks.
fn edited(fixture: &Fixture) -> Open<'_> {
    fs::write(fixture.original("a.txt"), lines(&[])).unwrap();
    let open = fixture.open();
    open.write("a.txt", &lines(&[(2, "two"), (18, "eighteen")]));
    open
}

fn original(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.original("a.txt")).unwrap()
}

pub(super) fn one_of_two(fixture: &Fixture) {
    let open = edited(fixture);
    open.write("b.txt", "not chosen\n");
    let result = open.try_commit(&hunk("a.txt", EIGHTEENTH)).unwrap();
    assert_eq!(result.entries.len(), 1);
    assert_eq!(original(fixture), lines(&[(18, "eighteen")]));
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "beta\n");
    assert_eq!(open.read("a.txt"), lines(&[(2, "two"), (18, "eighteen")]));
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("b.txt", DiffKind::Modified)]);
}

pub(super) fn the_rest_afterwards(fixture: &Fixture) {
    let open = edited(fixture);
    open.try_commit(&hunk("a.txt", EIGHTEENTH)).unwrap();
    open.commit();
    assert_eq!(original(fixture), lines(&[(2, "two"), (18, "eighteen")]));
    open.assert_clean();
}

pub(super) fn beside_chosen_paths(fixture: &Fixture) {
    let open = edited(fixture);
    open.write("b.txt", "chosen\n");
    open.write("dir/c.txt", "not chosen\n");
    open.try_commit(&CommitRequest { paths: only(&["b.txt"]).paths, ..hunk("a.txt", SECOND) }).unwrap();
    assert_eq!(original(fixture), lines(&[(2, "two")]));
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "chosen\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("dir/c.txt", DiffKind::Modified)]);
}

/// Hunks are lines; the mode is another matter.
pub(super) fn the_mode_stays_pending(fixture: &Fixture) {
    let open = edited(fixture);
    fs::set_permissions(open.path("a.txt"), Permissions::from_mode(0o755)).unwrap();
    open.try_commit(&hunk("a.txt", &format!("{SECOND}{EIGHTEENTH}"))).unwrap();
    assert_eq!(original(fixture), lines(&[(2, "two"), (18, "eighteen")]));
    assert_eq!(fs::metadata(fixture.original("a.txt")).unwrap().permissions().mode() & 0o777, 0o644);
    open.assert_kinds(&[("a.txt", DiffKind::Metadata)]);
}

pub(super) fn what_does_not_apply_is_refused(fixture: &Fixture) {
    let open = edited(fixture);
    open.write("new.txt", "2\n");
    let before = fixture.manifest();
    for (path, patch) in
        [("a.txt", "@@ -2 +2 @@\n-nowhere\n+two\n"), ("new.txt", SECOND), ("a.txt", "no patch\n")]
    {
        let result = open.try_commit(&hunk(path, patch));
        assert!(matches!(result, Err(Error::Usage { .. })), "{path}: {result:?}");
    }
    let result = open.try_commit(&hunk("b.txt", SECOND));
    assert!(matches!(result, Err(Error::NotFound { .. })), "{result:?}");
    let twice = CommitRequest { paths: only(&["a.txt"]).paths, ..hunk("a.txt", SECOND) };
    assert!(matches!(open.try_commit(&twice), Err(Error::Usage { .. })));
    fixture.assert_untouched(&before);
}

pub(super) fn a_moved_original_is_a_conflict(fixture: &Fixture) {
    let open = edited(fixture);
    fs::write(fixture.original("a.txt"), lines(&[(10, "by hand")])).unwrap();
    let before = fixture.manifest();
    let result = open.try_commit(&hunk("a.txt", SECOND));
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
    fixture.assert_untouched(&before);
}
