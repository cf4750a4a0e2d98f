//! Proxies, servers and clients.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sandboxer_extensions::local::network::{Bounds, Decision, Proxy, Rules};

/// Nothing here takes nearly as long; a test that hangs is to fail.
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy, and what it has decided.
pub struct Running {
    pub proxy: Proxy,
    pub at: SocketAddr,
    decisions: Arc<Mutex<Vec<Decision>>>,
}

pub fn start(entries: &[&str]) -> Running {
    start_within(entries, Bounds::default())
}

pub fn start_within(entries: &[&str], bounds: Bounds) -> Running {
    start_on(TcpListener::bind("127.0.0.1:0").unwrap(), entries, bounds)
}

pub fn start_on(listener: TcpListener, entries: &[&str], bounds: Bounds) -> Running {
    let at = listener.local_addr().unwrap();
    let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
    let decisions = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&decisions);
    let on_decision = Arc::new(move |decision: &Decision| log.lock().unwrap().push(decision.clone()));
    let proxy = Proxy::start_within(listener, Rules::parse(&entries).unwrap(), on_decision, bounds).unwrap();
    Running { proxy, at, decisions }
}

impl Running {
    pub fn decisions(&self) -> Vec<Decision> {
        self.decisions.lock().unwrap().clone()
    }

    /// The only decision there was.
    pub fn decision(&self) -> Decision {
        let mut decisions = self.decisions();
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        decisions.remove(0)
    }

    pub fn connect(&self) -> TcpStream {
        client(self.at)
    }

    /// Sends all of a request, and says what came back until the end.
    pub fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        rest(&mut stream)
    }

    /// A tunnel by CONNECT.
    pub fn tunnel(&self, target: impl std::fmt::Display) -> TcpStream {
        let mut stream = self.connect();
        write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let head = head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }

    pub fn wait_until_empty(&self) {
        wait_until("connections remain", || self.proxy.connections() == 0);
    }
}

pub fn wait_until(otherwise: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{otherwise}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub fn client(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The head of a request or an answer, byte by byte, so that nothing of what follows is taken.
pub fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

pub fn rest(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    String::from_utf8_lossy(&rest).into_owned()
}

/// A server that does the same with everybody. It ends with the test's process.
pub fn serve(work: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let work = Arc::new(work);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let work = Arc::clone(&work);
            thread::spawn(move || work(stream));
        }
    });
    at
}

/// Sends back what comes, and ends when the client does.
pub fn echo() -> SocketAddr {
    serve(|stream| {
        let _ = std::io::copy(&mut &stream, &mut &stream);
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// Answers every HTTP request with its own head.
pub fn mirror() -> SocketAddr {
    serve(|mut stream| {
        let head = head(&mut stream);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
    })
}

/// A port on which nobody listens.
pub fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Bytes that tell when one is missing or in the wrong place.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()
    };
    let mut bytes: Vec<u8> = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(length);
    bytes
}
