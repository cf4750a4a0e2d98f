//! HTTP: `CONNECT`, and requests for whole URLs.

use std::fmt::Write as _;
use std::io;

use super::connection::{Connection, Opened};
use super::dial::{Cause, Trouble, dial};
use super::head::{Form, Head, Progress, parse, progress};
use super::target::{Host, Target};

/// A longer head is refused.
const LONGEST_HEAD: usize = 64 * 1024;

/// What is answered in place of what was asked for.
struct Answer {
    status: &'static str,
    /// More for the status line, which is all that some programs show.
    remark: String,
    text: String,
}

impl Answer {
    fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, remark: String::new(), text: text.into() }
    }

    fn malformed(why: &str) -> Self {
        Self::new("400 Bad Request", format!("not a request that this proxy takes: {why}"))
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { status, remark, text } = self;
        let mut answer = format!("HTTP/1.1 {status}{remark}\r\n");
        answer.push_str("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n");
        // Writing to a string does not fail.
        let _ = write!(answer, "Content-Length: {}\r\n\r\n{text}\n", text.len() + 1);
        answer.into_bytes()
    }
}

/// Hears a client out and connects it. `None`: it was told why not.
pub(super) fn open(connection: &mut Connection<'_>) -> io::Result<Option<Opened>> {
    let opened = match hear(connection)? {
        Ok(head) => connect(connection, &head)?,
        Err(answer) => Err(answer),
    };
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(answer) => connection.send(&answer.bytes()).map(|()| None),
    }
}

/// The head of the request; what follows stays in the connection.
fn hear(connection: &mut Connection<'_>) -> io::Result<Result<Vec<u8>, Answer>> {
    let mut seen = 0;
    loop {
        match progress(&connection.read, seen) {
            Progress::Complete(length) if length <= LONGEST_HEAD => return connection.take(length).map(Ok),
            Progress::Malformed(why) => return Ok(Err(Answer::malformed(why))),
            Progress::Incomplete if connection.read.len() < LONGEST_HEAD => {}
            _ => {
                return Ok(Err(Answer::new(
                    "431 Request Header Fields Too Large",
                    "the head of the request is too long",
                )));
            }
        }
        seen = connection.read.len();
        match connection.fill() {
            Ok(true) => {}
            Ok(false) => return Ok(Err(Answer::malformed("it ends in its head"))),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return Ok(Err(Answer::new(
                    "408 Request Timeout",
                    "the head of the request did not come in time",
                )));
            }
            Err(e) => return Err(e),
        }
    }
}

fn connect(connection: &mut Connection<'_>, head: &[u8]) -> io::Result<Result<Opened, Answer>> {
    let head = match parse(head) {
        Ok(head) => head,
        Err(why) => return Ok(Err(Answer::malformed(why))),
    };
    let target = match target(connection, &head) {
        Ok(target) => target,
        Err(answer) => return Ok(Err(answer)),
    };
    let upstream = match dial(connection.context, &target) {
        Ok(upstream) => upstream,
        Err(trouble) => return Ok(Err(answer_to(trouble))),
    };
    let mut first = match head.form {
        Form::Tunnel { .. } => {
            connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            Vec::new()
        }
        Form::Absolute { path, .. } => head.for_origin(path, &host_field(&target)),
    };
    first.append(&mut connection.read);
    Ok(Ok(Opened { upstream, first }))
}

fn target(connection: &Connection<'_>, head: &Head<'_>) -> Result<Target, Answer> {
    let (authority, default) = match head.form {
        Form::Tunnel { authority } => (authority, None),
        Form::Absolute { authority, .. } => (authority, Some(80)),
    };
    let text = std::str::from_utf8(authority).map_err(|_| "it is no text");
    text.and_then(|text| Target::parse(text, default)).map_err(|why| {
        let decision = connection.nonsense(authority, default.unwrap_or(0), why);
        Answer::malformed(&format!("{}: {why}", decision.host))
    })
}

/// The one host that the request can be for.
fn host_field(target: &Target) -> String {
    match &target.host {
        Host::Name(name) if target.port == 80 => name.to_string(),
        _ => target.to_string(),
    }
}

fn answer_to(trouble: Trouble) -> Answer {
    let status = match trouble.cause {
        Cause::Rules => "403 Forbidden",
        Cause::TimedOut => "504 Gateway Timeout",
        Cause::Unreachable | Cause::Refused => "502 Bad Gateway",
    };
    let remark = trouble.entry.map(|entry| format!(" by the sandbox (--allow-host {entry})"));
    Answer { status, remark: remark.unwrap_or_default(), text: trouble.text }
}
