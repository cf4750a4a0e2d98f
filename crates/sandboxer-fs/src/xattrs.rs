//! Extended attributes, POSIX ACLs among them.
//!
//! Only attributes that mean something to programs are carried: `user.*`, the two ACLs and file capabilities. Labels of
//! security modules and other filesystems' private marks belong to the place a file is in, not to the file.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

/// Name and value of each attribute that is carried.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The attribute that holds file capabilities: a privilege, never committed.
pub const CAPABILITY: &[u8] = b"security.capability";

const LIST_START: usize = 1024;
const LIMIT: usize = 256 * 1024;

fn is_carried(name: &[u8]) -> bool {
    // OverlayFS reads its own marks from `user.overlay.*`: carried along, they could be forged.
    if name.starts_with(b"user.overlay.") {
        return false;
    }
    name.starts_with(b"user.")
        || name.starts_with(b"system.posix_acl_")
        // Without privilege a capability can be read but not set: to us it is not there.
        || (name == CAPABILITY && rustix::process::geteuid().is_root())
}

/// The attributes of an open file or directory. A filesystem without attributes has none.
pub fn read(fd: impl AsFd) -> rustix::io::Result<Xattrs> {
    let fd = fd.as_fd();
    let mut found = Xattrs::new();
    for name in list(fd)?.split(|b| *b == 0).filter(|n| is_carried(n)) {
        if let Some(value) = get(fd, name)? {
            found.insert(name.to_vec(), value);
        }
    }
    Ok(found)
}

fn list(fd: std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<Vec<u8>> {
    // Nearly every file has none: a buffer on the stack answers that without an allocation.
    let mut small = [0_u8; LIST_START];
    match fs::flistxattr(fd, &mut small[..]) {
        Ok(len) => Ok(small[..len].to_vec()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
        Err(Errno::RANGE) => grow(|buffer| fs::flistxattr(fd, buffer)),
        Err(e) => Err(e),
    }
}

fn get(fd: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Option<Vec<u8>>> {
    match grow(|buffer| fs::fgetxattr(fd, name, buffer)) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(crate) fn grow(
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut size = LIST_START;
    loop {
        let mut buffer = vec![0; size];
        match call(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if size < LIMIT => size *= 4,
            Err(e) => return Err(e),
        }
    }
}

/// Makes the attributes of an open file exactly `wanted`.
pub fn replace(fd: impl AsFd, wanted: &Xattrs) -> rustix::io::Result<()> {
    let fd = fd.as_fd();
    let present = read(fd)?;
    for name in present.keys().filter(|n| !wanted.contains_key(*n)) {
        fs::fremovexattr(fd, name.as_slice())?;
    }
    for (name, value) in wanted.iter().filter(|(n, v)| present.get(*n) != Some(*v)) {
        fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Sets `wanted` on a file that was just made and has none.
pub fn set_new(fd: impl AsFd, wanted: &Xattrs) -> rustix::io::Result<()> {
    for (name, value) in wanted {
        fs::fsetxattr(fd.as_fd(), name.as_slice(), value, XattrFlags::empty())?;
    }
    Ok(())
}

/// A digest of all of them; `None` where there are none.
pub fn digest(xattrs: &Xattrs) -> Option<String> {
    if xattrs.is_empty() {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    for part in xattrs.iter().flat_map(|(name, value)| [name, value]) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Some(format!("blake3:{}", hasher.finalize().to_hex()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn replace_leaves_exactly_what_was_wanted() {
        let file = tempfile::tempfile().unwrap();
        let first = Xattrs::from([(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), vec![7; 3000])]);
        if replace(&file, &first) == Err(Errno::OPNOTSUPP) {
            println!("SKIPPED: the temporary directory has no extended attributes");
            return;
        }
        assert_eq!(read(&file).unwrap(), first);
        let second = Xattrs::from([(b"user.b".to_vec(), b"2".to_vec())]);
        replace(&file, &second).unwrap();
        assert_eq!(read(&file).unwrap(), second);
        assert_ne!(digest(&first), digest(&second));
        assert_eq!(digest(&Xattrs::new()), None);
    }

    #[test]
    fn private_marks_are_not_carried() {
        assert!(!is_carried(b"trusted.overlay.opaque"));
        assert!(!is_carried(b"user.overlay.opaque"));
        assert!(!is_carried(b"security.selinux"));
        assert!(is_carried(b"system.posix_acl_access"));
    }
}
