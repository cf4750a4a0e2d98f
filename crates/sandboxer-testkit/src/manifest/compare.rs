//! Telling two trees apart in words.

use std::path::Path;

use super::{Entry, Kind, Manifest};

/// Which modification times have to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Those of every entry.
    All,
    /// Those of everything but directories, which change with their children.
    NotDirectories,
    /// None.
    Ignored,
}

/// How strictly trees are compared. Type, mode, size, content, target and attributes always have to agree.
#[derive(Clone, Copy, Debug)]
pub struct Facets {
    /// Which times.
    pub times: Times,
    /// Whether the same names have to share an inode.
    pub links: bool,
    /// Whether files have to be as sparse.
    pub sparse: bool,
    /// Whether owners have to agree.
    pub owner: bool,
    /// Whether the inodes have to be the very same: nothing was touched at all.
    pub inodes: bool,
}

impl Facets {
    /// Nothing was touched at all.
    pub const UNTOUCHED: Self =
        Self { times: Times::All, links: true, sparse: true, owner: true, inodes: true };
    /// A faithful copy.
    pub const COPY: Self = Self { times: Times::All, links: true, sparse: true, owner: true, inodes: false };
    /// A faithful copy whose directories had to be written to.
    pub const WRITTEN: Self =
        Self { times: Times::NotDirectories, links: true, sparse: true, owner: true, inodes: false };
    /// The same content and permissions, whenever they were written and however they are linked.
    pub const CONTENT: Self =
        Self { times: Times::Ignored, links: false, sparse: false, owner: true, inodes: false };
}

impl Manifest {
    /// One line for each way in which `other` differs; `self` is what was expected.
    pub fn differences(&self, other: &Manifest, facets: Facets) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, expected) in &self.entries {
            match other.entries.get(path) {
                Some(found) => expected.compare(found, path, facets, &mut lines),
                None => lines.push(format!("{path:?}: missing, expected a {:?}", expected.kind)),
            }
        }
        for (path, found) in other.entries.iter().filter(|(path, _)| !self.entries.contains_key(*path)) {
            lines.push(format!("{path:?}: unexpected {:?}", found.kind));
        }
        lines
    }

    /// Whether `other` is the same, as strictly as `facets` says.
    pub fn same(&self, other: &Manifest, facets: Facets) -> bool {
        self.differences(other, facets).is_empty()
    }

    /// Panics with every difference unless `other` is the same.
    #[track_caller]
    pub fn assert_same(&self, other: &Manifest, facets: Facets, what: &str) {
        let lines = self.differences(other, facets);
        assert!(
            lines.is_empty(),
            "{what}: {} differences (expected → found)\n  {}",
            lines.len(),
            lines.join("\n  ")
        );
    }
}

impl Entry {
    fn compare(&self, found: &Entry, path: &Path, facets: Facets, lines: &mut Vec<String>) {
        let mut note = |what: &str, differs: bool, expected: String, found: String| {
            if differs {
                lines.push(format!("{path:?}: {what} {expected} → {found}"));
            }
        };
        let octal = |mode: u32| format!("{mode:04o}");
        note("type", self.kind != found.kind, format!("{:?}", self.kind), format!("{:?}", found.kind));
        if self.kind != found.kind {
            return;
        }
        note(
            "mode",
            self.kind != Kind::Symlink && self.mode != found.mode,
            octal(self.mode),
            octal(found.mode),
        );
        note("size", self.size != found.size, self.size.to_string(), found.size.to_string());
        note("content", self.hash != found.hash, format!("{:?}", self.hash), format!("{:?}", found.hash));
        note(
            "target",
            self.target != found.target,
            format!("{:?}", self.target),
            format!("{:?}", found.target),
        );
        note(
            "xattrs",
            self.xattrs != found.xattrs,
            format!("{:?}", self.xattrs),
            format!("{:?}", found.xattrs),
        );
        if facets.owner {
            let (a, b) = ((self.uid, self.gid), (found.uid, found.gid));
            note("owner", a != b, format!("{a:?}"), format!("{b:?}"));
        }
        if facets.links {
            let (a, b) = (&self.linked_to, &found.linked_to);
            note("links", a != b, format!("{a:?}"), format!("{b:?}"));
        }
        note(
            "holes",
            facets.sparse && self.sparse != found.sparse,
            self.sparse.to_string(),
            found.sparse.to_string(),
        );
        if facets.compares_time_of(self.kind) {
            let (a, b) = (self.mtime, found.mtime);
            note("mtime", a != b, format!("{a:?}"), format!("{b:?}"));
        }
        let inode_differs = facets.inodes && self.inode != found.inode;
        note("inode", inode_differs, self.inode.to_string(), found.inode.to_string());
    }
}

impl Facets {
    fn compares_time_of(self, kind: Kind) -> bool {
        match self.times {
            Times::All => true,
            Times::NotDirectories => kind != Kind::Directory,
            Times::Ignored => false,
        }
    }
}
