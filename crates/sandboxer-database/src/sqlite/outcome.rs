//! Whether a commit happened, as far as it can be told afterwards.
//!
//! SQLite cannot prepare, and keeps no trace of who committed what: the counter in the file's header counts everybody's commits, and in WAL mode not even those.
//! So two things are kept: a file that is written once the commit is done, and, for a crash between the two, a sample of what it changes. Of each row
//! in the sample it is known what it was and what it was to become; what it is now says which.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};
use sandboxer_sqlite::{Connection, Mode, objects, row_at, table_named};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{Changes, Outcome, Prepared, Setup, key_parts, key_text};

/// So many rows are enough to tell.
const SAMPLE: usize = 64;

/// What is needed to tell afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    /// The name of the transaction.
    pub(super) transaction: String,
    rows: Vec<Sample>,
    schema: Vec<Sample>,
}

/// One thing before and after, as hashes; `None` where it is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    /// The table, or the kind of definition.
    of: String,
    /// The row's key, or the definition's name.
    name: String,
    old: Option<String>,
    new: Option<String>,
}

impl Token {
    pub(super) fn new(transaction: &str, changes: &Changes) -> Self {
        let keyed = changes.rows.iter().filter(|change| !change.key.0.is_empty());
        let row = |change: &sandboxer_core::model::RowChange| Sample {
            of: change.table.clone(),
            name: key_text(change.key.0.iter().map(|(_, value)| value)),
            old: change.old.as_ref().map(hash),
            new: change.new.as_ref().map(hash),
        };
        let definition = |change: &crate::engine::SchemaChange| Sample {
            of: change.kind.clone(),
            name: change.name.clone(),
            old: change.old.as_ref().map(hash),
            new: change.new.as_ref().map(hash),
        };
        Self {
            transaction: transaction.to_owned(),
            rows: keyed.take(SAMPLE).map(row).collect(),
            schema: changes.schema.iter().take(SAMPLE).map(definition).collect(),
        }
    }

    pub(super) fn of(prepared: &Prepared) -> Result<Self> {
        let (Prepared::Durable(token) | Prepared::AtDecision { token, .. }) = prepared;
        let parsed: Result<Self, _> = serde_json::from_value(token.clone());
        parsed.ok().filter(Self::is_sound).ok_or_else(|| Error::usage("this names no transaction on SQLite"))
    }

    /// Its name becomes the name of a file.
    fn is_sound(&self) -> bool {
        self.transaction.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    pub(super) fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

fn hash(value: &impl Serialize) -> String {
    blake3::hash(serde_json::to_string(value).unwrap_or_default().as_bytes()).to_hex().to_string()
}

fn mark(dir: &Path, transaction: &str) -> PathBuf {
    dir.join(format!("committed-{transaction}"))
}

/// Writes down that it was committed.
pub(super) fn write_down(dir: &Path, transaction: &str) -> Result<()> {
    let path = mark(dir, transaction);
    let written = File::create(&path)
        .and_then(|mut file| file.write_all(b"committed").and_then(|()| file.sync_all()))
        .and_then(|()| File::open(dir)?.sync_all());
    written.map_err(|error| Error::io("record the commit in", &path, error))
}

/// What became of a transaction whose process is no more. Nothing waits: what was not committed was rolled back when the process ended.
///
/// It cannot be made to happen afterwards, so `_commit` is not used: whoever coordinates takes the answer as the decision.
pub fn settle(setup: &Setup, prepared: &Prepared, _commit: Option<bool>) -> Result<Outcome> {
    let token = Token::of(prepared)?;
    if mark(&setup.dir, &token.transaction).exists() {
        return Ok(Outcome::Committed);
    }
    let connection = Connection::open(Path::new(&setup.location), Mode::ReadWrite)?;
    connection.busy_timeout(setup.options.lock_timeout)?;
    let votes = votes(&connection, &token)?;
    match (votes.contains(&Outcome::Committed), votes.contains(&Outcome::Aborted)) {
        (true, false) => Ok(Outcome::Committed),
        (false, true) => Ok(Outcome::Aborted),
        // Nothing to be changed: it makes no difference.
        (false, false) if token.rows.is_empty() && token.schema.is_empty() => Ok(Outcome::Aborted),
        _ => Err(Error::Usage {
            message: format!(
                "others have written to {} since, and it cannot be told any more whether it was committed",
                setup.location
            ),
            hint: Some("look at the rows, and roll back or go on by hand".to_owned()),
        }),
    }
}

fn votes(connection: &Connection, token: &Token) -> Result<Vec<Outcome>> {
    let mut votes = Vec::new();
    for sample in &token.rows {
        let row = match table_named(connection, &sample.of) {
            Ok(table) => row_at(connection, &table, &key_parts(&sample.name).unwrap_or_default())?,
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        votes.extend(sample.vote(row.as_ref().map(|row: &Row| hash(row))));
    }
    let objects = objects(connection)?;
    for sample in &token.schema {
        let object = objects.get(&(sample.of.clone(), sample.name.clone()));
        votes.extend(sample.vote(object.map(|object| hash(&object.sql))));
    }
    Ok(votes)
}

impl Sample {
    /// `None` where it is neither what it was nor what it was to become.
    fn vote(&self, now: Option<String>) -> Option<Outcome> {
        if now == self.new {
            Some(Outcome::Committed)
        } else if now == self.old {
            Some(Outcome::Aborted)
        } else {
            None
        }
    }
}
