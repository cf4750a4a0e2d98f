//! Frames of PostgreSQL's protocol: one byte that says what it is, four that say how long, and the body.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How much is asked of the system at once.
const CHUNK: usize = 64 * 1024;

/// No message may be longer: the server's own limit for one value is a gigabyte.
const LONGEST: usize = (1 << 30) + 64 * 1024;

/// A connection of either kind.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A socket in the file system.
    Unix(UnixStream),
}

impl Stream {
    /// How long reading and writing wait; `None` is for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
            Self::Unix(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
        }
    }

    /// The same connection once more, to close it from elsewhere.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    /// Nothing more is read from it; what is written still arrives.
    pub fn shutdown_reading(&self) {
        // An error says that it is closed already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Read),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Read),
        };
    }

    /// Closes it in both directions, for everybody who has it.
    pub fn shutdown(&self) {
        // An error says that it is closed already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub tag: u8,
    /// Everything after the length.
    pub body: &'a [u8],
    /// All of it, as it was sent.
    pub bytes: &'a [u8],
}

/// Takes whole messages out of a stream of bytes.
#[derive(Debug, Default)]
pub struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// No message may be longer.
    limit: Option<usize>,
}

impl Incoming {
    /// For messages that are not longer than this, of whoever is not known yet.
    pub fn limited(limit: usize) -> Self {
        Self { limit: Some(limit), ..Self::default() }
    }

    /// From here on only the protocol's own limit holds.
    pub fn lift_limit(&mut self) {
        self.limit = None;
    }

    /// The length that a message says it has, itself included.
    fn length_of(&self, bytes: Option<&[u8]>) -> io::Result<Option<usize>> {
        let Some(&[a, b, c, d]) = bytes.and_then(|bytes| bytes.get(..4)) else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if (4..=self.limit.unwrap_or(LONGEST)).contains(&length) {
            Ok(Some(length))
        } else {
            Err(io::Error::new(ErrorKind::InvalidData, "this is not PostgreSQL's protocol"))
        }
    }

    /// Reads what there is, once. `false` is the end of the stream.
    pub fn fill(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        self.make_room();
        loop {
            match stream.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() > 16 * CHUNK && self.end < CHUNK {
            self.buffer.truncate(2 * CHUNK);
            self.buffer.shrink_to_fit();
        }
        // A long message doubles the room, so that it is copied few times.
        if self.buffer.len() < self.end + CHUNK {
            let length = (self.end + CHUNK).max(self.end * 2);
            self.buffer.resize(length, 0);
        }
    }

    /// Whether a whole message has arrived; an error where what came is none.
    pub fn complete(&self) -> io::Result<bool> {
        let pending = &self.buffer[self.start..self.end];
        Ok(match self.length_of(pending.get(1..))? {
            Some(length) => pending.len() > length,
            None => false,
        })
    }

    /// The next whole message; `None` where more has to be read first.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        if !self.complete()? {
            return Ok(None);
        }
        let pending = &self.buffer[self.start..self.end];
        let length = self.length_of(pending.get(1..))?.unwrap_or_default();
        let bytes = &pending[..=length];
        self.start += bytes.len();
        Ok(Some(Frame { tag: bytes[0], body: &bytes[5..], bytes }))
    }

    /// The body of the first message of a client, which has no tag.
    pub fn next_untagged(&mut self) -> io::Result<Option<&[u8]>> {
        let pending = &self.buffer[self.start..self.end];
        match self.length_of(Some(pending))? {
            Some(length) if pending.len() >= length => {
                self.start += length;
                Ok(Some(&pending[4..length]))
            }
            _ => Ok(None),
        }
    }

    /// Whether nothing is waiting in here.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Appends a message.
pub fn put(buffer: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    buffer.push(tag);
    put_untagged(buffer, body);
}

/// Appends a message without a tag: the first one of a client.
pub fn put_untagged(buffer: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    body(buffer);
    let length = (buffer.len() - start) as u32;
    buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a text that ends with a zero byte.
pub fn put_text(buffer: &mut Vec<u8>, text: impl AsRef<[u8]>) {
    buffer.extend_from_slice(text.as_ref());
    buffer.push(0);
}

/// Appends a simple query.
pub fn put_query(buffer: &mut Vec<u8>, sql: impl AsRef<[u8]>) {
    put(buffer, b'Q', |body| put_text(body, sql));
}

/// What is left of a message's body.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    /// A text that ends with a zero byte.
    pub fn text(&mut self) -> io::Result<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(cut)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }

    /// The same as UTF-8, other bytes replaced.
    pub fn string(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(self.text()?).into_owned())
    }

    /// Two bytes.
    pub fn i16(&mut self) -> io::Result<i16> {
        self.bytes(2).map(|b| i16::from_be_bytes([b[0], b[1]]))
    }

    /// Four bytes.
    pub fn i32(&mut self) -> io::Result<i32> {
        self.bytes(4).map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// One byte.
    pub fn byte(&mut self) -> io::Result<u8> {
        self.bytes(1).map(|b| b[0])
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A value with its length before it; `None` is NULL.
    pub fn value(&mut self) -> io::Result<Option<&'a [u8]>> {
        match self.i32()? {
            -1 => Ok(None),
            length => self.bytes(usize::try_from(length).map_err(|_| cut())?).map(Some),
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a message ends too early")
}
