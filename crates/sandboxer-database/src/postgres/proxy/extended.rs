//! The extended protocol: statements are prepared, bound and run by messages of their own, many of which may be on their way at once.
//!
//! Messages are gathered and sent together at a `Sync`, a `Flush`, or where the proxy has to do something itself. The names of
//! prepared statements are made each client's own; the names of portals are not, since cursors share them.

use super::super::lexer;
use super::super::statement::{Kind, Statement};
use super::super::wire::{self, Body};
use super::client::{Client, End, State, protocol};
use super::relay::Until;
use super::reply::{self, Said};
use super::settings::Effect;

/// More than this is not gathered: the server could be waiting for us to take its answers.
const LARGEST_BATCH: usize = 128 * 1024;

/// A prepared statement of a client.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    /// By `PREPARE`, or that name was at least used.
    Sql,
    /// One that the proxy does itself.
    Ours(Vec<u8>, Statement),
    /// By a message, which is kept to be sent again.
    Sent(Vec<u8>, Bound),
}

impl Prepared {
    /// The message that prepares it.
    pub fn parse(&self) -> Option<&Vec<u8>> {
        match self {
            Self::Sent(parse, _) => Some(parse),
            _ => None,
        }
    }

    pub fn is_known_to_server(&self) -> bool {
        !matches!(self, Self::Ours(..))
    }
}

/// A portal of a client, or what it will be.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    /// The proxy does it itself.
    Ours(Vec<u8>, Statement),
    /// It is one of the server's.
    Sent {
        sql: Vec<u8>,
        /// `None` where the text is no statement, or more than one.
        statement: Option<Statement>,
    },
}

impl Bound {
    /// Whether it may call something; of what is not known here, anything is expected.
    fn calls(&self) -> bool {
        match self {
            Self::Ours(..) => false,
            Self::Sent { statement, .. } => statement.as_ref().is_none_or(|statement| statement.calls),
        }
    }
}

impl Client {
    pub fn extended(&mut self, tag: u8, body: &[u8]) -> Result<(), End> {
        if tag == b'S' {
            return self.sync();
        }
        if self.skipping {
            return Ok(());
        }
        let malformed = |error: std::io::Error| protocol(&error.to_string());
        match tag {
            b'P' => self.parse(body)?,
            b'B' => self.bind(body)?,
            b'D' => self.describe(body)?,
            b'E' => self.execute(Body(body).text().map_err(malformed)?, body)?,
            b'C' => self.close(body)?,
            _ => {
                self.send_batch()?;
                self.flush()?;
            }
        }
        if self.batch.len() > LARGEST_BATCH {
            self.send_batch()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), End> {
        self.send_batch()?;
        self.skipping = false;
        self.end_unit()?;
        self.ready();
        if self.incoming.is_empty() { self.flush() } else { Ok(()) }
    }

    /// A simple query in the middle of a batch ends it.
    pub fn finish_batch(&mut self) -> Result<(), End> {
        self.send_batch()
    }

    /// Sends what was gathered and passes on all the answers.
    fn send_batch(&mut self) -> Result<(), End> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.batch);
        reply::bare(&mut batch, b'S');
        if !self.run(&batch)? {
            self.skipping = true;
        }
        Ok(())
    }

    fn refuse(&mut self, said: &Said) -> Result<(), End> {
        self.send_batch()?;
        if !self.skipping {
            self.fail(said);
            self.skipping = true;
        }
        Ok(())
    }

    /// The session, for a message to the server. In a transaction that failed without ever having it, there is nothing to ask.
    fn entered(&mut self) -> Result<bool, End> {
        if self.state == State::Failed && !self.unit {
            self.refuse(&Said::failed_transaction())?;
            return Ok(false);
        }
        let entered = self.enter()?;
        self.skipping |= !entered;
        Ok(entered)
    }

    fn parse(&mut self, body: &[u8]) -> Result<(), End> {
        let malformed = |error: std::io::Error| protocol(&error.to_string());
        let mut rest = Body(body);
        let (name, sql) =
            (rest.text().map_err(malformed)?.to_vec(), rest.text().map_err(malformed)?.to_vec());
        if lexer::depends_on_strings(&sql) {
            // How it is read may have been changed by something that is still on its way.
            self.send_batch()?;
            if self.skipping {
                return Ok(());
            }
        }
        let mut found = self.statements_in(&sql);
        let several = found.len() > 1;
        match found.pop() {
            Some(statement) if !several && is_control(&statement) => self.parse_ours(name, sql, statement),
            Some(statement) if several && (is_control(&statement) || found.iter().any(is_control)) => {
                self.refuse(&Said::new("42601", "cannot insert multiple commands into a prepared statement"))
            }
            statement => {
                let statement = statement.filter(|_| !several);
                self.parse_sent(name, sql, rest.0, statement)
            }
        }
    }

    fn parse_ours(&mut self, name: Vec<u8>, sql: Vec<u8>, statement: Statement) -> Result<(), End> {
        if let Kind::Refused(refusal) = &statement.kind {
            return self.refuse(&refusal.into());
        }
        self.ours(b'1')?;
        self.statements.insert(name, Prepared::Ours(sql, statement));
        Ok(())
    }

    /// Answers a message that concerns something of ours, in its turn.
    fn ours(&mut self, tag: u8) -> Result<(), End> {
        self.send_batch()?;
        if !self.skipping {
            reply::bare(&mut self.out, tag);
        }
        Ok(())
    }

    fn parse_sent(
        &mut self,
        name: Vec<u8>,
        sql: Vec<u8>,
        types: &[u8],
        statement: Option<Statement>,
    ) -> Result<(), End> {
        if !self.entered()? {
            return Ok(());
        }
        let renamed = statement.as_ref().map(|statement| self.with_own_names(&sql, statement));
        let mut message = Vec::new();
        wire::put(&mut message, b'P', |body| {
            wire::put_text(body, self.statement_name(&name));
            wire::put_text(body, renamed.as_deref().unwrap_or(&sql));
            body.extend_from_slice(types);
        });
        self.batch.extend_from_slice(&message);
        self.unnamed_here |= name.is_empty();
        self.statements.insert(name, Prepared::Sent(message, Bound::Sent { sql, statement }));
        Ok(())
    }

    fn with_own_names(&self, sql: &[u8], statement: &Statement) -> Vec<u8> {
        let Some(range) = statement.prepared.first() else { return sql.to_vec() };
        let own = super::super::statement::name_at(sql, range).into_bytes();
        let name = String::from_utf8_lossy(&self.statement_name(&own)).replace('"', "\"\"");
        [&sql[..range.start], b"\"", name.as_bytes(), b"\"", &sql[range.end..]].concat()
    }

    fn bind(&mut self, body: &[u8]) -> Result<(), End> {
        let malformed = |error: std::io::Error| protocol(&error.to_string());
        let mut rest = Body(body);
        let portal = rest.text().map_err(malformed)?.to_vec();
        let name = rest.text().map_err(malformed)?.to_vec();
        let bound = match self.statements.get(&name) {
            Some(Prepared::Ours(sql, statement)) => {
                let bound = Bound::Ours(sql.clone(), statement.clone());
                self.ours(b'2')?;
                self.portals.insert(portal, bound);
                return Ok(());
            }
            Some(Prepared::Sent(_, bound)) => bound.clone(),
            Some(Prepared::Sql) | None => Bound::Sent { sql: Vec::new(), statement: None },
        };
        // Planning calls functions already, where they say that their result never changes.
        self.called |= bound.calls();
        if !self.entered()? || !self.unnamed_again(&name)? {
            return Ok(());
        }
        let renamed = self.statement_name(&name);
        wire::put(&mut self.batch, b'B', |message| {
            wire::put_text(message, &portal);
            wire::put_text(message, renamed);
            message.extend_from_slice(rest.0);
        });
        if !portal.is_empty() {
            self.cursors.insert(portal.clone());
        }
        self.portals.insert(portal, bound);
        Ok(())
    }

    /// The session's unnamed statement may be somebody else's by now: then this client's is prepared again.
    fn unnamed_again(&mut self, name: &[u8]) -> Result<bool, End> {
        if !name.is_empty() || self.unnamed_here {
            return Ok(true);
        }
        let Some(parse) = self.statements.get(name).and_then(Prepared::parse).cloned() else {
            return Ok(true);
        };
        self.send_batch()?;
        self.batch.extend_from_slice(&parse);
        (self.reparsed, self.unnamed_here) = (true, true);
        Ok(!self.skipping)
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), End> {
        let (kind, name) = kind_and_name(body)?;
        let ours = match kind {
            b'S' => matches!(self.statements.get(&name), Some(Prepared::Ours(..))),
            _ => matches!(self.portals.get(&name), Some(Bound::Ours(..))),
        };
        if ours {
            self.send_batch()?;
            if !self.skipping {
                if kind == b'S' {
                    wire::put(&mut self.out, b't', |body| body.extend_from_slice(&[0, 0]));
                }
                reply::bare(&mut self.out, b'n');
            }
            return Ok(());
        }
        if self.entered()? && (kind != b'S' || self.unnamed_again(&name)?) {
            self.put_named(b'D', kind, &name);
        }
        Ok(())
    }

    fn close(&mut self, body: &[u8]) -> Result<(), End> {
        let (kind, name) = kind_and_name(body)?;
        let known_to_server = match kind {
            b'S' => self.statements.remove(&name).is_some_and(|prepared| prepared.is_known_to_server()),
            _ => !matches!(self.portals.remove(&name), Some(Bound::Ours(..)) | None),
        };
        if !known_to_server {
            return self.ours(b'3');
        }
        if self.entered()? {
            self.put_named(b'C', kind, &name);
        }
        Ok(())
    }

    fn put_named(&mut self, tag: u8, kind: u8, name: &[u8]) {
        let name = if kind == b'S' { self.statement_name(name) } else { name.to_vec() };
        wire::put(&mut self.batch, tag, |message| {
            message.push(kind);
            wire::put_text(message, name);
        });
    }

    fn execute(&mut self, portal: &[u8], body: &[u8]) -> Result<(), End> {
        match self.portals.get(portal).cloned() {
            Some(Bound::Ours(sql, statement)) => {
                self.send_batch()?;
                if !self.skipping && !self.control(&sql, &statement)? {
                    self.skipping = true;
                }
                return Ok(());
            }
            Some(Bound::Sent { sql, statement: Some(statement) }) => {
                if !self.admit_sent(&sql, &statement)? {
                    return Ok(());
                }
                if statement.kind == Kind::CopyIn {
                    return self.execute_copy(body);
                }
            }
            // What it is is not known here.
            _ => self.called = true,
        }
        if self.entered()? {
            wire::put(&mut self.batch, b'E', |message| message.extend_from_slice(body));
        }
        Ok(())
    }

    /// Whether a statement with effects of its own may run now.
    fn admit_sent(&mut self, sql: &[u8], statement: &Statement) -> Result<bool, End> {
        self.called |= statement.calls;
        self.advisory |= sql.windows(8).any(|word| word.eq_ignore_ascii_case(b"advisory"));
        let plain = statement.kind == Kind::Other && Effect::of(statement).is_none();
        if plain || self.state == State::Failed {
            return Ok(true);
        }
        self.send_batch()?;
        if self.skipping {
            return Ok(false);
        }
        let admitted = self.admit(sql, statement)?;
        self.skipping |= !admitted;
        Ok(admitted)
    }

    /// Data follows at once, and a `Sync` behind the message could be taken for a part of it: so none is sent before its end.
    fn execute_copy(&mut self, body: &[u8]) -> Result<(), End> {
        let mut messages = Vec::new();
        wire::put(&mut messages, b'E', |message| message.extend_from_slice(body));
        reply::bare(&mut messages, b'H');
        let begun = self.run_until(&messages, Until::Data)?;
        let mut ended = Vec::new();
        reply::bare(&mut ended, b'S');
        let ok = self.run(&ended)?;
        self.skipping |= !(begun && ok);
        Ok(())
    }

    /// The name of a statement in the session.
    pub fn statement_name(&self, name: &[u8]) -> Vec<u8> {
        if name.is_empty() {
            return Vec::new();
        }
        let prefix = format!("c{}_", self.id).into_bytes();
        // The server cuts longer names off.
        if prefix.len() + name.len() < 64 {
            return [prefix.as_slice(), name].concat();
        }
        [prefix.as_slice(), &blake3::hash(name).to_hex().as_bytes()[..32]].concat()
    }
}

fn is_control(statement: &Statement) -> bool {
    statement.kind.is_ours()
}

fn kind_and_name(body: &[u8]) -> Result<(u8, Vec<u8>), End> {
    let mut rest = Body(body);
    let malformed = |error: std::io::Error| protocol(&error.to_string());
    Ok((rest.byte().map_err(malformed)?, rest.text().map_err(malformed)?.to_vec()))
}
