//! What looks like a PostgreSQL server, and is the one session that holds a sandbox's transaction.
//!
//! Each client has a thread. Its transactions, and each of its statements outside of one, are a savepoint of the held transaction.
//! The session is one client's at a time ([`turn`]), from the first statement of a transaction to its end; on a change of client the
//! settings change, too ([`settings`]). Statements that concern transactions never reach the server: [`control`] does them.

mod client;
mod control;
mod extended;
mod peer;
mod relay;
mod reply;
mod scram;
mod session;
mod settings;
mod startup;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use sandboxer_core::{Error, Result};
use ulid::Ulid;

use super::client::Canceller;
use super::held::{Defences, Held};
use super::statement::Statement;
use super::wire::Stream;
use client::Client;
use reply::Said;
use scram::Verifier;
use session::Constraints;
use settings::Settings;
use turn::{Holder, Turn};

/// The name of the socket in its directory, which programs find by the port.
const SOCKET: &str = ".s.PGSQL.5432";

/// The user that clients log in as. Whoever they say they are, the role is the held session's.
const USER: &str = "sandbox";

/// The turn of whoever is no client.
const ENGINE: u64 = 0;

/// Looks at a statement that defines something, in the client's own settings and inside its unit ([`Held::ask_inside`]), before it
/// runs. The error is what the client is told, with its SQLSTATE.
pub type Gate = Arc<dyn Fn(&mut Held, &str) -> std::result::Result<(), (String, String)> + Send + Sync>;

/// Looks at a unit in which something was defined or called, before it is kept. The error is what the client is told, and the unit is undone.
pub type Look = Arc<dyn Fn(&mut Held) -> std::result::Result<(), (String, String)> + Send + Sync>;

/// How a proxy treats its clients.
#[derive(Clone)]
pub struct Options {
    /// How long a client waits for another client's transaction.
    pub turn_timeout: Duration,
    /// How many there may be at once.
    pub clients: usize,
    /// How many may be logging in at once; then whoever has not yet done so for the longest time is sent away.
    pub logins: usize,
    /// How long logging in may take.
    pub login_timeout: Duration,
    /// May refuse statements.
    pub gate: Option<Gate>,
    /// May refuse what they did.
    pub look: Option<Look>,
}

impl Default for Options {
    fn default() -> Self {
        let (turn_timeout, login_timeout) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { turn_timeout, clients: 100, logins: 32, login_timeout, gate: None, look: None }
    }
}

/// A running proxy; dropped, it is stopped.
#[must_use = "the proxy is stopped when this is dropped"]
pub struct Proxy {
    shared: Arc<Shared>,
    dir: PathBuf,
    port: u16,
    password: String,
    wake: UnixStream,
    listening: Option<JoinHandle<()>>,
    /// Whether the turn stays with us after [`Proxy::with_session`].
    kept: AtomicBool,
}

/// What all clients have in common.
pub(crate) struct Shared {
    held: Arc<Mutex<Held>>,
    options: Options,
    verifier: Verifier,
    database: String,
    defences: Defences,
    parameters: BTreeMap<String, String>,
    turn: Turn,
    settings: Mutex<HashMap<u64, Settings>>,
    /// Which client has which key for cancelling.
    keys: Mutex<HashMap<(i32, i32), u64>>,
    /// Whose statement runs: only that client may cancel it.
    running: Mutex<Option<u64>>,
    canceller: Mutex<Canceller>,
    /// Messages that close what clients left behind.
    garbage: Mutex<Vec<u8>>,
    /// Constraints that can be deferred, as far as they are known.
    constraints: Mutex<Option<Arc<Constraints>>>,
    streams: Mutex<HashMap<u64, Stream>>,
    /// Those who are logging in, the first come first.
    pending: Mutex<BTreeSet<u64>>,
    /// How many are logged in.
    inside: AtomicUsize,
    /// Clients that are sent away, and why.
    dismissed: Mutex<HashMap<u64, String>>,
    stopping: AtomicBool,
    /// Something was defined: triggers, rules and the like may call what is not to be seen in a statement.
    watchful: AtomicBool,
    ids: AtomicU64,
}

impl Proxy {
    /// Listens in `dir` and on a loopback port of its own, with a password of its own.
    pub fn start(held: Arc<Mutex<Held>>, dir: &Path, options: Options) -> Result<Self> {
        let socket = dir.join(SOCKET);
        let failed = |error| Error::io("listen on", &socket, error);
        let _ = fs::remove_file(&socket);
        let unix = UnixListener::bind(&socket).map_err(failed)?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let tcp = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
        let port = tcp.local_addr().map_err(failed)?.port();
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        let password = format!("{}{}", Ulid::generate(), Ulid::generate()).to_lowercase();
        let shared = Arc::new(Shared::new(held, options, &password));
        let listener = Listener { shared: shared.clone(), unix, tcp, woken };
        let listening = Some(thread::spawn(move || listener.run()));
        let kept = AtomicBool::new(false);
        Ok(Self { shared, dir: dir.to_path_buf(), port, password, wake, listening, kept })
    }

    /// A complete URL for programs on this machine.
    pub fn url(&self) -> String {
        let Self { port, password, .. } = self;
        format!(
            "postgres://{USER}:{password}@127.0.0.1:{port}/{}",
            crate::engine::encode(&self.shared.database)
        )
    }

    /// The directory of the socket.
    pub fn socket_dir(&self) -> &Path {
        &self.dir
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As whom programs log in.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// With which password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Does something with the session between the transactions of clients, after waiting for its turn for at most `patience`.
    pub fn with_session<T>(
        &self,
        patience: Duration,
        work: impl FnOnce(&mut Held) -> Result<T>,
    ) -> Result<T> {
        if !self.has_turn() {
            let taken = self.shared.turn.take(ENGINE, "the sandbox itself", patience);
            taken.map_err(|holder| self.busy(holder))?;
        }
        self.work(work)
    }

    /// The same before everybody who waits; who has a transaction open is sent away, and told why.
    pub fn with_session_now<T>(
        &self,
        patience: Duration,
        why: &str,
        work: impl FnOnce(&mut Held) -> Result<T>,
    ) -> Result<T> {
        if !self.has_turn() {
            let dismiss = |holder: &Holder| self.shared.dismiss(holder.id, why);
            let taken = self.shared.turn.take_first(ENGINE, "the sandbox itself", patience, &dismiss);
            taken.map_err(|holder| self.busy(holder))?;
        }
        self.work(work)
    }

    fn has_turn(&self) -> bool {
        self.shared.turn.holder().is_some_and(|holder| holder.id == ENGINE)
    }

    fn busy(&self, holder: Option<Holder>) -> Error {
        let told = |holder: Holder| {
            format!(
                "{} has had a transaction open for {} s: end it there (COMMIT or ROLLBACK), \
                 or roll the sandbox back, which sends that program away",
                holder.name,
                holder.since.elapsed().as_secs()
            )
        };
        Error::Busy { path: self.dir.join(SOCKET), holder: holder.map(told) }
    }

    fn work<T>(&self, work: impl FnOnce(&mut Held) -> Result<T>) -> Result<T> {
        let shared = &self.shared;
        let result = {
            let mut held = shared.lock_held();
            if held.lost().is_none() {
                // What the last client set is its own, and set again when it is back.
                let _ = shared.save_settings(&mut held);
            }
            let result = work(&mut held);
            *locked(&shared.canceller) = held.canceller();
            *locked(&shared.constraints) = None;
            result
        };
        if !self.kept.load(Ordering::SeqCst) {
            shared.turn.give(ENGINE);
        }
        result
    }

    /// From the next [`Proxy::with_session`] on no client gets in, until this is taken back.
    pub fn keep_turn(&self, keep: bool) {
        self.kept.store(keep, Ordering::SeqCst);
        if !keep {
            self.shared.turn.give(ENGINE);
        }
    }

    /// Who has a transaction open, or a statement running.
    pub fn holder(&self) -> Option<String> {
        self.shared.turn.holder().map(|holder| holder.name)
    }

    /// Sends all clients away and listens no more. The session stays.
    pub fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.wake.shutdown(std::net::Shutdown::Both).unwrap_or_default();
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        let _ = fs::remove_file(self.dir.join(SOCKET));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn new(held: Arc<Mutex<Held>>, options: Options, password: &str) -> Self {
        let mut session = held.lock().unwrap_or_else(PoisonError::into_inner);
        let parameters = session.connection().parameters().clone();
        let (canceller, database) = (session.canceller(), session.target().database.clone());
        let defences = session.defences();
        drop(session);
        Self {
            held,
            options,
            verifier: Verifier::new(password),
            database,
            defences,
            parameters,
            turn: Turn::default(),
            settings: Mutex::default(),
            keys: Mutex::default(),
            running: Mutex::default(),
            canceller: Mutex::new(canceller),
            garbage: Mutex::default(),
            constraints: Mutex::default(),
            streams: Mutex::default(),
            pending: Mutex::default(),
            inside: AtomicUsize::new(0),
            dismissed: Mutex::default(),
            stopping: AtomicBool::new(false),
            watchful: AtomicBool::new(false),
            ids: AtomicU64::new(ENGINE + 1),
        }
    }

    fn lock_held(&self) -> MutexGuard<'_, Held> {
        locked(&self.held)
    }

    /// Cancels the statement of whoever has this key, if it is the one that runs.
    fn cancel(&self, key: (i32, i32)) {
        let Some(id) = locked(&self.keys).get(&key).copied() else { return };
        // Whoever runs it cannot end it meanwhile, so no other statement is hit.
        let running = locked(&self.running);
        if *running == Some(id) {
            let canceller = locked(&self.canceller).clone();
            let _ = canceller.cancel();
        }
    }

    /// One more logs in. Whoever fills the door without a password keeps nobody out who has one.
    fn make_room(&self, id: u64) {
        let mut pending = locked(&self.pending);
        pending.insert(id);
        if pending.len() > self.options.logins
            && let Some(oldest) = pending.pop_first()
            && let Some(stream) = locked(&self.streams).get(&oldest)
        {
            stream.shutdown();
        }
    }

    /// Sends a client away, whatever it does.
    fn dismiss(&self, id: u64, why: &str) {
        locked(&self.dismissed).insert(id, why.to_owned());
        if let Some(stream) = locked(&self.streams).get(&id) {
            stream.shutdown_reading();
        }
    }

    /// Whether a statement may run, by the gate.
    fn gate(&self, held: &mut Held, sql: &[u8], statement: &Statement) -> Option<Said> {
        let gate = self.options.gate.as_ref()?;
        let text = String::from_utf8_lossy(&sql[statement.range.clone()]);
        gate(held, &text).err().map(|(code, message)| Said::new(&code, message))
    }
}

impl Shared {
    /// Whether what a client defined may be kept.
    fn look(&self, held: &mut Held) -> Option<Said> {
        let look = self.options.look.as_ref()?;
        look(held).err().map(|(code, message)| Said::new(&code, message))
    }
}

/// Nobody leaves what is locked half done: a panic in one thread does not make it unusable for the others.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts clients.
struct Listener {
    shared: Arc<Shared>,
    unix: UnixListener,
    tcp: TcpListener,
    woken: UnixStream,
}

impl Listener {
    fn run(self) {
        let mut clients: Vec<JoinHandle<()>> = Vec::new();
        while !self.shared.stopping.load(Ordering::SeqCst) {
            if let Some(stream) = self.accept() {
                clients.retain(|client| !client.is_finished());
                clients.push(self.serve(stream));
            }
        }
        self.shared.turn.stop();
        for stream in locked(&self.shared.streams).values() {
            stream.shutdown();
        }
        clients.into_iter().for_each(|client| drop(client.join()));
    }

    fn accept(&self) -> Option<Stream> {
        let mut polled = [self.unix.as_fd(), self.tcp.as_fd(), self.woken.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut polled, None).ok()?;
        let ready = polled.map(|fd| !fd.revents().is_empty());
        if ready[0] {
            return self.unix.accept().ok().map(|(stream, _)| Stream::Unix(stream));
        }
        let (stream, _) = ready[1].then(|| self.tcp.accept().ok()).flatten()?;
        stream.set_nodelay(true).ok()?;
        peer::is_ours(&stream).then_some(Stream::Tcp(stream))
    }

    fn serve(&self, stream: Stream) -> JoinHandle<()> {
        let shared = self.shared.clone();
        let id = shared.ids.fetch_add(1, Ordering::SeqCst);
        if let Ok(clone) = stream.try_clone() {
            locked(&shared.streams).insert(id, clone);
        }
        shared.make_room(id);
        thread::spawn(move || {
            let started = startup::handshake(&shared, stream);
            locked(&shared.pending).remove(&id);
            if let Some(started) = started {
                shared.inside.fetch_add(1, Ordering::SeqCst);
                Client::new(shared.clone(), id, started).serve();
                shared.inside.fetch_sub(1, Ordering::SeqCst);
            }
            locked(&shared.streams).remove(&id);
            locked(&shared.dismissed).remove(&id);
        })
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
