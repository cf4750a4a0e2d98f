//! Bringing what a commit made into the original's store of objects.
//!
//! An object appears whole or not at all, and one that is there already stays as it is: so this can be broken off anywhere and done
//! again. It harms nobody if the commit is given up afterwards: objects that nothing refers to go with git's next clean-up.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};
use sandboxer_fs::durable::sync_dir;

use crate::ledger::Ledger;

/// The set-group-id bit of a directory: what is made in it belongs to its group.
const SET_GROUP: u32 = 0o2000;

/// Brings all that is incoming into the original's store, durably. It stays incoming too, until it is discarded: what nothing refers to yet,
/// somebody's clean-up may take away again.
pub fn deliver(ledger: &Ledger) -> Result<()> {
    let mut delivery = Delivery::to(ledger.objects())?;
    for (dir, name) in all(ledger)? {
        delivery.put(&ledger.incoming(), &dir, &name)?;
    }
    delivery.sync()
}

/// Delivers again if something of it is not in the store any more, or not yet.
pub fn make_sure(ledger: &Ledger) -> Result<()> {
    let is_there = |(dir, name): &(String, String)| ledger.objects().join(dir).join(name).exists();
    if all(ledger)?.iter().all(is_there) { Ok(()) } else { deliver(ledger) }
}

/// Directory and name of each file that is incoming, in the order in which they may appear.
fn all(ledger: &Ledger) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for dir in names(&ledger.incoming())?.into_iter().filter(|name| is_hex(name, &[2])) {
        let rest = names(&ledger.incoming().join(&dir))?;
        let objects = rest.into_iter().filter(|name| is_hex(name, &[38, 62]));
        found.extend(objects.map(|name| (dir.clone(), name)));
    }
    let packs = packs(names(&ledger.incoming().join("pack"))?);
    found.extend(packs.into_iter().map(|name| ("pack".to_owned(), name)));
    Ok(found)
}

/// Removes all that is incoming.
pub fn discard(ledger: &Ledger) -> Result<()> {
    let incoming = ledger.incoming();
    match std::fs::remove_dir_all(&incoming) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", incoming, e)),
        _ => ledger.make_incoming(),
    }
}

/// The names in a directory of ours; none where it is not there.
fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("list", dir, e)),
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.map(|e| e.file_name().into_string().ok());
    let names = entries.map(name).collect::<std::io::Result<Vec<_>>>();
    Ok(names.map_err(|e| Error::io("list", dir, e))?.into_iter().flatten().collect())
}

fn is_hex(name: &str, lengths: &[usize]) -> bool {
    lengths.contains(&name.len()) && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The files of packs in the order in which they may appear: a pack counts for git as soon as its index is there.
fn packs(names: Vec<String>) -> Vec<String> {
    let order = |name: &String| {
        let (stem, kind) = name.strip_prefix("pack-")?.split_once('.')?;
        let place = ["pack", "rev", "idx"].iter().position(|known| *known == kind)?;
        is_hex(stem, &[40, 64]).then_some(place)
    };
    let mut packs: Vec<(usize, String)> =
        names.into_iter().filter_map(|name| order(&name).map(|place| (place, name))).collect();
    packs.sort();
    packs.into_iter().map(|(_, name)| name).collect()
}

/// Objects on their way into a store.
struct Delivery<'a> {
    store: &'a Path,
    /// As the store's own directory is, so is what is made in it.
    like: Metadata,
    /// The directories that have got a name.
    touched: BTreeSet<PathBuf>,
}

impl<'a> Delivery<'a> {
    fn to(store: &'a Path) -> Result<Self> {
        let like = std::fs::metadata(store).map_err(|e| Error::io("read the mode of", store, e))?;
        Ok(Self { store, like, touched: BTreeSet::new() })
    }

    fn put(&mut self, incoming: &Path, dir: &str, name: &str) -> Result<()> {
        let from = incoming.join(dir).join(name);
        let into = self.store.join(dir);
        self.make_dir(&into)?;
        let to = into.join(name);
        self.adapt(&from)?;
        match std::fs::hard_link(&from, &to) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => freshen(&to),
            Err(_) => self.copy(&from, &to)?,
        }
        // The directory may be new since a delivery that was broken off: so its name is flushed in any case.
        self.touched.extend([into, self.store.to_path_buf()]);
        Ok(())
    }

    fn make_dir(&mut self, dir: &Path) -> Result<()> {
        match std::fs::create_dir(dir) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(()),
            made => made.map_err(|e| Error::io("create directory", dir, e))?,
        }
        let mode = Permissions::from_mode(self.like.mode() & 0o7777);
        std::fs::set_permissions(dir, mode).map_err(|e| Error::io("set the mode of", dir, e))
    }

    /// Objects are read by whom the store is read by, and written by nobody.
    fn adapt(&self, file: &Path) -> Result<()> {
        if self.like.mode() & SET_GROUP != 0 {
            // Where we may not, git may not either: the group is then the caller's own, as git would leave it.
            let _ = std::os::unix::fs::chown(file, None, Some(self.like.gid()));
        }
        let mode = Permissions::from_mode(self.like.mode() & 0o444);
        std::fs::set_permissions(file, mode).map_err(|e| Error::io("set the mode of", file, e))
    }

    /// For a store on another filesystem: under a name that git's own clean-up removes, and then under its own.
    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let temporary = to.with_file_name(format!("tmp_obj_{name}"));
        // One that a crash left cannot be written to.
        let _ = std::fs::remove_file(&temporary);
        let copied = std::fs::copy(from, &temporary).map_err(|e| Error::io("copy", from, e));
        copied.and_then(|_| self.adapt(&temporary)).and_then(|()| publish(&temporary, to)).inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })
    }

    fn sync(&self) -> Result<()> {
        // What is below is flushed before the name that leads to it.
        self.touched.iter().rev().try_for_each(|dir| sync_dir(dir))
    }
}

fn publish(temporary: &Path, to: &Path) -> Result<()> {
    let file = File::open(temporary).map_err(|e| Error::io("open", temporary, e))?;
    file.sync_all().map_err(|e| Error::io("flush", temporary, e))?;
    std::fs::rename(temporary, to).map_err(|e| Error::io("rename into place", to, e))
}

/// An object that is there may be old and about to be cleaned up; git says in this way that it is in use again.
fn freshen(object: &Path) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    // Not ours to touch: then it is as it was.
    let _ =
        utimensat(CWD, object, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::oid::{ObjectFormat, Oid};
    use crate::testing::Checkout;

    fn incoming_blob(ledger: &Ledger, content: &[u8]) -> Oid {
        let git = ledger.git_into_incoming();
        git.args(["hash-object", "-w", "--stdin", "--no-filters"]).feed(content).unwrap();
        ledger.format().blob(content)
    }

    fn has(checkout: &Checkout, oid: &Oid) -> bool {
        let found = checkout.git(["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
        found.lines().any(|line| line == oid.as_str())
    }

    fn pack_incoming(ledger: &Ledger, oid: &Oid) {
        let pack = ledger.incoming().join("pack/pack");
        std::fs::create_dir_all(ledger.incoming().join("pack")).unwrap();
        let git = ledger.git_into_incoming().arg("pack-objects").arg("-q").arg(pack);
        git.feed(format!("{oid}\n").as_bytes()).unwrap();
    }

    #[test]
    fn loose_objects_and_packs_arrive() {
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let checkout = Checkout::new(format);
            let ledger = checkout.ledger();
            let packed = incoming_blob(&ledger, b"packed");
            pack_incoming(&ledger, &packed);
            std::fs::remove_dir_all(ledger.incoming().join(&packed.as_str()[..2])).unwrap();
            let loose = incoming_blob(&ledger, b"loose");
            std::fs::write(ledger.incoming().join("pack/tmp_pack_x"), "left by a crash").unwrap();
            assert!(!has(&checkout, &loose) && !has(&checkout, &packed));
            deliver(&ledger).unwrap();
            assert!(has(&checkout, &loose) && has(&checkout, &packed));
            let arrived = names(&ledger.objects().join("pack")).unwrap();
            assert!(arrived.iter().all(|name| name.starts_with("pack-")), "{arrived:?}");
            checkout.git(["fsck", "--strict"]);
            deliver(&ledger).unwrap();
            checkout.git(["prune", "--expire=now"]);
            assert!(!has(&checkout, &loose));
            make_sure(&ledger).unwrap();
            assert!(has(&checkout, &loose) && has(&checkout, &packed));
            discard(&ledger).unwrap();
            assert_eq!(names(&ledger.incoming()).unwrap(), ["info"]);
            make_sure(&ledger).unwrap();
        }
    }

    #[test]
    fn what_is_there_already_is_left() {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let ledger = checkout.ledger();
        let blob = incoming_blob(&ledger, b"twice");
        deliver(&ledger).unwrap();
        let file = ledger.objects().join(&blob.as_str()[..2]).join(&blob.as_str()[2..]);
        let before = std::fs::metadata(&file).unwrap();
        assert_eq!(before.mode() & 0o777, 0o444 & ledger.objects().metadata().unwrap().mode());
        deliver(&ledger).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().ino(), before.ino());
    }

    #[test]
    fn a_group_that_shares_the_store_goes_on_sharing_it() {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let ledger = checkout.ledger();
        std::fs::set_permissions(ledger.objects(), Permissions::from_mode(0o2770)).unwrap();
        let blob = incoming_blob(&ledger, b"shared");
        let dir = ledger.objects().join(&blob.as_str()[..2]);
        assert!(!dir.exists());
        deliver(&ledger).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o7777, 0o2770);
        assert_eq!(std::fs::metadata(dir.join(&blob.as_str()[2..])).unwrap().mode() & 0o7777, 0o440);
    }

    #[test]
    fn a_store_on_another_filesystem_gets_copies() {
        let elsewhere = Path::new("/dev/shm");
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev());
        let here = device(checkout.dir.path()).unwrap();
        if device(elsewhere).is_err() || device(elsewhere).unwrap() == here {
            eprintln!("skipped: a_store_on_another_filesystem_gets_copies: /dev/shm is no other filesystem");
            return;
        }
        let other = tempfile::tempdir_in(elsewhere).unwrap();
        let ledger = Ledger::create(&other.path().join("ledger"), &checkout.repository()).unwrap();
        let blob = incoming_blob(&ledger, b"from afar");
        deliver(&ledger).unwrap();
        assert!(has(&checkout, &blob));
        let left = names(&ledger.objects().join(&blob.as_str()[..2])).unwrap();
        assert!(!left.iter().any(|name| name.starts_with("tmp_")), "{left:?}");
    }

    #[test]
    fn what_is_discarded_is_gone() {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let ledger = checkout.ledger();
        let blob = incoming_blob(&ledger, b"given up");
        discard(&ledger).unwrap();
        deliver(&ledger).unwrap();
        assert!(!has(&checkout, &blob));
        incoming_blob(&ledger, b"the store works again");
    }

    #[test]
    fn the_index_of_a_pack_comes_last() {
        let hash = "0".repeat(40);
        let name = |kind: &str| format!("pack-{hash}.{kind}");
        let given = [name("idx"), "pack-x.idx".into(), name("keep"), name("pack"), name("rev"), "tmp".into()];
        assert_eq!(packs(given.to_vec()), [name("pack"), name("rev"), name("idx")]);
    }
}
