//! Which statements may run in a held transaction.
//!
//! SQLite itself cuts a script into statements, so there is nothing to be read wrongly: only the first words of each matter. They are looked at before the
//! statement is prepared, because some pragmas take effect as early as that.

use sandboxer_core::{Error, Result};

/// So many words of a statement are looked at for how it treats conflicts; what comes later is data.
const MOST_WORDS: usize = 10_000;

/// Those that only look, whatever their argument.
const LOOKING: &[&str] = &[
    "collation_list",
    "compile_options",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "module_list",
    "pragma_list",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];
/// Those that only look if they have no argument.
const READING: &[&str] = &[
    "auto_vacuum",
    "data_version",
    "encoding",
    "foreign_keys",
    "freelist_count",
    "journal_mode",
    "max_page_count",
    "page_count",
    "page_size",
    "schema_version",
];
/// Those whose effect is part of the transaction, or ends with it.
const ROLLED_BACK: &[&str] = &["application_id", "defer_foreign_keys", "user_version"];

const ALLOWED: &[&str] =
    &["ANALYZE", "CREATE", "DELETE", "INSERT", "REINDEX", "REPLACE", "SELECT", "UPDATE", "VALUES", "WITH"];

/// What a statement may do to the record of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What it does to rows is recorded.
    Ordinary,
    /// It may remove or change rows that are not recorded: those of a table that is dropped or altered.
    Unrecorded,
}

/// Refuses what would end the transaction, or reach beyond it. `rest` begins with the statement.
pub(super) fn judge(rest: &str) -> Result<Kind> {
    let words = Words(rest);
    let (first, after) = words.split();
    match first.to_ascii_uppercase().as_str() {
        // Nothing at all, or only comments.
        "" if after.0.is_empty() => Ok(Kind::Ordinary),
        "EXPLAIN" => judge_explained(after),
        "PRAGMA" => judge_pragma(rest, after),
        "ALTER" | "DROP" => Ok(Kind::Unrecorded),
        word if ALLOWED.contains(&word) && rolls_back(rest) => Err(Error::Refused {
            reason: format!("{}: a conflict would roll back the whole sandbox", short(rest)),
            hint: Some("say OR ABORT or OR FAIL instead of OR ROLLBACK".to_owned()),
        }),
        word if ALLOWED.contains(&word) => Ok(Kind::Ordinary),
        word => Err(refusal(rest, word)),
    }
}

/// Whether a statement says `OR ROLLBACK` or `ON CONFLICT ROLLBACK`. Said in a text it counts as well: better refused than lost.
fn rolls_back(rest: &str) -> bool {
    let statement = rest.split(';').next().unwrap_or_default();
    let words: Vec<String> =
        statement.split_whitespace().take(MOST_WORDS).map(str::to_ascii_uppercase).collect();
    words.windows(2).any(|pair| matches!(&*pair[0], "OR" | "CONFLICT") && pair[1].starts_with("ROLLBACK"))
}

/// `EXPLAIN QUERY PLAN …`; a pragma would run all the same.
fn judge_explained(after: Words<'_>) -> Result<Kind> {
    let (word, rest) = after.split();
    match word.to_ascii_uppercase().as_str() {
        "QUERY" => judge_explained(rest),
        "PLAN" => judge(rest.0),
        _ => judge(after.0),
    }
}

fn judge_pragma(statement: &str, after: Words<'_>) -> Result<Kind> {
    let (mut name, mut rest) = after.split();
    if let Some(unscoped) = rest.0.strip_prefix('.') {
        (name, rest) = Words(unscoped).split();
    }
    let name = name.to_ascii_lowercase();
    let has_argument = rest.0.starts_with(['=', '(']);
    let harmless = LOOKING.contains(&name.as_str())
        || ROLLED_BACK.contains(&name.as_str())
        || (READING.contains(&name.as_str()) && !has_argument);
    if harmless {
        return Ok(Kind::Ordinary);
    }
    Err(Error::Refused {
        reason: format!("{}: this pragma would change more than what can be rolled back", short(statement)),
        hint: Some(format!("pragmas that can be set are {}", ROLLED_BACK.join(", "))),
    })
}

fn refusal(statement: &str, word: &str) -> Error {
    let (why, hint) = match word {
        "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => (
            "the sandbox is one transaction, which only commit and rollback of the sandbox end",
            "leave it out, as a script is all or nothing anyway; checkpoints of the sandbox are its savepoints",
        ),
        "ATTACH" | "DETACH" => {
            ("other files are not part of the sandbox", "make a sandbox of that file, too")
        }
        "VACUUM" => ("it cannot run in a transaction", "run it outside of the sandbox, or use a snapshot"),
        _ => (
            "it is not among the statements that are known to be harmless in a held transaction",
            "use another statement",
        ),
    };
    Error::Refused { reason: format!("{}: {why}", short(statement)), hint: Some(hint.to_owned()) }
}

/// The beginning of a statement, for messages.
pub(super) fn short(statement: &str) -> String {
    let line = Words(statement).start().split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Text, read word by word the way SQLite does.
#[derive(Clone, Copy)]
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// Without white space, comments and semicolons in front.
    fn start(self) -> &'a str {
        let mut rest = self.0;
        loop {
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}', '\u{feff}', ';']);
            let after = if let Some(comment) = trimmed.strip_prefix("--") {
                comment.split_once('\n').map_or("", |(_, after)| after)
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                comment.split_once("*/").map_or("", |(_, after)| after)
            } else {
                return trimmed;
            };
            rest = after;
        }
    }

    /// The first word, and what comes after it and after white space; an empty word where there is none.
    fn split(self) -> (&'a str, Self) {
        let start = self.start();
        let end = start.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(start.len());
        let rest = &start[end..];
        // A semicolon ends the statement, so what comes after it is no word of this one.
        let rest = if rest.trim_start().starts_with(';') { "" } else { Self(rest).start() };
        (&start[..end], Self(rest))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_rolled_back_is_allowed() {
        for sql in [
            "",
            " -- nothing\n /* at all */ ;;",
            "select 1",
            "/* c */ INSERT INTO t VALUES (1)",
            "create table t (a)",
            "alter table t rename to u",
            "pragma user_version = 7",
            "PRAGMA main.user_version",
            "pragma table_info(t)",
            "pragma journal_mode",
            "pragma journal_mode; commit",
            "explain query plan select 1",
        ] {
            judge(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }

    #[test]
    fn what_ends_the_transaction_or_reaches_beyond_it_is_refused() {
        for sql in [
            "begin",
            "/* a */ -- b\n commit",
            "\u{feff}commit",
            ";;end transaction",
            "rollback",
            "rollback transaction",
            "rollback to a",
            "savepoint a",
            "release a",
            "attach 'x' as y",
            "detach y",
            "vacuum",
            "vacuum into 'x'",
            "pragma journal_mode = delete",
            "pragma journal_mode(delete)",
            "pragma main . journal_mode = delete",
            "pragma/**/main./**/journal_mode/**/=off",
            "explain pragma journal_mode = delete",
            "explain query plan pragma writable_schema = on",
            "pragma writable_schema = on",
            "pragma wal_checkpoint",
            "pragma locking_mode",
            "\"select\"",
            "unknown",
        ] {
            assert!(matches!(judge(sql), Err(Error::Refused { .. })), "{sql}");
        }
    }
}
