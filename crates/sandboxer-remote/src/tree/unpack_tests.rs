#![allow(clippy::unwrap_used)]
use super::super::archive::{self, Member as Sent};
use super::super::entry::Entry;
use super::*;

fn entry(path: &[u8], size: u64, mtime: i64) -> Entry {
    let mut entry = Entry::parse(format!("f 640 {size} {mtime} 1 1 x//").as_bytes()).unwrap();
    entry.path = path.to_vec();
    entry
}

fn stream(entry: &Entry, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    archive::header(&mut bytes, entry, &Sent::default()).unwrap();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + padding(content.len() as u64), 0);
    archive::end(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> io::Result<Vec<Member>> {
    let mut unpack = Unpack::new(bytes);
    std::iter::from_fn(|| unpack.next().transpose()).collect()
}

#[test]
fn what_is_written_is_read_back() {
    let long = vec![b'\xff'; 300];
    for (path, mtime) in [(&b"a"[..], 0), (b"a\nb", 1_700_000_000_000_000_001), (&long, -1_500_000_000)] {
        let bytes = stream(&entry(path, 3, mtime), b"abc");
        let members = read(&bytes).unwrap();
        assert_eq!(
            (members[0].path.as_slice(), members[0].mtime),
            ([b"./", path].concat().as_slice(), mtime)
        );
        assert_eq!((members.len(), members[0].mode, members[0].size), (1, 0o640, 3));
    }
}

#[test]
fn a_stream_that_was_cut_anywhere_is_an_error() {
    let bytes = stream(&entry(&[b'x'; 200], 3, 5), b"abc");
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end} of {}", bytes.len());
    }
}

#[test]
fn no_byte_of_a_header_can_be_changed_into_a_panic() {
    let bytes = stream(&entry(&[b'x'; 200], 3, 5), b"abc");
    for at in 0..bytes.len() {
        for value in [0, b'9', 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let _ = read(&changed);
        }
    }
}

/// A header with a right checksum, whatever else is wrong with it.
fn header(edit: impl Fn(&mut [u8; BLOCK])) -> Vec<u8> {
    let mut block: [u8; BLOCK] = stream(&entry(b"a", 0, 0), b"")[..BLOCK].try_into().unwrap();
    edit(&mut block);
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.to_vec()
}

#[test]
fn devices_links_directories_and_huge_headers_are_refused() {
    for kind in b"23456789LKSDVMN" {
        assert!(read(&header(|block| block[156] = *kind)).is_err(), "{}", char::from(*kind));
    }
    let huge = header(|block| {
        block[156] = b'x';
        block[124..136].copy_from_slice(b"77777777777\0");
    });
    assert!(read(&huge).unwrap_err().to_string().contains("a header has 8589934591 bytes"));
    let size = header(|block| block[124..136].copy_from_slice(&[0xff; 12]));
    assert!(read(&size).is_err());
    let endless: Vec<u8> =
        std::iter::repeat_with(|| header(|block| block[156] = b'g')).take(10).flatten().collect();
    assert!(read(&endless).unwrap_err().to_string().contains("headers follow headers"));
}

#[test]
fn records_that_lie_about_their_length_are_refused() {
    for text in [
        "8 path=a\n",
        "0 path=a\n",
        "999 path=a\n",
        "path=a\n",
        "10 path=ab",
        "8 patha\n",
        "-1 path=a\n",
        "18446744073709551616 a=b\n",
        "12 size=-50\n",
        "16 mtime=1.2.3x\n",
        "22 GNU.sparse.major=1\n",
    ] {
        let taken = Extended::parse(text.as_bytes());
        assert!(taken.is_err(), "{text:?}");
    }
    let mut text = Vec::new();
    let records = [
        ("path", "a"),
        ("mtime", "12.5000"),
        ("SCHILY.xattr.user.a", "b"),
        ("SCHILY.xattr.user.overlay.opaque", "y"),
    ];
    for (key, value) in records {
        archive::add(&mut text, key.as_bytes(), value.as_bytes());
    }
    let good = Extended::parse(&text).unwrap();
    assert_eq!(
        (good.path.as_deref(), good.mtime, good.xattrs.len()),
        (Some(&b"a"[..]), Some(12_500_000_000), 1)
    );
}

/// A file of ten bytes with holes, of which this is the map and `data` bytes of content.
fn with_holes(map: &str, data: usize, size: &str) -> io::Result<Vec<Member>> {
    let mut map = map.as_bytes().to_vec();
    map.resize(map.len() + padding(map.len() as u64), 0);
    let mut bytes = Vec::new();
    let sent = Sent { sparse: Some((map.len() + data) as u64), ..Sent::default() };
    archive::header(&mut bytes, &entry(b"holes", size.parse().unwrap(), 0), &sent).unwrap();
    bytes.extend(map);
    bytes.resize(bytes.len() + data + padding(data as u64), 7);
    archive::end(&mut bytes).unwrap();
    read(&bytes)
}

#[test]
fn maps_of_holes_are_read_and_not_believed() {
    let members = with_holes("2\n1\n2\n5\n5\n", 7, "10").unwrap();
    let pieces = vec![Piece { at: 1, size: 2 }, Piece { at: 5, size: 5 }];
    assert_eq!(
        (members[0].path.as_slice(), members[0].size, &members[0].pieces),
        (&b"./holes"[..], 10, &pieces)
    );
    assert!(with_holes("1\n10\n0\n", 0, "10").unwrap()[0].pieces.iter().all(|piece| piece.size == 0));
    for (map, data) in [
        ("", 0),
        ("1\n", 0),
        ("1\n1\n", 0),
        ("x\n", 0),
        ("\n", 0),
        ("-1\n", 0),
        ("1\n5\n6\n", 6),
        ("2\n5\n2\n1\n2\n", 4),
        ("2\n1\n2\n2\n2\n", 4),
        ("1\n1\n2\n", 3),
        ("1\n1\n2\n", 1),
        ("1\n18446744073709551615\n2\n", 2),
        ("1\n18446744073709551616\n2\n", 2),
        ("4194305\n", 0),
        ("99999999999999999999\n", 0),
    ] {
        assert!(with_holes(map, data, "10").is_err(), "{map:?}");
    }
}
