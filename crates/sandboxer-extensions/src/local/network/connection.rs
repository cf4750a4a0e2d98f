//! One connection from inside: what it asks for, and what comes of it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::bell::Bell;
use super::decision::Decision;
use super::dial::prepare;
use super::proxy::{Bounds, OnDecision};
use super::rules::Rules;
use super::{http, socks, tunnel};

/// What all connections of a proxy share.
pub(super) struct Context {
    pub(super) rules: Rules,
    pub(super) on_decision: OnDecision,
    pub(super) bounds: Bounds,
    pub(super) bell: Bell,
}

/// A client that has not got what it wants yet.
pub(super) struct Connection<'a> {
    pub(super) context: &'a Arc<Context>,
    client: TcpStream,
    /// What was read and not used yet.
    pub(super) read: Vec<u8>,
    deadline: Instant,
}

/// What a client is connected to, and what is to be sent there before anything else.
pub(super) struct Opened {
    pub(super) upstream: TcpStream,
    pub(super) first: Vec<u8>,
}

/// How much is read at once from a client that is still asking.
const PIECE: usize = 4096;
/// How long, and how much of it, is listened to a client that was refused.
const PARTING: Duration = Duration::from_secs(2);
const PARTING_BYTES: usize = 1 << 20;

/// Serves one client until it is done. Nobody is interested in how it failed: who had to know was told.
pub(super) fn serve(context: &Arc<Context>, client: TcpStream) -> io::Result<()> {
    prepare(&client)?;
    let deadline = Instant::now() + context.bounds.head;
    let mut connection = Connection { context, client, read: Vec::new(), deadline };
    let opened = connection.open();
    match opened? {
        Some(Opened { upstream, first }) => tunnel::run(connection.client, upstream, first, &context.bell),
        None => connection.part(),
    }
}

impl Connection<'_> {
    /// Hears what the client wants and connects it. `None`: it was told why not.
    fn open(&mut self) -> io::Result<Option<Opened>> {
        if !self.fill()? {
            return Ok(None);
        }
        match self.read.first() {
            Some(&socks::VERSION) => socks::open(self),
            _ => http::open(self),
        }
    }

    /// Reads some more; `false` at the end. One deadline holds for everything until the request is complete.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; PIECE];
        let length = loop {
            self.context.bell.wait(&self.client, PollFlags::IN, Some(self.deadline))?;
            match (&self.client).read(&mut piece) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        self.read.extend_from_slice(&piece[..length]);
        Ok(length > 0)
    }

    /// Takes exactly so many bytes, which are few.
    pub(super) fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < count {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.read.split_off(count);
        Ok(std::mem::replace(&mut self.read, rest))
    }

    /// Sends an answer, in time that is its own: the request may have taken long to come, and so may its connection.
    pub(super) fn send(&mut self, mut answer: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + self.context.bounds.head;
        while !answer.is_empty() {
            match (&self.client).write(answer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.context.bell.wait(&self.client, PollFlags::OUT, Some(deadline))?;
                }
                written => answer = &answer[written?..],
            }
        }
        Ok(())
    }

    /// What is not even a host is a decision as well.
    pub(super) fn nonsense(&self, host: &[u8], port: u16, reason: &str) -> Decision {
        let decision = Decision::nonsense(host, port, reason);
        (self.context.on_decision)(&decision);
        decision
    }

    /// Ends a connection that was refused. Closing with something unread would reset it, and the client might never read why.
    fn part(mut self) -> io::Result<()> {
        self.client.shutdown(Shutdown::Write)?;
        self.deadline = Instant::now() + PARTING;
        let mut heard = 0;
        while heard < PARTING_BYTES {
            self.read.clear();
            if !self.fill()? {
                break;
            }
            heard += self.read.len();
        }
        Ok(())
    }
}
