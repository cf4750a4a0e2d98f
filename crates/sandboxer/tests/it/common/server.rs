//! A real `sandbox serve`, and a client that can also say what no well-behaved client says.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::World;

/// Longer than anything here takes on a busy machine; who waits so long has met a bug.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server that ends with the test, whatever the test comes to.
pub struct Server {
    child: Child,
    log: PathBuf,
    /// How long the log was when it began.
    since: usize,
    socket: PathBuf,
}

/// Where a client connects.
#[derive(Clone, Debug)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A connection of either kind.
pub trait Wire: Read + Write + Send {
    /// No more comes from here.
    fn finish(&self);
}

impl Wire for UnixStream {
    fn finish(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Wire for TcpStream {
    fn finish(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// Somebody who asks.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: Address,
    pub token: Option<String>,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Server {
    /// On the socket in the state directory.
    pub fn start(world: &World) -> Self {
        Self::start_with(world, &[])
    }

    /// On the socket, and on a port of this machine that was free.
    pub fn start_tcp(world: &World) -> Self {
        let socket = format!("unix:{}", world.path("home/serve.sock").display());
        Self::start_with(world, &["--listen", &socket, "--listen", "tcp:127.0.0.1:0"])
    }

    /// With more arguments, until it listens.
    pub fn start_with(world: &World, arguments: &[&str]) -> Self {
        let mut server = Self::begin(world.command(&[&["serve"], arguments].concat()), world);
        server.wait_until_it_listens();
        server
    }

    /// Starts that command as a server of the world, without waiting for it.
    pub fn begin(mut command: Command, world: &World) -> Self {
        let log = world.path("serve.log");
        let since = fs::read(&log).map_or(0, |text| text.len());
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let child = command.stderr(file).spawn().unwrap();
        Self { child, log, since, socket: world.path("home/serve.sock") }
    }

    /// Returns when it listens; panics with its log when it ends instead.
    pub fn wait_until_it_listens(&mut self) {
        until("the server listens", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status}: {}", self.log());
            }
            !self.said("listening").is_empty()
        });
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[self.since.min(text.len())..]).into_owned()
    }

    /// The lines of its log of that kind.
    pub fn said(&self, what: &str) -> Vec<Value> {
        let log = self.log();
        // What is written at this moment need not be whole.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let documents = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        documents.filter(|line| line["what"] == what).collect()
    }

    /// The owner of the state directory, over the socket.
    pub fn local(&self) -> Client {
        Client { address: Address::Unix(self.socket.clone()), token: None }
    }

    /// Somebody on the network without a token.
    pub fn remote(&self) -> Client {
        let listening = self.said("listening")[0]["message"].as_str().unwrap().to_owned();
        let (_, address) = listening.split_once("tcp:").unwrap();
        let address = address.split(',').next().unwrap().parse().unwrap();
        Client { address: Address::Tcp(address), token: None }
    }

    /// Whether it still runs.
    pub fn is_there(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks it to end, and gives how it did.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the server does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it at this very moment.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}", self.log());
        }
    }
}

/// Ends a server in good order, so that it is measured what it did; kills it where it takes its time.
fn end(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    for _ in 0..400 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits until something is so; panics when it never is.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a token; gives its text.
pub fn token(world: &World, principal: &str, project: &str, scope: &str, resource: &Path) -> String {
    let resource = resource.to_str().unwrap();
    let arguments = ["token", "create", "--principal", principal, "--project", project];
    let more = ["--scope", scope, "--resource", resource];
    world.json(&[&arguments[..], &more].concat())["text"].as_str().unwrap().to_owned()
}

/// What asks for a sandbox of a directory, for the consumer `agt` of a project.
pub fn wanted(project: &str, directory: &Path) -> Value {
    json!({
        "profile": "profile.local",
        "inputs": {"repo": directory},
        "consumer": {"actor_type": "agt", "project": project},
    })
}

/// A document with some fields set otherwise.
pub fn with(mut document: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

impl Client {
    /// The same with that token.
    pub fn bearing(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub fn connect(&self) -> io::Result<Box<dyn Wire>> {
        Ok(match &self.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }

    /// What the Host header of a well-behaved client says.
    pub fn host(&self) -> String {
        match &self.address {
            Address::Unix(_) => "localhost".to_owned(),
            Address::Tcp(address) => address.to_string(),
        }
    }

    /// The head of a request.
    pub fn head(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host());
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head
    }

    /// Sends these very bytes, and gives everything that comes back.
    pub fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut wire = self.connect().unwrap();
        // Whoever is refused early need not have been listened to until the end.
        let _ = wire.write_all(bytes);
        let mut answer = Vec::new();
        let _ = wire.read_to_end(&mut answer);
        answer
    }

    /// The same, read as an answer.
    pub fn raw_answer(&self, bytes: &[u8]) -> Answer {
        let raw = self.raw(bytes);
        Answer::parse(&raw).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&raw)))
    }

    /// Any request; the connection is closed behind it.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_send(method, path, headers, body).unwrap_or_else(|| panic!("{method} {path}: no answer"))
    }

    /// The same where the server may be gone.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Answer> {
        let mut bytes = self.head(method, path, headers).into_bytes();
        bytes.extend(format!("Connection: close\r\nContent-Length: {}\r\n\r\n", body.len()).bytes());
        bytes.extend(body);
        let mut wire = self.connect().ok()?;
        let _ = wire.write_all(&bytes);
        let mut answer = Vec::new();
        wire.read_to_end(&mut answer).ok()?;
        Answer::parse(&answer)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"")
    }

    pub fn post(&self, path: &str, document: &Value) -> Answer {
        self.post_with(path, &[], document)
    }

    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], document: &Value) -> Answer {
        let headers = [headers, &[("Content-Type", "application/json")]].concat();
        self.send("POST", path, &headers, document.to_string().as_bytes())
    }

    pub fn put(&self, path: &str, content: &[u8]) -> Answer {
        self.send("PUT", path, &[("Content-Type", "application/octet-stream")], content)
    }

    /// Makes a sandbox, and gives its document.
    pub fn made(&self, request: &Value) -> Value {
        let answer = self.post("/v1/sandboxes", request);
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    /// Runs a shell script in a sandbox; gives its exit code and what it wrote.
    pub fn shell(&self, sandbox: &str, script: &str) -> (i64, String) {
        let body = json!({"command": ["sh", "-c", script]});
        let answer = self.post(&format!("/v1/sandboxes/{sandbox}/exec"), &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let lines = answer.lines();
        let text = lines.iter().filter_map(|line| line["stdout"].as_str().or(line["stderr"].as_str()));
        (lines.last().unwrap()["exit_code"].as_i64().unwrap(), text.collect())
    }

    /// Follows the events.
    pub fn follow(&self, path: &str, headers: &[(&str, &str)]) -> Follower {
        let headers = [headers, &[("Accept", "text/event-stream")]].concat();
        let mut wire = self.connect().unwrap();
        wire.write_all(format!("{}\r\n", self.head("GET", path, &headers)).as_bytes()).unwrap();
        let mut lines = BufReader::new(wire);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
        Follower { lines }
    }
}

/// Somebody who follows the events.
pub struct Follower {
    lines: BufReader<Box<dyn Wire>>,
}

impl Follower {
    /// The next event: its number, its kind and its document; nothing at the end.
    pub fn next(&mut self) -> Option<(u64, String, Value)> {
        let (mut id, mut kind) = (None, None);
        let began = Instant::now();
        loop {
            // Signs of life come all the time.
            assert!(began.elapsed() < PATIENCE, "waited in vain for an event");
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.trim().parse().ok();
            } else if let Some(text) = line.strip_prefix("event: ") {
                kind = Some(text.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                return Some((id?, kind?, serde_json::from_str(text).unwrap()));
            }
        }
    }
}

impl Answer {
    pub fn parse(raw: &[u8]) -> Option<Self> {
        let end = raw.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&raw[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let pair = |line: &str| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned()));
        let headers: Vec<_> = lines.filter_map(pair).collect();
        let mut answer = Self { status, headers, body: raw[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunked(&answer.body);
        }
        Some(answer)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{}: {e}: {}", self.status, self.text()))
    }

    /// A JSON document a line.
    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The document of an answer of that status.
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        self.json()
    }

    /// The problem of an answer of that status: all its fields are there and agree.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["type"].as_str().unwrap().starts_with("urn:sandboxer:"), "{problem}");
        assert!(!problem["title"].as_str().unwrap().is_empty(), "{problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        problem
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap().trim(), 16).unwrap();
        let Some(piece) = rest.get(end + 2..end + 2 + size) else { break };
        bytes.extend(piece);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    bytes
}
