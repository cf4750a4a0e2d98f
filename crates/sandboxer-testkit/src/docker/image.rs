//! The one image: busybox, under its usual names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the image has besides busybox itself.
const NAMES: [&str; 26] = [
    "sh", "sleep", "ls", "cat", "ip", "echo", "touch", "id", "wget", "httpd", "env", "mount", "ps", "nc",
    "true", "false", "rm", "mkdir", "stat", "hostname", "grep", "test", "kill", "ping", "nslookup", "head",
];

/// An archive of the image's files, made in `dir`.
pub(crate) fn archive(dir: &Path, busybox: &Path) -> PathBuf {
    let root = dir.join("image");
    for made in ["bin", "tmp", "etc", "srv"] {
        fs::create_dir_all(root.join(made)).unwrap();
    }
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in NAMES {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    let archive = dir.join("image.tar");
    let tar = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status().unwrap();
    assert!(tar.success());
    archive
}
