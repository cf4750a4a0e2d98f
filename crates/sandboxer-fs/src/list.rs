//! Directory listings.

use std::mem::MaybeUninit;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use sandboxer_core::{Error, Result};

use crate::root::Dir;

const BUFFER: usize = 16 * 1024;

/// One entry of a listing. The type is the directory's word, which some filesystems do not give.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// `Unknown` where only a stat tells.
    pub kind: FileType,
}

/// All entries of `dir` in the directory's own order, without `.` and `..`.
pub fn names_and_types(dir: &Dir) -> Result<Vec<Listed>> {
    let fail = |e| Error::io("list directory", dir.shown_self(), e);
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0)).map_err(fail)?;
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut listing = RawDir::new(dir, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = match entry {
            // It was removed since it was opened, and holds nothing any more.
            Err(Errno::NOENT) => break,
            entry => entry.map_err(fail)?,
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push(Listed { name: name.to_vec(), kind: entry.file_type() });
        }
    }
    Ok(entries)
}

/// The same, sorted by name.
pub fn sorted(dir: &Dir) -> Result<Vec<Listed>> {
    let mut entries = names_and_types(dir)?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
