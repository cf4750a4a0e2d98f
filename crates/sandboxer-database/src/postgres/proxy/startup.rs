//! How a client comes in: what it asks for first, its password, what it is told.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::super::held::STRINGS;
use super::super::wire::{self, Body, Incoming, Stream};
use super::relay::misreading;
use super::reply::{self, Said};
use super::{Shared, locked};

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

/// The longest message of somebody who has not logged in, as of PostgreSQL itself.
const LONGEST: usize = 10_000;

/// Encodings whose letters may have bytes that look like quotes or backslashes: SQL in them cannot be read byte by byte.
const UNSAFE_ENCODINGS: [&str; 8] =
    ["sjis", "shiftjis", "shiftjis2004", "big5", "gbk", "uhc", "johab", "gb18030"];

/// A client that is in.
pub(super) struct Started {
    pub stream: Stream,
    pub incoming: Incoming,
    /// The settings that it came with.
    pub settings: Vec<(String, String)>,
    /// The settings that it was told.
    pub told: BTreeMap<String, String>,
    /// Its process, as we call it, and its secret.
    pub key: (i32, i32),
}

/// Whether statements in this encoding can be read byte by byte.
pub(super) fn is_safe_encoding(name: &str) -> bool {
    let plain: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    !UNSAFE_ENCODINGS.contains(&plain.as_str())
        && plain != "mskanji"
        && plain != "win932"
        && plain != "win936"
        && plain != "win949"
        && plain != "win950"
        && plain != "windows932"
        && plain != "windows936"
        && plain != "windows949"
        && plain != "windows950"
}

/// Lets a client in; `None` where it was sent away, or only wanted to cancel something.
pub(super) fn handshake(shared: &Shared, stream: Stream) -> Option<Started> {
    let deadline = Instant::now() + shared.options.login_timeout;
    let mut door = Door { stream, incoming: Incoming::limited(LONGEST), deadline };
    door.stream.set_timeout(Some(shared.options.login_timeout)).ok()?;
    let pairs = door.first_message(shared).ok()??;
    if let Err(said) = door.admit(shared, &pairs).ok()? {
        let mut out = Vec::new();
        said.fatal(&mut out);
        let _ = door.stream.write_all(&out);
        return None;
    }
    let started = door.welcome(shared, pairs).ok()?;
    started.stream.set_timeout(None).ok()?;
    Some(started)
}

struct Door {
    stream: Stream,
    incoming: Incoming,
    /// When it is closed, however much has come by then.
    deadline: Instant,
}

impl Door {
    /// The settings of a startup message.
    fn first_message(&mut self, shared: &Shared) -> io::Result<Option<Vec<(String, String)>>> {
        loop {
            let body = loop {
                if let Some(body) = self.incoming.next_untagged()? {
                    break body.to_vec();
                }
                if !self.fill()? {
                    return Ok(None);
                }
            };
            let mut body = Body(&body);
            match body.i32()? {
                SSL_REQUEST | GSS_REQUEST => self.stream.write_all(b"N")?,
                CANCEL_REQUEST => {
                    shared.cancel((body.i32()?, body.i32()?));
                    return Ok(None);
                }
                version => return self.startup(version, body).map(Some),
            }
        }
    }

    fn startup(&mut self, version: i32, mut body: Body<'_>) -> io::Result<Vec<(String, String)>> {
        let mut pairs = Vec::new();
        while !body.0.is_empty() && body.0 != [0] {
            pairs.push((body.string()?, body.string()?));
        }
        let unknown: Vec<&String> =
            pairs.iter().map(|(name, _)| name).filter(|name| name.starts_with("_pq_.")).collect();
        if version != 3 << 16 || !unknown.is_empty() {
            self.negotiate(&unknown)?;
        }
        pairs.retain(|(name, _)| !name.starts_with("_pq_."));
        Ok(pairs)
    }

    /// We speak 3.0, and none of the options of later versions.
    fn negotiate(&mut self, unknown: &[&String]) -> io::Result<()> {
        let mut out = Vec::new();
        wire::put(&mut out, b'v', |body| {
            body.extend_from_slice(&(3i32 << 16).to_be_bytes());
            body.extend_from_slice(&(unknown.len() as i32).to_be_bytes());
            unknown.iter().for_each(|name| wire::put_text(body, name));
        });
        self.stream.write_all(&out)
    }

    /// Asks for the password, and whether there is room.
    fn admit(&mut self, shared: &Shared, pairs: &[(String, String)]) -> io::Result<Result<(), Said>> {
        if !self.knows_password(shared)? {
            return Ok(Err(Said::new("28P01", "password authentication failed for the sandbox")));
        }
        if shared.inside.load(Ordering::SeqCst) >= shared.options.clients {
            return Ok(Err(Said::new("53300", "the sandbox has too many clients already")));
        }
        let given =
            |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let database = given("database").or(given("user")).unwrap_or_default();
        if database != shared.database {
            let message =
                format!("database \"{database}\" is not in the sandbox: it holds \"{}\"", shared.database);
            return Ok(Err(Said::new("3D000", message)));
        }
        if given("replication").is_some_and(|value| !matches!(value, "false" | "off" | "no" | "0")) {
            return Ok(Err(Said::new("0A000", "there is no replication from a sandbox")));
        }
        if given("client_encoding").is_some_and(|name| !is_safe_encoding(name)) {
            return Ok(Err(Said::new(
                "0A000",
                "this client_encoding is not available in a sandbox; use UTF8",
            )));
        }
        let strings =
            settings_of(pairs.to_vec()).into_iter().filter(|(name, _)| name.eq_ignore_ascii_case(STRINGS));
        if strings.into_iter().any(|(_, value)| !value.eq_ignore_ascii_case("on")) {
            return Ok(Err(misreading()));
        }
        let lost = shared.lock_lost();
        Ok(lost.map_or(Ok(()), |reason| Err(Said::new("57P03", reason))))
    }

    fn knows_password(&mut self, shared: &Shared) -> io::Result<bool> {
        self.ask(10, |body| {
            wire::put_text(body, "SCRAM-SHA-256");
            body.push(0);
        })?;
        let message = self.reply()?;
        let mut body = Body(&message);
        let mechanism = body.text()?;
        let first = String::from_utf8_lossy(body.value()?.unwrap_or_default()).into_owned();
        let exchange = match shared.verifier.begin(&first) {
            Some(exchange) if mechanism == b"SCRAM-SHA-256" => exchange,
            _ => return Ok(false),
        };
        self.ask(11, |body| body.extend_from_slice(exchange.first.as_bytes()))?;
        let proof = self.reply()?;
        let Some(last) = exchange.finish(&String::from_utf8_lossy(&proof)) else { return Ok(false) };
        self.ask(12, |body| body.extend_from_slice(last.as_bytes()))?;
        Ok(true)
    }

    fn ask(&mut self, kind: i32, body: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut out = Vec::new();
        wire::put(&mut out, b'R', |message| {
            message.extend_from_slice(&kind.to_be_bytes());
            body(message);
        });
        self.stream.write_all(&out)
    }

    fn fill(&mut self) -> io::Result<bool> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeout(Some(left))?;
        self.incoming.fill(&mut self.stream)
    }

    fn reply(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(frame) = self.incoming.next_frame()? {
                let is_password = frame.tag == b'p';
                return if is_password {
                    Ok(frame.body.to_vec())
                } else {
                    Err(io::ErrorKind::InvalidData.into())
                };
            }
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn welcome(mut self, shared: &Shared, pairs: Vec<(String, String)>) -> io::Result<Started> {
        let settings = settings_of(pairs);
        let key = shared.new_key();
        let mut out = Vec::new();
        wire::put(&mut out, b'R', |body| body.extend_from_slice(&[0; 4]));
        let mut told = shared.parameters.clone();
        for (name, value) in &mut told {
            if let Some((_, own)) = settings.iter().rev().find(|(given, _)| given.eq_ignore_ascii_case(name))
            {
                *value = as_told(name, own);
            }
            reply::parameter(&mut out, name, value);
        }
        wire::put(&mut out, b'K', |body| {
            body.extend_from_slice(&key.0.to_be_bytes());
            body.extend_from_slice(&key.1.to_be_bytes());
        });
        reply::ready(&mut out, b'I');
        self.stream.write_all(&out)?;
        self.incoming.lift_limit();
        Ok(Started { stream: self.stream, incoming: self.incoming, settings, told, key })
    }
}

/// A setting as the server would tell it.
fn as_told(name: &str, value: &str) -> String {
    match (name, value.to_lowercase().replace('-', "").as_str()) {
        ("client_encoding", "utf8" | "unicode" | "'utf8'" | "\"utf8\"") => "UTF8".to_owned(),
        ("DateStyle", "iso") => "ISO, MDY".to_owned(),
        _ => value.to_owned(),
    }
}

/// The settings among the pairs of a startup message, those of `options` first.
fn settings_of(pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    let (options, others): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(name, _)| name == "options");
    let mut settings: Vec<_> = options.iter().flat_map(|(_, words)| settings_in(words)).collect();
    settings.extend(
        others.into_iter().filter(|(name, _)| !matches!(name.as_str(), "user" | "database" | "replication")),
    );
    settings
}

/// `-c name=value` and `--name=value`, with backslashes before blanks.
fn settings_in(options: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut letters = options.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => push_last(&mut words, letters.next()),
            letter if letter.is_whitespace() => words.push(String::new()),
            letter => push_last(&mut words, Some(letter)),
        }
    }
    let setting = |word: &String| {
        let word = word.strip_prefix("-c").or_else(|| word.strip_prefix("--")).unwrap_or(word);
        let (name, value) = word.split_once('=')?;
        Some((name.trim().replace('-', "_"), value.to_owned()))
    };
    words.iter().filter_map(setting).collect()
}

fn push_last(words: &mut [String], letter: Option<char>) {
    if let (Some(word), Some(letter)) = (words.last_mut(), letter) {
        word.push(letter);
    }
}

impl Shared {
    fn new_key(&self) -> (i32, i32) {
        let random = ulid::Ulid::generate().random();
        // Programs take a negative number of a process for an error.
        let key = ((random as i32) & i32::MAX, (random >> 32) as i32);
        if key.0 == 0 || locked(&self.keys).contains_key(&key) { self.new_key() } else { key }
    }

    fn lock_lost(&self) -> Option<String> {
        // Whoever works with the session at this moment has not lost it.
        let held = self.held.try_lock().ok()?;
        held.loss()
    }
}
