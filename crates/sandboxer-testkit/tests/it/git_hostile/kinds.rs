//! Files of git's that are something else.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use sandboxer_testkit::full;

use super::world::World;

/// What a file can be instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pipe,
    Device,
    Socket,
    Link,
    Sparse,
    Directory,
    Rubbish,
}

const KINDS: [Kind; 7] =
    [Kind::Pipe, Kind::Device, Kind::Socket, Kind::Link, Kind::Sparse, Kind::Directory, Kind::Rubbish];

const FILES: [&str; 8] = [
    ".git/HEAD",
    ".git/index",
    ".git/config",
    ".git/packed-refs",
    ".git/objects",
    ".git/objects/info/alternates",
    ".gitignore",
    ".gitattributes",
];

/// Each file as each kind. Neighbours differ in both, so that a spread sample mixes them.
pub fn matrix() -> Vec<(&'static str, Kind)> {
    (0..FILES.len() * KINDS.len()).map(|n| (FILES[n % FILES.len()], KINDS[n % KINDS.len()])).collect()
}

/// Makes `file` of the sandbox's tree one.
pub fn put(world: &World, file: &str, kind: Kind) {
    let at = world.tree().join(file);
    let _ = fs::remove_dir_all(&at).or_else(|_| fs::remove_file(&at));
    let (mode, zero) = (Mode::from_raw_mode(0o666), makedev(1, 5));
    match kind {
        Kind::Pipe => mknodat(CWD, &at, FileType::Fifo, mode, 0).unwrap(),
        // Reads from it never end.
        Kind::Device => mknodat(CWD, &at, FileType::CharacterDevice, mode, zero).unwrap(),
        Kind::Socket => socket(world, &at),
        Kind::Link => symlink(world.outside("secret"), &at).unwrap(),
        Kind::Sparse => File::create(&at).unwrap().set_len(large(file)).unwrap(),
        Kind::Directory => fs::create_dir_all(at.join("inside")).unwrap(),
        Kind::Rubbish => fs::write(&at, [&[0xff; 99][..], b"\n"].concat().repeat(1000)).unwrap(),
    }
}

/// What belongs to git is not committed; what does is compressed, and that takes its time.
fn large(file: &str) -> u64 {
    if file.starts_with(".git/") || full() { 1 << 30 } else { 2 << 20 }
}

/// The path of a socket must be short.
fn socket(world: &World, at: &std::path::Path) {
    let short = world.outside("socket");
    drop(UnixListener::bind(&short).unwrap());
    let moved = std::process::Command::new("mv").arg("-T").arg(short).arg(at).status().unwrap();
    assert!(moved.success());
}
