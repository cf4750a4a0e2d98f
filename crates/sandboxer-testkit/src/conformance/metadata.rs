//! What a careless copy loses, on the way in and on the way out.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::fixture::{Fixture, rel};
use crate::manifest::{Facets, Manifest, rich_tree, set_acl, set_mtime, set_xattr};

/// A manifest of the part below `path`.
fn below(root: &Path, path: &str) -> Manifest {
    Manifest::capture(&root.join(path))
}

fn report_gaps(sample: crate::manifest::Sample) {
    if !sample.xattrs {
        crate::skip("extended attributes are not among the sample: this filesystem has none");
    }
    if !sample.acls {
        crate::skip("ACLs are not among the sample: this filesystem has none, or knows no other user");
    }
}

pub(super) fn kept_on_the_way_in(fixture: &Fixture) {
    report_gaps(rich_tree(&fixture.original(""), fixture.outside()));
    let before = fixture.manifest();
    let open = fixture.open();
    before.assert_same(&open.manifest(), Facets::COPY, "the sandbox is no faithful copy");
    fixture.assert_untouched(&before);
    open.assert_clean();
}

pub(super) fn kept_on_the_way_out(fixture: &Fixture) {
    let open = fixture.open();
    fs::create_dir(open.path("rich")).unwrap();
    report_gaps(rich_tree(&open.path("rich"), fixture.outside()));
    let expected = below(&open.path(""), "rich");
    open.commit();
    let committed = below(&fixture.original(""), "rich");
    expected.assert_same(&committed, Facets::WRITTEN, "the commit is no faithful copy");
    open.assert_clean();
}

pub(super) fn changes_of_it_are_committed(fixture: &Fixture) {
    let open = fixture.open();
    fs::set_permissions(open.path("a.txt"), Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(open.path("dir"), Permissions::from_mode(0o750)).unwrap();
    let attributes =
        set_xattr(&open.path("b.txt"), "user.colour", b"blue") && set_acl(&open.path("run.sh"), 4_242);
    if !attributes {
        crate::skip("attributes and ACLs are not tried: this filesystem has none");
    }
    fs::write(open.path("dir/c.txt"), "edited\n").unwrap();
    set_mtime(&open.path("dir/c.txt"), 1_111_111_111, 222_222_222);
    let expected = open.manifest();
    open.commit();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "metadata was not committed");
    open.assert_clean();
}

pub(super) fn links_stay_links(fixture: &Fixture) {
    fs::hard_link(fixture.original("a.txt"), fixture.original("dir/same")).unwrap();
    let open = fixture.open();
    fs::write(open.path("a.txt"), "through one name\n").unwrap();
    let expected = open.manifest();
    assert_eq!(expected.entry("dir/same").linked_to.as_deref(), Some(Path::new("a.txt")));
    open.commit();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "a link was torn");
    open.assert_clean();
}

/// One name of three is moved, another removed: what is left is still one file.
pub(super) fn links_survive_a_rename(fixture: &Fixture) {
    for name in ["second", "third"] {
        fs::hard_link(fixture.original("a.txt"), fixture.original(name)).unwrap();
    }
    let open = fixture.open();
    fs::rename(open.path("second"), open.path("dir/moved")).unwrap();
    fs::remove_file(open.path("third")).unwrap();
    let expected = open.manifest();
    open.commit();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "a link was torn");
    open.assert_clean();
    open.write("a.txt", "on its own\n");
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("dir/moved")).unwrap(), "alpha\n");
}

pub(super) fn a_new_link_to_an_old_file(fixture: &Fixture) {
    let open = fixture.open();
    fs::hard_link(open.path("a.txt"), open.path("second name")).unwrap();
    assert_eq!(open.diff().entries.iter().filter(|e| e.path == rel("second name")).count(), 1);
    let expected = open.manifest();
    open.commit();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "the new name is no link");
    open.assert_clean();
}

pub(super) fn nothing_else_is_touched(fixture: &Fixture) {
    rich_tree(&fixture.original(""), fixture.outside());
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("dir/c.txt", "edited\n");
    open.commit();
    let mut after = fixture.manifest();
    let changed = fs::metadata(fixture.original("dir/c.txt")).unwrap();
    assert_eq!((changed.mode() & 0o777, changed.size()), (before.entry("dir/c.txt").mode, 7));
    // What had to change: the file itself, and the time of the directory that names it.
    after.entries.insert("dir/c.txt".into(), before.entry("dir/c.txt").clone());
    let directory = after.entries.get_mut(Path::new("dir")).unwrap();
    directory.mtime = before.entry("dir").mtime;
    before.assert_same(&after, Facets::UNTOUCHED, "more than the committed file was touched");
}
