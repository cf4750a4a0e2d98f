//! A `sandbox serve` of a test's own, on a socket and on a port that is free.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Ran, World};

/// A server that ends with the test.
pub struct Serving<'a> {
    pub world: &'a World,
    pub socket: String,
    pub url: String,
    child: Child,
}

impl<'a> Serving<'a> {
    /// Starts one, and waits until it listens.
    pub fn start(world: &'a World) -> Self {
        Self::with(world, &[])
    }

    /// The same with variables that it finds around it.
    pub fn with(world: &'a World, variables: &[(&str, &str)]) -> Self {
        let socket = format!("unix:{}", world.path("s.sock").display());
        let listen = ["serve", "--grace", "1s", "--listen", &socket, "--listen", "tcp:127.0.0.1:0"];
        let mut command = world.command(&listen);
        command.envs(variables.iter().copied()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let (_, port) = line["message"].as_str().unwrap().split_once("tcp:127.0.0.1:").unwrap();
        let url = format!("http://127.0.0.1:{port}");
        // A log that nobody reads would stop it.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Self { world, socket, url, child }
    }

    /// A command that is sent over the socket.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.world.run(&[&["--server", &self.socket], arguments].concat())
    }

    /// The same, fine; what is on stdout.
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.world.ok(&[&["--server", &self.socket], arguments].concat())
    }

    /// The same with a document.
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.world.json(&[&["--server", &self.socket], arguments].concat())
    }

    /// The same with an error document.
    pub fn json_error(&self, arguments: &[&str], code: i32) -> Value {
        self.world.json_error(&[&["--server", &self.socket], arguments].concat(), code)
    }

    /// A command that is sent over TCP with a token.
    pub fn with_token(&self, token: &str, arguments: &[&str]) -> Ran {
        let mut command = self.world.command(&[&["--server", &self.url], arguments].concat());
        Ran::of(command.env("SANDBOXER_TOKEN", token).output().unwrap())
    }

    /// Has it end in good order.
    pub fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        // In good order, so that it is measured what it did: it was given a second.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
