//! A state with so many sandboxes in it, a server on it, and a client that keeps its connection.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sandboxer::SandboxManager;
use sandboxer::wiring::{Setup, open};
use sandboxer_core::access::{NewToken, TokenScope};
use sandboxer_core::model::{PlanId, SandboxId};
use sandboxer_core::service::{Consumer, Sandbox};
use sandboxer_core::store::Store;
use serde_json::Value;

use crate::failure::{During, Failure, Result};
use crate::place::Place;
use crate::rows::environments::scene::{project, request};

/// A row, its event and their indexes take some kilobytes.
const ROOM_OF_ONE: u64 = 16 << 10;

/// A state directory with sandboxes in it.
pub struct State {
    place: Place,
    /// One of them.
    pub id: String,
}

impl State {
    /// One sandbox, and as many copies of its row as there are to be.
    pub fn with(sandboxes: usize) -> Result<Self> {
        let place = Place::tmpfs((64 << 20) + sandboxes as u64 * ROOM_OF_ONE)?;
        let home = place.root().join("state");
        let manager = open(Setup::quiet(&home)).during("open", &home)?;
        let request = request(&project(place.root())?, "filesystem_copy", "profile.local")?;
        let first = manager.get_or_create_sandbox(&request).during("create a sandbox in", &home)?.sandbox;
        let store = Store::open(&home).during("open", &home)?;
        for number in 1..sandboxes {
            store.adopt(&like(&first, number), &[], 0).during("fill", &home)?;
        }
        Ok(Self { place, id: first.id.to_string() })
    }

    /// The state directory.
    pub fn home(&self) -> PathBuf {
        self.place.root().join("state")
    }

    /// The use cases in this process.
    pub fn manager(&self) -> Result<SandboxManager> {
        open(Setup::quiet(self.home())).during("open", &self.home())
    }

    /// A token for whoever may see everything.
    pub fn token(&self) -> Result<String> {
        let new = NewToken {
            principal: "bench".to_owned(),
            consumer: Consumer { actor_type: "atm".to_owned(), project: "bench".to_owned() },
            scopes: TokenScope::Admin.closure(),
            resources: Vec::new(),
            expires_at: None,
        };
        let made = self.manager()?.create_token(new).during("make a token in", &self.home())?;
        Ok(made.1)
    }
}

fn like(first: &Sandbox, number: usize) -> Sandbox {
    let name = format!("copy{number}");
    Sandbox { id: SandboxId::generate(), name, plan_id: PlanId::generate(), ..first.clone() }
}

/// A server, ended with whoever measures.
pub struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
    token: String,
}

impl Server {
    /// On a port of the loopback that nobody has.
    pub fn start(binary: &Path, state: &State) -> Result<Self> {
        let token = state.token()?;
        let mut command = Command::new(binary);
        command.arg("--home").arg(state.home()).args([
            "serve",
            "--listen",
            "tcp:127.0.0.1:0",
            "--grace",
            "1s",
        ]);
        command
            .env_remove("SANDBOXER_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().during("start", binary)?;
        let log = child.stderr.take().ok_or_else(|| Failure::new("the server has no log"))?;
        let mut log = BufReader::new(log);
        let mut line = String::new();
        log.read_line(&mut line).during("read the log of", binary)?;
        let address = listening(&line);
        // What else it says is nobody's concern here, but somebody has to take it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        match address {
            Some(address) => Ok(Self { child, address, token }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Failure::new(format!("the server did not begin to listen: {}", line.trim())))
            }
        }
    }

    /// How much memory it has now, in bytes.
    pub fn resident(&self) -> Result<u64> {
        let path = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        let text = fs::read_to_string(&path).during("read", &path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kilobytes.map(|kb| kb * 1024).ok_or_else(|| Failure::new("no VmRSS in the server's status"))
    }

    /// A connection to it.
    pub fn connect(&self) -> Result<Client> {
        let stream = TcpStream::connect(&self.address).during("connect to", Path::new(&self.address))?;
        stream.set_nodelay(true).during("connect to", Path::new(&self.address))?;
        Ok(Client {
            stream: BufReader::new(stream),
            address: self.address.clone(),
            token: self.token.clone(),
        })
    }

    /// The header that lets somebody in.
    pub fn authorization(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listening(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let message = line["message"].as_str()?;
    message.split("tcp:").nth(1).map(|address| address.trim_end_matches(',').to_owned())
}

/// A client that keeps its connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    address: String,
    token: String,
}

impl Client {
    /// Sends a request, and reads the answer's head: its status and how long its body is.
    pub fn ask(&mut self, path: &str, accept: &str) -> Result<(u16, usize)> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: {accept}\r\n\r\n",
            self.address, self.token
        );
        let address = PathBuf::from(&self.address);
        self.stream.get_mut().write_all(request.as_bytes()).during("ask", &address)?;
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            self.stream.read_line(&mut line).during("read the answer of", &address)?;
            let line = line.trim_end();
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
            } else if let Some(rest) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = rest.parse().unwrap_or(0);
            }
        }
    }

    /// The body of an answer that is fine.
    pub fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        let (status, length) = self.ask(path, "application/json")?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).during("read the answer of", Path::new(&self.address))?;
        match status {
            200 => Ok(body),
            other => Err(Failure::new(format!("{path} was answered with {other}"))),
        }
    }
}
