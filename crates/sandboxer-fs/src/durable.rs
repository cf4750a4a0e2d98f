//! Files that are either there whole or not at all, also after a power cut.
//!
//! The order is always the same: write a temporary file, flush it, rename it into place, flush the directory. A flushed
//! file in an unflushed directory is lost on ext4 and xfs when the power goes.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    path.with_file_name(name)
}

/// A new file beside `path`, to be put in its place by [`publish`]. One left by a crash is overwritten.
pub fn create_temporary(path: &Path) -> Result<File> {
    let temporary = temporary(path);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&temporary).map_err(|e| Error::io("create", temporary, e))
}

/// Flushes what [`create_temporary`] made and puts it at `path`, or removes it if that fails.
pub fn publish(file: &File, path: &Path) -> Result<()> {
    or_discard(path, flush_and_rename(file, path))?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

fn flush_and_rename(file: &File, path: &Path) -> Result<()> {
    let temporary = temporary(path);
    file.sync_all().map_err(|e| Error::io("flush", &temporary, e))?;
    std::fs::rename(&temporary, path).map_err(|e| Error::io("rename into place", path, e))
}

/// Removes the temporary file beside `path` if `result` is an error: what failed leaves nothing behind.
pub fn or_discard<T>(path: &Path, result: Result<T>) -> Result<T> {
    if result.is_err() {
        let _ = std::fs::remove_file(temporary(path));
    }
    result
}

/// Writes `content` to `path`, durably and at once.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let mut file = create_temporary(path)?;
    or_discard(path, file.write_all(content).map_err(|e| Error::io("write", path, e)))?;
    publish(&file, path)
}

/// Writes `content` to `path` at once, and leaves it to the system when it is on disk: for what means nothing after a power cut.
pub fn write_lazily(path: &Path, content: &[u8]) -> Result<()> {
    let mut file = create_temporary(path)?;
    let written = file.write_all(content).map_err(|e| Error::io("write", path, e));
    let rename = || std::fs::rename(temporary(path), path);
    or_discard(path, written.and_then(|()| rename().map_err(|e| Error::io("rename into place", path, e))))
}

/// Flushes a directory.
pub fn sync_dir(path: &Path) -> Result<()> {
    let dir = File::open(path).map_err(|e| Error::io("open directory", path, e))?;
    dir.sync_all().map_err(|e| Error::io("flush", path, e))
}

/// Removes what a crash between [`create_temporary`] and [`publish`] left beside `path`.
pub fn discard_temporary(path: &Path) -> Result<()> {
    let temporary = temporary(path);
    match std::fs::remove_file(&temporary) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", temporary, e)),
        _ => Ok(()),
    }
}

/// Removes a file for good; it not being there is fine.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_dir(path.parent().unwrap_or(Path::new("."))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("remove", path, e)),
    }
}
