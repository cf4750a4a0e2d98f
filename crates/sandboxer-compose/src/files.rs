//! Files below the root, and where a path of a compose file leads.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;

use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_fs::root::{Root, stamp_of_fd};
use serde_json::{Value, json};

use crate::at::{At, shown};

/// Largest file that is read.
const LARGEST: u64 = 1 << 20;

/// How many files a project may come from.
const MOST: usize = 64;

/// Where a path leads, as far as its text goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below the root; empty for the root itself.
    Inside(String),
    /// Anywhere else, as it was written.
    Outside(String),
}

/// What is at a place below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file, with its permission bits.
    File(u32),
    /// A directory, with its permission bits.
    Directory(u32),
    /// A symbolic link, or something that is reached through one.
    Link,
    /// A socket, a pipe, a device, another filesystem.
    Other,
    /// Nothing.
    Missing,
}

impl Place {
    /// As it is kept among the values of a service, where nothing that a file says can be mistaken for it.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Inside(path) => json!({ "inside": path }),
            Self::Outside(path) => json!({ "outside": path }),
        }
    }

    /// The other way round.
    pub fn from_value(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        text("inside").map(Self::Inside).or_else(|| text("outside").map(Self::Outside))
    }
}

/// Reads below a root, so much and no more.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    left: Cell<usize>,
}

impl Files {
    /// Below the directory at `root`, which the caller trusts.
    pub fn below(root: &Path) -> Result<Self> {
        Ok(Self { root: Root::open(root)?, left: Cell::new(MOST) })
    }

    /// Where `path` leads when it stands in a file whose paths begin at `base`.
    pub fn locate(&self, base: &str, path: &str) -> Place {
        let root = self.root.path().to_str().map(|root| root.trim_end_matches('/')).unwrap_or_default();
        let outside = || Place::Outside(path.to_owned());
        let below = path.strip_prefix(root).filter(|rest| !root.is_empty() && rest.starts_with('/'));
        let joined = match below {
            Some(rest) => joined("", rest),
            None if path == root && !root.is_empty() => Some(String::new()),
            None if path.starts_with('/') || path.starts_with('~') => None,
            None => joined(base, path),
        };
        joined.map_or_else(outside, Place::Inside)
    }

    /// What is at a path below the root.
    pub fn kind(&self, path: &str) -> Result<Kind> {
        let Ok(path) = RelPath::parse(path) else { return Ok(Kind::Directory(0o755)) };
        let parent = match path.parent() {
            None => self.root.as_dir()?,
            Some(parent) => match self.root.open_dir(&parent) {
                Ok(dir) => dir,
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Kind::Missing),
                Err(Errno::LOOP) => return Ok(Kind::Link),
                Err(Errno::XDEV) => return Ok(Kind::Other),
                Err(error) => return Err(Error::io("open directory", self.root.shown(&parent), error)),
            },
        };
        let Some(stamp) = parent.stamp(path.name())? else { return Ok(Kind::Missing) };
        Ok(match stamp.node_type() {
            NodeType::File => Kind::File(stamp.mode & 0o777),
            NodeType::Directory if self.root.open_dir(&path).is_err() => Kind::Other,
            NodeType::Directory => Kind::Directory(stamp.mode & 0o777),
            NodeType::Symlink => Kind::Link,
            _ => Kind::Other,
        })
    }

    /// The text of a file below the root, which something at `at` refers to.
    pub fn text(&self, path: &str, at: &At) -> Result<String> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| {
            at.refuse(format!("the stack comes from more than {MOST} files"), "put them together")
        })?;
        self.left.set(left);
        self.expect_file(path, at)?;
        let rel = RelPath::parse(path)?;
        let fd = self.root.parent_of(&rel)?.open_file(rel.name())?;
        let stamp = stamp_of_fd(&fd).map_err(|error| Error::io("examine", self.root.shown(&rel), error))?;
        if !stamp.is_file() {
            return Err(at.refuse(format!("{} is not a regular file", shown(path)), "name a regular file"));
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::from(fd).take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::io("read", self.root.shown(&rel), error))?;
        if bytes.len() as u64 > LARGEST {
            return Err(at.refuse(format!("{} is larger than 1 MiB", shown(path)), "make it smaller"));
        }
        String::from_utf8(bytes)
            .map_err(|_| at.refuse(format!("{} is not UTF-8", shown(path)), "write it as UTF-8"))
    }

    fn expect_file(&self, path: &str, at: &At) -> Result<()> {
        let (what, hint) = match self.kind(path)? {
            Kind::File(_) => return Ok(()),
            Kind::Missing => ("is not there", "make the file, or correct the path"),
            Kind::Link => ("leads through a symbolic link", "put the file itself there"),
            Kind::Directory(_) => ("is a directory", "name a file"),
            Kind::Other => ("is not a regular file", "name a regular file"),
        };
        Err(at.refuse(format!("{} {what}", shown(path)), hint))
    }
}

/// The directory that a path below the root lies in.
pub(crate) fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// `path` after `base`, without `.` and `..`; `None` where it leaves the root.
fn joined(base: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_is_inside_or_it_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let files = Files::below(temp.path()).unwrap();
        let root = temp.path().to_str().unwrap();
        let inside = |path: &str| Place::Inside(path.to_owned());
        let table = [
            (".", inside("e2e")),
            ("..", inside("")),
            ("./a//b/", inside("e2e/a/b")),
            ("../x", inside("x")),
            ("a/../../b", inside("b")),
        ];
        for (path, expected) in table {
            assert_eq!(files.locate("e2e", path), expected, "{path}");
        }
        assert_eq!(files.locate("e2e", &format!("{root}/x/./y")), inside("x/y"));
        assert_eq!(files.locate("e2e", root), inside(""));
        let odd = [format!("{root}-other"), format!("{root}/../x"), format!("{root}/x/../../..")];
        let plain =
            ["../..", "/", "/etc", "~", "~/x", "~root", "../../e2e", "a/../../../b"].map(str::to_owned);
        for path in plain.into_iter().chain(odd) {
            assert_eq!(files.locate("e2e", &path), Place::Outside(path.clone()), "{path}");
        }
    }

    #[test]
    fn links_are_seen_and_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("d")).unwrap();
        std::fs::write(temp.path().join("d/f"), "x").unwrap();
        std::os::unix::fs::symlink("d", temp.path().join("l")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", temp.path().join("p")).unwrap();
        let files = Files::below(temp.path()).unwrap();
        assert!(matches!(files.kind("d/f").unwrap(), Kind::File(_)));
        assert!(matches!(files.kind("d").unwrap(), Kind::Directory(_)));
        assert!(matches!(files.kind("").unwrap(), Kind::Directory(_)));
        for (path, kind) in
            [("l", Kind::Link), ("l/f", Kind::Link), ("p", Kind::Link), ("x/y", Kind::Missing)]
        {
            assert_eq!(files.kind(path).unwrap(), kind, "{path}");
        }
        for path in ["l/f", "p", "d", "x"] {
            assert!(files.text(path, &At::file("c.yml")).is_err(), "{path}");
        }
        assert_eq!(files.text("d/f", &At::file("c.yml")).unwrap(), "x");
    }

    #[test]
    fn only_so_much_is_read() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("big"), "x".repeat((LARGEST + 1) as usize)).unwrap();
        std::fs::write(temp.path().join("small"), "x").unwrap();
        let files = Files::below(temp.path()).unwrap();
        assert!(files.text("big", &At::file("c")).unwrap_err().to_string().contains("1 MiB"));
        let error = (0..MOST).find_map(|_| files.text("small", &At::file("c")).err()).unwrap();
        assert!(error.to_string().contains("64 files"), "{error}");
    }
}
