//! Requests, and what comes back: an answer, or a failure in the words of a local command.
//!
//! The token is in one header and nowhere else. Whatever a server says is text of somebody else's: it is escaped where it is shown.

use std::io::Read;
use std::time::Duration;

use sandboxer_documents::words::system_text;
use sandboxer_hub::http::careful;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, Response};
use ureq::{Agent, Body};

use super::document::Document;
use super::problem;
use super::server::{Place, Server};
use super::socket::{NoNames, Socket};
use crate::cli::error::{CliError, Kind};

const TO_CONNECT: Duration = Duration::from_secs(10);
/// A document that is longer is not one of ours.
const LONGEST_DOCUMENT: u64 = 256 << 20;
/// So much is read of a problem.
const LONGEST_PROBLEM: u64 = 16 << 20;

/// A server that can be asked.
pub struct Client<'a> {
    server: &'a Server,
    agent: Agent,
}

/// What is asked.
pub struct Question {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

/// Why there is no answer.
pub struct Failure {
    /// In words.
    pub error: CliError,
    /// Whether the server may have an answer another time.
    pub may_pass: bool,
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl Question {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: None }
    }

    /// Looks something up.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Ends something.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Has something done, as a document says.
    pub fn post(path: impl Into<String>, document: &impl Serialize) -> Result<Self, CliError> {
        let body = serde_json::to_vec(document)
            .map_err(|error| CliError::new(Kind::Error, format!("the request cannot be written: {error}")))?;
        Ok(Self { body: Some(body), ..Self::new(Method::POST, path) }
            .header("content-type", "application/json"))
    }

    /// Puts a file there.
    pub fn put(path: impl Into<String>, content: Vec<u8>) -> Self {
        Self { body: Some(content), ..Self::new(Method::PUT, path) }
            .header("content-type", "application/octet-stream")
    }

    /// The same with one more header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl<'a> Client<'a> {
    /// Connects to nobody yet.
    pub fn new(server: &'a Server) -> Self {
        Self::patient(server, None)
    }

    /// The same for a stream that is taken for broken when it is silent for so long.
    pub fn patient(server: &'a Server, silence: Option<Duration>) -> Self {
        let config = careful(server.place.base())
            .timeout_resolve(Some(TO_CONNECT))
            .timeout_connect(Some(TO_CONNECT))
            .timeout_per_read(silence)
            .build();
        let agent = match &server.place {
            Place::Unix(path) => Agent::with_parts(config, Socket(path.clone()), NoNames),
            Place::Url(_) => config.new_agent(),
        };
        Self { server, agent }
    }

    /// Asks, and takes what is not a failure for an answer.
    pub fn ask(&self, question: Question) -> Result<Response<Body>, Failure> {
        let mut request = Request::builder().method(question.method).uri(format!(
            "{}{}",
            self.server.place.base(),
            question.path
        ));
        for (name, value) in question.headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.server.token {
            request = request.header("authorization", format!("Bearer {}", token.reveal()));
        }
        let odd = |_| Failure {
            error: CliError::usage("the request has characters in it that no header has"),
            may_pass: false,
        };
        let answer = match question.body {
            Some(body) => self.agent.run(request.body(body).map_err(odd)?),
            None => self.agent.run(request.body(()).map_err(odd)?),
        };
        self.judge(answer.map_err(|error| self.unreachable(&error))?)
    }

    /// The document that a question is answered with.
    pub fn document(&self, question: Question) -> Result<Document, CliError> {
        self.read(self.ask(question)?)
    }

    /// The document of an answer.
    pub fn read(&self, mut answer: Response<Body>) -> Result<Document, CliError> {
        let text = answer.body_mut().with_config().limit(LONGEST_DOCUMENT).read_to_vec();
        let text = text.map_err(|error| self.broken(&error))?;
        Document::read(&text).map_err(|error| self.nonsense(&error))
    }

    /// All bytes of an answer, as they come.
    pub fn bytes(&self, answer: Response<Body>) -> impl Read + use<> {
        answer.into_body().into_with_config().limit(u64::MAX).reader()
    }

    /// A document in its own shape.
    pub fn shaped<T: DeserializeOwned>(&self, document: &Document) -> Result<T, CliError> {
        self.parsed(document.text())
    }

    /// A part of one in its own shape.
    pub fn parsed<T: DeserializeOwned>(&self, text: &str) -> Result<T, CliError> {
        serde_json::from_str(text).map_err(|error| self.nonsense(&error))
    }

    /// Parts of documents as one.
    pub fn joined(&self, parts: &impl Serialize) -> Result<Document, CliError> {
        Document::of(parts).map_err(|error| self.nonsense(&error))
    }

    /// A problem is one whatever its status. A conflict may be a document: of a commit that is done, with what was put aside.
    fn judge(&self, mut answer: Response<Body>) -> Result<Response<Body>, Failure> {
        let status = answer.status();
        let kind =
            answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
        if status.is_success() || (status.as_u16() == 409 && kind == "application/json") {
            return Ok(answer);
        }
        let told = match kind == "application/problem+json" {
            true => {
                answer.body_mut().with_config().limit(LONGEST_PROBLEM).lossy_utf8(true).read_to_string().ok()
            }
            false => None,
        };
        let told = told.and_then(|text| problem::read(&self.without_token(text)));
        let foreign = || {
            let message =
                format!("what answers at {} (HTTP {}) is no sandboxer", self.server.name, status.as_u16());
            CliError::new(Kind::Error, message).hint("does the address lead to `sandbox serve`?")
        };
        let error = told.unwrap_or_else(foreign);
        let error = if status.as_u16() == 401 { self.unauthorized(error) } else { error };
        Err(Failure { error, may_pass: status.is_server_error() })
    }

    /// In words of somebody who types commands, not headers.
    fn unauthorized(&self, mut error: CliError) -> CliError {
        error.hints = vec![
            match self.server.token {
                Some(_) => "is SANDBOXER_TOKEN, or what --token-file names, the token for this server?",
                None => "put the token into the variable SANDBOXER_TOKEN, or into a file: --token-file FILE",
            }
            .to_owned(),
        ];
        error.hint("`sandbox token create`, typed on the server's machine, makes one")
    }

    /// A server that repeats a token does not make us show it.
    fn without_token(&self, text: String) -> String {
        match &self.server.token {
            Some(token) => text.replace(token.reveal(), "(a token)"),
            None => text,
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let message = format!("cannot reach the server {}: {}", self.server.name, cause(error));
        let error = CliError::new(Kind::Error, message)
            .hint(format!("start it there: `{}`", self.server.how_to_start()))
            .hint("to work on this machine, leave out --server and unset SANDBOXER_SERVER");
        Failure { error, may_pass: true }
    }

    /// An answer that began and did not end.
    pub fn broken(&self, error: &dyn std::error::Error) -> CliError {
        let message = format!("the answer of the server {} broke off: {error}", self.server.name);
        CliError::new(Kind::Error, message)
    }

    fn nonsense(&self, error: &serde_json::Error) -> CliError {
        let message =
            format!("the server {} answers with something else than expected: {error}", self.server.name);
        CliError::new(Kind::Error, message).hint("is it of the same version? `sandbox --version`")
    }
}

fn cause(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => system_text(error),
        other => other.to_string(),
    }
}

/// The address of a sandbox, and of what is below it.
pub fn sandbox(selector: &str, below: &str) -> String {
    format!("/v1/sandboxes/{}{below}", encoded(selector.as_bytes(), b""))
}

/// Percent-encoded, but for what is plain and what is in `also`.
pub fn encoded(bytes: &[u8], also: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || also.contains(byte) {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// A query of what is there.
pub fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let there = pairs.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let parts: Vec<String> =
        there.map(|(name, value)| format!("{name}={}", encoded(value.as_bytes(), b""))).collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

/// `ID:WORKSPACE` in its two parts.
pub fn split(selector: &str) -> (&str, Option<&str>) {
    selector.split_once(':').map_or((selector, None), |(id, workspace)| (id, Some(workspace)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_have_nothing_in_them_that_means_something() {
        assert_eq!(sandbox("a b/../c?x#y", "/diff"), "/v1/sandboxes/a%20b%2F..%2Fc%3Fx%23y/diff");
        assert_eq!(encoded(b"src/a\xff", b"/"), "src/a%FF");
        assert_eq!(query(&[("path", Some("a&b=c")), ("workspace", None)]), "?path=a%26b%3Dc");
        assert_eq!(query(&[("path", None)]), "");
        assert_eq!((split("try:w"), split("try")), (("try", Some("w")), ("try", None)));
    }

    /// What asking a server that answers so comes to.
    fn asked(answer: &'static str) -> CliError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("http://{}", listener.local_addr().unwrap());
        let serve = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut piece = [0; 4096];
            let _ = client.read(&mut piece).unwrap();
            client.write_all(answer.as_bytes()).unwrap();
        });
        let server = Server::new(&name, None, Some("hunter2")).unwrap();
        let error = Client::new(&server).document(Question::get("/v1/events")).unwrap_err();
        serve.join().unwrap();
        error
    }

    #[test]
    fn what_is_no_answer_of_ours_is_told_as_such() {
        for answer in [
            "HTTP/1.1 502 Bad\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 403 No\r\ncontent-type: application/problem+json\r\ncontent-length: 2\r\n\r\n{}",
        ] {
            let error = asked(answer);
            assert!(error.message.contains("is no sandboxer") && error.exit == 1, "{error:?}");
        }
        let error = asked("HTTP/1.1 200 Fine\r\ncontent-length: 6\r\n\r\n<html>");
        assert!(error.message.contains("something else"), "{error:?}");
    }

    #[test]
    fn a_token_is_not_repeated() {
        let error = asked(
            "HTTP/1.1 401 No\r\ncontent-type: application/problem+json\r\ncontent-length: 55\r\n\r\n{\"kind\":\"refused\",\"message\":\"no hunter2\",\"hints\":[\"x\"]}",
        );
        assert_eq!((error.exit, error.message.as_str()), (5, "no (a token)"));
        assert!(error.hints[0].contains("SANDBOXER_TOKEN"), "{error:?}");
    }
}
