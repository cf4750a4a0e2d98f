//! Passes messages on between the session and the client whose turn it is.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;

use super::super::held::Held;
use super::super::wire;
use super::client::{Client, End, lost, protocol};
use super::locked;
use super::reply::Said;
use super::startup::is_safe_encoding;

/// How much is gathered for a client before it is sent.
const CHUNK: usize = 64 * 1024;

/// What an exchange ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The server is ready again.
    Ready,
    /// The server wants data of a COPY, or is done without; an error, too, ends it. Nothing was sent that makes it ready.
    Data,
}

/// What passing on came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    Done,
}

/// A function may set what a statement may not.
pub(super) fn misreading() -> Said {
    let mut said = Said::new("0A000", "standard_conforming_strings is always on in a sandbox");
    said.hint = Some("Write such strings as E'…'. What switched it off was undone.".to_owned());
    said
}

impl Client {
    /// Sends a message, with what is pending before it, and passes the answer on; whether it succeeded.
    pub fn run(&mut self, message: &[u8]) -> Result<bool, End> {
        self.run_until(message, Until::Ready)
    }

    pub fn run_until(&mut self, message: &[u8], until: Until) -> Result<bool, End> {
        if !self.enter()? {
            return Ok(false);
        }
        let shared = self.shared.clone();
        let mut held = shared.lock_held();
        *locked(&shared.running) = Some(self.id);
        let result = self.exchange(&mut held, message, until);
        *locked(&shared.running) = None;
        let ok = result?;
        if !ok {
            self.note_failure();
        }
        if until == Until::Ready {
            held.check().map_err(|error| lost(&error))?;
        }
        if self.dead {
            return Err(End::Gone);
        }
        self.tell_parameters(&mut held);
        if ok && !held.reads_strings() {
            self.fail(&misreading());
            return Ok(false);
        }
        let encoding = held.connection().parameters().get("client_encoding");
        match encoding {
            Some(name) if !is_safe_encoding(name) => Err(End::Sent(Said::new(
                "0A000",
                format!("client_encoding {name} is not available in a sandbox"),
            ))),
            _ => Ok(ok),
        }
    }

    fn exchange(&mut self, held: &mut Held, message: &[u8], until: Until) -> Result<bool, End> {
        let (mut messages, mut passed_over) = held.pending.take();
        messages.extend_from_slice(message);
        let sent = held.connection().send(&messages);
        held.attempt(sent).map_err(|error| lost(&error))?;
        let mut ok = true;
        loop {
            self.wait(held)?;
            if passed_over > 0 {
                passed_over -= usize::from(self.pass_over(held)?);
            } else if self.pass_on(held, until, &mut ok)? == Step::Done {
                return Ok(ok);
            }
        }
    }

    /// Takes an answer to something of ours; whether it was the last of it.
    fn pass_over(&mut self, held: &mut Held) -> Result<bool, End> {
        let frame = held.connection().frame();
        let frame = match frame {
            Ok(frame) => frame,
            Err(failure) => return Err(self.lost_by(held, failure)),
        };
        match frame.tag {
            b'Z' => return Ok(true),
            // Only settings can fail: everything else is known to the server.
            b'E' => {
                self.broken = true;
                self.out.push(b'N');
                self.out.extend_from_slice(&frame.bytes[1..]);
            }
            _ => {}
        }
        Ok(false)
    }

    fn pass_on(&mut self, held: &mut Held, until: Until, ok: &mut bool) -> Result<Step, End> {
        let frame = held.connection().frame();
        let frame = match frame {
            Ok(frame) => frame,
            Err(failure) => return Err(self.lost_by(held, failure)),
        };
        match frame.tag {
            b'Z' => return Ok(Step::Done),
            // Nobody can have asked for notifications: LISTEN begins at the commit. Settings are told at the end.
            b'A' | b'S' => {}
            b'1' if self.reparsed => self.reparsed = false,
            b'G' => {
                self.out.extend_from_slice(frame.bytes);
                self.copy_in(held)?;
                if until == Until::Data {
                    return Ok(Step::Done);
                }
            }
            tag => {
                *ok &= tag != b'E';
                self.out.extend_from_slice(frame.bytes);
                if until == Until::Data && matches!(tag, b'E' | b'C') {
                    return Ok(Step::Done);
                }
            }
        }
        Ok(Step::More)
    }

    /// Waits for the session, and looks after the client meanwhile: one that has gone needs no answer.
    fn wait(&mut self, held: &mut Held) -> Result<(), End> {
        if held.connection().has_frame() {
            if self.out.len() > CHUNK {
                self.flush_or_die(held);
            }
            return Ok(());
        }
        self.flush_or_die(held);
        while !self.dead {
            let connection = held.connection();
            let mut polled = [
                PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::RDHUP),
            ];
            if poll(&mut polled, None).is_err() {
                continue;
            }
            let [session, client] = polled.map(|fd| !fd.revents().is_empty());
            if session {
                return Ok(());
            }
            if client {
                self.die(held);
            }
        }
        cancel_until_answer(held);
        Ok(())
    }

    fn flush_or_die(&mut self, held: &Held) {
        if self.flush().is_err() {
            self.die(held);
        }
    }

    /// Cancels the statement that runs: its client is gone.
    fn die(&mut self, held: &Held) {
        if !self.dead {
            self.dead = true;
            let _ = held.canceller().cancel();
        }
    }

    /// Passes data on from the client until it has no more, or the server does not want it.
    fn copy_in(&mut self, held: &mut Held) -> Result<(), End> {
        loop {
            self.flush_or_die(held);
            let mut data = Vec::new();
            let ended = self.copy_data(&mut data)?;
            if !data.is_empty() {
                let sent = held.connection().send(&data);
                held.attempt(sent).map_err(|error| lost(&error))?;
            }
            if ended || held.connection().has_frame() {
                return Ok(());
            }
            let more = self.incoming.complete().unwrap_or(true);
            let connection = held.connection();
            let mut polled = [connection.as_fd(), self.stream.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // What has arrived already is not waited for.
            if poll(&mut polled, more.then(Timespec::default).as_ref()).is_err() {
                continue;
            }
            let [session, client] = polled.map(|fd| !fd.revents().is_empty());
            if session {
                return Ok(());
            }
            if client && !more && (self.dead || !self.incoming.fill(&mut self.stream).unwrap_or(false)) {
                self.dead = true;
            }
        }
    }

    /// The messages of a COPY that have arrived; whether they are the last.
    fn copy_data(&mut self, data: &mut Vec<u8>) -> Result<bool, End> {
        let abandoned =
            |data: &mut Vec<u8>, why: &str| wire::put(data, b'f', |body| wire::put_text(body, why));
        if self.dead {
            abandoned(data, "the client has gone");
            return Ok(true);
        }
        while let Some(frame) = self.incoming.next_frame().map_err(|error| protocol(&error.to_string()))? {
            match frame.tag {
                b'd' => data.extend_from_slice(frame.bytes),
                b'c' | b'f' => {
                    data.extend_from_slice(frame.bytes);
                    return Ok(true);
                }
                // The server, too, takes no notice of these here.
                b'S' | b'H' => {}
                b'X' => {
                    self.dead = true;
                    abandoned(data, "the client has gone");
                    return Ok(true);
                }
                _ => {
                    abandoned(data, "unexpected message type during COPY from stdin");
                    return Ok(true);
                }
            }
            if data.len() > CHUNK {
                break;
            }
        }
        Ok(false)
    }

    fn lost_by(&self, held: &mut Held, failure: super::super::client::Failure) -> End {
        match held.attempt::<()>(Err(failure)) {
            Err(error) => lost(&error),
            Ok(()) => End::Gone,
        }
    }
}

/// Waits for an answer of the session and repeats the request to cancel: one that arrives between two statements is lost. The
/// session's own timeout applies if no request helps.
fn cancel_until_answer(held: &mut Held) {
    const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    const MAX_REQUESTS: usize = 50;
    for _ in 0..MAX_REQUESTS {
        let connection = held.connection();
        let mut polled = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN)];
        match poll(&mut polled, Some(&INTERVAL)) {
            Ok(0) => drop(held.canceller().cancel()),
            Ok(_) => return,
            Err(_) => {}
        }
    }
}
