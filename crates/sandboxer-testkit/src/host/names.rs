//! A name server that writes down what it is asked.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::RemoteHost;

/// Where a system's own resolver listens, and where the machine looks for it.
const RESOLVER: &str = "127.0.0.53:53";
const BREATH: Duration = Duration::from_millis(20);

/// The resolver of a machine: answers nothing, and knows everything that it was asked. Dropped, it is gone.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct NameServer {
    asked: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RemoteHost {
    /// Starts the machine's own resolver. An engine that asks it on behalf of a container that must not reach anything is found out.
    pub fn name_server(&self) -> NameServer {
        let socket = self.machine.address(53).within(|_| UdpSocket::bind(RESOLVER)).unwrap();
        socket.set_read_timeout(Some(BREATH)).unwrap();
        let (asked, over) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (theirs, until) = (Arc::clone(&asked), Arc::clone(&over));
        let thread = std::thread::spawn(move || listen(&socket, &theirs, &until));
        NameServer { asked, over, thread: Some(thread) }
    }
}

impl NameServer {
    /// The names that were asked for, each as often as it was.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(socket: &UdpSocket, asked: &Mutex<Vec<String>>, over: &AtomicBool) {
    let mut packet = [0; 1500];
    while !over.load(Ordering::Relaxed) {
        if let Ok(length) = socket.recv(&mut packet) {
            asked.lock().unwrap().push(question(&packet[..length]));
        }
    }
}

/// The name in a query: after a header of twelve bytes, labels with their lengths before them, up to an empty one.
fn question(packet: &[u8]) -> String {
    let mut rest = packet.get(12..).unwrap_or_default();
    let mut labels = Vec::new();
    while let Some((&length, after)) = rest.split_first() {
        if length == 0 || after.len() < usize::from(length) {
            break;
        }
        let (label, next) = after.split_at(usize::from(length));
        labels.push(String::from_utf8_lossy(label).into_owned());
        rest = next;
    }
    labels.join(".")
}
