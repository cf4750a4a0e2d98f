//! Our terminal and the sandbox's, with every byte passed between them.
//!
//! Ours is switched to raw while a command runs, so that Ctrl-C is a byte like any other: it is the sandbox's terminal that makes a signal of it, for
//! whoever is in the foreground there.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};
use signal_hook::consts::SIGWINCH;

/// What passes at once.
const CHUNK: usize = 16 * 1024;

/// Passes bytes between the terminal that we have and the master of the sandbox's.
pub(super) struct Relay<'a> {
    master: OwnedFd,
    /// Where we read what is typed, if that is a terminal.
    typed: Option<BorrowedFd<'a>>,
    /// Where we show what comes.
    shown: BorrowedFd<'a>,
    /// Typed and not yet taken.
    pending: Vec<u8>,
    open: bool,
    _raw: Option<Raw<'a>>,
}

impl<'a> Relay<'a> {
    /// Begins, with our streams as they are.
    pub fn begin(master: OwnedFd, streams: [BorrowedFd<'a>; 3]) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&master)?;
        rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        let [input, output, error] = streams;
        let typed = isatty(input).then_some(input);
        let shown = if isatty(output) {
            output
        } else if isatty(error) {
            error
        } else {
            input
        };
        // Whoever writes to our terminal besides the command wants it as it was: the rest of a pipeline, say.
        let raw = match typed.filter(|_| isatty(output)) {
            Some(typed) => Raw::switch(typed)?,
            None => None,
        };
        if raw.is_none() {
            echo_nothing(&master)?;
        }
        Ok(Self { master, typed, shown, pending: Vec::new(), open: true, _raw: raw })
    }

    /// What to wait for.
    pub fn interest(&self) -> Vec<PollFd<'_>> {
        let to_master = if self.pending.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut fds = Vec::new();
        if self.open {
            fds.push(PollFd::new(&self.master, to_master));
        }
        if let Some(typed) = self.typed.filter(|_| self.open && self.pending.is_empty()) {
            fds.push(PollFd::from_borrowed_fd(typed, PollFlags::IN));
        }
        fds
    }

    /// Passes on what there is, as [`Self::interest`] was answered.
    pub fn pass(&mut self, said: &[PollFlags]) -> io::Result<()> {
        let typed_waits = said.get(1).is_some_and(|said| !said.is_empty());
        if said.first().is_some_and(|said| said.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)) {
            self.show()?;
        }
        if typed_waits {
            self.take()?;
        }
        self.give()
    }

    /// One chunk from the sandbox's terminal to ours. Says whether there was any.
    fn show(&mut self) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        match rustix::io::read(&self.master, &mut chunk) {
            Ok(0) | Err(Errno::IO) => self.open = false,
            Ok(length) => {
                write_all(self.shown, &chunk[..length])?;
                return Ok(true);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(false)
    }

    fn take(&mut self) -> io::Result<()> {
        let Some(typed) = self.typed else { return Ok(()) };
        let mut chunk = [0; CHUNK];
        match rustix::io::read(typed, &mut chunk) {
            // Our terminal is gone.
            Ok(0) | Err(Errno::IO) => self.typed = None,
            Ok(length) => self.pending.extend_from_slice(&chunk[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn give(&mut self) -> io::Result<()> {
        if self.pending.is_empty() || !self.open {
            return Ok(());
        }
        match rustix::io::write(&self.master, &self.pending) {
            Ok(length) => drop(self.pending.drain(..length)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::IO) => self.open = false,
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Shows what is left after the command's end.
    pub fn drain(&mut self) {
        while self.open && matches!(self.show(), Ok(true)) {}
    }

    /// Our terminal has another size: so has the sandbox's.
    pub fn resize(&self) {
        if let Ok(size) = tcgetwinsize(self.shown) {
            let _ = tcsetwinsize(&self.master, size);
        }
    }
}

/// Our terminal shows what is typed; the sandbox's need not show it again.
fn echo_nothing(master: &OwnedFd) -> io::Result<()> {
    let mut settings = tcgetattr(master)?;
    settings.local_modes.remove(LocalModes::ECHO);
    Ok(tcsetattr(master, OptionalActions::Now, &settings)?)
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Our terminal in raw mode; as it was when dropped.
struct Raw<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Raw<'a> {
    /// `None` where the terminal is somebody else's at the moment: changing it would stop us.
    fn switch(terminal: BorrowedFd<'a>) -> io::Result<Option<Self>> {
        if tcgetpgrp(terminal).ok() != Some(rustix::process::getpgrp()) {
            return Ok(None);
        }
        let before = tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Drain, &raw)?;
        Ok(Some(Self { terminal, before }))
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Drain, &self.before);
    }
}

/// Hears when our terminal's size changes.
pub(super) struct Resizes {
    heard: UnixStream,
    registered: signal_hook::SigId,
}

impl Resizes {
    pub fn watch() -> io::Result<Self> {
        let (heard, said) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        said.set_nonblocking(true)?;
        Ok(Self { heard, registered: signal_hook::low_level::pipe::register(SIGWINCH, said)? })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }

    pub fn clear(&self) {
        let mut ignored = [0; 64];
        while matches!((&self.heard).read(&mut ignored), Ok(1..)) {}
    }
}

impl Drop for Resizes {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.registered);
        let _ = (&self.heard).flush();
    }
}
