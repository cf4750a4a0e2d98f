//! One keeper, as seen from outside: finding, starting, asking and ending it.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use sandboxer_core::{Error, Result};
use sandboxer_keeper::process::{Leaving, Turn, hear_startup, reap, remember, until_started};
use sandboxer_keeper::socket::{connect, peer};

use super::serve::NAME;
use super::wire::{Answer, PROTOCOL, Request, Startup, receive, send};
use crate::engine::Setup;

/// Opening may wait for a server that is slow to take a connection.
const OPENING: Duration = Duration::from_secs(60);

/// What a request may take: a difference of millions of rows, or a script of hours.
const WORK: Duration = Duration::from_secs(24 * 3600);

/// The place of one keeper.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    dir: PathBuf,
    strategy: String,
}

impl Keeper {
    /// The keeper whose directory is `dir`, whether it runs or not. Errors are told in the name of `strategy`.
    pub fn at(dir: &Path, strategy: &str) -> Self {
        Self { dir: dir.to_path_buf(), strategy: strategy.to_owned() }
    }

    /// Starts it from `program`, which has to call [`serve_if_asked`](super::serve_if_asked) first.
    pub fn start(&self, program: &Path, setup: &Setup) -> Result<()> {
        let _turn = Turn::take(&self.dir, true)?;
        until_started(&self.dir, || match self.runs()? {
            true => Ok(Some(())),
            false => self.spawn(program, setup),
        })
    }

    /// Whether it runs, and is one that we can talk to.
    pub fn runs(&self) -> Result<bool> {
        reap();
        let (answer, pid) = match self.try_ask(&Request::Hello, &[], OPENING) {
            // One that was killed a moment ago may still be at it: connections to it are made, and broken.
            Err(e) if is_gone(&e) => return Ok(false),
            Err(e) => return Err(Error::io("reach the keeper in", &self.dir, e)),
            Ok((answer, _, pid)) => (answer, pid),
        };
        match answer {
            Answer::Hello { protocol: PROTOCOL, pid: said } if said == pid => Ok(true),
            Answer::Hello { protocol, .. } if protocol != PROTOCOL => Err(other_version(pid, protocol)),
            _ => Err(Error::corrupt(&self.dir, format!("process {pid} answers and is no keeper"))),
        }
    }

    /// Asks it for something. `None`: it is not there, or died meanwhile.
    pub fn ask(&self, request: &Request, content: &[u8]) -> Result<Option<(Answer, Vec<u8>)>> {
        match self.try_ask(request, content, WORK) {
            Ok((Answer::Failed(failure), ..)) => Err(failure.into_error(&self.strategy)),
            Ok((answer, content, _)) => Ok(Some((answer, content))),
            Err(e) if is_gone(&e) => Ok(None),
            Err(e) => Err(Error::io("hear from the keeper in", &self.dir, e)),
        }
    }

    /// Ends it, and waits until it is gone. It not running is fine.
    pub fn end(&self) -> Result<()> {
        let _turn = match Turn::take(&self.dir, false) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            turn => turn?,
        };
        let Some(pid) = self.pid()? else { return Ok(()) };
        let leaving = Leaving::of(pid);
        self.ask(&Request::Quit, &[])?;
        let gone = leaving.wait().map_err(|e| Error::io("wait for", &self.dir, e))?;
        reap();
        match gone {
            true => Ok(()),
            false => Err(Error::Busy { path: self.dir.clone(), holder: Some(format!("keeper {pid}")) }),
        }
    }

    /// Its process, if it runs.
    pub fn pid(&self) -> Result<Option<u32>> {
        match self.try_ask(&Request::Hello, &[], OPENING) {
            Ok((_, _, pid)) => Ok(Some(pid)),
            Err(e) if is_gone(&e) => Ok(None),
            Err(e) => Err(Error::io("reach the keeper in", &self.dir, e)),
        }
    }

    fn try_ask(
        &self,
        request: &Request,
        content: &[u8],
        patience: Duration,
    ) -> io::Result<(Answer, Vec<u8>, u32)> {
        let mut socket: UnixStream = connect(&self.dir)?;
        let (pid, uid) = peer(&socket)?;
        if uid != geteuid().as_raw() {
            return Err(io::Error::other(format!("keeper {pid} belongs to user {uid}")));
        }
        socket.set_read_timeout(Some(patience))?;
        send(&mut socket, request, content)?;
        let (answer, content) = receive(&mut socket)?;
        Ok((answer, content, pid))
    }

    /// Starts a process and waits until it has opened what it is to keep. `None`: another one holds the lock.
    fn spawn(&self, program: &Path, setup: &Setup) -> Result<Option<()>> {
        let failed = |e| Error::io("start a keeper from", program, e);
        let mut command = Command::new(program);
        command.arg0(NAME).arg(&self.dir).current_dir("/");
        // Where coverage is measured, the keeper's counts.
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| name == "LLVM_PROFILE_FILE"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        match tell(&mut child, setup).and_then(|()| hear_startup(&mut child, OPENING)) {
            Ok(Startup::Ready) => {
                remember(child);
                Ok(Some(()))
            }
            Ok(Startup::Taken) => child.wait().map(|_| None).map_err(failed),
            Ok(Startup::Failed(failure)) => {
                let _ = child.wait();
                Err(failure.into_error(&self.strategy))
            }
            Err(e) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(failed(e))
            }
        }
    }
}

/// What to open goes through a pipe: it holds the password.
fn tell(child: &mut Child, setup: &Setup) -> io::Result<()> {
    let mut pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    pipe.write_all(&serde_json::to_vec(setup)?)
}

fn nobody_listens(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound | NotADirectory)
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    nobody_listens(error) || matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn other_version(pid: u32, protocol: u32) -> Error {
    Error::Refused {
        reason: format!(
            "keeper {pid} speaks version {protocol} of the protocol, this program version {PROTOCOL}"
        ),
        hint: Some("commit or destroy the sandbox with the program that made it".to_owned()),
    }
}
