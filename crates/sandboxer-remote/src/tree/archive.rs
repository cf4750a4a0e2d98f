//! The tar format as it is written here: ustar headers, and before those that need it a pax header for what has no room in them.
//!
//! Written by ourselves, because names are bytes of any kind: a pax header takes them as they are, as GNU tar does and means it.

use std::io::{self, Write};

use super::entry::{Entry, Kind};

pub(super) const BLOCK: usize = 512;
/// What fits in eleven octal digits.
const LARGEST: u64 = 0o77_777_777_777;

/// What is special about one member.
#[derive(Default)]
pub(super) struct Member<'a> {
    /// The path of the member that this one is another name of.
    pub link: Option<&'a [u8]>,
    /// Extended attributes by name.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
    /// The length of the data of a file with holes; its size is in the map that the data begins with.
    pub sparse: Option<u64>,
}

/// Writes the headers of one entry. Its data, `size` bytes of it, and [`padding`] follow.
pub(super) fn header(out: &mut impl Write, entry: &Entry, member: &Member<'_>) -> io::Result<()> {
    let path = [b"./", entry.path.as_slice()].concat();
    let target = member.link.map(|link| [b"./", link].concat()).unwrap_or_else(|| entry.target.clone());
    let size = match (entry.kind, member.link) {
        (Kind::File, None) => member.sparse.unwrap_or(entry.size),
        _ => 0,
    };
    let extended = extended(entry, member, &path, &target, size);
    if !extended.is_empty() {
        out.write_all(&plain(b"./PaxHeader", &[], b'x', 0o600, extended.len() as u64, 0))?;
        out.write_all(&extended)?;
        out.write_all(&[0; BLOCK][..padding(extended.len() as u64)])?;
    }
    let kind = match (entry.kind, member.link) {
        (_, Some(_)) => b'1',
        (Kind::Directory, _) => b'5',
        (Kind::Link, _) => b'2',
        _ => b'0',
    };
    let seconds = entry.mtime.div_euclid(1_000_000_000);
    out.write_all(&plain(&path, &target, kind, entry.plain_mode(), size, seconds.max(0) as u64))
}

/// Two empty blocks.
pub(super) fn end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

/// Zeros up to the next block.
pub(super) fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

fn plain(path: &[u8], target: &[u8], kind: u8, mode: u32, size: u64, seconds: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put(&mut block[0..100], path);
    octal(&mut block[100..108], u64::from(mode));
    octal(&mut block[108..116], 0);
    octal(&mut block[116..124], 0);
    octal(&mut block[124..136], size.min(LARGEST));
    octal(&mut block[136..148], seconds.min(LARGEST));
    block[148..156].fill(b' ');
    block[156] = kind;
    put(&mut block[157..257], target);
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    octal(&mut block[148..155], sum);
    block
}

/// As much as there is room for; what is longer stands in the header before.
fn put(field: &mut [u8], bytes: &[u8]) {
    let count = bytes.len().min(field.len());
    field[..count].copy_from_slice(&bytes[..count]);
}

/// Digits with zeros before them and a NUL behind.
fn octal(field: &mut [u8], mut value: u64) {
    let digits = field.len() - 1;
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + (value & 7) as u8;
        value >>= 3;
    }
    field[digits] = 0;
}

fn extended(entry: &Entry, member: &Member<'_>, path: &[u8], target: &[u8], size: u64) -> Vec<u8> {
    let mut records = Vec::new();
    if path.len() > 100 && member.sparse.is_none() {
        add(&mut records, b"path", path);
    }
    if target.len() > 100 {
        add(&mut records, b"linkpath", target);
    }
    if size > LARGEST {
        add(&mut records, b"size", size.to_string().as_bytes());
    }
    let seconds = entry.mtime.div_euclid(1_000_000_000);
    if entry.mtime.rem_euclid(1_000_000_000) != 0 || !(0..=LARGEST as i64).contains(&seconds) {
        add(&mut records, b"mtime", decimal(entry.mtime).as_bytes());
    }
    if member.sparse.is_some() {
        add(&mut records, b"GNU.sparse.major", b"1");
        add(&mut records, b"GNU.sparse.minor", b"0");
        add(&mut records, b"GNU.sparse.name", path);
        add(&mut records, b"GNU.sparse.realsize", entry.size.to_string().as_bytes());
    }
    for (name, value) in member.xattrs {
        add(&mut records, &[b"SCHILY.xattr.", name.as_slice()].concat(), value);
    }
    records
}

/// Seconds with nine digits behind the point, less than zero before 1970.
fn decimal(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let value = nanoseconds.unsigned_abs();
    format!("{sign}{}.{:09}", value / 1_000_000_000, value % 1_000_000_000)
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
pub(super) fn add(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    for part in [b" ", key, b"=", value, b"\n"] {
        records.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for length in [0, 1, 85, 90, 95, 96, 989, 990, 991, 5_000] {
            let mut records = Vec::new();
            add(&mut records, b"path", &vec![b'x'; length]);
            let told: usize =
                String::from_utf8_lossy(&records).split(' ').next().unwrap_or_default().parse().unwrap_or(0);
            assert_eq!(told, records.len());
        }
    }

    #[test]
    fn times_before_1970_are_negative_as_a_whole() {
        assert_eq!(decimal(-1), "-0.000000001");
        assert_eq!(decimal(-1_500_000_000), "-1.500000000");
        assert_eq!(decimal(7), "0.000000007");
    }
}
