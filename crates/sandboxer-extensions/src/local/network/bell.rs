//! Waiting for a descriptor: until a deadline, or until everything is to stop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Rings once, and everybody who waits anywhere hears it, also those who come later.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Rings. Nobody ever reads from it, so it does not fall silent again.
    pub(super) fn ring(&self) {
        // The one error there can be is that it has been rung some 2^64 times.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until something of `flags` is possible on `fd`. The deadline and the bell are errors.
    pub(super) fn wait(&self, fd: impl AsFd, flags: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(self, PollFlags::IN), PollFd::new(&fd, flags)];
            if poll_until(&mut fds, deadline)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !fds[0].revents().is_empty() {
                return Err(stopped());
            }
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What work that was stopped by the bell ends with.
pub(super) fn stopped() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// How many of the descriptors have something to say; 0 when the deadline has passed.
pub(super) fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(fds, left.as_ref()) {
            Err(Errno::INTR) => {}
            answer => return Ok(answer?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiting_ends_by_data_by_the_deadline_or_by_the_bell() {
        let bell = Bell::new().unwrap();
        let (mut here, there) = UnixStream::pair().unwrap();
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(bell.wait(&there, PollFlags::IN, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        io::Write::write_all(&mut here, b"x").unwrap();
        bell.wait(&there, PollFlags::IN, None).unwrap();
        bell.ring();
        for _ in 0..2 {
            let rung = bell.wait(&there, PollFlags::IN, None).unwrap_err();
            assert_eq!(rung.kind(), io::ErrorKind::ConnectionAborted);
        }
    }
}
