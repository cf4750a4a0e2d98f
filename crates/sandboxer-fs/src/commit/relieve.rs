//! What a commit that somebody else has made may not leave behind.
//!
//! Our own commits never give a file the powers that [`super::privileges`] takes away. A strategy that is a plugin copies by its own
//! means: what it has committed is looked at afterwards, and relieved of what it was not to get.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, fchmod};
use sandboxer_core::model::{DiffEntry, DiffKind, Node, Notice, RelPath};
use sandboxer_core::{Error, Result};

use crate::root::{Root, stamp_of_fd};
use crate::stamp::Stamp;
use crate::xattrs::{self, CAPABILITY, Xattrs};

const BITS: [(u32, &str); 2] = [(0o4000, "setuid bit removed"), (0o2000, "setgid bit removed")];

/// Takes from the files below `root` that were committed what they were not to get, and says what that was. A file whose content and
/// owner stay may keep what it had.
///
/// # Errors
/// Where it cannot be taken away.
pub fn relieve(root: &Root, entries: &[DiffEntry]) -> Result<Vec<Notice>> {
    let mut notices = Vec::new();
    for entry in entries.iter().filter(|entry| entry.kind != DiffKind::Deleted) {
        let Some(file) = Powerful::find(root, &entry.path)? else { continue };
        let failed = |error| Error::io("take special rights from", root.shown(&entry.path), error);
        let words = file.relieve(held(entry, &file.stamp)).map_err(failed)?;
        let notice = |message: &str| Notice { path: entry.path.clone(), message: message.to_owned() };
        notices.extend(words.into_iter().map(notice));
    }
    Ok(notices)
}

/// What the file was before, where that is a reason to leave its powers alone: another content or owner would give them to others.
fn held<'a>(entry: &'a DiffEntry, stamp: &Stamp) -> Option<&'a Node> {
    let same = |old: &&Node| (old.uid, old.gid) == (stamp.uid, stamp.gid);
    entry.old.as_ref().filter(|_| entry.kind == DiffKind::Metadata).filter(same)
}

/// A regular file with special powers.
struct Powerful {
    fd: OwnedFd,
    stamp: Stamp,
    xattrs: Xattrs,
}

impl Powerful {
    /// The file at `path`, if it is one.
    fn find(root: &Root, path: &RelPath) -> Result<Option<Self>> {
        let Some(parent) = root.find_parent(path)? else { return Ok(None) };
        let Some(found) = parent.stamp(path.name())?.filter(Stamp::is_file) else { return Ok(None) };
        let fd = match parent.open_file(path.name()) {
            Ok(fd) => fd,
            // What cannot be read and has no bits has nothing that we could take.
            Err(_) if found.permissions() & 0o6000 == 0 => return Ok(None),
            Err(error) => return Err(error),
        };
        let failed = |error| Error::io("look at", root.shown(path), error);
        let (stamp, xattrs) = (stamp_of_fd(&fd).map_err(failed)?, xattrs::read(&fd).map_err(failed)?);
        let has_powers = stamp.permissions() & 0o6000 != 0 || xattrs.contains_key(CAPABILITY);
        Ok((stamp.is_file() && has_powers).then_some(Self { fd, stamp, xattrs }))
    }

    fn relieve(&self, held: Option<&Node>) -> rustix::io::Result<Vec<&'static str>> {
        let mode = self.stamp.permissions();
        let extra = mode & !held.map_or(0, |old| old.mode);
        let taken: Vec<_> = BITS.into_iter().filter(|(bit, _)| extra & bit != 0).collect();
        if !taken.is_empty() {
            let bits = taken.iter().fold(0, |bits, (bit, _)| bits | bit);
            fchmod(&self.fd, Mode::from_raw_mode(mode & !bits))?;
        }
        let mut words: Vec<&str> = taken.into_iter().map(|(_, message)| message).collect();
        let same = held.is_some_and(|old| old.xattrs.is_some() && old.xattrs == xattrs::digest(&self.xattrs));
        if self.xattrs.contains_key(CAPABILITY) && !same {
            let mut rest = self.xattrs.clone();
            rest.remove(CAPABILITY);
            xattrs::replace(&self.fd, &rest)?;
            words.push("file capabilities removed");
        }
        Ok(words)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn entry(path: &str, kind: DiffKind) -> DiffEntry {
        DiffEntry::new(RelPath::parse(path).unwrap(), kind)
    }

    fn put(dir: &Path, name: &str, mode: u32) {
        fs::write(dir.join(name), name).unwrap();
        fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    fn mode(dir: &Path, name: &str) -> u32 {
        fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_a_commit_gave_is_taken_and_what_was_there_stays() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("new", 0o6711), ("rewritten", 0o4755), ("touched", 0o4755)] {
            put(dir.path(), name, mode);
        }
        let owner = fs::metadata(dir.path()).unwrap();
        let (node_type, uid, gid) = (sandboxer_core::model::NodeType::File, owner.uid(), owner.gid());
        let (digest, target, xattrs) = (None, None, None);
        let old = Some(Node { node_type, mode: 0o4700, uid, gid, size: 1, digest, target, xattrs });
        let entries = [
            entry("new", DiffKind::Created),
            DiffEntry { old: old.clone(), ..entry("rewritten", DiffKind::Modified) },
            DiffEntry { old, ..entry("touched", DiffKind::Metadata) },
            entry("gone", DiffKind::Deleted),
        ];
        let taken = relieve(&Root::open(dir.path()).unwrap(), &entries).unwrap();
        let told: Vec<String> = taken.iter().map(|n| format!("{}: {}", n.path, n.message)).collect();
        let expected =
            ["new: setuid bit removed", "new: setgid bit removed", "rewritten: setuid bit removed"];
        assert_eq!(told, expected);
        let modes = ["new", "rewritten", "touched"].map(|name| mode(dir.path(), name));
        assert_eq!(modes, [0o711, 0o755, 0o4755]);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "outside", 0o4755);
        fs::create_dir(dir.path().join("tree")).unwrap();
        std::os::unix::fs::symlink("../outside", dir.path().join("tree/link")).unwrap();
        let root = Root::open(dir.path().join("tree")).unwrap();
        let taken = relieve(&root, &[entry("link", DiffKind::Created)]).unwrap();
        assert!(taken.is_empty() && mode(dir.path(), "outside") == 0o4755);
    }
}
