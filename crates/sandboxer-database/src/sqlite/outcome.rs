//! Whether a commit happened, as far as it can be told afterwards.
//!
//! SQLite cannot prepare, and keeps no trace of who committed what: the counter in the file's header counts everybody's commits, and in WAL mode not even those.
//! So two things are kept: a file that is written once the commit is done, and, for a crash between the two, a sample of what it changes. Of each row
//! in the sample it is known what it was and what it was to become; what it is now says which. Of rows without a key it is known how often
//! they were there. Where others have written over all of it, only a person can tell, by a file like the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use sandboxer_core::model::RowChange;
use sandboxer_core::{Error, Result};
use sandboxer_sqlite::{Connection, Mode, objects, row_at, table_named, to_row};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::held::Held;
use crate::engine::{Changes, Outcome, Prepared, Setup, key_parts, key_text};

/// So many rows are enough to tell.
const SAMPLE: usize = 64;

/// What is needed to tell afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    /// The name of the transaction.
    pub(super) transaction: String,
    /// Whether it changes anything.
    changes: bool,
    rows: Vec<Sample>,
    /// Rows that nothing but their content tells apart.
    loose: Vec<Sample>,
    schema: Vec<Sample>,
}

/// One thing before and after, as hashes; `None` where it is not there. Of a row without a key: how often it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    /// The table, or the kind of definition.
    of: String,
    /// The row's key, or the hash of its content where it has none; or the definition's name.
    name: String,
    old: Option<String>,
    new: Option<String>,
}

impl Token {
    pub(super) fn new(held: &Held, changes: &Changes) -> Result<Self> {
        let (loose, keyed): (Vec<&RowChange>, Vec<&RowChange>) =
            changes.rows.iter().partition(|change| is_loose(change));
        let row = |change: &RowChange| Sample {
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
        Ok(Self {
            transaction: held.name.clone(),
            changes: !(changes.rows.is_empty() && changes.schema.is_empty()),
            rows: keyed.into_iter().take(SAMPLE).map(row).collect(),
            loose: loose_samples(held, &loose[..loose.len().min(SAMPLE)])?,
            schema: changes.schema.iter().take(SAMPLE).map(definition).collect(),
        })
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

/// Whether its key does not tell it from others: it has none, or one with NULL in it, which may be there more than once.
fn is_loose(change: &RowChange) -> bool {
    change.key.0.is_empty() || change.key.0.iter().any(|(_, value)| value.is_null())
}

/// How often each is there, inside and outside.
fn loose_samples(held: &Held, changes: &[&RowChange]) -> Result<Vec<Sample>> {
    let mut contents: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for change in changes {
        let rows = [&change.old, &change.new].into_iter().flatten();
        contents.entry(&change.table).or_default().extend(rows.map(hash));
    }
    let mut samples = Vec::new();
    for (table, contents) in contents {
        let (old, new) =
            (counts(held.outside(), table, &contents)?, counts(held.inside(), table, &contents)?);
        samples.extend(contents.into_iter().map(|name| Sample {
            old: old.get(&name).map(u64::to_string),
            new: new.get(&name).map(u64::to_string),
            of: table.to_owned(),
            name,
        }));
    }
    Ok(samples)
}

/// How often each of these rows is in a table; those that are not there are left out.
fn counts(
    connection: &Connection,
    table: &str,
    contents: &BTreeSet<String>,
) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    let table = match table_named(connection, table) {
        Ok(table) => table,
        Err(Error::NotFound { .. }) => return Ok(counts),
        Err(error) => return Err(error),
    };
    let mut rows = connection.prepare(&table.select())?;
    while rows.step()? {
        let content = hash(&to_row(&table.columns, &rows.values()));
        if contents.contains(&content) {
            *counts.entry(content).or_default() += 1;
        }
    }
    Ok(counts)
}

fn hash(value: &impl Serialize) -> String {
    blake3::hash(serde_json::to_string(value).unwrap_or_default().as_bytes()).to_hex().to_string()
}

fn mark(dir: &Path, transaction: &str) -> PathBuf {
    dir.join(format!("committed-{transaction}"))
}

/// The opposite, which only a person writes.
fn mark_of_none(dir: &Path, transaction: &str) -> PathBuf {
    dir.join(format!("not-committed-{transaction}"))
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
    let (yes, no) = (mark(&setup.dir, &token.transaction), mark_of_none(&setup.dir, &token.transaction));
    if yes.exists() {
        return Ok(Outcome::Committed);
    }
    if no.exists() {
        return Ok(Outcome::Aborted);
    }
    let connection = Connection::open(Path::new(&setup.location), Mode::ReadWrite)?;
    connection.busy_timeout(setup.options.lock_timeout)?;
    let votes = votes(&connection, &token)?;
    match (votes.contains(&Outcome::Committed), votes.contains(&Outcome::Aborted)) {
        (true, false) => Ok(Outcome::Committed),
        (false, true) => Ok(Outcome::Aborted),
        // Nothing to be changed: it makes no difference.
        (false, false) if !token.changes => Ok(Outcome::Aborted),
        _ => Err(Error::Usage {
            message: format!(
                "others have written to {} since, and it cannot be told any more whether it was committed",
                setup.location
            ),
            hint: Some(format!(
                "look at the rows and say which: `touch {}` if they are there, `touch {}` if not; then repeat the command",
                yes.display(),
                no.display()
            )),
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
        votes.extend(sample.vote(row.as_ref().map(hash)));
    }
    for sample in &token.loose {
        let counts = counts(connection, &sample.of, &BTreeSet::from([sample.name.clone()]))?;
        votes.extend(sample.vote(counts.get(&sample.name).map(u64::to_string)));
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
