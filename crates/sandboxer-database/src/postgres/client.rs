//! A small client of PostgreSQL: it logs in, asks by the simple protocol, and lets the proxy speak for itself.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use sandboxer_core::{Error, Result};

use super::target::{Host, Target};
use super::wire::{self, Body, Frame, Incoming, Stream};

/// How long connecting and logging in may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How soon a silent network is asked for a sign of life, and how often.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// What the server said went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgError {
    /// `ERROR`, `FATAL`; of a notice, `WARNING`, `NOTICE` …
    pub severity: String,
    /// The SQLSTATE.
    pub code: String,
    /// In one sentence.
    pub message: String,
    /// More of it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the statement, in characters from 1.
    pub position: Option<usize>,
}

impl PgError {
    /// Reads the body of an `ErrorResponse` or a `NoticeResponse`.
    pub fn parse(body: &[u8]) -> io::Result<Self> {
        let (mut error, mut body) = (Self::default(), Body(body));
        loop {
            match body.byte()? {
                0 => return Ok(error),
                b'S' if error.severity.is_empty() => error.severity = body.string()?,
                b'V' => error.severity = body.string()?,
                b'C' => error.code = body.string()?,
                b'M' => error.message = body.string()?,
                b'D' => error.detail = Some(body.string()?),
                b'H' => error.hint = Some(body.string()?),
                b'P' => error.position = body.string()?.parse().ok(),
                _ => drop(body.text()?),
            }
        }
    }

    /// Message, detail and hint as one text.
    pub fn text(&self) -> String {
        let more = [&self.detail, &self.hint].into_iter().flatten();
        more.fold(self.message.clone(), |text, part| format!("{text}; {part}"))
    }
}

/// Why a query has no answer.
#[derive(Debug)]
pub enum Failure {
    /// The server said no; the connection goes on.
    Server {
        /// Of which database.
        database: String,
        /// What it said.
        error: Box<PgError>,
    },
    /// The connection is gone, and with it everything that was held in it.
    Lost {
        /// To which database.
        database: String,
        /// How.
        source: io::Error,
    },
}

impl Failure {
    /// What the server said, if it was the server.
    pub fn server(&self) -> Option<&PgError> {
        match self {
            Self::Server { error, .. } => Some(error),
            Self::Lost { .. } => None,
        }
    }

    /// The SQLSTATE, if the server gave one.
    pub fn code(&self) -> Option<&str> {
        self.server().map(|error| error.code.as_str())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Server { database, error } => {
                Self::Database { database, message: error.text(), code: Some(error.code) }
            }
            Failure::Lost { database, source } => {
                Self::Database { database, message: format!("the connection is lost: {source}"), code: None }
            }
        }
    }
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, which others may have, too.
    pub name: String,
    /// Its type, as `pg_type` numbers them.
    pub type_oid: u32,
}

/// The answer of the last statement that gave rows, and the tag of the last one at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows as text; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// What the last statement did: `SELECT 3`, `UPDATE 1`. Empty for a string without a statement.
    pub tag: String,
    /// The tags of all the statements.
    pub tags: Vec<String>,
    /// What the server noted meanwhile.
    pub notices: Vec<PgError>,
}

impl Rows {
    /// The first value of the first row; `None` where there is none, or it is NULL.
    pub fn single(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }

    fn take(&mut self, frame: Frame<'_>) -> io::Result<()> {
        match frame.tag {
            b'T' => (self.columns, self.rows) = (columns_of(Body(frame.body))?, Vec::new()),
            b'D' => self.rows.push(row_of(Body(frame.body))?),
            b'C' => {
                self.tag = Body(frame.body).string()?;
                self.tags.push(self.tag.clone());
            }
            b'N' => self.notices.push(PgError::parse(frame.body)?),
            _ => {}
        }
        Ok(())
    }
}

fn columns_of(mut body: Body<'_>) -> io::Result<Vec<Column>> {
    let count = body.i16()?;
    let column = |_| {
        let name = body.string()?;
        // The table and the column's number in it come before the type; its size, modifier and format after.
        body.bytes(6)?;
        let type_oid = body.i32()? as u32;
        body.bytes(8)?;
        Ok(Column { name, type_oid })
    };
    (0..count).map(column).collect()
}

fn row_of(mut body: Body<'_>) -> io::Result<Vec<Option<String>>> {
    let count = body.i16()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (0..count).map(|_| Ok(body.value()?.map(text))).collect()
}

/// A session with the server.
#[derive(Debug)]
pub struct Connection {
    target: Target,
    stream: Stream,
    incoming: Incoming,
    status: u8,
    parameters: BTreeMap<String, String>,
    key: (i32, i32),
}

impl Connection {
    /// Connects and logs in: without a password, or with one in the clear, by MD5 or by SCRAM-SHA-256, as the server wants it.
    pub fn connect(target: &Target, password: Option<&str>) -> Result<Self> {
        Self::connect_with(target, password, &[])
    }

    /// The same with settings, which `RESET ALL` goes back to.
    pub fn connect_with(target: &Target, password: Option<&str>, settings: &[(&str, &str)]) -> Result<Self> {
        let stream = open(target).map_err(|error| unreachable(target, &error))?;
        let mut connection = Self {
            target: target.clone(),
            stream,
            incoming: Incoming::default(),
            status: b'I',
            parameters: BTreeMap::new(),
            key: (0, 0),
        };
        connection.start(settings)?;
        connection.log_in(password)?;
        connection.set_timeout(None)?;
        Ok(connection)
    }

    /// Runs a string of any number of statements, and waits for all of it.
    pub fn query(&mut self, sql: &str) -> Result<Rows, Failure> {
        let mut message = Vec::with_capacity(sql.len() + 6);
        wire::put_query(&mut message, sql);
        self.send(&message)?;
        self.answer()
    }

    /// What the server answers to something sent, up to where it is ready again. The first error of it is the result.
    pub fn answer(&mut self) -> Result<Rows, Failure> {
        let (mut rows, mut failed) = (Rows::default(), None);
        loop {
            let frame = self.frame()?;
            match frame.tag {
                b'Z' => break,
                b'E' => {
                    let error = PgError::parse(frame.body).map_err(|error| self.lost(error))?;
                    failed.get_or_insert(error);
                }
                b'G' => {
                    let mut refusal = Vec::new();
                    wire::put(&mut refusal, b'f', |body| wire::put_text(body, "no data is to be had here"));
                    self.send(&refusal)?;
                }
                _ => rows.take(frame).map_err(|error| self.lost(error))?,
            }
        }
        match failed {
            None => Ok(rows),
            Some(error) => Err(Failure::Server { database: self.name(), error: Box::new(error) }),
        }
    }

    /// The state of the transaction when the server was last ready: `I` none, `T` in one, `E` in one that failed.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// The settings that the server tells: `server_version`, `client_encoding` …
    pub fn parameters(&self) -> &BTreeMap<String, String> {
        &self.parameters
    }

    /// The number of the server's process, and the secret that cancels its query.
    pub fn backend_key(&self) -> (i32, i32) {
        self.key
    }

    /// Which database it is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Something that cancels this session's query from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller { target: self.target.clone(), key: self.key }
    }

    /// Asks the server, over a second connection, to end the query that runs in this one.
    pub fn cancel(&self) -> Result<()> {
        self.canceller().cancel()
    }

    /// How long an answer is waited for; `None` is for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.stream.set_timeout(timeout).map_err(|error| unreachable(&self.target, &error))
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).map_err(|error| self.lost(error))
    }

    /// The next message as it is, waiting for it. Settings and the state of the transaction are noted on the way.
    pub fn frame(&mut self) -> Result<Frame<'_>, Failure> {
        loop {
            match self.incoming.complete() {
                Ok(true) => break,
                Ok(false) => self.fill()?,
                Err(error) => return Err(self.lost(error)),
            }
        }
        let Self { incoming, status, parameters, .. } = self;
        match incoming.next_frame() {
            Ok(Some(frame)) => {
                note(frame, status, parameters);
                Ok(frame)
            }
            Ok(None) => Err(gone(&self.target, ErrorKind::InvalidData.into())),
            Err(error) => Err(gone(&self.target, error)),
        }
    }

    /// Whether [`Connection::frame`] has one without waiting for the network.
    pub fn has_frame(&self) -> bool {
        self.incoming.complete().unwrap_or(true)
    }

    /// Closes it without a word: the server rolls back what was not committed.
    pub fn shutdown(&self) {
        self.stream.shutdown();
    }

    fn fill(&mut self) -> Result<(), Failure> {
        match self.incoming.fill(&mut self.stream) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.lost(io::Error::new(ErrorKind::UnexpectedEof, "the server closed it"))),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, source: io::Error) -> Failure {
        gone(&self.target, source)
    }

    fn name(&self) -> String {
        self.target.to_string()
    }

    fn start(&mut self, settings: &[(&str, &str)]) -> Result<()> {
        let Target { user, database, .. } = &self.target;
        let ours = [("client_encoding", "UTF8"), ("application_name", "sandboxer")];
        let mut message = Vec::new();
        wire::put_untagged(&mut message, |body| {
            body.extend_from_slice(&(3i32 << 16).to_be_bytes());
            let pairs = [("user", user.as_str()), ("database", database)].into_iter().chain(ours);
            for (name, value) in pairs.chain(settings.iter().copied()) {
                wire::put_text(body, name);
                wire::put_text(body, value);
            }
            body.push(0);
        });
        Ok(self.send(&message)?)
    }

    fn log_in(&mut self, password: Option<&str>) -> Result<()> {
        let mut scram = None;
        loop {
            let frame = self.frame()?;
            match frame.tag {
                b'R' => {
                    let body = frame.body.to_vec();
                    self.authenticate(&body, password, &mut scram)?;
                }
                b'K' => {
                    let mut body = Body(frame.body);
                    let key = body.i32().and_then(|process| Ok((process, body.i32()?)));
                    self.key = key.map_err(|error| self.lost(error))?;
                }
                b'E' => {
                    let error = PgError::parse(frame.body).map_err(|error| self.lost(error))?;
                    return Err(Failure::Server { database: self.name(), error: Box::new(error) }.into());
                }
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    fn authenticate(
        &mut self,
        body: &[u8],
        password: Option<&str>,
        scram: &mut Option<ScramSha256>,
    ) -> Result<()> {
        let mut body = Body(body);
        let kind = body.i32().map_err(|error| self.lost(error))?;
        if kind == 0 {
            return Ok(());
        }
        let password = password.ok_or_else(|| self.says("the server wants a password, and none is given"))?;
        let reply = match kind {
            3 => [password.as_bytes(), &[0]].concat(),
            5 => {
                let salt = body.0.try_into().map_err(|_| self.says("the server's salt is not one"))?;
                let hash = md5_hash(self.target.user.as_bytes(), password.as_bytes(), salt);
                [hash.as_bytes(), &[0]].concat()
            }
            10 if mechanisms(body).any(|name| name == SCRAM_SHA_256.as_bytes()) => {
                let first = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
                let reply = sasl_first(first.message());
                *scram = Some(first);
                reply
            }
            11 | 12 => match self.scram_next(kind, body.0, scram)? {
                Some(reply) => reply,
                None => return Ok(()),
            },
            _ => return Err(self.says("the server wants to log in by a method that is not known here")),
        };
        let mut message = Vec::new();
        wire::put(&mut message, b'p', |body| body.extend_from_slice(&reply));
        Ok(self.send(&message)?)
    }

    fn scram_next(&self, kind: i32, data: &[u8], scram: &mut Option<ScramSha256>) -> Result<Option<Vec<u8>>> {
        let state =
            scram.as_mut().ok_or_else(|| self.says("the server goes on with a login that was not begun"))?;
        let failed = |error: io::Error| self.says(&format!("logging in by SCRAM failed: {error}"));
        if kind == 12 {
            state.finish(data).map_err(failed)?;
            return Ok(None);
        }
        state.update(data).map_err(failed)?;
        Ok(Some(state.message().to_vec()))
    }

    fn says(&self, message: &str) -> Error {
        Error::Database { database: self.name(), message: message.to_owned(), code: None }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Cancels the query of one session, if it runs one.
#[derive(Clone, Debug)]
pub struct Canceller {
    target: Target,
    key: (i32, i32),
}

impl Canceller {
    /// Asks the server to. It does not say whether there was a query to end.
    pub fn cancel(&self) -> Result<()> {
        let failed = |error: io::Error| unreachable(&self.target, &error);
        let mut stream = open(&self.target).map_err(failed)?;
        let mut message = Vec::new();
        wire::put_untagged(&mut message, |body| {
            for number in [80_877_102, self.key.0, self.key.1] {
                body.extend_from_slice(&number.to_be_bytes());
            }
        });
        stream.write_all(&message).map_err(failed)?;
        // The server closes the connection when it has passed the request on.
        let mut incoming = Incoming::default();
        while incoming.fill(&mut stream).unwrap_or(false) {}
        Ok(())
    }
}

fn note(frame: Frame<'_>, status: &mut u8, parameters: &mut BTreeMap<String, String>) {
    let mut body = Body(frame.body);
    match frame.tag {
        b'Z' => *status = frame.body.first().copied().unwrap_or(b'I'),
        b'S' => {
            if let (Ok(name), Ok(value)) = (body.string(), body.string()) {
                parameters.insert(name, value);
            }
        }
        _ => {}
    }
}

fn open(target: &Target) -> io::Result<Stream> {
    let stream = match (&target.host, target.socket()) {
        (Host::Tcp(name), _) => Stream::Tcp(open_tcp(name, target.port)?),
        (_, Some(path)) => Stream::Unix(UnixStream::connect(path)?),
        (_, None) => return Err(ErrorKind::InvalidInput.into()),
    };
    stream.set_timeout(Some(CONNECT_TIMEOUT))?;
    Ok(stream)
}

fn open_tcp(name: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (name, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A server that vanished without a word is noticed after two minutes.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

fn mechanisms(body: Body<'_>) -> impl Iterator<Item = &[u8]> {
    body.0.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

fn sasl_first(data: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    wire::put_text(&mut message, SCRAM_SHA_256);
    message.extend_from_slice(&(data.len() as i32).to_be_bytes());
    message.extend_from_slice(data);
    message
}

fn gone(target: &Target, source: io::Error) -> Failure {
    Failure::Lost { database: target.to_string(), source }
}

fn unreachable(target: &Target, error: &io::Error) -> Error {
    Error::Database {
        database: target.to_string(),
        message: format!("cannot be reached: {error}"),
        code: None,
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
