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
