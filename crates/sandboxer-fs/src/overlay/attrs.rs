//! Extended attributes by name, as they are on disk: the marks of an overlay among them.
//!
//! Links and devices have attributes too, and neither can be opened to read them. So an entry is named through the
//! descriptor of its directory, `/proc/self/fd/N/NAME`, by calls that do not follow a link at its end.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;
use sandboxer_core::{Error, Result};

use crate::root::Dir;
use crate::xattrs::{self, Xattrs};

/// The value of one attribute; `None` where the entry has none, or is gone.
pub(super) fn get(dir: &Dir, name: &[u8], attribute: &str) -> Result<Option<Vec<u8>>> {
    read(dir, name, attribute.as_bytes()).map_err(|e| Error::io("read attributes of", dir.shown(name), e))
}

/// The value of one attribute of the directory itself.
pub(super) fn get_own(dir: &Dir, attribute: &str) -> Result<Option<Vec<u8>>> {
    absent(xattrs::grow(|buffer| fs::fgetxattr(dir, attribute, buffer)))
        .map_err(|e| Error::io("read attributes of", dir.shown_self(), e))
}

/// Every attribute that is there, whatever it means.
pub(super) fn all(dir: &Dir, name: &[u8]) -> Result<Xattrs> {
    let failed = |e| Error::io("read attributes of", dir.shown(name), e);
    let place = place(dir, name);
    let listed = absent(xattrs::grow(|buffer| fs::llistxattr(place.as_slice(), buffer))).map_err(failed)?;
    collect(&listed.unwrap_or_default(), |attribute| read(dir, name, attribute)).map_err(failed)
}

/// Every attribute of something open.
pub(super) fn all_of(fd: impl AsFd) -> rustix::io::Result<Xattrs> {
    let fd = fd.as_fd();
    let listed = absent(xattrs::grow(|buffer| fs::flistxattr(fd, buffer)))?;
    let read = |attribute: &[u8]| absent(xattrs::grow(|buffer| fs::fgetxattr(fd, attribute, buffer)));
    collect(&listed.unwrap_or_default(), read)
}

/// Sets one attribute.
pub(super) fn set(dir: &Dir, name: &[u8], attribute: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    fs::lsetxattr(place(dir, name), attribute, value, XattrFlags::empty())
}

fn read(dir: &Dir, name: &[u8], attribute: &[u8]) -> rustix::io::Result<Option<Vec<u8>>> {
    let place = place(dir, name);
    absent(xattrs::grow(|buffer| fs::lgetxattr(place.as_slice(), attribute, buffer)))
}

fn collect(
    listed: &[u8],
    read: impl Fn(&[u8]) -> rustix::io::Result<Option<Vec<u8>>>,
) -> rustix::io::Result<Xattrs> {
    let mut found = Xattrs::new();
    for name in listed.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        if let Some(value) = read(name)? {
            found.insert(name.to_vec(), value);
        }
    }
    Ok(found)
}

fn place(dir: &Dir, name: &[u8]) -> Vec<u8> {
    let mut place = format!("/proc/self/fd/{}/", dir.fd().as_raw_fd()).into_bytes();
    place.extend_from_slice(name);
    place
}

fn absent(answer: rustix::io::Result<Vec<u8>>) -> rustix::io::Result<Option<Vec<u8>>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::NOENT | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    }
}
