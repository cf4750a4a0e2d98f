//! Repositories for the tests of this crate: none of them depends on how git is configured on the machine.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandboxer_core::model::RelPath;

use crate::git::{Git, Place};
use crate::ledger::Ledger;
use crate::oid::{ObjectFormat, Oid};
use crate::repository::Repository;

/// Names that something would trip over if they were not passed on byte by byte.
pub(crate) const ODD_NAMES: [&[u8]; 10] = [
    b"new\nline",
    b"quo\"te",
    b"back\\slash",
    b"not\xffutf8\xfe",
    b"-dash",
    b" space ",
    b"tab\t",
    b"*",
    b":(top)x",
    "d/\u{e9}".as_bytes(),
];

/// A checkout in a directory of its own, which goes with it.
pub(crate) struct Checkout {
    /// Holds the checkout (`w`) and whatever else a test needs.
    pub(crate) dir: tempfile::TempDir,
}

impl Checkout {
    /// A checkout without a commit.
    pub(crate) fn unborn(format: ObjectFormat) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = Self { dir };
        std::fs::create_dir(made.path()).unwrap();
        made.git(["init", "-q", "--object-format", format.name(), "."]);
        made.git(["symbolic-ref", "HEAD", "refs/heads/main"]);
        made.git(["config", "user.name", "A User"]);
        made.git(["config", "user.email", "user@example.org"]);
        made
    }

    /// A checkout with one commit of the file `a`, that says `one`.
    pub(crate) fn new(format: ObjectFormat) -> Self {
        let made = Self::unborn(format);
        made.write("a", "one\n");
        made.commit_all("first");
        made
    }

    /// The top of the work tree.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("w")
    }

    /// What the code under test makes of it.
    pub(crate) fn repository(&self) -> Repository {
        Repository::find(&self.path()).unwrap()
    }

    /// A new ledger for it, beside it.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::create(&self.dir.path().join("ledger"), &self.repository()).unwrap()
    }

    /// Runs git in the work tree, as a user does: hooks run.
    pub(crate) fn git<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> String {
        self.git_in(&self.path(), words)
    }

    /// The same in another directory.
    pub(crate) fn git_in<W: AsRef<OsStr>>(&self, dir: &Path, words: impl IntoIterator<Item = W>) -> String {
        let git = Git::at(Place::From(dir)).set(format!("core.hooksPath={}", self.hooks().display()));
        git.args(words).line().unwrap()
    }

    fn hooks(&self) -> PathBuf {
        self.path().join(".git/hooks")
    }

    /// Writes a file of the work tree.
    pub(crate) fn write(&self, path: impl AsRef<OsStr>, text: impl AsRef<[u8]>) {
        let path = self.path().join(path.as_ref());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Commits all that is in the work tree.
    pub(crate) fn commit_all(&self, message: &str) -> Oid {
        self.git(["add", "-A"]);
        self.git(["commit", "-q", "--allow-empty", "-m", message]);
        self.oid("HEAD")
    }

    /// What a name stands for.
    pub(crate) fn oid(&self, rev: &str) -> Oid {
        self.git(["rev-parse", "--verify", rev]).parse().unwrap()
    }

    /// Plants a hook of every kind that could run; each leaves a file when it does.
    pub(crate) fn plant_hooks(&self) {
        std::fs::create_dir_all(self.hooks()).unwrap();
        for name in ["reference-transaction", "post-index-change", "post-checkout", "pre-auto-gc"] {
            let hook = self.hooks().join(name);
            std::fs::write(&hook, format!("#!/bin/sh\n: > '{}'\n", self.marker().display())).unwrap();
            std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Whether a planted hook has run.
    pub(crate) fn hook_ran(&self) -> bool {
        self.marker().exists()
    }

    fn marker(&self) -> PathBuf {
        self.dir.path().join("hook-ran")
    }
}

/// A path inside the repository.
pub(crate) fn rel(bytes: impl AsRef<[u8]>) -> RelPath {
    RelPath::from_bytes(bytes.as_ref()).unwrap()
}

/// The same as an argument of a program.
pub(crate) fn word(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
