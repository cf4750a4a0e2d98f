//! A shell on a host, by the system's OpenSSH.
//!
//! One process of `ssh` keeps a connection (the *master*); each call is another one, which hands its words to the master over a socket and costs
//! some milliseconds instead of a handshake. Who does not find the master connects by itself. The user's own configuration is honoured: agents,
//! jump hosts, certificates, `ProxyCommand`; what could ask a person, forward something or accept an unknown host is turned off.

mod master;
mod options;
mod sockets;
mod trouble;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::Result;

use crate::address::Address;
use crate::process;
use crate::quote;
use crate::shell::{Answer, Call, Running, Shell};
use options::Options;
pub use trouble::{Fault, Trouble, trouble};

/// `ssh` ends with this where it failed itself.
const OWN_FAILURE: i32 = 255;
/// What a script that ends with ssh's own code says last, so that it is not taken for a connection that broke.
const NOT_SSH: &str = "sandboxer: 255 is the exit code of the script";
/// Runs `$1` with the rest as arguments.
const WRAPPER: &str = r#"s=$1; shift; sh -c "$s" sh "$@"; c=$?; [ "$c" -ne 255 ] || printf '\n%s\n' "sandboxer: 255 is the exit code of the script" >&2; exit "$c""#;
/// For how long a master that was found is taken to be there: it lives longer than that when it has nothing to do.
const REMEMBERED: Duration = Duration::from_secs(30);

/// How to connect.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration to read (`ssh -F`); the user's own where there is none.
    pub config: Option<PathBuf>,
    /// Directory for the sockets of connections. Made if it is missing, for nobody but us. One whose path is too long for a socket is replaced by
    /// one below `/run/user/UID` or `/tmp`.
    pub control: PathBuf,
    /// How long a host may take to answer.
    pub connect_timeout: Duration,
}

/// A host, and how to get there.
#[derive(Clone, Debug)]
pub struct Ssh {
    address: Address,
    name: String,
    options: Options,
    /// When the master was last known to be there.
    seen: Seen,
}

type Seen = Arc<Mutex<Option<Instant>>>;

/// What is known of the masters at each socket: whoever asks for a host again need not look again whether there is one.
static MASTERS: Mutex<BTreeMap<PathBuf, Seen>> = Mutex::new(BTreeMap::new());

impl Ssh {
    /// Nothing is connected yet.
    pub fn new(address: Address, settings: Settings) -> Result<Self> {
        let options = Options::new(&address, settings)?;
        let name = address.to_string();
        let mut masters = MASTERS.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = masters.entry(options.socket().to_path_buf()).or_default().clone();
        Ok(Self { address, name, options, seen })
    }

    /// The address it was made with.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Makes sure that there is a connection that further calls use. It ends by itself when nothing used it for a minute.
    pub fn connect(&self) -> Result<()> {
        *self.seen() = None;
        master::ensure(&self.address, &self.options)?;
        *self.seen() = Some(Instant::now());
        Ok(())
    }

    /// Runs `sh -c SCRIPT sh ARGS…` there. The exit code is the script's own, whatever it is; a connection that cannot be made, or breaks, is an
    /// error. Whoever is cancelled or late is killed here; there, it hears that nobody listens any more.
    pub fn run(&self, call: &Call<'_>) -> Result<Answer> {
        self.make_sure()?;
        let mut command = self.command(call.script, call.arguments)?;
        let answer = process::run(&mut command, &self.name, &call.bounds())?.into_answer();
        self.judged(answer)
    }

    /// The same with pipes for whoever streams.
    pub fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        self.make_sure()?;
        let ssh = self.clone();
        let judge = move |answer: Answer| ssh.judged(answer);
        Running::start(&mut self.command(script, arguments)?, &self.name, Box::new(judge))
    }

    /// The arguments, `ssh` first, of a process that runs these words there, each of them quoted for the shell of the host. With a terminal it
    /// makes one there too. Whoever starts it keeps variables that begin with `SANDBOXER_` to himself.
    pub fn line(&self, words: &[OsString], terminal: bool) -> Vec<OsString> {
        let mut line = self.options.of_call(if terminal { "-tt" } else { "-T" });
        line.extend(self.destination());
        line.push(quote::line(words.iter().map(OsString::as_os_str)));
        line
    }

    /// The arguments, `ssh` first, of a tunnel from a port of ours to `host` and `port` as seen from there. It has a connection of its own: a
    /// forwarding that the master was asked for would outlive whoever asked.
    pub fn tunnel(&self, local: u16, host: &str, port: u16) -> Vec<OsString> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut line = self.options.of_tunnel();
        line.extend(["-L".into(), format!("127.0.0.1:{local}:{host}:{port}").into()]);
        line.extend(self.destination());
        line
    }

    /// Ends the connection, if there is one.
    pub fn disconnect(&self) {
        *self.seen() = None;
        master::end(&self.address, &self.options);
    }

    /// `--` keeps what follows from being an option.
    fn destination(&self) -> [OsString; 2] {
        ["--".into(), self.address.destination().into()]
    }

    fn command(&self, script: &str, arguments: &[&OsStr]) -> Result<Command> {
        let words = ["sh", "-c", WRAPPER, "sh", script].map(OsStr::new);
        for word in arguments {
            quote::quote(word)?;
        }
        let mut line = self.options.of_call("-T");
        line.extend(self.destination());
        line.push(quote::line(words.into_iter().chain(arguments.iter().copied())));
        Ok(options::command(&line))
    }

    fn make_sure(&self) -> Result<()> {
        let recent = self.seen().is_some_and(|seen| seen.elapsed() < REMEMBERED);
        if recent && self.options.has_socket() { Ok(()) } else { self.connect() }
    }

    /// An answer of the script's, or what became of the connection.
    fn judged(&self, mut answer: Answer) -> Result<Answer> {
        if answer.code != OWN_FAILURE {
            return Ok(answer);
        }
        match position(&answer.stderr, NOT_SSH.as_bytes()) {
            Some(at) => {
                answer.stderr.truncate(at.saturating_sub(1));
                Ok(answer)
            }
            None => {
                *self.seen() = None;
                Err(trouble::lost(&self.address, &answer.stderr))
            }
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).rposition(|window| window == part)
}

impl Shell for Ssh {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        Self::run(self, call)
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        Self::start(self, script, arguments)
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
