//! A connection that breaks when it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::RemoteHost;
use super::machine::Address;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From ssh to the machine.
    There,
    /// From the machine to ssh.
    Back,
}

/// Passes bytes between a port of this machine's loopback and the sshd of another, until it is told to cut, stall or refuse. Dropped, it is gone
/// with its connections.
#[derive(Debug)]
#[must_use = "the proxy is gone when this is dropped"]
pub struct CuttingProxy {
    port: u16,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Rules>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rules {
    /// What may still pass before everything is cut, for each way.
    left: [Option<u64>; 2],
    passed: [u64; 2],
    /// Whether nobody gets in after that cut.
    for_good: bool,
    connections: u64,
    stalled: bool,
    refusing: bool,
    over: bool,
    /// Both ends of every connection that was made.
    ends: Vec<TcpStream>,
}

impl Rules {
    fn cut(&mut self) {
        for end in self.ends.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl CuttingProxy {
    /// A proxy that leads to a machine, and passes everything at first.
    pub fn to(host: &RemoteHost) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (shared, address) = (Arc::<Shared>::default(), host.machine.address(host.sshd.port()));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || accept(&listener, &address, &theirs));
        Self { port, shared, listener: Some(thread) }
    }

    /// The port that ssh connects to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Once so many more bytes have passed that way, over whichever connections, all of them are cut. Later ones are let through.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        let mut rules = self.rules();
        rules.left[way as usize] = Some(bytes);
        rules.for_good = false;
    }

    /// The same, and nobody gets in afterwards until [`CuttingProxy::admit`].
    pub fn cut_for_good_after(&self, way: Way, bytes: u64) {
        let mut rules = self.rules();
        rules.left[way as usize] = Some(bytes);
        rules.for_good = true;
    }

    /// Cuts every connection now.
    pub fn cut(&self) {
        self.rules().cut();
    }

    /// Closes new connections as soon as they are made; those that there are live on.
    pub fn refuse(&self) {
        self.rules().refusing = true;
    }

    /// Lets everything through again.
    pub fn admit(&self) {
        let mut rules = self.rules();
        (rules.refusing, rules.stalled, rules.left) = (false, false, [None, None]);
        self.shared.changed.notify_all();
    }

    /// Holds back everything from now on, and tells nobody.
    pub fn stall(&self) {
        self.rules().stalled = true;
    }

    /// Passes what was held back.
    pub fn resume(&self) {
        self.rules().stalled = false;
        self.shared.changed.notify_all();
    }

    /// How many bytes have passed that way.
    pub fn passed(&self, way: Way) -> u64 {
        self.rules().passed[way as usize]
    }

    /// How many connections were made.
    pub fn connections(&self) -> u64 {
        self.rules().connections
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.shared.rules.lock().unwrap()
    }
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        {
            let mut rules = self.rules();
            (rules.over, rules.stalled) = (true, false);
            rules.cut();
            self.shared.changed.notify_all();
        }
        // Wakes who listens.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn accept(listener: &TcpListener, address: &Address, shared: &Arc<Shared>) {
    for near in listener.incoming() {
        let Ok(near) = near else { continue };
        {
            let mut rules = shared.rules.lock().unwrap();
            if rules.over {
                return;
            }
            rules.connections += 1;
            if rules.refusing {
                continue;
            }
        }
        // Where nobody listens there, the connection here is closed.
        if let Ok(far) = address.connect() {
            join(near, far, shared);
        }
    }
}

fn join(near: TcpStream, far: TcpStream, shared: &Arc<Shared>) {
    let copies = [near.try_clone().unwrap(), far.try_clone().unwrap()];
    shared.rules.lock().unwrap().ends.extend(copies);
    let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let there = Arc::clone(shared);
    std::thread::spawn(move || pass(from, to, Way::There, &there));
    let back = Arc::clone(shared);
    std::thread::spawn(move || pass(far, near, Way::Back, &back));
}

fn pass(mut from: TcpStream, mut to: TcpStream, way: Way, shared: &Shared) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(length) = from.read(&mut bytes) {
        let (allowed, last) = shared.allow(way, length as u64);
        let passed = to.write_all(&bytes[..usize::try_from(allowed).unwrap()]);
        if last {
            shared.rules.lock().unwrap().cut();
        }
        if length == 0 || last || passed.is_err() {
            break;
        }
    }
    // Who has said everything may still be listening.
    let _ = to.shutdown(Shutdown::Write);
}

impl Shared {
    /// How many of so many bytes may pass, and whether they are the last ones.
    fn allow(&self, way: Way, length: u64) -> (u64, bool) {
        let rules = self.rules.lock().unwrap();
        let mut rules = self.changed.wait_while(rules, |rules| rules.stalled).unwrap();
        let side = way as usize;
        let allowed = rules.left[side].map_or(length, |left| left.min(length));
        let last = rules.left[side].is_some_and(|left| left <= length);
        rules.passed[side] += allowed;
        rules.left[side] = rules.left[side].map(|left| left - allowed).filter(|_| !last);
        rules.refusing |= last && rules.for_good;
        (allowed, last)
    }
}
