//! Both directions between two sockets, until both are done or one has failed.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_linger;

use super::bell::{Bell, poll_until, stopped};
use super::relay::{Flow, Pause};

/// When nothing has happened for so long, pipes are given back.
const REST: Duration = Duration::from_secs(1);
/// How long the rest of what a side has sent may take when that side is gone.
const GRACE: Duration = Duration::from_secs(30);

/// From the client, and back to it.
const OUT: usize = 0;
const BACK: usize = 1;

struct Tunnel<'a> {
    /// The client and the server.
    sides: [TcpStream; 2],
    /// Each from the side of the same number to the other.
    flows: [Flow; 2],
    /// Sides that are gone. They have nothing new to say, and would say that again and again.
    gone: [bool; 2],
    /// Whether one of them has failed.
    failed: bool,
    bell: &'a Bell,
}

/// Relays between `client` and `upstream`, where `first` is to go before anything else. One that fails takes the other along, with a
/// reset, so that nobody takes half of something for all of it.
pub(super) fn run(client: TcpStream, upstream: TcpStream, first: Vec<u8>, bell: &Bell) -> io::Result<()> {
    let flows = [Flow::new(first), Flow::new(Vec::new())];
    let mut tunnel = Tunnel { sides: [client, upstream], flows, gone: [false; 2], failed: false, bell };
    let done = tunnel.run();
    if done.is_err() {
        tunnel.sides.iter().for_each(reset);
    }
    done
}

/// Makes closing it a reset.
fn reset(side: &TcpStream) {
    // A socket that is gone already has nobody left to tell.
    let _ = set_socket_linger(side, Some(Duration::ZERO));
}

impl Tunnel<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut ready = [true; 2];
        loop {
            for (flow, ready) in ready.iter_mut().enumerate() {
                *ready = *ready && self.step(flow)? == Pause::Turn;
            }
            if self.flows.iter().all(Flow::is_done) {
                return Ok(());
            }
            if ready == [false; 2] {
                match self.wait()? {
                    Some(now) => ready = now,
                    None => return Ok(()),
                }
            }
        }
    }

    fn step(&mut self, flow: usize) -> io::Result<Pause> {
        let pause = self.flows[flow].step(&self.sides[flow], &self.sides[1 - flow])?;
        if self.flows[BACK].is_done() {
            self.flows[OUT].allow_loss();
        }
        Ok(pause)
    }

    /// Waits until something can be moved, and says in which directions. `None`: there is nothing to be waited for any more.
    fn wait(&mut self) -> io::Result<Option<[bool; 2]>> {
        loop {
            match self.look()? {
                Some(said) => {
                    let ready = [self.is_ready(OUT, said), self.is_ready(BACK, said)];
                    self.note(said);
                    if ready != [false; 2] {
                        return Ok(Some(ready));
                    }
                }
                // Closing without a reset leaves the rest of what is complete to the kernel.
                None if self.failed && self.flows[BACK].is_done() => return Ok(None),
                None if self.failed => return Err(io::ErrorKind::TimedOut.into()),
                None => self.flows.iter_mut().for_each(Flow::rest),
            }
        }
    }

    /// Remembers who is gone.
    fn note(&mut self, said: [PollFlags; 2]) {
        for (gone, said) in self.gone.iter_mut().zip(said) {
            *gone |= said.intersects(PollFlags::ERR | PollFlags::HUP);
            self.failed |= said.intersects(PollFlags::ERR);
        }
    }

    /// What the sides have to say; `None` if nothing for a while.
    fn look(&self) -> io::Result<Option<[PollFlags; 2]>> {
        let fd = |side: usize| match self.interest(side) {
            // The bell stands in for a side that is not to be listened to.
            flags if flags.is_empty() && self.gone[side] => PollFd::new(self.bell, PollFlags::IN),
            flags => PollFd::from_borrowed_fd(self.sides[side].as_fd(), flags),
        };
        let mut fds = [fd(0), fd(1), PollFd::new(self.bell, PollFlags::IN)];
        if poll_until(&mut fds, self.patience().map(|patience| Instant::now() + patience))? == 0 {
            return Ok(None);
        }
        if !fds[2].revents().is_empty() {
            return Err(stopped());
        }
        Ok(Some([fds[0].revents(), fds[1].revents()]))
    }

    fn interest(&self, side: usize) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.flows[side].wants_to_read());
        flags.set(PollFlags::OUT, self.flows[1 - side].wants_to_write());
        flags
    }

    fn patience(&self) -> Option<Duration> {
        match () {
            () if self.failed => Some(GRACE),
            () if self.flows.iter().any(Flow::holds) => Some(REST),
            () => None,
        }
    }

    /// Whether a direction can go on, by what its two sides said.
    fn is_ready(&self, flow: usize, said: [PollFlags; 2]) -> bool {
        let failed = PollFlags::ERR | PollFlags::HUP;
        let (from, to, flow) = (said[flow], said[1 - flow], &self.flows[flow]);
        flow.wants_to_read() && from.intersects(PollFlags::IN | failed)
            || flow.wants_to_write() && to.intersects(PollFlags::OUT | failed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// Two sockets that are connected; the first is the tunnel's.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        here.set_nonblocking(true).unwrap();
        (here, there)
    }

    #[test]
    fn a_side_that_is_gone_is_not_asked_again_and_again() {
        const ALL: usize = 350_000;
        let ((client, mut reader), (upstream, mut server)) = (pair(), pair());
        set_socket_send_buffer_size(&client, 16_384).unwrap();
        set_socket_recv_buffer_size(&reader, 32_768).unwrap();
        set_socket_recv_buffer_size(&upstream, 200_000).unwrap();
        let relaying = thread::spawn(move || {
            run(client, upstream, Vec::new(), &Bell::new().unwrap()).unwrap();
            clock_gettime(ClockId::ThreadCPUTime)
        });
        // Both have said that they are done, and the reader has not read yet.
        reader.shutdown(Shutdown::Write).unwrap();
        server.write_all(&vec![b'x'; ALL]).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        thread::sleep(Duration::from_millis(500));
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), ALL);
        let used = Duration::try_from(relaying.join().unwrap()).unwrap();
        assert!(used < Duration::from_millis(200), "{used:?} of work for nothing");
    }
}
