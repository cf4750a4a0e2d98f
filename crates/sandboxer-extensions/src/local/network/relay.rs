//! One direction of a tunnel: bytes from one socket to another, through a pipe in the kernel where that works.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// As much as a pipe is asked to hold, and is moved at once.
const PIPE: usize = 256 * 1024;
/// As much as is moved at once where there is no pipe.
const BUFFER: usize = 64 * 1024;
/// After so many pieces it is the other direction's turn.
const PIECES: usize = 16;

/// One direction of a tunnel.
pub(super) struct Flow {
    carrier: Carrier,
    /// What was read and not written yet.
    pending: usize,
    /// Whether the kernel can move bytes without showing them, as far as is known.
    splices: bool,
    /// Whether what cannot be delivered is dropped instead of being an error.
    lossy: bool,
    stage: Stage,
}

/// What bytes are in between being read and being written.
enum Carrier {
    /// Nothing. A tunnel in which nothing happens uses nothing.
    None,
    Pipe {
        out: OwnedFd,
        into: OwnedFd,
    },
    Buffer {
        bytes: Vec<u8>,
        at: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// There is no more to read.
    Ended,
    /// And the other side was told.
    Done,
}

/// Why a direction has stopped for the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// There is more, but it is the other's turn.
    Turn,
    /// It has to be waited for a socket, or it is done.
    Blocked,
}

impl Flow {
    /// A direction in which these bytes come first.
    pub(super) fn new(first: Vec<u8>) -> Self {
        let pending = first.len();
        let carrier = Carrier::Buffer { bytes: first, at: 0 };
        Self { carrier, pending, splices: true, lossy: false, stage: Stage::Open }
    }

    pub(super) fn wants_to_read(&self) -> bool {
        self.stage == Stage::Open && self.pending == 0
    }

    pub(super) fn wants_to_write(&self) -> bool {
        self.pending > 0
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The other direction is complete. Its last bytes may still be on their way, and must not be lost because the client still talks to a
    /// server that has left: from now on, it talks into the wind.
    pub(super) fn allow_loss(&mut self) {
        self.lossy = true;
    }

    /// Whether there is something that [`rest`](Self::rest) would give back.
    pub(super) fn holds(&self) -> bool {
        self.pending == 0 && !matches!(self.carrier, Carrier::None)
    }

    /// Gives back what is only needed while something is moved.
    pub(super) fn rest(&mut self) {
        if self.pending == 0 {
            self.carrier = Carrier::None;
        }
    }

    /// Moves what can be moved without waiting.
    pub(super) fn step(&mut self, from: &TcpStream, to: &TcpStream) -> io::Result<Pause> {
        for _ in 0..PIECES {
            if self.pending == 0 && !self.read(from)? {
                return Ok(Pause::Blocked);
            }
            if self.stage == Stage::Ended && self.pending == 0 {
                self.finish(to)?;
                return Ok(Pause::Blocked);
            }
            if !self.write(to)? {
                return Ok(Pause::Blocked);
            }
        }
        Ok(Pause::Turn)
    }

    fn finish(&mut self, to: &TcpStream) -> io::Result<()> {
        self.stage = Stage::Done;
        self.carrier = Carrier::None;
        match to.shutdown(Shutdown::Write) {
            Err(_) if self.lossy => Ok(()),
            told => told,
        }
    }

    /// Reads a piece; `false` if there is none now.
    fn read(&mut self, from: &TcpStream) -> io::Result<bool> {
        if self.stage != Stage::Open {
            return Ok(false);
        }
        let Some(length) = now(self.fill(from))? else { return Ok(false) };
        self.pending = length;
        if length == 0 {
            self.stage = Stage::Ended;
        }
        Ok(true)
    }

    fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        if self.splices {
            match self.fill_pipe(from) {
                Ok(0) if !is_at_end(from)? => self.splices = false,
                Err(Errno::INVAL | Errno::MFILE | Errno::NFILE) => self.splices = false,
                filled => return Ok(filled?),
            }
        }
        self.fill_buffer(from)
    }

    fn fill_pipe(&mut self, from: &TcpStream) -> Result<usize, Errno> {
        if !matches!(self.carrier, Carrier::Pipe { .. }) {
            self.carrier = new_pipe()?;
        }
        match &self.carrier {
            Carrier::Pipe { into, .. } => splice(from, None, into, None, PIPE, flags()),
            _ => Err(Errno::INVAL),
        }
    }

    fn fill_buffer(&mut self, mut from: &TcpStream) -> io::Result<usize> {
        let mut buffer = match std::mem::replace(&mut self.carrier, Carrier::None) {
            Carrier::Buffer { bytes, .. } => bytes,
            _ => Vec::new(),
        };
        buffer.resize(BUFFER, 0);
        let read = from.read(&mut buffer);
        buffer.truncate(*read.as_ref().unwrap_or(&0));
        self.carrier = Carrier::Buffer { bytes: buffer, at: 0 };
        read
    }

    /// Writes what there is; `false` if not all of it could be.
    fn write(&mut self, to: &TcpStream) -> io::Result<bool> {
        while self.pending > 0 {
            match now(self.drain(to)) {
                Ok(Some(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(Some(length)) => self.pending -= length,
                Ok(None) => return Ok(false),
                Err(_) if self.lossy => (self.carrier, self.pending) = (Carrier::None, 0),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn drain(&mut self, mut to: &TcpStream) -> io::Result<usize> {
        match &mut self.carrier {
            Carrier::None => Err(io::ErrorKind::WriteZero.into()),
            Carrier::Pipe { out, .. } => match splice(out, None, to, None, self.pending, flags()) {
                Err(Errno::INVAL) => {
                    self.unpipe()?;
                    self.drain(to)
                }
                written => Ok(written?),
            },
            Carrier::Buffer { bytes, at } => {
                let written = to.write(&bytes[*at..])?;
                *at += written;
                Ok(written)
            }
        }
    }

    /// Takes what is in the pipe out of it again, where it cannot be moved on from there.
    fn unpipe(&mut self) -> io::Result<()> {
        let mut bytes = vec![0; self.pending];
        if let Carrier::Pipe { out, .. } = &self.carrier {
            let mut read = 0;
            while read < bytes.len() {
                read += match rustix::io::read(out, &mut bytes[read..])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    length => length,
                };
            }
        }
        self.splices = false;
        self.carrier = Carrier::Buffer { bytes, at: 0 };
        Ok(())
    }
}

fn flags() -> SpliceFlags {
    SpliceFlags::NONBLOCK | SpliceFlags::MOVE
}

fn new_pipe() -> Result<Carrier, Errno> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // An ordinary user has so many pages for all pipes; then they stay as small as they are.
    let _ = fcntl_setpipe_size(&into, PIPE);
    Ok(Carrier::Pipe { out, into })
}

/// Urgent data looks like the end to `splice`, but not to `recv`.
fn is_at_end(from: &TcpStream) -> io::Result<bool> {
    match recv(from, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((length, _)) => Ok(length == 0),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// `None` for what is not possible without waiting.
fn now(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Two sockets that are connected; the first does not block.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        here.set_nonblocking(true).unwrap();
        (here, listener.accept().unwrap().0)
    }

    /// Sends some bytes through a flow, and says what has arrived when it is done.
    fn carried(mut flow: Flow, more: usize, halfway: impl Fn(&Flow)) -> Vec<u8> {
        let ((from, mut sender), (to, mut receiver)) = (pair(), pair());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(&vec![b'x'; more]).unwrap();
                sender.shutdown(Shutdown::Write).unwrap();
            });
            let received = scope.spawn(move || {
                let mut received = Vec::new();
                receiver.read_to_end(&mut received).unwrap();
                received
            });
            while !flow.is_done() {
                flow.step(&from, &to).unwrap();
                halfway(&flow);
            }
            received.join().unwrap()
        })
    }

    const MORE: usize = 3 << 20;

    fn expected() -> Vec<u8> {
        [&b"first"[..], &vec![b'x'; MORE]].concat()
    }

    #[test]
    fn what_comes_first_arrives_first() {
        assert!(carried(Flow::new(b"first".to_vec()), MORE, |_| {}) == expected());
        assert_eq!(carried(Flow::new(b"first".to_vec()), 0, |_| {}), b"first");
        assert_eq!(carried(Flow::new(Vec::new()), 0, |_| {}), b"");
    }

    #[test]
    fn where_nothing_can_be_spliced_it_is_copied() {
        let copying = Flow { splices: false, ..Flow::new(b"first".to_vec()) };
        let arrived = carried(copying, MORE, |flow| assert!(!matches!(flow.carrier, Carrier::Pipe { .. })));
        assert!(arrived == expected());
    }

    #[test]
    fn what_is_in_a_pipe_can_be_taken_out_again() {
        let ((from, mut sender), (to, mut receiver)) = (pair(), pair());
        let mut flow = Flow::new(Vec::new());
        sender.write_all(b"hello").unwrap();
        while !flow.read(&from).unwrap() {}
        assert!(matches!(flow.carrier, Carrier::Pipe { .. }));
        flow.unpipe().unwrap();
        assert!(flow.write(&to).unwrap() && flow.pending == 0);
        let mut heard = [0; 5];
        receiver.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[test]
    fn at_rest_nothing_is_held() {
        let ((from, mut sender), (to, mut receiver)) = (pair(), pair());
        let mut flow = Flow::new(Vec::new());
        sender.write_all(b"x").unwrap();
        while !matches!(flow.carrier, Carrier::Pipe { .. }) || flow.pending > 0 {
            assert_eq!(flow.step(&from, &to).unwrap(), Pause::Blocked);
        }
        receiver.read_exact(&mut [0]).unwrap();
        assert!(flow.holds());
        flow.rest();
        assert!(!flow.holds() && flow.wants_to_read() && !flow.wants_to_write());
    }
}
