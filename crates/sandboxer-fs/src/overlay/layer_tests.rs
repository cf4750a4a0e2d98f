#![allow(clippy::unwrap_used)]

use std::fs::{File, create_dir, write};

use rustix::fs::{FileType, Mode, XattrFlags, makedev, mknodat};

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap()
}

#[test]
fn inode_numbers_are_found_in_recorded_origins() {
    let ext4 = "00fb1d00010000000000000000000000000000000078029f00a9a5e802";
    let tmpfs = "00fb2100019320fae7c1124553b0e53b08a09e21dfc3179a473d3d230000000000";
    let xfs = "00fb2100813641fe354b1a43e4a959f6ce56826bd581000400000000000fb6eae2";
    assert_eq!(inode_of(&bytes(ext4)), Some(10_420_856));
    assert_eq!(inode_of(&bytes(tmpfs)), Some(2_309_437));
    assert_eq!(inode_of(&bytes(xfs)), Some(262_273));
}

#[test]
fn what_is_not_an_origin_as_we_know_it_has_no_inode() {
    let known = bytes("00fb1d00010000000000000000000000000000000078029f00a9a5e802");
    for (at, value) in [(0, 1), (1, 0), (2, 9), (3, BIG_ENDIAN), (4, 0xf0)] {
        let mut changed = known.clone();
        changed[at] = value;
        assert_eq!(inode_of(&changed), None, "byte {at}");
    }
    for length in 0..known.len() {
        assert_eq!(inode_of(&known[..length]), None, "{length} bytes");
    }
}

struct Made {
    _temp: tempfile::TempDir,
    layer: Layer,
    dir: Dir,
}

impl Made {
    fn new(marks: Marks) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let layer = Layer::open(temp.path(), marks).unwrap();
        let dir = layer.root.as_dir().unwrap();
        Self { _temp: temp, layer, dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.layer.root.path().join(name)
    }

    fn meaning(&self, dir: &Dir, name: &str) -> Meaning {
        let stamp = dir.stamp(name.as_bytes()).unwrap().unwrap();
        self.layer.meaning(dir, name.as_bytes(), &stamp).unwrap()
    }

    fn label(&self, name: &str, attribute: &str, value: &[u8]) {
        let path = self.path(name);
        rustix::fs::lsetxattr(path, attribute, value, XattrFlags::empty()).unwrap();
    }
}

#[test]
fn a_device_is_a_whiteout_only_with_the_number_zero() {
    let made = Made::new(Marks::User);
    let make =
        |name: &str, number| mknodat(&made.dir, name, FileType::CharacterDevice, Mode::empty(), number);
    make("gone", 0).unwrap();
    assert_eq!(made.meaning(&made.dir, "gone"), Meaning::Whiteout);
    if make("null", makedev(1, 3)).is_err() {
        return eprintln!("skipped: a device with another number: making one needs root");
    }
    assert_eq!(made.meaning(&made.dir, "null"), Meaning::Entry);
}

#[test]
fn only_the_marks_of_the_mounts_own_kind_count() {
    let made = Made::new(Marks::Trusted);
    create_dir(made.path("d")).unwrap();
    made.label("d", "user.overlay.opaque", b"y");
    assert_eq!(made.meaning(&made.dir, "d"), Meaning::Directory { opaque: false });
    let same = Layer::open(made.layer.root.path(), Marks::User).unwrap();
    let stamp = made.dir.stamp(b"d").unwrap().unwrap();
    assert_eq!(same.meaning(&made.dir, b"d", &stamp).unwrap(), Meaning::Directory { opaque: true });
}

#[test]
fn an_empty_file_is_a_whiteout_only_where_the_directory_says_so() {
    let made = Made::new(Marks::User);
    create_dir(made.path("d")).unwrap();
    for name in ["d/gone", "d/empty"] {
        File::create(made.path(name)).unwrap();
    }
    write(made.path("d/full"), "content").unwrap();
    made.label("d/gone", "user.overlay.whiteout", b"");
    made.label("d/full", "user.overlay.whiteout", b"");
    let dir = made.dir.dir(b"d").unwrap();
    for (value, expected) in [(b"y", Meaning::Entry), (b"x", Meaning::Whiteout)] {
        made.label("d", "user.overlay.opaque", value);
        assert_eq!(made.meaning(&dir, "gone"), expected);
        assert_eq!(made.meaning(&dir, "empty"), Meaning::Entry);
        assert_eq!(made.meaning(&dir, "full"), Meaning::Entry);
        assert_eq!(made.meaning(&made.dir, "d"), Meaning::Directory { opaque: value == b"y" });
    }
}

#[test]
fn an_origin_without_an_inode_is_an_origin() {
    let made = Made::new(Marks::User);
    assert!(made.layer.is_empty().unwrap());
    write(made.path("copied"), "x").unwrap();
    write(made.path("new"), "x").unwrap();
    made.label("copied", "user.overlay.origin", b"");
    assert_eq!(made.layer.origin(&made.dir, b"copied").unwrap(), Some(Origin { ino: None }));
    assert_eq!(made.layer.origin(&made.dir, b"new").unwrap(), None);
    assert_eq!(made.layer.origin(&made.dir, b"not there").unwrap(), None);
    assert!(!made.layer.is_empty().unwrap());
}
