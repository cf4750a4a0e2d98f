//! What is remembered here: our list, as it was when both sides were last equal.
//!
//! Both lists bear the same word, their *generation*. Ours is written beside the old one before the host puts its own in place, and renamed
//! after: whatever is cut in between, the host's word tells which of the two is meant.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;

use super::entry::{Entry, Name};

const MAGIC: &[u8] = b"SBXLIST1";

/// Entries by path.
pub(super) type Known = HashMap<Name, Entry>;

/// The lists of which one is the last.
pub(super) struct Record {
    path: PathBuf,
    candidates: Vec<Candidate>,
}

struct Candidate {
    place: PathBuf,
    generation: String,
    /// Its records, in text, until they are [read](Record::read).
    text: Vec<u8>,
    known: Known,
}

impl Record {
    /// A list that is damaged is none: everything is compared anew.
    pub fn load(path: &Path) -> Result<Self> {
        let mut candidates = Vec::new();
        for place in [path.to_path_buf(), next(path)] {
            match std::fs::read(&place) {
                Ok(bytes) => candidates.extend(Candidate::new(place, bytes)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("read", place, e)),
            }
        }
        Ok(Self { path: path.to_path_buf(), candidates })
    }

    /// Whether nothing was ever sent, as far as is known here.
    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The words of them.
    pub fn generations(&self) -> String {
        let words: Vec<&str> =
            self.candidates.iter().map(|candidate| candidate.generation.as_str()).collect();
        words.join(" ")
    }

    /// Reads what they say, which takes a while: the host looks at its tree meanwhile.
    pub fn read(&mut self) -> Result<()> {
        for candidate in &mut self.candidates {
            let records = candidate.text.split(|byte| *byte == 0).filter(|record| !record.is_empty());
            let entries = records.map(|record| Entry::parse(record).map(|entry| (entry.path.clone(), entry)));
            let known: Option<Known> = entries.collect();
            candidate.known =
                known.ok_or_else(|| Error::corrupt(&candidate.place, "a record makes no sense"))?;
        }
        Ok(())
    }

    /// The list that belongs to the host's.
    pub fn settle(self, generation: Option<&str>) -> Result<Option<Known>> {
        let is_meant = |candidate: &Candidate| Some(candidate.generation.as_str()) == generation;
        let Some(meant) = self.candidates.into_iter().find(is_meant) else { return Ok(None) };
        if meant.place != self.path {
            std::fs::rename(&meant.place, &self.path)
                .map_err(|e| Error::io("rename into place", &self.path, e))?;
        }
        Ok(Some(meant.known))
    }
}

impl Candidate {
    fn new(place: PathBuf, mut bytes: Vec<u8>) -> Option<Self> {
        let (text, sum) = bytes.split_last_chunk::<32>()?;
        (blake3::hash(text).as_bytes() == sum).then_some(())?;
        let end = text.iter().position(|byte| *byte == 0)?;
        let word = text[..end].strip_prefix(MAGIC)?.strip_prefix(b" ")?;
        let generation = String::from_utf8(word.to_vec()).ok()?;
        bytes.truncate(bytes.len() - 32);
        Some(Self { place, generation, text: bytes.split_off(end + 1), known: Known::new() })
    }
}

/// Writes the list that is to come.
pub(super) fn prepare<'a>(
    path: &Path,
    generation: &str,
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<()> {
    let mut bytes = [MAGIC, b" ", generation.as_bytes(), b"\0"].concat();
    for entry in entries {
        bytes.extend(entry.record());
        bytes.push(0);
    }
    let sum = blake3::hash(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    durable::write(&next(path), &bytes)
}

/// It is the last one now.
pub(super) fn publish(path: &Path) -> Result<()> {
    std::fs::rename(next(path), path).map_err(|e| Error::io("rename into place", path, e))?;
    forget_fetching(path)
}

/// Both sides are equal: what a fetch that was cut has done is of no account any more.
pub(super) fn forget_fetching(path: &Path) -> Result<()> {
    match std::fs::remove_file(beside(path, ".fetching")) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Notes what a fetch is about to write or remove here. Until it is published, none of that is anybody else's work.
pub(super) fn begin_fetching<'a>(path: &Path, names: impl Iterator<Item = &'a Name>) -> Result<()> {
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend_from_slice(name);
        bytes.push(0);
    }
    durable::write(&beside(path, ".fetching"), &bytes)
}

/// What a fetch that was cut may have written or removed.
pub(super) fn being_fetched(path: &Path) -> Result<HashSet<Name>> {
    let file = beside(path, ".fetching");
    match std::fs::read(&file) {
        Ok(bytes) => {
            let names = bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            Ok(names.map(<[u8]>::to_vec).collect())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
        Err(e) => Err(Error::io("read", file, e)),
    }
}

fn next(path: &Path) -> PathBuf {
    beside(path, ".next")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry() -> Entry {
        Entry::parse(b"f 644 5 1 2 9 a\nb//").unwrap()
    }

    #[test]
    fn the_hosts_word_tells_which_list_is_meant() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("record");
        prepare(&path, "one", [entry()].iter()).unwrap();
        publish(&path).unwrap();
        prepare(&path, "two", [].iter()).unwrap();
        let load = || {
            let mut record = Record::load(&path).unwrap();
            record.read().unwrap();
            record
        };
        assert_eq!(load().generations(), "one two");
        assert_eq!(load().settle(Some("one")).unwrap().unwrap()[&b"a\nb".to_vec()], entry());
        assert!(load().settle(Some("three")).unwrap().is_none() && load().settle(None).unwrap().is_none());
        assert!(load().settle(Some("two")).unwrap().unwrap().is_empty());
        assert_eq!(load().generations(), "two");
    }

    #[test]
    fn a_damaged_list_is_none() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("record");
        prepare(&path, "one", [entry()].iter()).unwrap();
        publish(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[12] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Record::load(&path).unwrap().generations(), "");
    }
}
