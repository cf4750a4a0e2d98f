//! A real pseudo-terminal with the command on it: what it writes is collected, what a person would type is typed.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::common::{SANDBOX, World};

/// Far beyond what any step takes: only a test that fails gets there.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command on its terminal.
pub struct Terminal {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    child: Child,
    /// Everything that was on the screen.
    pub screen: String,
    /// How much of it was looked at.
    seen: usize,
}

impl Terminal {
    /// Starts `sandbox` with a controlling terminal of its own; `$EDITOR` is a command line.
    pub fn start(world: &World, arguments: &[&str], editor: &str) -> Self {
        // `setsid --ctty` does what would need unsafe code here: a new session whose terminal is its stdin.
        let mut command = Command::new("setsid");
        world.furnish(&mut command);
        command.arg("--ctty").arg(SANDBOX).args(arguments);
        command.env("NO_COLOR", "1").env("EDITOR", editor).env("TMPDIR", world.path("user"));
        Self::over(command)
    }

    /// Starts a command on a terminal. One that begins with `setsid --ctty` has it as its controlling terminal.
    pub fn over(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap());
        let out = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(out()).stdout(out()).stderr(out());
        let child = command.spawn().expect("setsid (util-linux) is needed for tests on a terminal");
        let keyboard = File::from(master);
        let output = listen(keyboard.try_clone().unwrap());
        Self { keyboard, output, child, screen: String::new(), seen: 0 }
    }

    /// Waits until this appears after what was waited for last.
    pub fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{text:?} did not appear; the screen:\n{}", self.screen)
                }
            }
        }
    }

    /// Changes the size of the terminal, of which whoever works on it is told.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// Types these keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a question and answers it.
    pub fn answer(&mut self, question: &str, answer: &str) {
        self.expect(question);
        self.expect("]? ");
        self.press(&format!("{answer}\n"));
    }

    /// Waits for the end: the exit code, or `None` after a signal.
    pub fn finish(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        while let Ok(bytes) = self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.screen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands on what appears, until nobody has the terminal open any more.
fn listen(mut master: File) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = master.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}
