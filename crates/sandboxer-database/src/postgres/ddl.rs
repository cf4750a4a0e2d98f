//! Statements that would lock production out: found in their text before they are sent, and by the locks that they got, where the
//! text does not tell (`DO`, functions, `REFERENCES`).
//!
//! On what was made inside the held transaction everything is allowed; nobody else can wait for that.

use std::collections::BTreeSet;

use sandboxer_core::Result;

use super::ddl_text::{self, Word};
use super::rows::{Session, text, user_schema};
use crate::engine::Options;

/// Why a statement is not sent, or was undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code that clients get.
    pub sqlstate: &'static str,
    /// What is refused, and why.
    pub message: String,
    /// What would be accepted.
    pub hint: String,
}

/// A statement that takes a strong lock on what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strong {
    /// What the statement is called, as in `allow_ddl`.
    pub name: &'static str,
    /// What it names, as it was written. Empty where it names nothing that could be looked up.
    pub targets: Vec<String>,
}

/// Where in a statement the tables are named.
#[derive(Clone, Copy)]
enum Named {
    /// After its first words: one, or several with commas.
    Here,
    /// After this word.
    After(&'static str),
    /// Nowhere, or not as tables.
    Nowhere,
}

/// First words, the name, and where the tables are.
const STRONG: [(&[&str], &str, Named); 36] = [
    (&["alter", "table"], "alter table", Named::Here),
    (&["alter", "index"], "alter index", Named::Here),
    (&["alter", "view"], "alter view", Named::Here),
    (&["alter", "materialized", "view"], "alter materialized view", Named::Here),
    (&["alter", "sequence"], "alter sequence", Named::Here),
    (&["alter", "foreign", "table"], "alter foreign table", Named::Here),
    (&["alter", "trigger"], "alter trigger", Named::After("on")),
    (&["alter", "policy"], "alter policy", Named::After("on")),
    (&["alter", "rule"], "alter rule", Named::After("on")),
    (&["drop", "table"], "drop table", Named::Here),
    (&["drop", "index"], "drop index", Named::Here),
    (&["drop", "view"], "drop view", Named::Here),
    (&["drop", "materialized", "view"], "drop materialized view", Named::Here),
    (&["drop", "sequence"], "drop sequence", Named::Here),
    (&["drop", "foreign", "table"], "drop foreign table", Named::Here),
    (&["drop", "trigger"], "drop trigger", Named::After("on")),
    (&["drop", "rule"], "drop rule", Named::After("on")),
    (&["drop", "policy"], "drop policy", Named::After("on")),
    (&["drop", "owned"], "drop owned", Named::Nowhere),
    (&["truncate"], "truncate", Named::Here),
    (&["create", "index"], "create index", Named::After("on")),
    (&["create", "unique", "index"], "create index", Named::After("on")),
    (&["create", "trigger"], "create trigger", Named::After("on")),
    (&["create", "or", "replace", "trigger"], "create trigger", Named::After("on")),
    (&["create", "constraint", "trigger"], "create trigger", Named::After("on")),
    (&["create", "or", "replace", "constraint", "trigger"], "create trigger", Named::After("on")),
    (&["create", "rule"], "create rule", Named::After("to")),
    (&["create", "or", "replace", "rule"], "create rule", Named::After("to")),
    (&["create", "policy"], "create policy", Named::After("on")),
    (&["cluster"], "cluster", Named::Nowhere),
    (&["reindex", "table"], "reindex", Named::Here),
    (&["reindex", "index"], "reindex", Named::Here),
    (&["reindex"], "reindex", Named::Nowhere),
    (&["lock"], "lock table", Named::Here),
    (&["refresh", "materialized", "view"], "refresh materialized view", Named::Here),
    (&["vacuum"], "vacuum", Named::Nowhere),
];

/// What is passed over between a statement's first words and the first table.
const FILLERS: [&str; 7] = ["table", "if", "exists", "not", "only", "concurrently", "all"];

/// First words of statements that only read or write rows, and call what they call; all others are followed by a look at the locks.
const PLAIN: [&str; 18] = [
    "select", "insert", "update", "delete", "merge", "with", "values", "copy", "table", "explain", "fetch",
    "move", "declare", "close", "set", "reset", "show", "execute",
];

/// The strong lock that a statement says it takes, if any.
pub fn strong(statement: &str) -> Option<Strong> {
    let words = ddl_text::words(statement);
    let (first, name, named) = STRONG.iter().find(|(first, ..)| begins(&words, first))?;
    let rest = &words[first.len()..];
    if *name == "lock table" && locks_weakly(rest) {
        return None;
    }
    let targets = match named {
        Named::Here => targets(rest, true),
        Named::After(word) => {
            let place = rest.iter().position(|w| w.is(word));
            place.map(|place| targets(&rest[place + 1..], false)).unwrap_or_default()
        }
        Named::Nowhere => Vec::new(),
    };
    Some(Strong { name, targets })
}

/// `LOCK TABLE … IN ACCESS SHARE MODE`, as `pg_dump` does, and other modes that keep neither readers nor writers out.
fn locks_weakly(words: &[Word]) -> bool {
    const WEAK: [&[&str]; 4] = [
        &["access", "share", "mode"],
        &["row", "share", "mode"],
        &["row", "exclusive", "mode"],
        &["share", "update", "exclusive", "mode"],
    ];
    let mode = words.iter().position(|word| word.is("in")).map(|place| &words[place + 1..]);
    mode.is_some_and(|mode| WEAK.iter().any(|weak| begins(mode, weak)))
}

fn begins(words: &[Word], first: &[&str]) -> bool {
    words.len() >= first.len() && words.iter().zip(first).all(|(word, expected)| word.is(expected))
}

/// Names as they are written, with dots, separated by commas.
fn targets(words: &[Word], several: bool) -> Vec<String> {
    let mut rest = words.iter().skip_while(|word| FILLERS.iter().any(|filler| word.is(filler))).peekable();
    let mut names = Vec::new();
    while let Some(word) = rest.next_if(|word| word.name) {
        let mut name = word.text.clone();
        while rest.next_if(|word| word.text == ".").is_some() {
            name = format!("{name}.{}", rest.next().map(|word| word.text.as_str()).unwrap_or_default());
        }
        names.push(name);
        while rest.next_if(|word| word.text == "*").is_some() {}
        if !several || rest.next_if(|word| word.text == ",").is_none() {
            break;
        }
        while rest.next_if(|word| word.is("only")).is_some() {}
    }
    names
}

/// Refuses a statement that takes a strong lock on something older than the held transaction. `older` tells that of a name as it
/// is written in the statement; see [`older_query`].
pub fn check(statement: &str, options: &Options, older: &mut dyn FnMut(&str) -> bool) -> Result<(), Refusal> {
    let Some(strong) = strong(statement) else { return Ok(()) };
    if allowed(strong.name, options) {
        return Ok(());
    }
    match strong.targets.iter().find(|target| older(target)) {
        Some(target) => Err(refusal(strong.name, &format!(" on {target}"))),
        None if strong.targets.is_empty() => Err(refusal(strong.name, "")),
        None => Ok(()),
    }
}

/// Whether a statement takes a strong lock, and may.
pub fn permitted(statement: &str, options: &Options) -> bool {
    strong(statement).is_some_and(|strong| allowed(strong.name, options))
}

/// Whether a statement of that name is allowed.
pub fn allowed(name: &str, options: &Options) -> bool {
    let plain = |text: &str| text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    options.allow_ddl.iter().map(|allowed| plain(allowed)).any(|allowed| allowed == "all" || allowed == name)
}

fn refusal(name: &str, on_what: &str) -> Refusal {
    Refusal {
        sqlstate: "42501",
        message: format!(
            "{}{on_what} would lock out everybody else who uses it until the sandbox is committed or rolled back",
            name.to_uppercase()
        ),
        hint: format!("allow it by name (allow_ddl: [{name:?}]), or use a copy of the database"),
    }
}

/// The query that tells, inside, whether what goes by a name was there before the held transaction (`t`).
pub fn older_query(name: &str) -> String {
    format!(
        "SELECT pg_catalog.count(*) > 0 FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
         WHERE c.oid = pg_catalog.to_regclass({}) AND NOT {MADE_INSIDE}",
        super::values::literal(name)
    )
}

/// Whether the relation `c` (with `i`, if it is an index) was made inside. The row of a system column is written once, when a
/// table is made; a view has none, but a row type.
const MADE_INSIDE: &str = "(EXISTS (SELECT FROM pg_catalog.pg_attribute a \
     WHERE a.attrelid = coalesce(i.indrelid, c.oid) AND a.attnum = -1 AND pg_catalog.age(a.xmin) <= 0 \
     AND pg_catalog.txid_status(pg_catalog.txid_current() - pg_catalog.age(a.xmin)) = 'in progress') \
   OR EXISTS (SELECT FROM pg_catalog.pg_type t WHERE c.relkind IN ('v', 'c') AND t.oid = c.reltype AND pg_catalog.age(t.xmin) <= 0 \
     AND pg_catalog.txid_status(pg_catalog.txid_current() - pg_catalog.age(t.xmin)) = 'in progress'))";

/// Whether the locks are looked at after this statement: after everything but plain reads and writes of rows.
pub fn wants_look(statement: &str) -> bool {
    let words = ddl_text::words(statement);
    let begin = words.iter().find(|word| word.text != "(");
    begin.is_some_and(|word| !PLAIN.iter().any(|plain| word.is(plain)))
}

/// All strong locks of the session, whatever they are on, by numbers: cheap to ask for, and seldom another answer than the last time.
const ALL_STRONG: &str = "SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', relation, mode), ',' ORDER BY relation, mode) \
     FROM pg_catalog.pg_locks WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'relation' AND granted \
     AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')";

/// The strong locks that are held with permission.
#[derive(Debug, Default)]
pub struct Locks {
    accepted: BTreeSet<(String, String)>,
    permitted: bool,
    /// What the next look is about.
    named: Option<String>,
    /// All strong locks at the last look that found nothing wrong.
    seen: Option<String>,
}

impl Locks {
    /// A statement is about to run. Where it may take strong locks, those found at the next look are accepted.
    pub fn expect(&mut self, statement: &str, options: &Options) {
        let name = statement_name(statement);
        if permitted(statement, options) || allowed(&name, options) {
            self.permitted = true;
        } else {
            self.named = Some(name);
        }
    }

    /// What was last expected, or something that was called.
    pub fn expected(&mut self) -> String {
        self.named.take().unwrap_or_else(|| "select".to_owned())
    }

    /// Looks at the locks that the held transaction has on what is older than itself. New ones are taken note of where a statement was
    /// allowed to take them; otherwise the answer is why its unit has to be rolled back. `statement` is named in that.
    pub fn look(
        &mut self,
        session: &mut dyn Session,
        statement: &str,
        options: &Options,
        hidden_schema: &str,
    ) -> Result<Option<Refusal>> {
        let seen = session.query(ALL_STRONG)?.single().unwrap_or_default().to_owned();
        if !self.permitted && self.seen.as_ref() == Some(&seen) {
            return Ok(None);
        }
        let held = strong_locks(session, hidden_schema)?;
        let name = statement_name(statement);
        let permitted = std::mem::take(&mut self.permitted) || allowed(&name, options);
        let new = held.iter().find(|lock| !self.accepted.contains(*lock));
        if let Some((relation, mode)) = new.filter(|_| !permitted) {
            return Ok(Some(refusal(&name, &format!(" (a {mode} on {relation})"))));
        }
        (self.accepted, self.seen) = (held, Some(seen));
        Ok(None)
    }
}

/// The name of a statement as `allow_ddl` has it: of a strong one its own, of others the first word.
fn statement_name(statement: &str) -> String {
    if let Some(strong) = strong(statement) {
        return strong.name.to_owned();
    }
    let words = ddl_text::words(statement);
    let count = if words.first().is_some_and(|word| word.is("create") || word.is("alter") || word.is("drop"))
    {
        2
    } else {
        1
    };
    words.iter().take(count).map(|word| word.text.to_lowercase()).collect::<Vec<_>>().join(" ")
}

fn strong_locks(session: &mut dyn Session, hidden_schema: &str) -> Result<BTreeSet<(String, String)>> {
    let answer = session.query(&format!(
        "SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, c.relname), l.mode FROM pg_catalog.pg_locks l \
         JOIN pg_catalog.pg_class c ON c.oid = l.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
         WHERE l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid() AND l.granted AND {} \
         AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') \
         AND NOT {MADE_INSIDE}",
        user_schema(hidden_schema)
    ))?;
    Ok(answer.rows.iter().map(|row| (text(row, 0), text(row, 1))).collect())
}

#[cfg(test)]
#[path = "ddl_tests.rs"]
mod tests;
