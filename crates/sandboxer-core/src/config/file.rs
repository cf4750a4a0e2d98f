//! Reading a file that somebody else may have written: a regular one, of a sane size, without hanging on it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{Error, Result};

/// More than any configuration needs.
const LARGEST: u64 = 1 << 20;

/// Whether the last component may be a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// The user's own files, which are often links into a repository of settings.
    Follow,
    /// A project's file: it must be the thing itself, or it could show a secret's content in an error message.
    Refuse,
}

/// The text of a regular file of at most 1 MiB.
pub(crate) fn read_bounded(file: &Path, links: Links) -> Result<String> {
    let bytes = read_bytes(open(file, links)?, file)?;
    String::from_utf8(bytes).map_err(|_| unusable(file, "is not UTF-8 text"))
}

fn open(file: &Path, links: Links) -> Result<OwnedFd> {
    // A FIFO would hold up a blocking open for ever.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    match rustix::fs::open(file, flags, Mode::empty()) {
        Ok(fd) => Ok(fd),
        Err(Errno::LOOP) if links == Links::Refuse => Err(unusable(file, "is a symbolic link")),
        Err(Errno::NXIO) => Err(unusable(file, "is not a regular file")),
        Err(errno) => Err(Error::io("open", file, errno)),
    }
}

fn read_bytes(fd: OwnedFd, file: &Path) -> Result<Vec<u8>> {
    let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::io("examine", file, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(unusable(file, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    let mut limited = File::from(fd).take(LARGEST + 1);
    limited.read_to_end(&mut bytes).map_err(|error| Error::io("read", file, error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(unusable(file, "is larger than 1 MiB"));
    }
    Ok(bytes)
}

fn unusable(file: &Path, what: &str) -> Error {
    Error::Config {
        file: file.to_path_buf(),
        line: None,
        column: None,
        message: format!("the file {what}"),
        hint: Some("a configuration is a regular UTF-8 file of at most 1 MiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    fn message(result: Result<String>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn links_are_followed_only_for_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.yaml"), dir.path().join("link.yaml"));
        std::fs::write(&real, "a: 1\n").unwrap();
        symlink(&real, &link).unwrap();
        assert_eq!(read_bounded(&link, Links::Follow).unwrap(), "a: 1\n");
        assert!(message(read_bounded(&link, Links::Refuse)).contains("symbolic link"));
    }

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(message(read_bounded(&fifo, Links::Refuse)).contains("not a regular file"));
        assert!(message(read_bounded(dir.path(), Links::Follow)).contains("not a regular file"));

        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(message(read_bounded(&socket, Links::Follow)).contains("not a regular file"));

        let huge = dir.path().join("huge");
        std::fs::write(&huge, vec![b'#'; LARGEST as usize]).unwrap();
        assert_eq!(read_bounded(&huge, Links::Refuse).unwrap().len() as u64, LARGEST);
        std::fs::write(&huge, vec![b'#'; LARGEST as usize + 1]).unwrap();
        assert!(message(read_bounded(&huge, Links::Refuse)).contains("larger than 1 MiB"));
    }

    #[test]
    fn bytes_and_absence_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        assert!(matches!(read_bounded(&file, Links::Follow), Err(Error::Io { step: "open", .. })));
        std::fs::write(&file, b"\xff\xfe").unwrap();
        assert!(message(read_bounded(&file, Links::Follow)).contains("UTF-8"));
    }
}
