//! Clones of databases that others are writing to.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{copy_file_range, fstat, ftruncate, ioctl_ficlone};
use sandboxer_core::{Error, Result};

use crate::backup::copy_content;
use crate::connection::{Connection, Mode};

/// How a clone was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The filesystem shares the content until one side changes it.
    Reflink,
    /// The file was copied while nobody could write to it.
    Copy,
    /// Page by page, by SQLite's backup: somebody's transaction kept content in the WAL.
    Backup,
}

/// How long one step waits for the locks of others.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How often the file is tried to be got hold of with nothing in the WAL, before its content is copied by SQLite.
const ATTEMPTS: usize = 5;

/// Makes `to`, which must not exist, a database with the content that `original` has at one instant. Programs may be writing to it all
/// the while. What a crashed writer left is recovered first, as any program that opens it would. Durable when it returns.
pub fn clone(original: &Path, to: &Path) -> Result<Way> {
    clone_from(open_original(original, Mode::ReadWrite)?, to)
}

/// The same of a database that programs can put anything in the place of: see [`Mode::Confined`].
pub fn clone_confined(original: &Path, to: &Path) -> Result<Way> {
    clone_from(open_original(original, Mode::Confined)?, to)
}

fn clone_from(source: Connection, to: &Path) -> Result<Way> {
    let target = OpenOptions::new().write(true).create_new(true).open(to);
    let target = target.map_err(|error| Error::io("create", to, error))?;
    let result = fill(&source, &target, to);
    source.rollback();
    if result.is_err() {
        // What is half made is of no use; a failure to remove it is less telling than the first.
        let _ = std::fs::remove_file(to);
    }
    result
}

fn fill(source: &Connection, target: &File, to: &Path) -> Result<Way> {
    let way = if hold_still(source)? { copy_file(source, target, to)? } else { Way::Backup };
    if way == Way::Backup {
        source.rollback();
        let clone = Connection::open(to, Mode::Confined)?;
        copy_content(source, &clone)?;
    }
    target.sync_all().map_err(|error| Error::io("write to disk", to, error))?;
    Ok(way)
}

fn open_original(path: &Path, mode: Mode) -> Result<Connection> {
    let connection = Connection::open(path, mode)?;
    connection.busy_timeout(PATIENCE)?;
    connection.value("SELECT count(*) FROM sqlite_schema")?;
    if connection.is_read_only() {
        let reason =
            std::io::Error::other("it can only be read; a lock on it has to be had, so it must be writable");
        return Err(Error::io("clone the database", path, reason));
    }
    Ok(connection)
}

/// Opens a read transaction that sees exactly the file, and keeps the file as it is; whether that could be had. It cannot where another
/// connection's transaction needs the WAL. A transaction is open afterwards in either case.
///
/// Writers are held off only while the WAL is moved into the file, not for as long as the transaction.
pub(crate) fn hold_still(connection: &Connection) -> Result<bool> {
    for _ in 0..ATTEMPTS {
        connection.rollback();
        connection.begin_read()?;
        if connection.reads_file() {
            return Ok(true);
        }
        connection.rollback();
        move_wal_into_file(connection)?;
        if connection.reads_file() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// With a second connection that holds writers off, so that none puts more into the WAL before the transaction begins.
fn move_wal_into_file(connection: &Connection) -> Result<()> {
    let gate = connection.another()?;
    gate.busy_timeout(PATIENCE)?;
    gate.execute_batch("BEGIN IMMEDIATE")?;
    connection.rows("PRAGMA wal_checkpoint(PASSIVE)", &[])?;
    connection.begin_read()
}

fn copy_file(source: &Connection, target: &File, to: &Path) -> Result<Way> {
    let Some(descriptor) = source.descriptor() else { return Ok(Way::Backup) };
    if ioctl_ficlone(target, descriptor).is_ok() {
        return Ok(Way::Reflink);
    }
    let failed = |error| Error::io("write", to, std::io::Error::from(error));
    let size = fstat(descriptor).map_err(failed)?.st_size as u64;
    let (mut from, mut at) = (0, 0);
    while from < size {
        let length = usize::try_from(size - from).unwrap_or(usize::MAX).min(1 << 30);
        match copy_file_range(descriptor, Some(&mut from), target, Some(&mut at), length) {
            Ok(0) => break,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::NOSPC) => return Err(failed(rustix::io::Errno::NOSPC)),
            Err(_) => {
                // Some filesystems cannot; SQLite copies page by page then.
                ftruncate(target, 0).map_err(failed)?;
                return Ok(Way::Backup);
            }
        }
    }
    Ok(Way::Copy)
}

/// Where SQLite keeps what belongs to a database beside it.
pub fn companions(database: &Path) -> [PathBuf; 3] {
    ["-wal", "-shm", "-journal"].map(|suffix| {
        let mut name = database.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    })
}
