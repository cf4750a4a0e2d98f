//! The proxy: accepts connections and gives each a thread.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::bell::Bell;
use super::connection::{Context, serve};
use super::decision::Decision;
use super::rules::Rules;

/// Who is told of each decision, in the thread of the connection it was about.
pub type OnDecision = Arc<dyn Fn(&Decision) + Send + Sync>;

/// What one proxy may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once. Those beyond wait in the listener's queue.
    pub connections: usize,
    /// How long a client may take to say what it wants.
    pub head: Duration,
    /// How long connecting may take, for all addresses of a name together.
    pub connect: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 256, head: Duration::from_secs(10), connect: Duration::from_secs(10) }
    }
}

/// A proxy that runs until it is dropped. Whoever holds one must ignore `SIGPIPE`, as every Rust program does unless told otherwise, and does
/// well to raise its limit of descriptors: a connection takes two, and four more while it is busy in both directions.
#[must_use]
pub struct Proxy {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    context: Arc<Context>,
    places: Mutex<Places>,
    /// Somebody has left, or everybody is to.
    changed: Condvar,
}

#[derive(Default)]
struct Places {
    taken: usize,
    closed: bool,
}

/// Only what is used of a stack is memory; name resolution uses quite some, depending on what the host is set up with.
const STACK: usize = 256 * 1024;
/// How long is waited when the process is out of descriptors or memory, before it is tried again.
const SHORT_OF_SOMETHING: Duration = Duration::from_millis(50);
/// How long dropping a proxy waits for its connections. Only name resolution, which cannot be interrupted, takes longer than a moment.
const FAREWELL: Duration = Duration::from_secs(1);

impl Proxy {
    /// Starts to accept. The listener may have been made in another network namespace; connections are made from this one.
    pub fn start(listener: TcpListener, rules: Rules, on_decision: OnDecision) -> io::Result<Self> {
        Self::start_within(listener, rules, on_decision, Bounds::default())
    }

    /// The same with other bounds.
    pub fn start_within(
        listener: TcpListener,
        rules: Rules,
        on_decision: OnDecision,
        bounds: Bounds,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let context = Arc::new(Context { rules, on_decision, bounds, bell: Bell::new()? });
        let shared = Arc::new(Shared { context, places: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        let acceptor = spawn("proxy-accept", move || accept_all(&accepting, &listener))?;
        Ok(Self { shared, acceptor: Some(acceptor) })
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.shared.places().taken
    }
}

/// Stops to accept and closes all connections.
impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.places().closed = true;
        self.shared.changed.notify_all();
        self.shared.context.bell.ring();
        if let Some(acceptor) = self.acceptor.take() {
            // It has nothing to say if it has failed.
            let _ = acceptor.join();
        }
        self.shared.wait_until_empty(Instant::now() + FAREWELL);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work)
}

fn accept_all(shared: &Arc<Shared>, listener: &TcpListener) {
    while shared.wait_for_place() {
        match accept(shared, listener) {
            Ok(client) => {
                let place = Place::take(shared);
                // If there cannot be another thread, the client is hung up on when both are dropped.
                let _ = spawn("proxy", move || drop(serve(&place.0.context, client)));
            }
            Err(e) if is_over(&e) => return,
            Err(_) => thread::sleep(SHORT_OF_SOMETHING),
        }
    }
}

fn accept(shared: &Shared, listener: &TcpListener) -> io::Result<TcpStream> {
    loop {
        shared.context.bell.wait(listener, PollFlags::IN, None)?;
        match listener.accept() {
            // The client was quicker, or another error of its own is reported here, as Linux does.
            Err(e) if is_passing(&e) => {}
            accepted => return accepted.map(|(client, _)| client),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionReset | ConnectionAborted)
}

/// Whether it was the bell. An accept that was aborted is none of these: it was passed over.
fn is_over(error: &io::Error) -> bool {
    error.kind() == super::bell::stopped().kind()
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is a place; `false` when everything is to stop. Only the one who accepts takes places.
    fn wait_for_place(&self) -> bool {
        let mut places = self.places();
        while places.taken >= self.context.bounds.connections && !places.closed {
            places = self.changed.wait(places).unwrap_or_else(PoisonError::into_inner);
        }
        !places.closed
    }

    fn wait_until_empty(&self, deadline: Instant) {
        let mut places = self.places();
        while places.taken > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(places, left);
            places = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The right to serve one connection; given back when dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Self {
        shared.places().taken += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.places().taken -= 1;
        self.0.changed.notify_all();
    }
}
