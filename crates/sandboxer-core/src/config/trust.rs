//! Which projects the user has trusted: a directory, and the exact content its `sandboxer.yaml` had at the time.
//!
//! The record is `trusted.json` in the state directory. A file that has changed since is a file that nobody has read,
//! so it is untrusted again. Changes are made under a lock and published by rename: two commands at once both count,
//! and a crash leaves the old record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::file::{Links, read_bounded};
use super::layers::PROJECT_FILE;
use crate::{Error, Result};

const RECORD: &str = "trusted.json";
const LOCK: &str = "trusted.lock";
const FORMAT: u32 = 1;

/// One trusted project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrustedProject {
    /// The project's directory.
    pub directory: PathBuf,
    /// BLAKE3 of its `sandboxer.yaml` when it was trusted.
    pub digest: String,
    /// When that was.
    pub since: Timestamp,
}

/// The record of trusted projects in one state directory.
#[derive(Clone, Debug)]
pub struct TrustStore {
    home: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct Record {
    format: u32,
    projects: BTreeMap<String, Trusted>,
}

#[derive(Serialize, Deserialize)]
struct Trusted {
    digest: String,
    since: Timestamp,
}

impl TrustStore {
    /// The record in the state directory `home`, which need not exist yet.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into() }
    }

    /// Trusts the `sandboxer.yaml` in `directory` as it is now.
    pub fn trust(&self, directory: &Path) -> Result<TrustedProject> {
        let directory =
            std::fs::canonicalize(directory).map_err(|error| Error::io("resolve", directory, error))?;
        let key = utf8(&directory)?.to_owned();
        let text = read_bounded(&directory.join(PROJECT_FILE), Links::Refuse)?;
        let (digest, since) = (digest(text.as_bytes()), Timestamp::now());
        self.change(|record| {
            record.projects.insert(key, Trusted { digest: digest.clone(), since });
            true
        })?;
        Ok(TrustedProject { directory, digest, since })
    }

    /// Takes the trust back. False where there was none. The directory need not exist any more.
    pub fn untrust(&self, directory: &Path) -> Result<bool> {
        let directory = std::fs::canonicalize(directory)
            .or_else(|_| std::path::absolute(directory))
            .map_err(|error| Error::io("resolve", directory, error))?;
        let key = utf8(&directory)?;
        if !self.load()?.projects.contains_key(key) {
            return Ok(false);
        }
        self.change(|record| record.projects.remove(key).is_some())
    }

    /// Whether the project file `file` is trusted with the content it has now.
    pub fn is_trusted(&self, file: &Path) -> Result<bool> {
        let text = read_bounded(file, Links::Refuse)?;
        self.trusts_content(file, text.as_bytes())
    }

    /// Everything that was trusted, by directory. The files may have changed since.
    pub fn list(&self) -> Result<Vec<TrustedProject>> {
        let projects = self.load()?.projects.into_iter();
        Ok(projects
            .map(|(directory, Trusted { digest, since })| TrustedProject {
                directory: directory.into(),
                digest,
                since,
            })
            .collect())
    }

    /// Whether `file` is trusted with exactly this content.
    pub(super) fn trusts_content(&self, file: &Path, content: &[u8]) -> Result<bool> {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = std::fs::canonicalize(parent).map_err(|error| Error::io("resolve", parent, error))?;
        let Some(directory) = directory.to_str() else { return Ok(false) };
        let record = self.load()?;
        Ok(record.projects.get(directory).is_some_and(|trusted| trusted.digest == digest(content)))
    }

    fn record_path(&self) -> PathBuf {
        self.home.join(RECORD)
    }

    fn load(&self) -> Result<Record> {
        let path = self.record_path();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Record::default()),
            Err(error) => return Err(Error::io("read", &path, error)),
        };
        let record: Record =
            serde_json::from_str(&text).map_err(|error| Error::corrupt(&path, error.to_string()))?;
        if record.format > FORMAT {
            return Err(Error::NewerState { path, found: record.format, supported: FORMAT });
        }
        Ok(record)
    }

    /// Changes the record under the lock; `edit` says whether there is something to write.
    fn change(&self, edit: impl FnOnce(&mut Record) -> bool) -> Result<bool> {
        std::fs::create_dir_all(&self.home)
            .map_err(|error| Error::io("create directory", &self.home, error))?;
        let _lock = self.lock()?;
        let mut record = self.load()?;
        let changed = edit(&mut record);
        if changed {
            record.format = FORMAT;
            self.publish(&record)?;
        }
        Ok(changed)
    }

    /// Held until dropped. It is held for one write only, so waiting for it is short.
    fn lock(&self) -> Result<OwnedFd> {
        let path = self.home.join(LOCK);
        let lock = open_private(&path, OFlags::empty())?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))
            .map_err(|errno| Error::io("lock", &path, errno))?;
        Ok(lock)
    }

    /// Writes beside, then renames: a reader sees the old record or the new one.
    fn publish(&self, record: &Record) -> Result<()> {
        let (path, temporary) = (self.record_path(), self.home.join("trusted.json.new"));
        let json =
            serde_json::to_vec_pretty(record).map_err(|error| Error::corrupt(&path, error.to_string()))?;
        let mut file = File::from(open_private(&temporary, OFlags::TRUNC)?);
        file.write_all(&json).map_err(|error| Error::io("write", &temporary, error))?;
        file.sync_all().map_err(|error| Error::io("sync", &temporary, error))?;
        std::fs::rename(&temporary, &path).map_err(|error| Error::io("rename into place", &path, error))?;
        let home = File::open(&self.home).map_err(|error| Error::io("open", &self.home, error))?;
        home.sync_all().map_err(|error| Error::io("sync", &self.home, error))
    }
}

fn open_private(path: &Path, extra: OFlags) -> Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | extra;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| Error::io("open", path, errno))
}

fn digest(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

fn utf8(directory: &Path) -> Result<&str> {
    directory.to_str().ok_or_else(|| {
        Error::usage(format!("{} is not UTF-8, and such a directory cannot be trusted", directory.display()))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Place {
        dir: tempfile::TempDir,
        store: TrustStore,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let store = TrustStore::new(dir.path().join("home/deep"));
        Place { dir, store }
    }

    impl Place {
        /// A project of that name with a file of its own.
        fn project(&self, name: &str, content: &str) -> PathBuf {
            let dir = self.dir.path().canonicalize().unwrap().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(PROJECT_FILE), content).unwrap();
            dir
        }
    }

    #[test]
    fn trust_holds_for_this_content_alone() {
        let place = place();
        let project = place.project("p", "project: a\n");
        let file = project.join(PROJECT_FILE);
        assert!(!place.store.is_trusted(&file).unwrap());
        let trusted = place.store.trust(&project).unwrap();
        assert_eq!(trusted.directory, project);
        assert!(place.store.is_trusted(&file).unwrap());
        assert_eq!(place.store.list().unwrap(), [trusted]);

        std::fs::write(&file, "project: b\n").unwrap();
        assert!(!place.store.is_trusted(&file).unwrap());
        place.store.trust(&project).unwrap();
        assert!(place.store.is_trusted(&file).unwrap());
    }

    #[test]
    fn the_same_content_elsewhere_is_not_trusted() {
        let place = place();
        place.store.trust(&place.project("p", "project: a\n")).unwrap();
        let other = place.project("q", "project: a\n");
        assert!(!place.store.is_trusted(&other.join(PROJECT_FILE)).unwrap());
    }

    #[test]
    fn trust_can_be_taken_back_even_when_the_project_is_gone() {
        let place = place();
        let project = place.project("p", "project: a\n");
        assert!(!place.store.untrust(&project).unwrap());
        place.store.trust(&project).unwrap();
        std::fs::remove_dir_all(&project).unwrap();
        assert!(place.store.untrust(&project).unwrap());
        assert!(!place.store.untrust(&project).unwrap());
        assert_eq!(place.store.list().unwrap(), []);
    }

    #[test]
    fn the_way_to_the_directory_does_not_matter() {
        let place = place();
        let project = place.project("p", "project: a\n");
        let link = place.dir.path().join("link");
        symlink(&project, &link).unwrap();
        place.store.trust(&link).unwrap();
        assert!(place.store.is_trusted(&project.join(PROJECT_FILE)).unwrap());
        assert!(place.store.is_trusted(&link.join(PROJECT_FILE)).unwrap());
    }

    #[test]
    fn the_record_is_private() {
        let place = place();
        place.store.trust(&place.project("p", "project: a\n")).unwrap();
        let mode = place.store.record_path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!place.store.home.join("trusted.json.new").exists());
    }

    #[test]
    fn what_cannot_be_trusted_says_why() {
        let place = place();
        let project = place.project("p", "project: a\n");
        assert!(matches!(place.store.trust(&project.join("no")), Err(Error::Io { step: "resolve", .. })));
        std::fs::remove_file(project.join(PROJECT_FILE)).unwrap();
        assert!(matches!(place.store.trust(&project), Err(Error::Io { step: "open", .. })));
        symlink("/etc/hostname", project.join(PROJECT_FILE)).unwrap();
        assert!(place.store.trust(&project).unwrap_err().to_string().contains("symbolic link"));

        let odd = place.dir.path().canonicalize().unwrap().join(OsStr::from_bytes(b"\xff"));
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join(PROJECT_FILE), "").unwrap();
        assert!(place.store.trust(&odd).unwrap_err().to_string().contains("UTF-8"));
        assert!(!place.store.is_trusted(&odd.join(PROJECT_FILE)).unwrap());
    }

    #[test]
    fn a_damaged_or_newer_record_is_an_error() {
        let place = place();
        let project = place.project("p", "project: a\n");
        place.store.trust(&project).unwrap();
        let record = place.store.record_path();
        std::fs::write(&record, "{").unwrap();
        assert!(matches!(place.store.list(), Err(Error::Corrupt { .. })));
        assert!(matches!(place.store.trust(&project), Err(Error::Corrupt { .. })));
        std::fs::write(&record, r#"{"format": 2, "projects": {}}"#).unwrap();
        assert!(matches!(place.store.list(), Err(Error::NewerState { found: 2, .. })));
        std::fs::remove_file(&record).unwrap();
        std::fs::create_dir(&record).unwrap();
        assert!(matches!(place.store.list(), Err(Error::Io { step: "read", .. })));
    }

    #[test]
    fn a_home_that_cannot_be_written_is_an_error_that_names_it() {
        let place = place();
        let project = place.project("p", "project: a\n");
        let home = place.dir.path().join("file");
        std::fs::write(&home, "").unwrap();
        let store = TrustStore::new(&home);
        assert!(matches!(store.trust(&project), Err(Error::Io { step: "create directory", .. })));
    }

    #[test]
    fn two_at_once_both_count() {
        let place = place();
        let projects: Vec<_> = (0..8).map(|n| place.project(&format!("p{n}"), "project: a\n")).collect();
        std::thread::scope(|scope| {
            for project in &projects {
                scope.spawn(|| place.store.trust(project).unwrap());
            }
        });
        assert_eq!(place.store.list().unwrap().len(), projects.len());
    }
}
