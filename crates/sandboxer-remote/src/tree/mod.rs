//! One tree of files, here and on a host.
//!
//! Each side keeps a list of its entries as they were when both trees were last equal. What differs from it has changed since: the host tells
//! only that, and only that goes over the wire, as one tar stream. [`Mirror::send`] makes the tree there what it is here, whatever was done to it
//! there. [`Mirror::fetch`] brings here what was changed there; what was changed on both sides is a conflict, and then nothing is written.

mod archive;
mod check;
mod cut;
mod entry;
mod fetch;
mod place;
mod plan;
mod pour;
mod record;
mod room;
mod scripts;
mod send;
mod sparse;
mod stream;
mod told;
mod unpack;
mod walk;
mod write;

use std::path::Path;

use sandboxer_core::Result;
use sandboxer_core::contract::{CancelFlag, Progress};

use crate::shell::Shell;

/// A tree here and its like on a host. Whoever calls keeps two from working on the same tree at once, and sees to it that nothing writes to the
/// tree there meanwhile.
pub struct Mirror<'a> {
    /// The host.
    pub shell: &'a dyn Shell,
    /// A directory, or a single regular file.
    pub local: &'a Path,
    /// Its absolute path there.
    pub remote: &'a str,
    /// The absolute path of a directory there, outside of `remote`, for the host's list.
    pub lists: &'a str,
    /// A file here that remembers our list; replaced at once or not at all.
    pub record: &'a Path,
    /// Whether what goes over the wire is compressed.
    pub compress: bool,
    /// Hears how far it is.
    pub progress: &'a dyn Progress,
    /// Whether to stop.
    pub cancel: &'a CancelFlag,
}

/// What was carried over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How many entries were written.
    pub entries: u64,
    /// How many were removed, not counting what was in them.
    pub removed: u64,
    /// How many bytes of content.
    pub bytes: u64,
    /// What was left out or is not as it was, and why: devices, sockets, pipes, set-id bits, modes that let nobody read.
    pub refused: Vec<String>,
}

impl Mirror<'_> {
    /// Makes the tree there exactly what it is here. One that was cut is completed by the next.
    pub fn send(&self) -> Result<Moved> {
        send::send(self)
    }

    /// Makes here what was changed there since both were equal. One that was cut is completed by the next.
    pub fn fetch(&self) -> Result<Moved> {
        fetch::fetch(self, room::usual)
    }
}

/// The word of a pair of lists.
fn new_generation() -> Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| sandboxer_core::Error::io("read", "random bytes", e))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests;
