//! The git directory that commits are made in, which only we write.
//!
//! A ledger has a configuration of two lines, no hooks and no objects: it reads those of the original, and what a commit makes goes
//! into a store of its own, the *incoming* one, until it is decided. So nothing that is configured in the original, and nothing
//! that an agent wrote, has a say in how a commit is made, and a commit that is given up leaves nothing in the original.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};

use crate::git::{Git, Place};
use crate::oid::ObjectFormat;
use crate::repository::Repository;

/// A bare git directory of ours over the objects of a repository.
#[derive(Clone, Debug)]
pub struct Ledger {
    dir: PathBuf,
    /// The original's store.
    objects: PathBuf,
    format: ObjectFormat,
}

impl Ledger {
    /// Makes a ledger at `dir`, which may be there. It can be made anew at any time, so it is not flushed.
    pub fn create(dir: &Path, repository: &Repository) -> Result<Self> {
        let ledger = Self::over(dir, repository);
        for name in ["refs", "objects/info"] {
            make_dir(&dir.join(name))?;
        }
        write(&dir.join("objects/info/alternates"), &ledger.alternates())?;
        write(&dir.join("config"), config(ledger.format).as_bytes())?;
        ledger.make_incoming()?;
        // Last: what has no HEAD is no ledger.
        write(&dir.join("HEAD"), b"ref: refs/heads/none\n")?;
        Ok(ledger)
    }

    /// The ledger at `dir`, which was made for the same repository.
    pub fn open(dir: &Path, repository: &Repository) -> Result<Self> {
        if !dir.join("HEAD").exists() {
            return Self::create(dir, repository);
        }
        let ledger = Self::over(dir, repository);
        ledger.make_incoming()?;
        Ok(ledger)
    }

    fn over(dir: &Path, repository: &Repository) -> Self {
        Self { dir: dir.to_path_buf(), objects: repository.objects(), format: repository.format }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The original's store of objects.
    pub fn objects(&self) -> &Path {
        &self.objects
    }

    /// The store for objects of a commit that is not decided.
    pub fn incoming(&self) -> PathBuf {
        self.dir.join("incoming")
    }

    /// How objects are named.
    pub fn format(&self) -> ObjectFormat {
        self.format
    }

    /// A call that reads: it sees the original's objects, and those that are incoming.
    pub fn git(&self) -> Git {
        self.show_incoming(self.at().env("GIT_OBJECT_DIRECTORY", &self.objects))
    }

    /// Lets a call about the original see what is incoming.
    pub(crate) fn show_incoming(&self, git: Git) -> Git {
        git.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.incoming()))
    }

    /// A call that writes: it sees the same, and what it writes is incoming.
    pub fn git_into_incoming(&self) -> Git {
        self.at().env("GIT_OBJECT_DIRECTORY", self.incoming())
    }

    fn at(&self) -> Git {
        // Where a history was cut off stands beside the store.
        let shallow = self.objects.with_file_name("shallow");
        let git = Git::at(Place::Dir(&self.dir));
        if shallow.exists() { git.env("GIT_SHALLOW_FILE", shallow) } else { git }
    }

    /// Makes the incoming store as far as it is not there.
    pub(crate) fn make_incoming(&self) -> Result<()> {
        let info = self.incoming().join("info");
        make_dir(&info)?;
        write(&info.join("alternates"), &self.alternates())
    }

    /// What a store with the original's objects behind it says in `info/alternates`.
    fn alternates(&self) -> Vec<u8> {
        let mut line = quoted(&self.objects).into_vec();
        line.push(b'\n');
        line
    }
}

fn config(format: ObjectFormat) -> String {
    match format {
        ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n".to_owned(),
        ObjectFormat::Sha256 => {
            let name = format.name();
            format!(
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = {name}\n"
            )
        }
    }
}

/// A path as git takes it in a list of stores: in quotes, or a colon or a line's end would end it.
fn quoted(path: &Path) -> OsString {
    OsString::from_vec(c_quoted(path.as_os_str()))
}

/// Bytes in double quotes, as git reads them in C's way, with nothing in them but printable ASCII.
pub(crate) fn c_quoted(text: impl AsRef<OsStr>) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in text.as_ref().as_bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b' '..=b'~' => quoted.push(*byte),
            _ => quoted.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

fn make_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| Error::io("create directory", path, e))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    sandboxer_fs::durable::write_lazily(path, content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::Checkout;

    #[test]
    fn it_sees_the_objects_of_the_original_and_writes_none_there() {
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let checkout = Checkout::new(format);
            let ledger = checkout.ledger();
            let head = checkout.oid("HEAD");
            for git in [ledger.git(), ledger.git_into_incoming()] {
                assert_eq!(git.args(["cat-file", "-t", head.as_str()]).line().unwrap(), "commit");
            }
            let git = ledger.git_into_incoming();
            let told = git.args(["hash-object", "-w", "--stdin", "--no-filters"]).feed(b"x").unwrap();
            let made = format.blob(b"x");
            assert_eq!(String::from_utf8(told).unwrap().trim(), made.as_str());
            let loose = |store: PathBuf| store.join(&made.as_str()[..2]).join(&made.as_str()[2..]);
            assert!(loose(ledger.incoming()).exists());
            assert!(!loose(ledger.objects().to_path_buf()).exists());
            assert_eq!(ledger.git().args(["cat-file", "-p", made.as_str()]).output().unwrap(), b"x");
        }
    }

    #[test]
    fn it_works_in_directories_with_any_name() {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let odd = checkout.dir.path().join("a:b\"c\\d\ne #");
        std::fs::create_dir(&odd).unwrap();
        let moved = odd.join("w");
        std::fs::rename(checkout.path(), &moved).unwrap();
        let repository = Repository::find(&moved).unwrap();
        let ledger = Ledger::create(&odd.join("ledger"), &repository).unwrap();
        let head = repository.head().unwrap().commit.unwrap();
        let told = ledger.git_into_incoming().args(["cat-file", "-t", head.as_str()]).line().unwrap();
        assert_eq!(told, "commit");
        let git = ledger.git_into_incoming();
        git.args(["hash-object", "-w", "--stdin", "--no-filters"]).feed(b"x").unwrap();
        let blob = ObjectFormat::Sha1.blob(b"x");
        assert_eq!(ledger.git().args(["cat-file", "-p", blob.as_str()]).output().unwrap(), b"x");
    }

    #[test]
    fn opening_again_makes_what_is_not_there() {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let ledger = checkout.ledger();
        std::fs::remove_dir_all(ledger.incoming()).unwrap();
        let repository = checkout.repository();
        let again = Ledger::open(ledger.dir(), &repository).unwrap();
        assert!(again.incoming().join("info/alternates").exists());
        let new = checkout.dir.path().join("other");
        assert!(Ledger::open(&new, &repository).unwrap().dir().join("HEAD").exists());
    }

    #[test]
    fn a_history_that_is_cut_off_is_known_to_be() {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        checkout.commit_all("second");
        let shallow = checkout.dir.path().join("shallow");
        let source = format!("file://{}", checkout.path().display());
        let words = ["-c", "protocol.allow=always", "clone", "-q", "--depth=1", &source];
        checkout.git(words.iter().map(OsStr::new).chain([shallow.as_os_str()]));
        let repository = Repository::find(&shallow).unwrap();
        let ledger = Ledger::create(&checkout.dir.path().join("ledger"), &repository).unwrap();
        let head = repository.head().unwrap().commit.unwrap();
        assert_eq!(ledger.git().args(["rev-list", "--count", head.as_str()]).line().unwrap(), "1");
    }

    #[test]
    fn quotes_are_those_that_git_reads() {
        assert_eq!(c_quoted("a b"), b"\"a b\"");
        assert_eq!(c_quoted(OsStr::from_bytes(b"\"\\\n\xff")), br#""\"\\\012\377""#);
    }
}
