//! A git directory of ours for one question: no configuration but the object format, no refs, no hooks, and the objects of others to read.
//!
//! Git needs a git directory for nearly everything. Where it is to look at something that an agent wrote (a copy of its index, a copy of its
//! objects), it gets this one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sandboxer_core::{Error, Result};

use crate::git::{Git, Place};
use crate::oid::ObjectFormat;

/// A git directory that is thrown away after use.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Makes one beside `name`, which is in a directory of ours. Objects are read from `alternates` too.
    pub(crate) fn make(name: &Path, format: ObjectFormat, alternates: &[&Path]) -> Result<Self> {
        let dir = &own_place(name);
        for below in ["objects/info", "objects/pack", "refs", "info"] {
            let path = dir.join(below);
            std::fs::create_dir_all(&path).map_err(|e| Error::io("create directory", &path, e))?;
        }
        write(&dir.join("HEAD"), b"ref: refs/heads/none\n")?;
        write(&dir.join("config"), format_section(format).as_bytes())?;
        write(&dir.join("objects/info/alternates"), &alternates_text(alternates))?;
        Ok(Self { dir: dir.to_path_buf() })
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A call of git in it.
    pub(crate) fn git(&self) -> Git {
        Git::at(Place::Dir(&self.dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is removed by one that is made here later.
        let _ = sandboxer_fs::remove_tree(&self.dir);
    }
}

/// A path beside `name` that nobody else uses, in this process or another. What processes that are gone left there goes first.
pub(crate) fn own_place(name: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let stem = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for entry in name.parent().and_then(|dir| dir.read_dir().ok()).into_iter().flatten().flatten() {
        if is_left_over(&entry.file_name().to_string_lossy(), &stem) {
            // Somebody else may be removing it, too.
            let _ = sandboxer_fs::remove_tree(&entry.path());
        }
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    name.with_file_name(format!("{stem}.{}.{number}", std::process::id()))
}

/// Whether a name is `STEM.PROCESS.NUMBER` of a process that is gone.
fn is_left_over(name: &str, stem: &str) -> bool {
    let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('.'));
    let process =
        rest.and_then(|rest| rest.split_once('.')).and_then(|(process, _)| process.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists())
}

/// What a configuration says of the format, bare.
fn format_section(format: ObjectFormat) -> String {
    let mut text = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n".to_owned();
    text.push_str(&format!("[extensions]\n\tobjectformat = {}\n", format.name()));
    text
}

/// Lines of `objects/info/alternates`. A path that would break its line is quoted as in C.
pub(crate) fn alternates_text(paths: &[&Path]) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let mut text = Vec::new();
    for path in paths {
        let bytes = path.as_os_str().as_bytes();
        if bytes.contains(&b'\n') {
            let escape = |byte: &u8| match byte {
                b'\n' => b"\\n".to_vec(),
                b'"' | b'\\' => vec![b'\\', *byte],
                other => vec![*other],
            };
            text.push(b'"');
            text.extend(bytes.iter().flat_map(escape));
            text.push(b'"');
        } else {
            text.extend_from_slice(bytes);
        }
        text.push(b'\n');
    }
    text
}

/// Writes a file of ours, without waiting for the disk.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    std::fs::write(path, content).map_err(|e| Error::io("write", path, e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_the_objects_of_others_whatever_their_path_is() {
        let temp = tempfile::tempdir().unwrap();
        for (at, name) in ["plain", "with\nbreak", "with \"quote", "#hash"].iter().enumerate() {
            let other = temp.path().join(name);
            std::fs::create_dir(&other).unwrap();
            Git::at(Place::From(&other)).args(["init", "-q"]).output().unwrap();
            let git = Git::at(Place::Dir(&other.join(".git")));
            let text = git.args(["hash-object", "-w", "--stdin"]).feed(b"content").unwrap();
            let oid = String::from_utf8(text).unwrap();
            let objects = other.join(".git/objects");
            let dir = temp.path().join(format!("scratch{at}"));
            let scratch = Scratch::make(&dir, ObjectFormat::Sha1, &[&objects]).unwrap();
            let read = scratch.git().args(["cat-file", "blob", oid.trim()]).output().unwrap();
            assert_eq!(read, b"content", "{name:?}");
            let place = scratch.dir().to_path_buf();
            drop(scratch);
            assert!(!place.exists());
        }
    }

    #[test]
    fn each_has_its_own_place_and_what_the_dead_left_goes() {
        let temp = tempfile::tempdir().unwrap();
        let name = temp.path().join("scratch");
        // No process has this number: it is above what the kernel gives.
        let dead = temp.path().join("scratch.4194999.0");
        let other = temp.path().join("scratch-other.4194999.0");
        std::fs::create_dir_all(dead.join("objects")).unwrap();
        std::fs::create_dir(&other).unwrap();
        let one = Scratch::make(&name, ObjectFormat::Sha1, &[]).unwrap();
        let two = Scratch::make(&name, ObjectFormat::Sha1, &[]).unwrap();
        assert_ne!(one.dir(), two.dir());
        assert!(one.dir().exists() && two.dir().exists() && other.exists() && !dead.exists());
    }
}
