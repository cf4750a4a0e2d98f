//! Reading what was touched: what it is now, what it was, and whether the two differ at all.

use rustix::io::Errno;
use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType, RelPath};
use sandboxer_core::{Error, Result};

use super::recall::recall;
use super::{Candidate, Comparison, Delta, Links, Plan, Seen, flags_of};
use crate::commit::LABELS;
use crate::copy;
use crate::hash::ContentHash;
use crate::manifest::Entry;
use crate::merge;
use crate::patch;
use crate::pool;
use crate::root::{Root, stamp_of_fd};
use crate::stamp::Stamp;
use crate::xattrs::{self, Xattrs};

/// What has become of an original that has other extended attributes.
pub const OTHER_ATTRIBUTES: &str = "given other attributes in the original";

const BATCH: usize = 64;
const HEAD: usize = 8000;

/// Turns candidates into differences, dropping those that are the same after all.
pub fn describe_all(
    comparison: &Comparison<'_>,
    candidates: Vec<Candidate>,
    links: &Links,
) -> Result<Vec<Delta>> {
    let threads = comparison.threads.min(candidates.len().div_ceil(BATCH)).max(1);
    let mut batches = Vec::new();
    let mut rest = candidates.into_iter().peekable();
    while rest.peek().is_some() {
        batches.push(rest.by_ref().take(BATCH).collect::<Vec<_>>());
    }
    let workers = pool::work(threads, batches, Worker::default, |worker, batch, _| {
        comparison.cancel.check()?;
        for candidate in batch {
            if let Some(delta) = describe(comparison, candidate, links, &mut worker.buffer)? {
                worker.deltas.push(delta);
            }
        }
        Ok(())
    })?;
    Ok(workers.into_iter().flat_map(|w| w.deltas).collect())
}

#[derive(Default)]
struct Worker {
    deltas: Vec<Delta>,
    buffer: Vec<u8>,
}

fn describe(
    comparison: &Comparison<'_>,
    candidate: Candidate,
    links: &Links,
    buffer: &mut Vec<u8>,
) -> Result<Option<Delta>> {
    let Candidate { path, base, now } = candidate;
    let seen = match now {
        Some(stamp) => look(comparison.copy, &path, stamp, buffer)?,
        None => None,
    };
    let marked = seen.as_ref().is_some_and(|seen| has_markers(seen, buffer));
    let base = recall(comparison, &path, base, buffer)?;
    let old_hash = base.as_ref().and_then(|b| base_hash(comparison.original, &path, b, buffer));
    let Some(kind) = kind_of(base.as_ref(), seen.as_ref(), old_hash) else { return Ok(None) };
    let mut entry = DiffEntry::new(path, kind);
    entry.old = base.as_ref().map(|b| base_node(b, old_hash));
    entry.new = seen.as_ref().map(node_of);
    entry.binary = is_binary(comparison, &entry);
    entry.refused =
        seen.as_ref().and_then(|s| refusal(s, links)).or_else(|| comparison.filter.refuses(&entry.path));
    entry.flags = flags_of(&entry, seen.as_ref());
    if marked {
        entry.flags.push("conflict markers".to_owned());
    }
    entry.moved = original_moved(comparison.original, &entry.path, base.as_ref(), buffer)?.is_some();
    // What was read is remembered: staging may link to the original, which moves its stamp and nothing else.
    let base = base.map(|b| Entry { hash: old_hash, ..b });
    Ok(Some(Delta { entry, base, now: seen, plan: Plan::default() }))
}

/// Looks at an entry of the copy; `None` where it went away since it was listed.
fn look(copy: &Root, path: &RelPath, listed: Stamp, buffer: &mut Vec<u8>) -> Result<Option<Seen>> {
    let Some(parent) = copy.find_parent(path)? else { return Ok(None) };
    let plain = |stamp| Seen { stamp, hash: None, xattrs: Xattrs::new(), target: Vec::new() };
    match listed.node_type() {
        NodeType::File | NodeType::Directory => {}
        NodeType::Symlink => {
            let target = parent.read_link(path.name()).ok();
            return Ok(target.map(|target| Seen { target, ..plain(listed) }));
        }
        _ => return Ok(Some(plain(listed))),
    }
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let fd = match parent.try_open(path.name(), flags, 0) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
        // It is shown as what it is, and refused where it would have to be read.
        Err(Errno::ACCESS) => return Ok(Some(plain(listed))),
        Err(e) => return Err(Error::io("open", copy.shown(path), e)),
    };
    describe_content(&fd, buffer).map(Some).map_err(|e| Error::io("read", copy.shown(path), e))
}

/// What an open file or directory is, its content hashed.
pub fn describe_content(fd: &std::os::fd::OwnedFd, buffer: &mut Vec<u8>) -> rustix::io::Result<Seen> {
    let stamp = stamp_of_fd(fd)?;
    let hash = if stamp.is_file() { Some(copy::hash_fd(fd, stamp.size, buffer)?) } else { None };
    Ok(Seen { stamp, hash, xattrs: xattrs::read(fd)?, target: Vec::new() })
}

/// Whether a merge left something to be resolved; hashing a small file has left it in the buffer.
fn has_markers(seen: &Seen, buffer: &[u8]) -> bool {
    let content = buffer.get(..seen.stamp.size as usize).filter(|_| seen.hash.is_some());
    content.is_some_and(|content| merge::has_markers(content, &LABELS))
}

/// How the entry differs; `None` where it does not.
fn kind_of(base: Option<&Entry>, now: Option<&Seen>, old_hash: Option<ContentHash>) -> Option<DiffKind> {
    let (base, now) = match (base, now) {
        (None, None) => return None,
        (None, Some(_)) => return Some(DiffKind::Created),
        (Some(_), None) => return Some(DiffKind::Deleted),
        (Some(base), Some(now)) => (base, now),
    };
    let copy = base.copy.or(base.base).unwrap_or_default();
    if copy.node_type() != now.stamp.node_type() {
        return Some(DiffKind::Type);
    }
    let content_differs = match now.stamp.node_type() {
        NodeType::File => copy.size != now.stamp.size || old_hash.is_none() || old_hash != now.hash,
        NodeType::Symlink => base.target != now.target,
        _ => false,
    };
    if content_differs {
        return Some(DiffKind::Modified);
    }
    let link = now.stamp.node_type() == NodeType::Symlink;
    let same_mode = link || copy.permissions() == now.stamp.permissions();
    let same = same_mode && copy.same_owner(&now.stamp) && (link || base.xattrs == now.xattrs);
    (!same).then_some(DiffKind::Metadata)
}

/// The hash of the base's content: recorded, or read from the original if that has not moved.
fn base_hash(original: &Root, path: &RelPath, base: &Entry, buffer: &mut Vec<u8>) -> Option<ContentHash> {
    if base.hash.is_some() {
        return base.hash;
    }
    let stamp = base.base.filter(Stamp::is_file)?;
    let fd = original.parent_of(path).ok()?.open_file(path.name()).ok()?;
    if !stamp.is_known() {
        // All that can be said is whether the sandbox has what the original has now.
        return copy::hash_fd(&fd, stamp_of_fd(&fd).ok()?.size, buffer).ok();
    }
    let untouched = || stamp_of_fd(&fd).is_ok_and(|now| stamp.untouched(&now));
    let hash = if untouched() { copy::hash_fd(&fd, stamp.size, buffer).ok()? } else { return None };
    untouched().then_some(hash)
}

/// The base's side as it is shown.
pub fn base_node(base: &Entry, hash: Option<ContentHash>) -> Node {
    let stamp = base.base.or(base.copy).unwrap_or_default();
    node(&stamp, hash, &base.target, &base.xattrs)
}

/// The sandbox's side as it is shown.
pub fn node_of(seen: &Seen) -> Node {
    node(&seen.stamp, seen.hash, &seen.target, &seen.xattrs)
}

fn node(stamp: &Stamp, hash: Option<ContentHash>, target: &[u8], xattrs: &Xattrs) -> Node {
    let is_link = stamp.node_type() == NodeType::Symlink;
    let size = if stamp.is_file() { stamp.size } else { 0 };
    let digest = if is_link { Some(ContentHash::of(target)) } else { hash };
    Node {
        node_type: stamp.node_type(),
        mode: stamp.permissions(),
        uid: stamp.uid,
        gid: stamp.gid,
        size,
        digest: digest.map(|h| h.to_text(size)),
        target: is_link.then(|| String::from_utf8_lossy(target).into_owned()),
        xattrs: xattrs::digest(xattrs),
    }
}

fn is_binary(comparison: &Comparison<'_>, entry: &DiffEntry) -> bool {
    let (root, node) = match (&entry.new, &entry.old) {
        (Some(new), _) => (comparison.copy, new),
        (None, Some(old)) => (comparison.original, old),
        (None, None) => return false,
    };
    node.node_type == NodeType::File && is_binary_at(root, &entry.path)
}

/// Whether the file at `path` begins like no text.
pub(super) fn is_binary_at(root: &Root, path: &RelPath) -> bool {
    head(root, path).is_some_and(|bytes| patch::is_binary(&bytes))
}

fn head(root: &Root, path: &RelPath) -> Option<Vec<u8>> {
    let fd = root.find_parent(path).ok()??.open_file(path.name()).ok()?;
    let mut bytes = vec![0; HEAD];
    let len = rustix::io::pread(&fd, &mut bytes[..], 0).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

/// Why an entry can never be committed.
fn refusal(seen: &Seen, links: &Links) -> Option<String> {
    let stamp = &seen.stamp;
    let text = match stamp.node_type() {
        NodeType::File if seen.hash.is_none() => "it cannot be read; allow that with `chmod u+r`",
        NodeType::Directory if !rustix::process::geteuid().is_root() && stamp.mode & 0o500 != 0o500 => {
            "it cannot be looked into; allow that with `chmod u+rx`"
        }
        NodeType::Fifo => "a named pipe is never committed",
        NodeType::Socket => "a socket is never committed",
        NodeType::Device | NodeType::Other => "a device is never committed",
        NodeType::File if links.get(&stamp.ino).map_or(1, |g| g.names) < stamp.nlink => {
            "it is a hard link to a file outside the sandbox; copy that file instead"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What has become of the original at `path` since the base; `None` where it is as it was.
///
/// A stamp that differs over equal content, owner, mode and attributes is a touch, and no movement.
pub fn original_moved(
    original: &Root,
    path: &RelPath,
    base: Option<&Entry>,
    buffer: &mut Vec<u8>,
) -> Result<Option<&'static str>> {
    let now = original.stamp(path)?;
    let (now, base_entry) = match (now, base) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Ok(Some("created in the original too")),
        (None, Some(_)) => return Ok(Some("deleted in the original")),
        (Some(now), Some(base)) => (now, base),
    };
    let before = base_entry.base.unwrap_or_default();
    if !before.is_known() {
        return Ok(Some("changed in the original since the sandbox was made"));
    }
    if before.untouched(&now) {
        return Ok(None);
    }
    if before.node_type() != now.node_type() {
        return Ok(Some("replaced by another type of entry in the original"));
    }
    let link = now.node_type() == NodeType::Symlink;
    if (!link && before.mode != now.mode) || !before.same_owner(&now) {
        return Ok(Some("given another mode or owner in the original"));
    }
    content_moved(original, path, base_entry, &now, buffer)
}

fn content_moved(
    original: &Root,
    path: &RelPath,
    base: &Entry,
    now: &Stamp,
    buffer: &mut Vec<u8>,
) -> Result<Option<&'static str>> {
    const MODIFIED: Option<&str> = Some("modified in the original");
    let Some(parent) = original.find_parent(path)? else { return Ok(MODIFIED) };
    if now.node_type() == NodeType::Symlink {
        let same = parent.read_link(path.name()).is_ok_and(|target| target == base.target);
        return Ok(if same { None } else { MODIFIED });
    }
    let Ok(fd) = parent.open_file(path.name()) else { return Ok(MODIFIED) };
    let Ok(seen) = describe_content(&fd, buffer) else { return Ok(MODIFIED) };
    if seen.xattrs != base.xattrs {
        return Ok(Some(OTHER_ATTRIBUTES));
    }
    let same = now.is_dir() || (base.hash.is_some() && base.hash == seen.hash);
    Ok(if same { None } else { MODIFIED })
}
