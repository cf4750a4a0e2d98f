//! One entry of a tree, as it is told of: here by the kernel, there by `find`.
//!
//! Both sides keep lists in one form, one record for each entry, ended by a NUL: `TYPE MODE SIZE MTIME CTIME INODE PATH//TARGET`. No path has
//! two slashes in a row, so they tell where it ends.

use std::cmp::Ordering;

use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_fs::stamp::Stamp;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Link,
    /// A device, a pipe, a socket: never sent or fetched.
    Other,
}

/// A path below the root of a tree; the root itself is empty.
pub(super) type Name = Vec<u8>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub path: Name,
    pub kind: Kind,
    /// Permission bits, set-id bits included.
    pub mode: u32,
    pub size: u64,
    /// Nanoseconds since 1970, as are all times here.
    pub mtime: i64,
    /// [`UNKNOWN`] where the entry was not at rest.
    pub ctime: i64,
    pub inode: u64,
    /// Whether it has other names. Not in lists: whoever gets or loses a name gets another ctime.
    pub linked: bool,
    pub target: Vec<u8>,
}

/// Under which name a file is written before it is renamed; a word of [`super::new_generation`] follows.
pub(super) const TEMPORARY: &[u8] = b".sandboxer-fetch-";
/// A time that nothing was changed at: whatever is found later has changed since.
pub(super) const UNKNOWN: i64 = i64::MIN;

impl Entry {
    pub fn of(path: Name, stamp: &Stamp, target: Vec<u8>) -> Self {
        let kind = match stamp.node_type() {
            NodeType::File => Kind::File,
            NodeType::Directory => Kind::Directory,
            NodeType::Symlink => Kind::Link,
            _ => Kind::Other,
        };
        let size = if kind == Kind::File { stamp.size } else { 0 };
        let (mode, linked) = (stamp.permissions(), stamp.nlink > 1 && kind == Kind::File);
        Self {
            path,
            kind,
            mode,
            size,
            mtime: stamp.mtime,
            ctime: stamp.ctime,
            inode: stamp.ino,
            linked,
            target,
        }
    }

    /// Whether it is brought here: no device, pipe or socket, and nothing that we would take for a leftover of ours.
    pub fn is_carried(&self) -> bool {
        self.kind != Kind::Other && !self.is_leftover()
    }

    /// Whether a fetch that was killed may have left it behind.
    pub fn is_leftover(&self) -> bool {
        let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let word = name.strip_prefix(TEMPORARY).unwrap_or_default();
        let is_ours = word.len() == 32 && word.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        is_ours && matches!(self.kind, Kind::File | Kind::Link)
    }

    /// The mode that the other side gets.
    pub fn plain_mode(&self) -> u32 {
        plain_mode(self.kind, self.mode)
    }

    /// Whether both look the same from outside: what is left of an entry when it was carried over whole.
    pub fn looks_like(&self, other: &Entry) -> bool {
        let (a, b) = (self, other);
        let same =
            a.kind == b.kind && a.plain_mode() == b.plain_mode() && a.size == b.size && a.target == b.target;
        // A link's mode and time mean nothing to anybody.
        a.kind == Kind::Link && b.kind == Kind::Link && a.target == b.target || same && a.mtime == b.mtime
    }

    /// Whether nothing was done to it between the two, both of this side. A directory's times tell of what is in it, which is listed by
    /// itself; what matters of it is what is carried over.
    pub fn untouched(&self, later: &Entry) -> bool {
        if self.kind == Kind::Directory {
            return self.looks_like(later);
        }
        self.looks_like(later)
            && self.mode == later.mode
            && self.ctime == later.ctime
            && self.inode == later.inode
    }

    /// Whether nobody's work is in what it is by now. Inodes and ctimes are not asked: under OverlayFS a file gets others when it is mounted
    /// again or a layer is frozen. One that was not at rest may be anybody's work.
    pub fn holds_the_same(&self, later: &Entry) -> bool {
        let rested = self.kind == Kind::Directory || self.ctime != UNKNOWN;
        rested && self.looks_like(later) && (self.kind == Kind::Link || self.mode == later.mode)
    }

    /// The record of it.
    pub fn record(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::File => 'f',
            Kind::Directory => 'd',
            Kind::Link => 'l',
            Kind::Other => 'p',
        };
        let Self { mode, size, mtime, ctime, inode, .. } = self;
        let mut record = format!("{kind} {mode:o} {size} {mtime} {ctime} {inode} ").into_bytes();
        record.extend_from_slice(&self.path);
        record.extend_from_slice(b"//");
        record.extend_from_slice(&self.target);
        record
    }

    /// Reads a record; paths of ours, and those of `find`, which begin with `./`. `None` where it is none, or names something outside.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let mut fields = record.splitn(7, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(fields.next()?).ok();
        let kind = match word()? {
            "f" => Kind::File,
            "d" => Kind::Directory,
            "l" => Kind::Link,
            other => (other.len() == 1).then_some(Kind::Other)?,
        };
        let mode = u32::from_str_radix(word()?, 8).ok()? & 0o7777;
        let size = word()?.parse().ok()?;
        let (mtime, ctime) = (nanoseconds(word()?)?, nanoseconds(word()?)?);
        let inode = word()?.parse().ok()?;
        let rest = fields.next()?;
        let cut = rest.windows(2).position(|pair| pair == b"//")?;
        let path = inside(&rest[..cut])?;
        let size = if kind == Kind::File { size } else { 0 };
        Some(Self {
            path,
            kind,
            mode,
            size,
            mtime,
            ctime,
            inode,
            linked: false,
            target: rest[cut + 2..].to_vec(),
        })
    }
}

pub(super) fn plain_mode(kind: Kind, mode: u32) -> u32 {
    mode & if kind == Kind::Directory { 0o1777 } else { 0o777 }
}

/// A path that stays below the root, without the `./` that it may begin with.
pub(super) fn inside(path: &[u8]) -> Option<Name> {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    if path.is_empty() || path == b"." {
        return Some(Name::new());
    }
    RelPath::from_bytes(path).ok().map(|_| path.to_vec())
}

/// `SECONDS.FRACTION` as `find` writes it, or nanoseconds as we do. Times before 1677 or after 2262 are the first or the last that there is.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    let Some((seconds, fraction)) = text.split_once('.') else { return text.parse().ok() };
    let negative = seconds.starts_with('-');
    let seconds: i64 = seconds.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let fraction: i64 = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    let whole = seconds.saturating_mul(1_000_000_000);
    Some(if negative { whole.saturating_sub(fraction) } else { whole.saturating_add(fraction) })
}

/// The order in which a tree is walked: a directory, then all that is in it.
pub(super) fn order(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { u16::from(*byte) + 1 };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// The directory that holds `path`; `None` for the root.
pub(super) fn parent(path: &[u8]) -> Option<&[u8]> {
    if path.is_empty() {
        return None;
    }
    Some(path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |cut| &path[..cut]))
}

/// Every directory above `path`, the root last.
pub(super) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(parent(path), |path| parent(path))
}

/// A path for messages.
pub(super) fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).escape_debug().to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(path: &[u8], target: &[u8]) -> Entry {
        Entry {
            path: path.to_vec(),
            kind: Kind::Link,
            mode: 0o777,
            size: 0,
            mtime: -5,
            ctime: UNKNOWN,
            inode: 7,
            linked: false,
            target: target.to_vec(),
        }
    }

    #[test]
    fn a_record_is_read_back_whatever_the_names_are() {
        for (path, target) in
            [(&b"a"[..], &b"/etc"[..]), (b"a b/\n\xff-", b"//x//"), (b"-", b""), (b"", b"x")]
        {
            let entry = entry(path, target);
            assert_eq!(Entry::parse(&entry.record()).unwrap(), entry);
        }
        let found = Entry::parse(b"f 644 5 1700000000.1234567890 1.0000000010 9 ./a b//").unwrap();
        assert_eq!(
            (found.mtime, found.ctime, found.path.as_slice()),
            (1_700_000_000_123_456_789, 1_000_000_001, &b"a b"[..])
        );
    }

    #[test]
    fn names_that_lead_out_are_no_records() {
        for path in ["/etc", "..", "./../x", "a/../b", "./a/./b"] {
            assert!(Entry::parse(format!("f 644 5 1 1 9 {path}//").as_bytes()).is_none(), "{path}");
        }
        for broken in
            ["", "f", "f 644 5 1 1 9 a", "f 9 5 1 1 9 a//", "f 644 -5 1 1 9 a//", "f 644 5 1.x 1 9 a//"]
        {
            assert!(Entry::parse(broken.as_bytes()).is_none(), "{broken}");
        }
    }

    #[test]
    fn what_is_in_a_directory_follows_it() {
        let mut paths = ["a.b", "a", "a/x", "", "a-", "a/x/y", "b"].map(str::as_bytes);
        paths.sort_by(|a, b| order(a, b));
        assert_eq!(paths, ["", "a", "a/x", "a/x/y", "a-", "a.b", "b"].map(str::as_bytes));
        assert_eq!(above(b"a/b/c").collect::<Vec<_>>(), [&b"a/b"[..], b"a", b""]);
    }
}
