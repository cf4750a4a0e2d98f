//! What is done to an overlay on the host by somebody who knows how overlays work, and by who does not know that there is one.
//!
//! D23: marks of the kernel's own language, set by hand through the mount. D28: mounts inside the original. Reboots. A neighbour of another
//! strategy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandboxer_core::model::{CommitRequest, DiffKind, PlanId, RelPath};
use sandboxer_keeper::mount;
use sandboxer_strategies::{filesystem_copy, overlay};
use sandboxer_testkit::conformance::Fixture;
use sandboxer_testkit::manifest::{Facets, Manifest, set_xattr};
use sandboxer_testkit::skip;

const MARKS: [&str; 4] =
    ["trusted.overlay.opaque", "trusted.overlay.whiteout", "user.overlay.opaque", "user.overlay.whiteout"];

/// Overlays that this process mounts, or a word on why there are none.
fn on_the_host() -> Option<Fixture> {
    match mount::try_host(&std::env::temp_dir()) {
        Ok(()) => Some(Fixture::new(overlay::entry())),
        Err(reason) => {
            skip(&reason);
            None
        }
    }
}

/// The names of the attributes in a tree that speak of overlays.
fn marks(tree: &Manifest) -> BTreeMap<PathBuf, Vec<String>> {
    let speaking = |name: &std::ffi::OsString| name.to_string_lossy().contains("overlay.");
    let of = |entry: &sandboxer_testkit::manifest::Entry| {
        entry.xattrs.keys().filter(|n| speaking(n)).map(|n| n.to_string_lossy().into_owned()).collect()
    };
    let all = tree.entries.iter().map(|(path, entry)| (PathBuf::from(path), of(entry)));
    all.filter(|(_, names): &(_, Vec<String>)| !names.is_empty()).collect()
}

fn try_mark(mark: &str, value: &[u8], anew: bool) {
    let Some(fixture) = on_the_host() else { return };
    let before = fixture.manifest();
    let open = fixture.open();
    let mut set = 0;
    for path in ["dir", "dir/sub", "dir/c.txt", "empty", "a.txt", ""] {
        set += usize::from(set_xattr(&open.path(path), mark, value));
    }
    if set == 0 {
        return skip(&format!("{mark} cannot be set through this kernel's overlays"));
    }
    if anew {
        open.unmount();
    }
    let kinds = open.kinds();
    assert!(!kinds.values().any(|kind| *kind == DiffKind::Deleted), "{mark}: {kinds:?}");
    fs::write(open.path("b.txt"), "changed\n").unwrap();
    open.commit();
    let after = fixture.manifest();
    assert_eq!(before.names(), after.names(), "{mark}: something is gone, or came");
    assert_eq!(marks(&after), BTreeMap::new(), "{mark} was committed");
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "changed\n");
    assert_eq!(fs::read_to_string(fixture.original("dir/sub/d.txt")).unwrap(), "delta\n");
    assert_eq!(open.read("dir/sub/d.txt"), "delta\n");
}

#[test]
fn d23_marks_set_by_hand_delete_nothing() {
    for mark in MARKS {
        for value in [&b"y"[..], b"x", b""] {
            try_mark(mark, value, false);
        }
    }
}

#[test]
fn d23_marks_set_by_hand_delete_nothing_when_it_is_mounted_anew() {
    for mark in MARKS {
        try_mark(mark, b"y", true);
    }
}

/// An empty file with one mark in a directory with another is how a whiteout is spelt where devices cannot be made.
#[test]
fn d23_a_whiteout_spelt_by_hand_is_an_empty_file() {
    for namespace in ["trusted", "user"] {
        let Some(fixture) = on_the_host() else { return };
        fs::write(fixture.original("dir/none"), "").unwrap();
        let before = fixture.manifest();
        let open = fixture.open();
        let set = set_xattr(&open.path("dir/none"), &format!("{namespace}.overlay.whiteout"), b"")
            && set_xattr(&open.path("dir"), &format!("{namespace}.overlay.opaque"), b"x");
        if !set {
            skip(&format!("{namespace}.overlay. cannot be set through this kernel's overlays"));
            continue;
        }
        for _ in 0..2 {
            let kinds = open.kinds();
            assert!(!kinds.values().any(|kind| *kind == DiffKind::Deleted), "{namespace}: {kinds:?}");
            assert_eq!(open.read("dir/none"), "");
            open.unmount();
        }
        open.commit();
        assert_eq!(before.names(), fixture.manifest().names());
        assert_eq!(marks(&fixture.manifest()), BTreeMap::new(), "{namespace}: a mark was committed");
    }
}

/// A tmpfs with a file in it, for as long as this lives.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(point: &Path) -> Self {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(point).status().unwrap();
        assert!(mounted.success());
        fs::write(point.join("theirs"), "theirs\n").unwrap();
        Self(point.to_path_buf())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn d28_a_mount_inside_before_the_create_is_refused_by_name() {
    let Some(fixture) = on_the_host() else { return };
    let at = fixture.original("dir/sub");
    let _mounted = Tmpfs::at(&at);
    let refused = fixture.strategy().create(&PlanId::generate(), &fixture.resource()).unwrap_err();
    assert!(format!("{refused:?}").contains(at.to_str().unwrap()), "{refused:?}");
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn d28_a_mount_inside_after_the_create_is_written_to_by_nobody() {
    let Some(fixture) = on_the_host() else { return };
    let open = fixture.open();
    let at = fixture.original("dir/sub");
    let mounted = Tmpfs::at(&at);
    let theirs = Manifest::capture(&at);
    assert_eq!(open.read("dir/sub/d.txt"), "delta\n", "what is mounted there is no part of the sandbox");
    fs::write(open.path("dir/sub/d.txt"), "changed\n").unwrap();
    fs::write(open.path("dir/sub/new"), "new\n").unwrap();
    for when in ["live", "mounted anew"] {
        let refused = open.try_commit(&CommitRequest::default()).unwrap_err();
        assert!(format!("{refused:?}").contains(at.to_str().unwrap()), "{when}: {refused:?}");
        theirs.assert_same(&Manifest::capture(&at), Facets::UNTOUCHED, when);
        open.unmount();
    }
    drop(mounted);
    open.assert_kinds(&[("dir/sub/d.txt", DiffKind::Modified), ("dir/sub/new", DiffKind::Created)]);
    open.commit();
    assert_eq!(fs::read_to_string(at.join("d.txt")).unwrap(), "changed\n");
}

/// Elsewhere in the original it is nobody's business.
#[test]
fn d28_a_mount_inside_after_the_create_does_not_disturb_the_rest() {
    let Some(fixture) = on_the_host() else { return };
    let open = fixture.open();
    let at = fixture.original("dir/sub");
    let _mounted = Tmpfs::at(&at);
    let theirs = Manifest::capture(&at);
    open.write("a.txt", "changed\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "changed\n");
    theirs.assert_same(&Manifest::capture(&at), Facets::UNTOUCHED, "what is mounted there");
    open.rollback();
    open.assert_clean();
}

#[test]
fn a_reboot_loses_nothing() {
    let Some(fixture) = on_the_host() else { return };
    let original = fixture.manifest();
    let open = fixture.open();
    fs::write(open.path("a.txt"), "at the checkpoint\n").unwrap();
    open.checkpoint("one");
    fs::write(open.path("new.txt"), "new\n").unwrap();
    fs::remove_dir_all(open.path("dir")).unwrap();
    fs::create_dir(open.path("dir")).unwrap();
    fs::write(open.path("dir/other"), "other\n").unwrap();
    let (tree, digest) = (open.manifest(), open.diff().digest);
    for _ in 0..2 {
        open.unmount();
        assert_eq!(fs::read_dir(open.path("")).map(Iterator::count).unwrap(), 0, "it is still mounted");
        assert_eq!(open.strategy.diff(&open.sandbox).unwrap().digest, digest);
        tree.assert_same(&open.manifest(), Facets::WRITTEN, "after a reboot");
    }
    fixture.assert_untouched(&original);
    let open = open.reopened();
    open.unmount();
    open.restore("one");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.unmount();
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "at the checkpoint\n");
}

#[test]
fn a_copy_that_is_committed_does_not_show_in_a_live_overlay() {
    for looked_up in [false, true] {
        let Some(fixture) = on_the_host() else { return };
        let expected = fixture.manifest();
        let open = fixture.open();
        if looked_up {
            expected.assert_same(&open.manifest(), Facets::WRITTEN, "at first");
        }
        let copies = fixture.strategy_of(&filesystem_copy::entry());
        let copy = copies.create(&PlanId::generate(), &fixture.resource()).unwrap();
        let root = copy.sandbox_path().unwrap();
        copies.write(&copy, &RelPath::parse("a.txt").unwrap(), b"from the copy\n").unwrap();
        copies.write(&copy, &RelPath::parse("new/file").unwrap(), b"new\n").unwrap();
        fs::remove_dir_all(root.join("dir/sub")).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        copies.commit(&copy, &CommitRequest::default()).unwrap();
        assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "from the copy\n");
        assert!(fixture.original("new/file").exists() && !fixture.original("dir/sub").exists());
        for when in ["live", "mounted anew"] {
            open.assert_clean();
            expected.assert_same(&open.manifest(), Facets::WRITTEN, when);
            open.unmount();
        }
        open.write("a.txt", "from the overlay\n");
        open.assert_conflict(&["a.txt"]);
    }
}
