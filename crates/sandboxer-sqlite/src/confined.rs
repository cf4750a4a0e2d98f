//! Files that programs may have put something else in the place of.
//!
//! A clone lies in a directory that a contained command writes to. Whoever opens it outside of that must not be led elsewhere: by a link in its place,
//! or in the place of what SQLite keeps beside it. So nothing but a regular file of one name is opened, by SQLite's own rule for the last step
//! of the path, and the file that was opened is looked at once more before anything is read from it.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, fstat, lstat};
use rustix::io::Errno;
use sandboxer_core::{Error, Result};

use crate::clone::companions;

/// Where to open `path`: links in the directories above it are those of the host, and followed.
pub(crate) fn place(path: &Path) -> Result<PathBuf> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::usage(format!("{} is no file", path.display())));
    };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let above = above.canonicalize().map_err(|error| Error::io("open the database", path, error))?;
    Ok(above.join(name))
}

/// Refuses where the file, or one that SQLite keeps beside it, is anything but a file of its own.
pub(crate) fn check(path: &Path) -> Result<()> {
    std::iter::once(path.to_path_buf()).chain(companions(path)).try_for_each(|file| match lstat(&file) {
        Ok(found) => judge(&file, &found),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(Error::io("look at", &file, error)),
    })
}

/// The same of what was opened: somebody may have put it there since.
pub(crate) fn check_opened(path: &Path, file: Option<BorrowedFd<'_>>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let found = fstat(file).map_err(|error| Error::io("look at", path, error))?;
    judge(path, &found)
}

fn judge(path: &Path, found: &Stat) -> Result<()> {
    let what = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile if found.st_nlink <= 1 => return Ok(()),
        FileType::RegularFile => "a file that has another name elsewhere",
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        _ => "no file",
    };
    Err(Error::Refused {
        reason: format!("{} is {what}, and not what was put there", path.display()),
        hint: Some("roll the sandbox back: that puts the database there again".to_owned()),
    })
}
