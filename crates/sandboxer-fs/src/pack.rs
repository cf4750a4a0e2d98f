//! Base content that outlives the original: small text files, one after another in one file, within a budget.
//!
//! A merge needs what both sides started from, and by then neither side has it any more. Keeping it as files would cost as much
//! as the copy itself; appended to one file it costs a write. What is read back counts only if its hash is the one on record.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sandboxer_core::{Error, Result};

use crate::hash::ContentHash;
use crate::manifest::Entry;
use crate::patch;

/// Files larger than this are not kept: people merge sources, not data.
pub const LARGEST: u64 = 64 * 1024;

/// Appends to a pack; several threads may.
pub struct PackWriter {
    file: File,
    len: AtomicU64,
    budget: u64,
}

impl PackWriter {
    /// Opens the pack at `path`, or makes it, for as long as it is smaller than `budget`.
    pub fn open(path: &Path, budget: u64) -> Result<Self> {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = opened.map_err(|e| Error::io("open", path, e))?;
        let len = file.metadata().map_err(|e| Error::io("examine", path, e))?.len();
        Ok(Self { file, len: AtomicU64::new(len), budget })
    }

    /// Whether content of that size would be kept.
    pub fn wants(&self, size: u64) -> bool {
        size > 0 && size <= LARGEST && self.len.load(Ordering::Relaxed) + size <= self.budget
    }

    /// Keeps `content` and tells where; `None` where it is not text, or there is no room. A write that fails loses
    /// nothing but the means to merge.
    pub fn keep(&self, content: &[u8]) -> Option<u64> {
        let size = content.len() as u64;
        if !self.wants(size) || patch::is_binary(content) {
            return None;
        }
        let offset = self.len.fetch_add(size, Ordering::Relaxed);
        self.file.write_all_at(content, offset).ok().map(|()| offset)
    }

    /// Makes what was kept durable. Needless at create: what a power cut leaves of a pack is found out by its hashes.
    pub fn sync(&self) {
        let _ = self.file.sync_data();
    }
}

/// The content that `entry` had in the base, from the pack at `path`.
pub fn read(path: &Path, entry: &Entry) -> Option<Vec<u8>> {
    let (offset, hash, size) = (entry.kept?, entry.hash?, entry.base?.size);
    if size > LARGEST {
        return None;
    }
    let mut content = vec![0; size as usize];
    File::open(path).ok()?.read_exact_at(&mut content, offset).ok()?;
    (ContentHash::of(&content) == hash).then_some(content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    fn entry(content: &[u8], kept: Option<u64>) -> Entry {
        let base = Some(Stamp { size: content.len() as u64, ..Stamp::default() });
        Entry { base, hash: Some(ContentHash::of(content)), kept, ..Entry::default() }
    }

    #[test]
    fn text_is_kept_within_the_budget_and_read_back_by_its_hash() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("pack");
        let pack = PackWriter::open(&path, 20).unwrap();
        let first = pack.keep(b"first text");
        assert_eq!(first, Some(0));
        assert_eq!(pack.keep(b"bin\0ary"), None);
        assert_eq!(pack.keep(b""), None);
        assert_eq!(pack.keep(b"too long for what is left"), None);
        drop(pack);
        let pack = PackWriter::open(&path, 20).unwrap();
        let second = pack.keep(b"second");
        assert_eq!(second, Some(10));
        pack.sync();
        assert_eq!(read(&path, &entry(b"first text", first)).unwrap(), b"first text");
        assert_eq!(read(&path, &entry(b"second", second)).unwrap(), b"second");
        assert_eq!(read(&path, &entry(b"SECOND", second)), None);
        assert_eq!(read(&path, &entry(b"second", None)), None);
        assert_eq!(read(&path, &entry(b"second", Some(99))), None);
    }
}
