//! What `btrfs send` writes, as far as it tells which paths were touched.
//!
//! A stream is a header and then commands, each a list of attributes. With `--no-data` it has no content, so its length is in
//! proportion to what was changed. Its names are those of the moment: a file may go by a number until it gets its name.

use std::io::{self, Read};

use sandboxer_core::model::RelPath;

const MAGIC: &[u8; 13] = b"btrfs-stream\0";
const VERSION: u32 = 1;
/// More than a command without data can have: its attributes are paths and numbers, and an extended attribute.
const LONGEST: usize = 1 << 20;

mod command {
    pub const SUBVOLUME: u16 = 1;
    pub const SNAPSHOT: u16 = 2;
    pub const RENAME: u16 = 9;
    pub const END: u16 = 21;
}

mod attribute {
    pub const PATH: u16 = 15;
    pub const PATH_TO: u16 = 16;
    pub const PATH_LINK: u16 = 17;
}

/// Something that was done, at names of the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touch {
    /// An entry came, went or was changed.
    At(RelPath),
    /// An entry was moved, with all that is below it.
    Moved { from: RelPath, to: RelPath },
}

/// Reads a stream to its end. One that breaks off is an error.
pub fn read_touches(stream: &mut impl Read, mut heard: impl FnMut(Touch)) -> io::Result<()> {
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic)?;
    let version = read_u32(stream)?;
    if magic != *MAGIC || version != VERSION {
        return Err(damaged(format!("not a send stream of version {VERSION}")));
    }
    loop {
        let length = read_u32(stream)? as usize;
        let mut rest = [0; 6];
        stream.read_exact(&mut rest)?;
        let kind = u16::from_le_bytes([rest[0], rest[1]]);
        if length > LONGEST {
            return Err(damaged(format!("a command of {length} bytes")));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        if kind == command::END {
            // What follows would block the sender if nobody read it.
            return io::copy(stream, &mut io::sink()).map(drop);
        }
        if kind != command::SUBVOLUME && kind != command::SNAPSHOT {
            tell(kind, &body, &mut heard)?;
        }
    }
}

fn tell(kind: u16, body: &[u8], heard: &mut impl FnMut(Touch)) -> io::Result<()> {
    let (mut at, mut to, mut linked) = (None, None, None);
    for (key, value) in attributes(body)? {
        match key {
            attribute::PATH => at = path(value)?,
            attribute::PATH_TO => to = path(value)?,
            // Of a symbolic link it is the target, which need not be a path of the tree.
            attribute::PATH_LINK => linked = RelPath::from_bytes(value).ok(),
            _ => {}
        }
    }
    match (kind, at, to) {
        (command::RENAME, Some(from), Some(to)) => heard(Touch::Moved { from, to }),
        (_, at, to) => [at, to, linked].into_iter().flatten().for_each(|path| heard(Touch::At(path))),
    }
    Ok(())
}

/// A path in the tree; the tree itself is none.
fn path(bytes: &[u8]) -> io::Result<Option<RelPath>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    RelPath::from_bytes(bytes).map(Some).map_err(|error| damaged(error.to_string()))
}

fn attributes(mut body: &[u8]) -> io::Result<Vec<(u16, &[u8])>> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let (key, length, rest) = match *body {
            [a, b, c, d, ref rest @ ..] => (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]), rest),
            _ => return Err(damaged("half of an attribute")),
        };
        let Some((value, rest)) = rest.split_at_checked(usize::from(length)) else {
            return Err(damaged("an attribute that breaks off"));
        };
        found.push((key, value));
        body = rest;
    }
    Ok(found)
}

fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn damaged(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its stream cannot be read: {}", why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        [&MAGIC[..], &VERSION.to_le_bytes()].concat()
    }

    fn command(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (key, value) in attributes {
            body.extend(key.to_le_bytes());
            body.extend((value.len() as u16).to_le_bytes());
            body.extend(*value);
        }
        let length = (body.len() as u32).to_le_bytes();
        [&length[..], &kind.to_le_bytes(), &[0; 4], &body].concat()
    }

    fn read(stream: &[u8]) -> io::Result<Vec<Touch>> {
        let mut touches = Vec::new();
        read_touches(&mut &*stream, |touch| touches.push(touch)).map(|()| touches)
    }

    fn rel(bytes: &[u8]) -> RelPath {
        RelPath::from_bytes(bytes).unwrap()
    }

    #[test]
    fn paths_come_as_they_are_whatever_their_bytes() {
        let odd = b"a b/n\n\xff";
        let stream = [
            header(),
            command(command::SNAPSHOT, &[(attribute::PATH, b"new")]),
            command(22, &[(attribute::PATH, odd), (18, &[0; 8])]),
            command(command::RENAME, &[(attribute::PATH, b"d"), (attribute::PATH_TO, b"o257-7-0")]),
            command(10, &[(attribute::PATH, b"l"), (attribute::PATH_LINK, b"old")]),
            command(8, &[(attribute::PATH, b"s"), (attribute::PATH_LINK, b"../outside")]),
            command(20, &[(attribute::PATH, b"")]),
            command(command::END, &[]),
        ];
        let moved = Touch::Moved { from: rel(b"d"), to: rel(b"o257-7-0") };
        let at = |bytes| Touch::At(rel(bytes));
        let expected = vec![at(&odd[..]), moved, at(b"l"), at(b"old"), at(b"s")];
        assert_eq!(read(&stream.concat()).unwrap(), expected);
    }

    #[test]
    fn a_stream_that_breaks_off_is_an_error() {
        let whole = [header(), command(22, &[(attribute::PATH, b"a")]), command(command::END, &[])].concat();
        assert_eq!(read(&whole).unwrap().len(), 1);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length} bytes pass for a whole stream");
        }
    }

    #[test]
    fn what_is_no_stream_is_an_error() {
        let newer = [&MAGIC[..], &2_u32.to_le_bytes()].concat();
        let huge = [header(), u32::MAX.to_le_bytes().to_vec(), vec![0; 6]].concat();
        let torn = [header(), vec![3, 0, 0, 0, 22, 0, 0, 0, 0, 0, 15, 0, 9]].concat();
        let outside = [header(), command(22, &[(attribute::PATH, b"../x")])].concat();
        for stream in [newer, huge, torn, outside] {
            assert_eq!(read(&stream).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
