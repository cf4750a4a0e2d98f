//! Values in files of their own, whole or not at all: a magic word, the value, a checksum.

use std::path::Path;

use sandboxer_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable;

const CHECKSUM: usize = 32;

/// Writes a value to `path`, durably and at once.
pub fn store<T: Serialize>(magic: &[u8; 8], value: &T, path: &Path) -> Result<()> {
    durable::write(path, &seal(magic, value, path)?)
}

/// Writes a value to `path` at once, and leaves it to the system when it is on disk.
pub fn store_lazily<T: Serialize>(magic: &[u8; 8], value: &T, path: &Path) -> Result<()> {
    durable::write_lazily(path, &seal(magic, value, path)?)
}

fn seal<T: Serialize>(magic: &[u8; 8], value: &T, path: &Path) -> Result<Vec<u8>> {
    let body = postcard::to_stdvec(value).map_err(|e| Error::corrupt(path, e.to_string()))?;
    let checksum = blake3::hash(&body);
    Ok([magic.as_slice(), &body, checksum.as_bytes()].concat())
}

/// Reads the value at `path`; `None` where there is none.
pub fn load<T: DeserializeOwned>(magic: &[u8; 8], path: &Path) -> Result<Option<T>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let damaged = |reason: &str| Error::corrupt(path, reason);
    let rest = bytes.strip_prefix(magic).ok_or_else(|| damaged("it is of no known version"))?;
    let end = rest.len().checked_sub(CHECKSUM).ok_or_else(|| damaged("it is too short"))?;
    if blake3::hash(&rest[..end]).as_bytes() != &rest[end..] {
        return Err(damaged("its checksum does not match"));
    }
    postcard::from_bytes(&rest[..end]).map(Some).map_err(|e| damaged(&e.to_string()))
}
