//! Which statements may run in a held transaction.
//!
//! A list of what is allowed, not of what is forbidden: whatever a future server invents is refused until somebody has looked at it. In an XA transaction
//! the server itself refuses what would commit (1399), so this is the first of two defences, and the one that explains itself.

use sandboxer_core::{Error, Result};

use super::lexer::{Statement, Token};

/// How a statement is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// Changes settings of the session; they are put back after the script.
    Set,
    /// `SAVEPOINT`, `ROLLBACK TO`, `RELEASE SAVEPOINT`.
    Savepoint,
}

/// The beginning of the names of savepoints that are not the script's.
pub(super) const OWN: &str = "sandboxer_";

/// Settings that a script may change: they change what its own statements mean, and nothing else.
pub(super) const SETTINGS: &[&str] = &[
    "big_tables",
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "check_constraint_checks",
    "collation_connection",
    "div_precision_increment",
    "foreign_key_checks",
    "group_concat_max_len",
    "insert_id",
    "last_insert_id",
    "lc_time_names",
    "max_recursive_iterations",
    "cte_max_recursion_depth",
    "sql_auto_is_null",
    "sql_big_selects",
    "sql_mode",
    "sql_notes",
    "sql_quote_show_create",
    "sql_safe_updates",
    "sql_warnings",
    "time_zone",
    "timestamp",
    "unique_checks",
    "updatable_views_with_limit",
];

/// What a statement is, or why it is refused. A statement that is nothing to this server is a reading one.
pub(super) fn judge(statement: &Statement) -> Result<Kind> {
    let whole = kind_of(statement, &statement.tokens())?;
    let bare = statement.bare_tokens();
    if statement.conditional == 0 || bare.is_empty() {
        return Ok(whole);
    }
    // Which of several the server takes is its secret, and here only all or none of them are looked at.
    let same = statement.conditional == 1 && kind_of(statement, &bare)? == whole;
    if same { Ok(whole) } else { Err(refused(statement, "its executable comments make it ambiguous", None)) }
}

fn kind_of(statement: &Statement, tokens: &[Token]) -> Result<Kind> {
    let start = tokens.iter().position(|token| *token != Token::Symbol('(')).unwrap_or(0);
    let word = match tokens.get(start) {
        Some(Token::Word(word)) => word.to_uppercase(),
        _ => return Err(refused(statement, "it begins with no keyword", None)),
    };
    if writes_files(tokens) {
        return Err(refused(statement, "a file that the server writes cannot be taken back", None));
    }
    match word.as_str() {
        "SELECT" | "VALUES" | "TABLE" | "SHOW" | "EXPLAIN" | "DESCRIBE" | "DESC" | "DO" => Ok(Kind::Read),
        "WITH" => Ok(if has_writing_word(tokens) { Kind::Write } else { Kind::Read }),
        "INSERT" | "UPDATE" | "DELETE" | "REPLACE" | "CALL" => Ok(Kind::Write),
        "SET" => setting(statement, &tokens[start + 1..]),
        "SAVEPOINT" | "RELEASE" | "ROLLBACK" => savepoint(statement, &word, &tokens[start + 1..]),
        word => Err(refusal_of(statement, word)),
    }
}

fn writes_files(tokens: &[Token]) -> bool {
    tokens.windows(2).any(|pair| pair[0].is("INTO") && (pair[1].is("OUTFILE") || pair[1].is("DUMPFILE")))
}

const WRITING: [&str; 4] = ["UPDATE", "DELETE", "INSERT", "REPLACE"];

/// Outside of parentheses, and not as part of `FOR UPDATE`.
fn has_writing_word(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let mut before = &Token::Symbol(' ');
    for token in tokens {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth -= 1,
            token if depth == 0 && !before.is("FOR") && WRITING.iter().any(|word| token.is(word)) => {
                return true;
            }
            _ => {}
        }
        before = token;
    }
    false
}

fn savepoint(statement: &Statement, word: &str, rest: &[Token]) -> Result<Kind> {
    let name = match (word, rest) {
        ("SAVEPOINT", [name]) => name.name(),
        ("RELEASE", [keyword, name]) if keyword.is("SAVEPOINT") => name.name(),
        ("ROLLBACK", rest) if rest.iter().any(|token| token.is("TO")) => rest.last().and_then(Token::name),
        _ => return Err(refusal_of(statement, word)),
    };
    match name {
        Some(name) if !name.starts_with(OWN) => Ok(Kind::Savepoint),
        _ => Err(refused(statement, "savepoints of that name are not the script's", None)),
    }
}

fn setting(statement: &Statement, tokens: &[Token]) -> Result<Kind> {
    let mut depth = 0;
    let assignments = tokens.split(|token| {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth -= 1,
            _ => {}
        }
        depth == 0 && *token == Token::Symbol(',')
    });
    for assignment in assignments {
        if !may_be_set(assignment) {
            let why = "it would change more than this script, or how the transaction is held";
            return Err(refused(
                statement,
                why,
                Some(format!("settings for a script are {}", SETTINGS.join(", "))),
            ));
        }
    }
    Ok(Kind::Set)
}

fn may_be_set(assignment: &[Token]) -> bool {
    let at = Token::Symbol('@');
    let name = match assignment {
        [first, second, rest @ ..] if *first == at && *second == at => without_scope(rest),
        // A variable of the user's.
        [first, ..] if *first == at => return true,
        [first, ..] if first.is("NAMES") || first.is("CHARSET") => return true,
        [first, second, ..] if first.is("CHARACTER") && second.is("SET") => return true,
        [first, rest @ ..] if first.is("SESSION") || first.is("LOCAL") => rest,
        all => all,
    };
    let Some(known) = name.first().and_then(Token::name) else { return false };
    let assigned = matches!(name.get(1), Some(Token::Symbol('=' | ':')));
    assigned && SETTINGS.contains(&known.as_str())
}

/// What follows `@@session.` or `@@`.
fn without_scope(tokens: &[Token]) -> &[Token] {
    match tokens {
        [scope, Token::Symbol('.'), rest @ ..] if scope.is("SESSION") || scope.is("LOCAL") => rest,
        all => all,
    }
}

fn refusal_of(statement: &Statement, word: &str) -> Error {
    let (why, instead) = match word {
        "BEGIN" | "START" | "COMMIT" | "ROLLBACK" | "XA" => (
            "the sandbox is one transaction, which only commit and rollback of the sandbox end",
            "use SAVEPOINT and ROLLBACK TO, or leave it out: a script is all or nothing anyway",
        ),
        "CREATE" | "ALTER" | "DROP" | "TRUNCATE" | "RENAME" => return ddl(Some(statement)),
        "LOCK" | "UNLOCK" => {
            ("it would end the transaction that is held", "leave it out: rows are locked as they are written")
        }
        "LOAD" => ("it reads a file, of the server's or the client's", "use INSERT"),
        "PREPARE" | "EXECUTE" | "DEALLOCATE" => {
            ("what it runs cannot be seen beforehand", "write the statement itself")
        }
        "USE" => ("the database is the one of the resource", "write `database`.`table`"),
        "GRANT" | "REVOKE" | "FLUSH" | "RESET" | "KILL" | "SHUTDOWN" | "INSTALL" | "UNINSTALL" => {
            ("it changes the server, at once and for everybody", "run it outside of the sandbox")
        }
        _ => (
            "it is not among the statements that are known to be harmless in a held transaction",
            "use SELECT, INSERT, UPDATE, DELETE, REPLACE, CALL, SET or savepoints",
        ),
    };
    refused(statement, why, Some(instead.to_owned()))
}

/// Why there is no DDL, whether we or the server found it.
pub(super) fn ddl(statement: Option<&Statement>) -> Error {
    let named = statement.map(|statement| format!(" ({})", statement.short())).unwrap_or_default();
    Error::Refused {
        reason: format!(
            "what commits by itself is not possible in a held transaction on MariaDB or MySQL, and DDL does{named}"
        ),
        hint: Some(
            "change the schema outside of the sandbox, or try it on a copy of the database".to_owned(),
        ),
    }
}

fn refused(statement: &Statement, why: &str, hint: Option<String>) -> Error {
    Error::Refused { reason: format!("{}: {why}", statement.short()), hint }
}

#[cfg(test)]
#[path = "statements_tests.rs"]
mod tests;
