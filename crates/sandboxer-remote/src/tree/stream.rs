//! Pipes to and from a host, on which somebody who asks to stop does not wait.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

use crate::process::{LOOK, never_wait, wait_for};
use crate::shell::Running;

/// A larger pipe lets both ends work at once. Where that is not allowed, the usual one does too.
const PIPE: usize = 1 << 20;

impl Running {
    /// What it says, for somebody who may ask to stop before it has said it; nothing where somebody has that already.
    pub fn output<'a>(&mut self, cancel: &'a CancelFlag) -> Option<impl Read + use<'a>> {
        self.stdout.take().map(|pipe| Patient::reader(pipe, cancel))
    }

    /// What it reads, for somebody who may ask to stop before it has read it. Dropping it ends the input.
    pub fn input<'a>(&mut self, cancel: &'a CancelFlag) -> Result<Option<impl Write + use<'a>>> {
        self.stdin.take().map(|pipe| Patient::writer(pipe, cancel)).transpose()
    }
}

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::shell::{Here, Shell};

    #[test]
    fn who_asks_to_stop_does_not_wait_for_a_pipe() {
        let (cancel, later) = (CancelFlag::default(), CancelFlag::default());
        let mut running = Here.start("sleep 1000", &[]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                cancel.cancel();
            });
            let mut from = running.output(&cancel).unwrap();
            assert_eq!(from.read(&mut [0; 9]).unwrap_err().to_string(), "stopped");
            let mut to = running.input(&cancel).unwrap().unwrap();
            assert_eq!(to.write_all(&vec![0; 4 << 20]).unwrap_err().to_string(), "stopped");
        });
        assert!(running.output(&later).is_none() && running.input(&later).unwrap().is_none());
    }
}
