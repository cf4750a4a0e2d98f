//! What a held transaction, or a clone, can be asked for, whichever database it is of.

use std::path::PathBuf;
use std::time::Duration;

use sandboxer_core::Result;
use sandboxer_core::model::{Row, RowChange};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One transaction that is held open, or one clone: everything that a strategy needs of a database.
///
/// Every error leaves the transaction as it was, or is [`Status::Lost`] from then on and says so. No method commits but
/// [`Engine::commit`] and [`Engine::finish`].
pub trait Engine: Send {
    /// Whether it is still held, and since when.
    fn status(&mut self) -> Status;

    /// How programs connect to it, where they can.
    fn connection(&mut self) -> Option<Connection> {
        None
    }

    /// The schema as SQL, in an order in which it can be run. Deterministic: the same schema gives the same text.
    fn schema(&mut self) -> Result<String>;

    /// The tables by their names, with the schema where the database has schemas (`public.users`).
    fn tables(&mut self) -> Result<Vec<String>>;

    /// Rows of a table in the order of its primary key.
    fn rows(&mut self, table: &str, page: &Page) -> Result<Vec<Row>>;

    /// The row whose primary key has this text form (see [`crate::engine::key_text`]); `None` where there is none.
    fn row(&mut self, table: &str, key: &str) -> Result<Option<Row>>;

    /// The rows that a statement gives. It runs in a savepoint that is rolled back: reading changes nothing.
    fn query(&mut self, sql: &str) -> Result<Vec<Row>>;

    /// Runs a script of any number of statements as one unit: all of it, or an error that names the statement and nothing.
    fn execute(&mut self, script: &str) -> Result<Executed>;

    /// Inserts or replaces the row at a key; `None` deletes it. Whether there was one before.
    fn put_row(&mut self, table: &str, key: &str, row: Option<&Row>) -> Result<bool>;

    /// Everything that differs from the base.
    fn changes(&mut self) -> Result<Changes>;

    /// Keeps the present state under that name; one that exists is replaced.
    fn checkpoint(&mut self, name: &str) -> Result<()>;

    /// Brings it back. Later checkpoints may be gone then; asking for such a one is an error that says so.
    fn restore(&mut self, name: &str) -> Result<()>;

    /// Throws everything away, and begins anew on what the database is now. Works when lost, too.
    fn rollback(&mut self) -> Result<()>;

    /// Keeps everybody else out, until [`Engine::release`].
    fn hold(&mut self) -> Result<()> {
        Ok(())
    }

    /// Lets the others in again.
    fn release(&mut self) {}

    /// By what it can be told afterwards what became of a commit under that name: what [`Engine::prepare`] will answer, as far
    /// as that is known. Changes nothing that others see.
    fn intent(&mut self, operation: &str) -> Result<Prepared>;

    /// Makes everything real, and begins anew on that. `operation` is the caller's name for it.
    fn commit(&mut self, operation: &str) -> Result<()>;

    /// Makes it ready to become real whatever happens, under that name. From here on nobody else gets in until
    /// [`Engine::finish`] or [`Engine::abort`].
    fn prepare(&mut self, operation: &str) -> Result<Prepared>;

    /// Makes real what was prepared, and begins anew. Idempotent.
    fn finish(&mut self, prepared: &Prepared) -> Result<()>;

    /// Forgets what was prepared and begins anew; whether the work is still there, to go on with.
    fn abort(&mut self, prepared: &Prepared) -> Result<bool>;

    /// Ends it for good: rolls back, closes everything.
    fn close(&mut self);
}

/// What an engine is opened with. It is handed to the keeper through a pipe, and neither stored nor logged.
#[derive(Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The resource type: `postgres`, `mysql`, `sqlite`.
    pub kind: String,
    /// The URL without credentials, or the path.
    pub location: String,
    /// A name of this workspace that no other has: letters, digits and `_`. Goes into names on the server.
    pub workspace: String,
    /// A directory of the engine's own, private to the user; there before, removed afterwards by the caller.
    pub dir: PathBuf,
    /// Whom to be where the location does not say.
    pub user: String,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// What the user set for this kind of sandbox.
    pub options: Options,
}

/// What a user can set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How long a statement waits for a lock that production holds.
    #[serde(rename = "lock_timeout_ms", with = "millis")]
    pub lock_timeout: Duration,
    /// How long the sandbox may keep production waiting before it is rolled back; `None` is for ever.
    #[serde(rename = "block_limit_ms", with = "millis::maybe")]
    pub block_limit: Option<Duration>,
    /// How long a client waits for another client's transaction.
    #[serde(rename = "turn_timeout_ms", with = "millis")]
    pub turn_timeout: Duration,
    /// Statements that take strong locks, by name (`alter table`, `truncate`), that are allowed all the same; `all` allows all.
    pub allow_ddl: Vec<String>,
    /// More rows than this are not listed in a difference.
    pub max_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lock_timeout: Duration::from_secs(5),
            block_limit: Some(Duration::from_secs(60)),
            turn_timeout: Duration::from_secs(10),
            allow_ddl: Vec::new(),
            max_rows: 1_000_000,
        }
    }
}

/// Times in JSON: milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        (time.as_millis() as u64).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }

    pub mod maybe {
        use super::*;

        pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
            time.map(|time| time.as_millis() as u64).serialize(to)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
        }
    }
}

/// Whether the transaction is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is.
    Held {
        /// What its user should know: whom it blocks, for how long.
        notices: Vec<String>,
    },
    /// It is gone, with everything in it. The reason says whether any of it was committed, where that is not plain.
    Lost {
        /// Why, as a sentence.
        reason: String,
    },
}

/// How programs connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// A complete URL, password and all.
    pub url: String,
    /// A directory with a socket, to be shown inside a sandbox.
    pub socket_dir: Option<PathBuf>,
    /// Variables to set for programs, where the socket is at the directory they name as `{socket_dir}`.
    pub variables: Vec<(String, String)>,
}

/// Which rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// At most this many; `None` is all.
    pub limit: Option<usize>,
    /// Only those after this key, in the text form of keys.
    pub after: Option<String>,
}

/// What a script did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Executed {
    /// How many statements.
    pub statements: usize,
    /// How many rows they touched, as far as the database says.
    pub rows: u64,
}

/// Everything that differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Row by row, sorted by table and key.
    pub rows: Vec<RowChange>,
    /// What differs of the schema.
    pub schema: Vec<SchemaChange>,
    /// What a careful person has to know of it: tables that were compared as a whole, and why.
    pub notices: Vec<String>,
}

/// One object of the schema that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaChange {
    /// `table`, `index`, `view`, `function`, `sequence`, …
    pub kind: String,
    /// With its schema, where the database has schemas.
    pub name: String,
    /// Its definition in the base; `None` if it is new.
    pub old: Option<String>,
    /// Its definition in the sandbox; `None` if it is gone.
    pub new: Option<String>,
}

/// What became of preparing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prepared {
    /// It survives a crash of everybody: finishing cannot fail for lack of it. The value is what the engine needs for that.
    Durable(Value),
    /// It cannot be prepared, only committed: whoever coordinates commits it first, as the decision.
    AtDecision {
        /// Why, as a sentence for the user.
        reason: String,
        /// What the engine needs to tell afterwards whether it was committed.
        token: Value,
    },
}

/// What became of something that was prepared, or committed at the decision, as the database itself tells afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is real.
    Committed,
    /// It never will be.
    Aborted,
    /// Prepared, and waiting for a word.
    Waiting,
}

/// The text of NULL in a key: no value has it, since `%` is encoded.
const NULL: &str = "%null";

/// The text form of a primary key: the values as text joined by `,`, each with `%`, `,`, `/`, `?` and control characters
/// percent-encoded (so it is one component of a path); NULL is `%null`, which encodes nothing. The name of a row in paths.
pub fn key_text<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    values.into_iter().map(key_part).collect::<Vec<_>>().join(",")
}

/// The texts of the values of a key; `None` is NULL. `None` as a whole where `key` is not the text form of any.
pub fn key_parts(key: &str) -> Option<Vec<Option<String>>> {
    key.split(',').map(part_text).collect()
}

fn key_part(value: &Value) -> String {
    let text = match value {
        Value::Null => return NULL.to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(object) => object.get("b64").and_then(Value::as_str).unwrap_or_default().to_owned(),
        other => other.to_string(),
    };
    encode(&text)
}

/// Percent-encodes what would end or split a component of a path; a part that is only dots, too.
pub fn encode(text: &str) -> String {
    if text == "." || text == ".." {
        return text.replace('.', "%2E");
    }
    let mut encoded = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '%' | ',' | '/' | '?' | '&' | '=' => encoded += &format!("%{:02X}", c as u32),
            c if c.is_ascii_control() => encoded += &format!("%{:02X}", c as u32),
            c => encoded.push(c),
        }
    }
    encoded
}

/// Undoes [`encode`], and any other percent-encoding; `None` where it is malformed.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

fn part_text(part: &str) -> Option<Option<String>> {
    if part == NULL { Some(None) } else { decode(part).map(Some) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_one_component_of_a_path_and_comes_back() {
        for (values, text) in [
            (vec![json!(7)], "7"),
            (vec![json!("a/b"), json!(null)], "a%2Fb,%null"),
            (vec![json!("50%, or so")], "50%25%2C or so"),
            (vec![json!("..")], "%2E%2E"),
            (vec![json!("")], ""),
            (vec![json!("\0"), json!("null"), json!("%null")], "%00,null,%25null"),
            (vec![json!({"b64": "AA=="})], "AA%3D%3D"),
        ] {
            assert_eq!(key_text(&values), text);
            let parts = key_parts(text).unwrap();
            assert_eq!(parts.len(), values.len());
        }
        assert_eq!(key_parts("a%2Fb,%null").unwrap(), [Some("a/b".to_owned()), None]);
        assert_eq!(key_parts("%00").unwrap(), [Some("\0".to_owned())]);
        assert_eq!(key_parts("%zz"), None);
        assert_eq!(key_parts("%"), None);
    }
}
