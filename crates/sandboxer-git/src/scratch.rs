//! A git directory of ours for one question: no configuration but the object format, no refs, no hooks, and the objects of others to read.
//!
//! Git needs a git directory for nearly everything. Where it is to look at something that an agent wrote (a copy of its index, a copy of its
//! objects), it gets this one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};

use crate::git::{Git, Place};
use crate::oid::ObjectFormat;

/// A git directory that is thrown away after use.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Makes one at `dir`, which is ours; what is there goes first. Objects are read from `alternates` too.
    pub(crate) fn make(dir: &Path, format: ObjectFormat, alternates: &[&Path]) -> Result<Self> {
        remove(dir)?;
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
        // What is left is removed by the next one that is made here.
        let _ = remove(&self.dir);
    }
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::symlink_metadata(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        _ => sandboxer_fs::remove_tree(dir),
    }
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
            drop(scratch);
            assert!(!dir.exists());
        }
    }
}
