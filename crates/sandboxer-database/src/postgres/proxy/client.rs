//! One client: its messages, one after the other, and what it has of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::super::held::{Held, STRINGS};
use super::super::lexer;
use super::super::statement::{self, Kind, Statement};
use super::super::wire::{self, Body, Incoming, Stream};
use super::extended::{Bound, Prepared};
use super::reply::{self, Said};
use super::settings::{Effect, Settings};
use super::startup::Started;
use super::{Shared, locked};

/// How long somebody who is sent away may take to be told.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Why a client's thread ends.
#[derive(Debug)]
pub(super) enum End {
    /// It has gone, with or without a word.
    Gone,
    /// It is told why, and sent away.
    Sent(Said),
}

/// The transaction of a client, as it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// None.
    Idle,
    /// One is open.
    Open,
    /// One is open, and has failed.
    Failed,
}

pub(super) struct Client {
    pub shared: Arc<Shared>,
    pub id: u64,
    name: String,
    key: (i32, i32),
    /// The settings that it came with.
    pub given: Settings,
    pub stream: Stream,
    pub incoming: Incoming,
    /// What it is told next.
    pub out: Vec<u8>,
    pub state: State,
    /// The session is this client's, with a savepoint that is set or about to be.
    pub unit: bool,
    /// The settings could not be made its own.
    pub broken: bool,
    /// Something failed in a unit that is no transaction of the client's.
    pub failed: bool,
    /// After an error, until the next `Sync`.
    pub skipping: bool,
    /// Messages of the extended protocol that were not sent yet.
    pub batch: Vec<u8>,
    /// A statement of the batch that was put there by us.
    pub reparsed: bool,
    pub statements: HashMap<Vec<u8>, Prepared>,
    pub portals: HashMap<Vec<u8>, Bound>,
    /// The session's unnamed statement is this client's.
    pub unnamed_here: bool,
    /// Cursors and portals that end with the transaction.
    pub cursors: HashSet<Vec<u8>>,
    /// Settings that end with the transaction.
    pub locals: BTreeSet<String>,
    /// Something was defined in this unit.
    pub defined: bool,
    /// Something may have been called in this unit, which may have done anything.
    pub called: bool,
    /// It may have locks that outlive its transactions.
    pub advisory: bool,
    /// Which session knows its prepared statements.
    pub generation: u64,
    /// The settings that it was told.
    told: BTreeMap<String, String>,
    pub dead: bool,
}

impl Client {
    pub fn new(shared: Arc<Shared>, id: u64, started: Started) -> Self {
        let Started { stream, incoming, settings, told, key } = started;
        let application =
            settings.iter().find(|(name, _)| name == "application_name").map(|(_, value)| value.clone());
        let name = format!(
            "client {id} ({})",
            application.filter(|name| !name.is_empty()).unwrap_or("no name".into())
        );
        locked(&shared.keys).insert(key, id);
        let given = Settings::new(settings);
        locked(&shared.settings).insert(id, given.clone());
        Self {
            shared,
            id,
            name,
            key,
            given,
            stream,
            incoming,
            out: Vec::new(),
            state: State::Idle,
            unit: false,
            broken: false,
            failed: false,
            skipping: false,
            batch: Vec::new(),
            reparsed: false,
            statements: HashMap::new(),
            portals: HashMap::new(),
            unnamed_here: false,
            cursors: HashSet::new(),
            locals: BTreeSet::new(),
            defined: false,
            called: false,
            advisory: false,
            generation: 0,
            told,
            dead: false,
        }
    }

    /// Until it goes.
    pub fn serve(mut self) {
        let end = loop {
            if let Err(end) = self.next_message() {
                break end;
            }
        };
        let dismissed = locked(&self.shared.dismissed).remove(&self.id);
        let end = match dismissed {
            Some(why) => {
                self.dead = self.stream.set_timeout(Some(LAST_WORD)).is_err();
                End::Sent(Said::new("57P01", why))
            }
            None => end,
        };
        if let End::Sent(said) = end {
            said.fatal(&mut self.out);
            let _ = self.flush();
        }
        self.stream.shutdown();
        self.leave();
    }

    fn next_message(&mut self) -> Result<(), End> {
        let (tag, body) = self.read()?;
        match tag {
            b'Q' => self.simple(&body),
            b'F' => self.function_call(),
            b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' => self.extended(tag, &body),
            b'X' => Err(End::Gone),
            // What is left of a COPY that failed.
            b'd' | b'c' | b'f' => Ok(()),
            other => Err(protocol(&format!("invalid frontend message type {other}"))),
        }
    }

    fn read(&mut self) -> Result<(u8, Vec<u8>), End> {
        loop {
            match self.incoming.next_frame() {
                Ok(Some(frame)) => return Ok((frame.tag, frame.body.to_vec())),
                Ok(None) => {}
                Err(error) => return Err(protocol(&error.to_string())),
            }
            self.flush()?;
            if !self.incoming.fill(&mut self.stream).unwrap_or(false) {
                return Err(End::Gone);
            }
        }
    }

    /// Sends what is to be told.
    pub fn flush(&mut self) -> Result<(), End> {
        if self.out.is_empty() || self.dead {
            self.out.clear();
            return Ok(());
        }
        let written = self.stream.write_all(&self.out);
        self.out.clear();
        if self.out.capacity() > 1 << 20 {
            self.out = Vec::new();
        }
        written.map_err(|_| End::Gone)
    }

    /// Tells it which settings are others than it was told last.
    pub fn tell_parameters(&mut self, held: &mut Held) {
        for (name, value) in held.connection().parameters() {
            if self.told.get(name) != Some(value) {
                reply::parameter(&mut self.out, name, value);
                self.told.insert(name.clone(), value.clone());
            }
        }
    }

    /// In words, for others who wait for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The state of its transaction, in the letters of the protocol.
    pub fn ready(&mut self) {
        let status = match self.state {
            State::Idle => b'I',
            State::Open => b'T',
            State::Failed => b'E',
        };
        reply::ready(&mut self.out, status);
    }

    /// Tells an error, which is the end of a transaction that is open, or of this unit.
    pub fn fail(&mut self, said: &Said) {
        said.error(&mut self.out);
        self.note_failure();
    }

    pub fn note_failure(&mut self) {
        match self.state {
            State::Idle => self.failed = true,
            State::Open | State::Failed => self.state = State::Failed,
        }
    }

    /// The statements of a string.
    pub fn statements_in(&self, sql: &[u8]) -> Vec<Statement> {
        if !self.shared.defences.lexer {
            let whole = lexer::split(sql, true).first().map(|first| first.range.start..sql.len());
            let plain = |range| Statement {
                range,
                kind: Kind::Other,
                prepared: Vec::new(),
                configures: Vec::new(),
                calls: true,
            };
            return whole.map(plain).into_iter().collect();
        }
        statement::statements(sql, self.standard_strings())
    }

    /// How the server reads strings now.
    fn standard_strings(&self) -> bool {
        self.told.get(STRINGS).is_none_or(|value| value == "on")
    }

    fn simple(&mut self, body: &[u8]) -> Result<(), End> {
        let sql = Body(body).text().map_err(|error| protocol(&error.to_string()))?.to_vec();
        self.finish_batch()?;
        (self.skipping, self.unnamed_here) = (false, false);
        let statements = self.statements_in(&sql);
        if statements.is_empty() {
            reply::bare(&mut self.out, b'I');
        } else if statements
            .iter()
            .all(|statement| !statement.kind.is_ours() && statement.prepared.is_empty())
        {
            self.run_plain(&sql, &statements, 0..sql.len())?;
        } else {
            self.one_by_one(&sql, statements)?;
        }
        self.end_unit()?;
        self.ready();
        self.flush()
    }

    /// What is still to be done is found anew where a statement has changed how the server reads strings.
    fn one_by_one(&mut self, sql: &[u8], statements: Vec<Statement>) -> Result<(), End> {
        let (mut rest, mut left) = (sql, VecDeque::from(statements));
        while let Some(statement) = left.pop_front() {
            let standard = self.standard_strings();
            if !self.step(rest, &statement)? {
                break;
            }
            if self.standard_strings() != standard {
                rest = &rest[statement.range.end..];
                left = self.statements_in(rest).into();
            }
        }
        Ok(())
    }

    /// One statement of several; whether it succeeded.
    fn step(&mut self, sql: &[u8], statement: &Statement) -> Result<bool, End> {
        if statement.kind.is_ours() {
            return self.control(sql, statement);
        }
        self.run_plain(sql, std::slice::from_ref(statement), statement.range.clone())
    }

    /// Runs a part of a string as it is, but for the names of prepared statements.
    pub fn run_plain(
        &mut self,
        sql: &[u8],
        statements: &[Statement],
        range: Range<usize>,
    ) -> Result<bool, End> {
        if self.state == State::Failed {
            self.fail(&Said::failed_transaction());
            return Ok(false);
        }
        for statement in statements {
            if !self.admit(sql, statement)? {
                return Ok(false);
            }
        }
        let text = self.renamed(sql, statements, range);
        let mut message = Vec::with_capacity(text.len() + 6);
        wire::put_query(&mut message, &text);
        self.run(&message)
    }

    /// Takes note of what a statement does besides, and asks whether it may run.
    pub fn admit(&mut self, sql: &[u8], statement: &Statement) -> Result<bool, End> {
        let text = &sql[statement.range.clone()];
        self.advisory |= text.windows(8).any(|word| word.eq_ignore_ascii_case(b"advisory"));
        self.called |= statement.calls || statement.kind == Kind::Definition;
        if statement.kind == Kind::Definition {
            if !self.enter()? {
                return Ok(false);
            }
            self.defined = true;
            let shared = self.shared.clone();
            if let Some(said) = shared.gate(&mut shared.lock_held(), sql, statement) {
                self.fail(&said);
                return Ok(false);
            }
        }
        if let Kind::Declare(name) = &statement.kind {
            self.cursors.insert(name.as_bytes().to_vec());
        }
        self.apply(&Effect::of(statement))
    }

    /// Takes note of settings that are about to change.
    pub fn apply(&mut self, effect: &Effect) -> Result<bool, End> {
        if effect.is_none() {
            return Ok(true);
        }
        if !self.enter()? {
            return Ok(false);
        }
        let shared = self.shared.clone();
        if !effect.local.is_empty() {
            // What it is for the session has to be known before it is hidden.
            let saved = shared.save_settings(&mut shared.lock_held());
            saved.map_err(|error| lost(&error))?;
            self.locals.extend(effect.local.iter().filter(|name| !name.is_empty()).cloned());
        }
        if let Some(settings) = locked(&shared.settings).get_mut(&self.id) {
            settings.note(&effect.session);
        }
        Ok(true)
    }

    /// The text with names of prepared statements as they are in the session.
    fn renamed(&mut self, sql: &[u8], statements: &[Statement], range: Range<usize>) -> Vec<u8> {
        let mut text = Vec::with_capacity(range.len());
        let mut at = range.start;
        for name in statements.iter().flat_map(|statement| &statement.prepared) {
            text.extend_from_slice(&sql[at..name.start]);
            let own = statement::name_at(sql, name).into_bytes();
            let renamed = self.statement_name(&own);
            text.push(b'"');
            text.extend(String::from_utf8_lossy(&renamed).replace('"', "\"\"").into_bytes());
            text.push(b'"');
            at = name.end;
            self.statements.entry(own).or_insert(Prepared::Sql);
        }
        text.extend_from_slice(&sql[at..range.end]);
        text
    }

    fn function_call(&mut self) -> Result<(), End> {
        self.finish_batch()?;
        self.skipping = false;
        self.fail(&Said::new("0A000", "function call messages are not available in a sandbox; use SELECT"));
        self.end_unit()?;
        self.ready();
        self.flush()
    }

    /// Gives back what outlives transactions, as the end of a session does. Others share the session, and lose theirs with it.
    fn unlock(&mut self) {
        let shared = self.shared.clone();
        if self.advisory && shared.turn.take(self.id, self.name(), LAST_WORD).is_ok() {
            let mut held = shared.lock_held();
            let _ = held.settle().and_then(|()| held.ask("SELECT pg_catalog.pg_advisory_unlock_all()"));
        }
    }

    /// Undoes what is open, and leaves nothing behind.
    fn leave(&mut self) {
        self.dead = true;
        self.batch.clear();
        if self.unit {
            let shared = self.shared.clone();
            let _ = self.finish(&mut shared.lock_held(), false);
        }
        self.unlock();
        let mut closed = Vec::new();
        for (name, prepared) in &self.statements {
            if prepared.is_known_to_server() {
                wire::put(&mut closed, b'C', |body| {
                    body.push(b'S');
                    wire::put_text(body, self.statement_name(name));
                });
            }
        }
        locked(&self.shared.garbage).extend(closed);
        locked(&self.shared.settings).remove(&self.id);
        locked(&self.shared.keys).remove(&self.key);
        self.shared.turn.give(self.id);
    }
}

/// A client that does not speak the protocol.
pub(super) fn protocol(message: &str) -> End {
    End::Sent(Said::new("08P01", message))
}

/// What was held is lost; pools of connections take this code for a reason to connect again.
pub(super) fn lost(error: &sandboxer_core::Error) -> End {
    End::Sent(Said::new("57P01", error.to_string()))
}
