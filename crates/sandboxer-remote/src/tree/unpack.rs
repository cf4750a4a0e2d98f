//! The tar stream of a host, read by ourselves: whoever writes it may lie in every field.
//!
//! Understood is what GNU tar writes in pax format: regular files, with holes or without, and further names of them. Everything else is an error, and so is whatever
//! would need more memory than an honest header does. What the names mean is for the caller to judge.

use std::io::{self, Read};

use super::archive::{BLOCK, padding};
use super::entry::{Name, nanoseconds};
use super::sparse::{Piece, read_map};

/// A path, a link and some attributes have room in this.
const LONGEST_HEADER: u64 = 1 << 20;
/// Headers before one member: there is one for each, and may be one for all.
const MOST_HEADERS: usize = 4;

/// One member.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    pub path: Name,
    pub mode: u32,
    pub size: u64,
    pub mtime: i64,
    /// Another member that this is a further name of.
    pub link: Option<Name>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where its content belongs; between the pieces there is nothing.
    pub pieces: Vec<Piece>,
}

/// What a pax header says of the member that follows.
#[derive(Default)]
struct Extended {
    path: Option<Name>,
    link: Option<Name>,
    size: Option<u64>,
    mtime: Option<i64>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: Sparse,
}

/// What it says of a file with holes: the version of the format, and the size and the name that the file really has.
#[derive(Default)]
struct Sparse {
    version: (Option<u64>, Option<u64>),
    size: Option<u64>,
    name: Option<Name>,
}

impl Sparse {
    /// All of it, or nothing.
    fn is_whole(&self) -> bool {
        let nothing = self.version == (None, None) && self.size.is_none() && self.name.is_none();
        nothing || self.version == (Some(1), Some(0)) && self.size.is_some() && self.name.is_some()
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let number = || std::str::from_utf8(value).ok()?.parse().ok().filter(|n| *n <= i64::MAX as u64);
        match key {
            b"major" => self.version.0 = Some(number()?),
            b"minor" => self.version.1 = Some(number()?),
            b"realsize" => self.size = Some(number()?),
            b"name" => self.name = Some(value.to_vec()),
            _ => return None,
        }
        Some(())
    }
}

/// Reads members one after the other.
pub(super) struct Unpack<R> {
    from: R,
    /// What of the last member's content, and of the zeros behind it, was not read.
    left: u64,
    padding: u64,
}

impl<R: Read> Unpack<R> {
    pub fn new(from: R) -> Self {
        Self { from, left: 0, padding: 0 }
    }

    /// The next member; `None` at the end, which has to be said: a stream that was cut has none.
    pub fn next(&mut self) -> io::Result<Option<Member>> {
        let rest = self.left + self.padding;
        self.skip(rest)?;
        (self.left, self.padding) = (0, 0);
        let mut extended = Extended::default();
        for _ in 0..MOST_HEADERS {
            let block = self.block()?;
            if block.iter().all(|byte| *byte == 0) {
                return self.end().map(|()| None);
            }
            checked(&block)?;
            let size = number(&block[124..136]).ok_or_else(|| broken("a size is no number"))?;
            match block[156] {
                b'x' => extended = Extended::parse(&self.text(size)?)?,
                // For all members: nothing that concerns us.
                b'g' => drop(self.text(size)?),
                kind => return self.member(kind, &block, size, extended).map(Some),
            }
        }
        Err(broken("headers follow headers"))
    }

    /// Reads from the content of the present member; nothing at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.left.min(buffer.len() as u64) as usize;
        if most == 0 {
            return Ok(0);
        }
        let count = self.from.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(cut());
        }
        self.left -= count as u64;
        Ok(count)
    }

    fn member(&mut self, kind: u8, block: &[u8; BLOCK], size: u64, extended: Extended) -> io::Result<Member> {
        let size = extended.size.unwrap_or(size);
        let link = extended.link.unwrap_or_else(|| until_nul(&block[157..257]));
        let (size, link) = match kind {
            b'0' | 0 => (size, None),
            b'1' => (0, Some(link)),
            other => return Err(broken(&format!("a member is of type {:?}", char::from(other)))),
        };
        (self.left, self.padding) = (size, padding(size) as u64);
        let (size, pieces) = match extended.sparse.size {
            Some(whole) if kind != b'1' => (whole, self.map(whole)?),
            _ => (size, vec![Piece { at: 0, size }]),
        };
        let seconds = || {
            number(&block[136..148]).and_then(|s| Some(i64::try_from(s).ok()?.saturating_mul(1_000_000_000)))
        };
        Ok(Member {
            path: extended.sparse.name.or(extended.path).unwrap_or_else(|| name_in(block)),
            mode: number(&block[100..108]).ok_or_else(|| broken("a mode is no number"))? as u32 & 0o7777,
            size,
            mtime: extended.mtime.or_else(seconds).ok_or_else(|| broken("a time is no number"))?,
            link,
            xattrs: extended.xattrs,
            pieces,
        })
    }

    /// The map that the content of a file with holes begins with. All that follows it has its place.
    fn map(&mut self, size: u64) -> io::Result<Vec<Piece>> {
        let odd = || broken("a map of holes makes no sense");
        let mut content = self.from.by_ref().take(self.left);
        let (pieces, length) = read_map(&mut content, size)?.ok_or_else(odd)?;
        self.left -= length;
        if pieces.iter().map(|piece| piece.size).sum::<u64>() != self.left {
            return Err(odd());
        }
        Ok(pieces)
    }

    /// There are two empty blocks at the end, and perhaps more.
    fn end(&mut self) -> io::Result<()> {
        let second = self.block()?;
        if second.iter().any(|byte| *byte != 0) { Err(broken("something follows its end")) } else { Ok(()) }
    }

    fn block(&mut self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.from
            .read_exact(&mut block)
            .map_err(|e| if e.kind() == io::ErrorKind::UnexpectedEof { cut() } else { e })?;
        Ok(block)
    }

    fn text(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > LONGEST_HEADER {
            return Err(broken(&format!("a header has {size} bytes")));
        }
        let mut text = Vec::new();
        let count = self.from.by_ref().take(size).read_to_end(&mut text)?;
        if (count as u64) < size {
            return Err(cut());
        }
        self.skip(padding(size) as u64)?;
        Ok(text)
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.from.by_ref().take(count), &mut io::sink())?;
        if skipped < count { Err(cut()) } else { Ok(()) }
    }
}

impl Extended {
    fn parse(mut text: &[u8]) -> io::Result<Self> {
        let mut extended = Self::default();
        while !text.is_empty() {
            let (key, value, rest) = record(text).ok_or_else(|| broken("a header makes no sense"))?;
            extended.take(key, value).ok_or_else(|| broken("a header makes no sense"))?;
            text = rest;
        }
        if !extended.sparse.is_whole() {
            return Err(broken("a header makes no sense"));
        }
        Ok(extended)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let word = || std::str::from_utf8(value).ok();
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(word()?.parse().ok()?),
            b"mtime" => self.mtime = Some(seconds(word()?)?),
            // What is not understood of it would make the content another.
            key if key.starts_with(b"GNU.sparse") => {
                self.sparse.take(key.strip_prefix(b"GNU.sparse.")?, value)?
            }
            key => {
                let name = key.strip_prefix(b"SCHILY.xattr.").filter(|name| is_carried(name));
                self.xattrs.extend(name.map(|name| (name.to_vec(), value.to_vec())));
            }
        }
        Some(())
    }
}

/// Marks of OverlayFS would be obeyed where the tree is a layer of one.
fn is_carried(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        && !name.starts_with(b"user.overlay.")
        && !name.contains(&0)
        && name.len() <= 255
}

/// Whole seconds have no point.
fn seconds(text: &str) -> Option<i64> {
    if text.contains('.') {
        return nanoseconds(text);
    }
    Some(text.parse::<i64>().ok()?.saturating_mul(1_000_000_000))
}

/// `LENGTH KEY=VALUE\n`: the key, the value, and what follows.
fn record(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = text.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&text[..space]).ok()?.parse().ok()?;
    (length > space + 1 && length <= text.len()).then_some(())?;
    let (record, rest) = text.split_at(length);
    let body = record[space + 1..].strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], rest))
}

fn checked(block: &[u8; BLOCK]) -> io::Result<()> {
    let blank = 8 * u64::from(b' ');
    let sum: u64 = block[..148].iter().chain(&block[156..]).map(|byte| u64::from(*byte)).sum();
    if number(&block[148..156]) == Some(sum + blank) {
        Ok(())
    } else {
        Err(broken("a checksum does not match"))
    }
}

/// Octal digits, or what is too large for them in base 256.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (zeros, value) = field.split_at(field.len().checked_sub(8).filter(|zeros| *zeros > 0)?);
        let small = zeros[0] == 0x80 && zeros[1..].iter().all(|byte| *byte == 0) && value[0] < 0x80;
        return small.then(|| value.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches(|c| c == ' ' || c == '\0');
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn name_in(block: &[u8; BLOCK]) -> Name {
    let (name, prefix) = (until_nul(&block[..100]), until_nul(&block[345..500]));
    if prefix.is_empty() { name } else { [prefix, name].join(&b'/') }
}

fn until_nul(field: &[u8]) -> Vec<u8> {
    field.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("what it sends is no tar stream of ours: {why}"))
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the stream was cut")
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
