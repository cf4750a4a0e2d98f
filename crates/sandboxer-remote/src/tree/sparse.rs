//! Files with holes: a map of where there is data, before the data, as GNU tar has it (format 1.0).

use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::archive::{BLOCK, padding};

/// A file in more pieces than this is sent as a whole.
const MOST: usize = 10_000;
/// Of what comes, more are not believed.
const MOST_TAKEN: u64 = 1 << 22;

/// A part of a file that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub at: u64,
    pub size: u64,
}

/// Where there is data; `None` where the filesystem does not tell, or it is not worth it.
pub(super) fn pieces(file: impl AsFd, size: u64) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < size && pieces.len() < MOST {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = seek(&file, SeekFrom::Hole(start)).ok()?.min(size);
        if start >= end {
            break;
        }
        pieces.push(Piece { at: start, size: end - start });
        at = end;
    }
    let _ = seek(&file, SeekFrom::Start(0));
    if at < size || pieces.is_empty() {
        // A hole at the end is a piece of nothing.
        pieces.push(Piece { at: size, size: 0 });
    }
    (pieces.len() <= MOST).then_some(pieces)
}

/// The map, with zeros up to the next block.
pub(super) fn map(pieces: &[Piece]) -> Vec<u8> {
    let mut map = format!("{}\n", pieces.len()).into_bytes();
    for piece in pieces {
        map.extend(format!("{}\n{}\n", piece.at, piece.size).bytes());
    }
    map.resize(map.len() + padding(map.len() as u64), 0);
    map
}

/// Reads a map up to its last block: the pieces, and how many bytes it was. They follow each other and end within `size`.
pub(super) fn read_map(from: &mut impl Read, size: u64) -> io::Result<Option<(Vec<Piece>, u64)>> {
    let mut lines = Lines { from, block: [0; BLOCK], at: BLOCK, bytes: 0 };
    let Some(count) = lines.number()?.filter(|count| *count <= MOST_TAKEN) else { return Ok(None) };
    let (mut pieces, mut end) = (Vec::new(), 0);
    for _ in 0..count {
        let (Some(at), Some(length)) = (lines.number()?, lines.number()?) else { return Ok(None) };
        let Some(next) = at.checked_add(length).filter(|next| at >= end && *next <= size) else {
            return Ok(None);
        };
        pieces.push(Piece { at, size: length });
        end = next;
    }
    Ok(Some((pieces, lines.bytes)))
}

/// Numbers in lines, read block by block.
struct Lines<'a, R> {
    from: &'a mut R,
    block: [u8; BLOCK],
    at: usize,
    bytes: u64,
}

impl<R: Read> Lines<'_, R> {
    fn number(&mut self) -> io::Result<Option<u64>> {
        let mut value: Option<u64> = None;
        loop {
            match self.byte()? {
                b'\n' => return Ok(value),
                digit @ b'0'..=b'9' => {
                    let before = value.unwrap_or(0).checked_mul(10);
                    value = before.and_then(|before| before.checked_add(u64::from(digit - b'0')));
                    if value.is_none() {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    fn byte(&mut self) -> io::Result<u8> {
        if self.at == BLOCK {
            self.from.read_exact(&mut self.block)?;
            (self.at, self.bytes) = (0, self.bytes + BLOCK as u64);
        }
        self.at += 1;
        Ok(self.block[self.at - 1])
    }
}
