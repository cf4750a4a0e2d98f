//! A tree with one of everything that a careless copy loses.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

/// What the filesystem allowed in the sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Extended attributes of users.
    pub xattrs: bool,
    /// POSIX ACLs.
    pub acls: bool,
}

/// Fills `dir`, which exists, with a sample of everything; `outside` is a path that one of the links points to.
pub fn rich_tree(dir: &Path, outside: &Path) -> Sample {
    plain_files(dir);
    odd_names(&dir.join("names"));
    links(&dir.join("links"), outside);
    modes(&dir.join("modes"));
    write_sparse(&dir.join("sparse"), 4 << 20);
    let sample = attributes(&dir.join("attributes"));
    old_times(dir);
    sample
}

fn plain_files(dir: &Path) {
    fs::create_dir_all(dir.join("nested/deeper/deepest")).unwrap();
    fs::create_dir_all(dir.join("empty/also empty")).unwrap();
    fs::write(dir.join("readme.md"), "# sample\n\nsome text\n").unwrap();
    fs::write(dir.join("nothing"), "").unwrap();
    fs::write(dir.join("nested/one"), "1\n").unwrap();
    fs::write(dir.join("nested/deeper/two"), "2\n2\n").unwrap();
    fs::write(dir.join("nested/deeper/deepest/three"), "3\n3\n3\n").unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(dir.join("large.bin"), large).unwrap();
}

fn odd_names(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let names: [&[u8]; 9] = [
        b"with space",
        b"new\nline",
        b"esc\x1b[31mred",
        "bidi\u{202e}txt.exe".as_bytes(),
        b"invalid\xff\xfeutf8",
        b"-rf",
        b"back\\slash\"quote'",
        b"base64:bm8=",
        &[b'n'; 255],
    ];
    for name in names {
        fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::create_dir(dir.join(OsStr::from_bytes(b"dir\xff"))).unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"dir\xff/inside")), "x").unwrap();
}

fn links(dir: &Path, outside: &Path) {
    fs::create_dir(dir).unwrap();
    symlink("../nested/one", dir.join("relative")).unwrap();
    symlink("/nowhere/at/all", dir.join("dangling")).unwrap();
    symlink(outside, dir.join("to outside")).unwrap();
    symlink("..", dir.join("to parent")).unwrap();
    fs::write(dir.join("first name"), "linked\n").unwrap();
    fs::hard_link(dir.join("first name"), dir.join("second name")).unwrap();
    fs::create_dir(dir.join("below")).unwrap();
    fs::hard_link(dir.join("first name"), dir.join("below/third name")).unwrap();
}

fn modes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for mode in [0o400, 0o444, 0o600, 0o640, 0o755, 0o777] {
        let path = dir.join(format!("{mode:o}"));
        fs::write(&path, format!("{mode:o}")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(dir.join("private")).unwrap();
    fs::write(dir.join("private/file"), "secret\n").unwrap();
    fs::set_permissions(dir.join("private"), Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(dir.join("sticky")).unwrap();
    fs::set_permissions(dir.join("sticky"), Permissions::from_mode(0o1777)).unwrap();
}

fn attributes(dir: &Path) -> Sample {
    fs::create_dir(dir).unwrap();
    for name in ["file", "empty value", "acl"] {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::create_dir(dir.join("dir")).unwrap();
    let xattrs = set_xattr(&dir.join("file"), "user.colour", b"green")
        && set_xattr(&dir.join("file"), "user.binary", b"\x00\xff\x01")
        && set_xattr(&dir.join("empty value"), "user.empty", b"")
        && set_xattr(&dir.join("dir"), "user.on a directory", b"yes");
    let acls = set_acl(&dir.join("acl"), 12_345) && set_acl(&dir.join("dir"), 12_346);
    Sample { xattrs, acls }
}

/// Times in the past, with nanoseconds, so that a copy that does not keep them shows.
fn old_times(dir: &Path) {
    for (i, name) in
        ["readme.md", "nested/one", "large.bin", "links/first name", "links/relative", "nested", "empty"]
            .into_iter()
            .enumerate()
    {
        set_mtime(&dir.join(name), 1_000_000_000 + i as i64 * 1000, 123_456_789 + i as i64);
    }
}

/// Renames as `mv` does: a directory that cannot be renamed where it is, as in an overlay, is copied and removed.
pub fn move_entry(from: &Path, to: &Path) {
    match fs::rename(from, to) {
        Err(e) if e.kind() == std::io::ErrorKind::CrossesDevices => {
            let moved = std::process::Command::new("mv").arg("-T").arg(from).arg(to).status().unwrap();
            assert!(moved.success(), "cannot move {from:?} to {to:?}");
        }
        other => other.unwrap(),
    }
}

/// Sets the modification time without following links.
pub fn set_mtime(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Sets an extended attribute without following links; false where the filesystem has none, or knows no such user.
pub fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    match rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP) => false,
        // An ACL for somebody whom the mount's user namespace does not know.
        Err(Errno::INVAL)
            if name.starts_with("system.posix_acl") && !rustix::process::geteuid().is_root() =>
        {
            false
        }
        Err(error) => panic!("cannot set {name} on {path:?}: {error}"),
    }
}

/// Gives the user with that id read access by an ACL; false where the filesystem has none.
pub fn set_acl(path: &Path, user: u32) -> bool {
    const UNNAMED: u32 = u32::MAX;
    // (tag, permissions, id): owner, named user, group, mask, others.
    let entries =
        [(0x01, 6, UNNAMED), (0x02, 4, user), (0x04, 4, UNNAMED), (0x10, 4, UNNAMED), (0x20, 0, UNNAMED)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&u16::to_le_bytes(tag));
        value.extend_from_slice(&u16::to_le_bytes(permissions));
        value.extend_from_slice(&u32::to_le_bytes(id));
    }
    set_xattr(path, "system.posix_acl_access", &value)
}

/// A file of `size` bytes that is a hole but for a few bytes in its middle.
pub fn write_sparse(path: &Path, size: u64) {
    let mut file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    file.seek(SeekFrom::Start(size / 2)).unwrap();
    file.write_all(b"an island in the middle").unwrap();
}
