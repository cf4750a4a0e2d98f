//! Pipes to and from a host, on which somebody who asks to stop does not wait.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

use crate::process::{LOOK, never_wait, wait_for};

/// A larger pipe lets both ends work at once. Where that is not allowed, the usual one does too.
const PIPE: usize = 1 << 20;

/// A pipe that is waited for in short steps.
pub(super) struct Patient<'a, P> {
    pipe: P,
    cancel: &'a CancelFlag,
}

impl<'a, P: AsFd> Patient<'a, P> {
    pub fn writer(pipe: P, cancel: &'a CancelFlag) -> Result<Self> {
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
        never_wait(&pipe).map_err(|e| Error::io("open", "a pipe", e))?;
        Ok(Self { pipe, cancel })
    }

    pub fn reader(pipe: P, cancel: &'a CancelFlag) -> Self {
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
        Self { pipe, cancel }
    }

    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        while !wait_for(self.pipe.as_fd(), flags, LOOK)? {
            self.check()?;
        }
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        if self.cancel.is_cancelled() { Err(io::Error::other("stopped")) } else { Ok(()) }
    }
}

impl<P: AsFd> Write for Patient<'_, P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&self.pipe, bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<P: AsFd> Read for Patient<'_, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        loop {
            match rustix::io::read(&self.pipe, &mut *buffer) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}
