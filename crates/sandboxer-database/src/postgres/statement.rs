//! What a statement is to the proxy, by the words it begins with.

use std::ops::Range;

use super::guard::PREFIX;
use super::lexer::{self, Piece, Spanned, Token};

/// One statement of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Where it is in the string.
    pub range: Range<usize>,
    /// What it is.
    pub kind: Kind,
    /// Names of prepared statements in it, each of which is one client's own.
    pub prepared: Vec<Range<usize>>,
    /// Settings that it may change by `set_config`, and whether until the end of the transaction only; a name that is not in the text is
    /// empty.
    pub configures: Vec<(String, bool)>,
    /// It may call a function, which may do anything: after it the guard and the locks are looked at.
    pub calls: bool,
}

/// What a statement does, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `BEGIN`, `START TRANSACTION`.
    Begin {
        /// What the client is told when it is done.
        tag: &'static str,
        /// It may only read.
        read_only: bool,
    },
    /// `COMMIT`, `END`.
    Commit {
        /// Another begins at once.
        chain: bool,
    },
    /// `ROLLBACK`, `ABORT`.
    Rollback {
        /// Another begins at once.
        chain: bool,
    },
    /// `SAVEPOINT`.
    Savepoint,
    /// `RELEASE`.
    Release,
    /// `ROLLBACK TO`.
    RollbackTo,
    /// `SET TRANSACTION`.
    SetTransaction {
        /// It may only read from here on.
        read_only: bool,
    },
    /// `SET CONSTRAINTS ALL`.
    AllConstraints {
        /// Now, or at the end of the transaction.
        immediate: bool,
    },
    /// `SET name`, `RESET name`.
    Set {
        /// Until the end of the transaction only.
        local: bool,
        /// Which setting.
        name: String,
    },
    /// `SET`, `RESET` of a setting that would end the held transaction while nobody does anything: it is only said to be done.
    Ignored {
        /// What the client is told.
        tag: &'static str,
    },
    /// `RESET ALL`.
    ResetAll,
    /// `DISCARD ALL`.
    DiscardAll,
    /// `DEALLOCATE ALL`, `DISCARD PLANS`.
    DeallocateAll,
    /// `DECLARE` of a cursor that ends with its transaction.
    Declare(String),
    /// `COPY … FROM STDIN`: the client sends data while it runs.
    CopyIn,
    /// `DO`, `CALL`, and whatever changes the schema: after it the guard is looked at.
    Definition,
    /// It cannot be done in a held transaction.
    Refused(Refusal),
    /// Anything else.
    Other,
}

impl Kind {
    /// Whether the proxy does it itself, or at least decides what is sent for it.
    pub fn is_ours(&self) -> bool {
        !matches!(self, Self::Other | Self::Declare(_) | Self::CopyIn | Self::Definition | Self::Set { .. })
    }
}

/// Why a statement is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The SQLSTATE.
    pub code: &'static str,
    /// In one sentence.
    pub message: String,
    /// What to do instead.
    pub hint: Option<&'static str>,
}

/// Settings that end sessions which are idle, or transactions that last.
pub const ENDING: [&str; 3] =
    ["idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"];

/// Extensions that reach around the transaction.
const ESCAPING: [&str; 12] = [
    "dblink",
    "postgres_fdw",
    "pg_background",
    "pg_cron",
    "http",
    "plpython3u",
    "plpython2u",
    "plpythonu",
    "plperlu",
    "pltclu",
    "plsh",
    "file_fdw",
];

/// The statements of a string.
pub fn statements(sql: &[u8], standard_strings: bool) -> Vec<Statement> {
    lexer::split(sql, standard_strings).iter().map(|piece| classified(sql, piece)).collect()
}

fn classified(sql: &[u8], piece: &Piece) -> Statement {
    let words = lexer::leading_words(&piece.tokens);
    let kind = match refused(sql, &words, &piece.tokens) {
        Some(refusal) => Kind::Refused(refusal),
        None => kind_of(&words, &piece.tokens),
    };
    Statement {
        range: piece.range.clone(),
        kind,
        prepared: prepared_names(&words, &piece.tokens),
        configures: configured(sql, &piece.tokens),
        calls: calls(&words, &piece.tokens),
    }
}

/// Words that are followed by a parenthesis without being the name of a function.
const NO_CALLS: [&str; 32] = [
    "values",
    "in",
    "and",
    "or",
    "not",
    "exists",
    "any",
    "all",
    "some",
    "as",
    "on",
    "using",
    "from",
    "select",
    "where",
    "by",
    "when",
    "then",
    "else",
    "over",
    "set",
    "filter",
    "array",
    "row",
    "with",
    "materialized",
    "recursive",
    "union",
    "except",
    "intersect",
    "having",
    "conflict",
];

/// A name before a parenthesis, unless it is the table of an `INSERT`; and whatever runs text that is not to be seen here.
fn calls(words: &[&str], tokens: &[Spanned]) -> bool {
    let named = |at: usize| match &tokens[at].token {
        Token::Word(word) => !NO_CALLS.contains(&word.as_str()),
        Token::Quoted(_) => true,
        _ => false,
    };
    let into = |at: usize| {
        let start = if at >= 2 && tokens[at - 1].token == Token::Sign(b'.') { at - 2 } else { at };
        start > 0 && is_word(&tokens[start - 1], "into")
    };
    let called = |at: usize| tokens[at].token == Token::Sign(b'(') && named(at - 1) && !into(at - 1);
    matches!(words.first(), Some(&("execute" | "fetch" | "move"))) || (1..tokens.len()).any(called)
}

fn kind_of(words: &[&str], tokens: &[Spanned]) -> Kind {
    let chain = || words.windows(2).any(|pair| pair == ["and", "chain"]);
    match words {
        ["begin", ..] => Kind::Begin { tag: "BEGIN", read_only: read_only(tokens) },
        ["start", "transaction", ..] => {
            Kind::Begin { tag: "START TRANSACTION", read_only: read_only(tokens) }
        }
        ["commit" | "end", ..] => Kind::Commit { chain: chain() },
        ["rollback" | "abort", rest @ ..] if rest.contains(&"to") => Kind::RollbackTo,
        ["rollback" | "abort", ..] => Kind::Rollback { chain: chain() },
        ["savepoint", ..] => Kind::Savepoint,
        ["release", ..] => Kind::Release,
        ["set", "constraints", "all", "immediate"] => Kind::AllConstraints { immediate: true },
        ["set", "constraints", "all", "deferred"] => Kind::AllConstraints { immediate: false },
        ["set", "constraints", ..] => Kind::Other,
        ["set" | "reset", ..] if ENDING.iter().any(|name| sets(tokens, name)) => {
            Kind::Ignored { tag: if words[0] == "set" { "SET" } else { "RESET" } }
        }
        ["set", rest @ ..] => set_kind(rest, &tokens[1..]),
        ["reset", "all"] => Kind::ResetAll,
        ["reset", ..] => Kind::Set { local: false, name: setting(&tokens[1..]) },
        ["discard", "all"] => Kind::DiscardAll,
        ["discard", "plans"] | ["deallocate", "all"] | ["deallocate", "prepare", "all"] => {
            Kind::DeallocateAll
        }
        ["declare", ..] => declared(tokens),
        ["copy", ..] if has_word(tokens, "stdin") => Kind::CopyIn,
        [
            "do" | "call" | "create" | "alter" | "drop" | "grant" | "revoke" | "import" | "security"
            | "truncate" | "lock" | "cluster" | "reindex" | "refresh" | "comment",
            ..,
        ] => Kind::Definition,
        // Not to be prepared once it was done: the gate takes note.
        ["notify" | "listen" | "unlisten", ..] => Kind::Definition,
        _ if has_name(tokens, |name| name == "pg_notify") => Kind::Definition,
        _ => Kind::Other,
    }
}

fn declared(tokens: &[Spanned]) -> Kind {
    let holds = tokens.windows(2).any(|pair| is_word(&pair[0], "with") && is_word(&pair[1], "hold"));
    match tokens.get(1).map(|spanned| &spanned.token) {
        Some(Token::Word(name) | Token::Quoted(name)) if !holds => Kind::Declare(name.clone()),
        _ => Kind::Other,
    }
}

fn set_kind(words: &[&str], tokens: &[Spanned]) -> Kind {
    match words {
        ["session", "characteristics", ..] => {
            Kind::Set { local: false, name: "default_transaction_isolation".to_owned() }
        }
        ["local", "transaction", ..]
        | ["transaction" | "session", "transaction", ..]
        | ["transaction", ..] => Kind::SetTransaction { read_only: read_only(tokens) },
        ["local", ..] => Kind::Set { local: true, name: setting(&tokens[1..]) },
        ["session", ..] => Kind::Set { local: false, name: setting(&tokens[1..]) },
        _ => Kind::Set { local: false, name: setting(tokens) },
    }
}

/// The name of a setting, which may have dots in it.
fn setting(tokens: &[Spanned]) -> String {
    let mut name = String::new();
    for spanned in tokens {
        match &spanned.token {
            Token::Word(word) | Token::Quoted(word) if name.is_empty() || name.ends_with('.') => {
                name += &word.to_lowercase()
            }
            Token::Sign(b'.') if !name.is_empty() => name.push('.'),
            _ => break,
        }
    }
    if name == "time" { "timezone".to_owned() } else { name }
}

fn read_only(tokens: &[Spanned]) -> bool {
    tokens.windows(2).any(|pair| is_word(&pair[0], "read") && is_word(&pair[1], "only"))
}

fn refused(sql: &[u8], words: &[&str], tokens: &[Spanned]) -> Option<Refusal> {
    in_a_transaction(words, tokens)
        .or_else(|| of_the_session(words, tokens))
        .or_else(|| out_of_the_transaction(sql, words, tokens))
        .or_else(|| of_ours(words, tokens))
}

/// What PostgreSQL itself refuses inside a transaction, or does outside of any.
fn in_a_transaction(words: &[&str], tokens: &[Spanned]) -> Option<Refusal> {
    let what = match words {
        ["vacuum", ..] => "VACUUM",
        ["create" | "drop", "database", ..] => "CREATE and DROP DATABASE",
        ["create" | "drop", "tablespace", ..] => "CREATE and DROP TABLESPACE",
        ["create" | "drop" | "alter", "subscription", ..] => "a subscription",
        ["alter", "system", ..] => "ALTER SYSTEM",
        ["alter", "database", ..] if has_word(tokens, "tablespace") => "moving a database",
        ["create" | "drop" | "reindex" | "alter", ..] if has_word(tokens, "concurrently") => "CONCURRENTLY",
        ["reindex", "database" | "system" | "schema", ..] => "REINDEX of more than a table",
        _ => return None,
    };
    Some(Refusal {
        code: "25001",
        message: format!("{what} cannot run inside a transaction, and a sandbox is one"),
        hint: Some("Do it on the database itself, outside of the sandbox."),
    })
}

/// What would end or outlive the held transaction, or hand the session to somebody else.
fn of_the_session(words: &[&str], tokens: &[Spanned]) -> Option<Refusal> {
    let what = match words {
        ["prepare", "transaction", ..] | ["commit" | "rollback", "prepared", ..] => "two-phase commit",
        ["set", "session", "authorization", ..] | ["set", "local", "session", "authorization", ..] => {
            "SET SESSION AUTHORIZATION"
        }
        ["set", "transaction", "snapshot", ..] => "SET TRANSACTION SNAPSHOT",
        ["set" | "reset", ..] if sets(tokens, "session_replication_role") => "session_replication_role",
        ["set" | "alter", ..] if sets_strings_off(tokens) => {
            return Some(Refusal {
                hint: Some("Write such strings as E'…'."),
                ..refusal("standard_conforming_strings is always on in a sandbox")
            });
        }
        ["set" | "reset", ..] if sets(tokens, "session_authorization") => "SET SESSION AUTHORIZATION",
        ["set" | "reset", ..] if has_name(tokens, |name| name.eq_ignore_ascii_case("sandboxer")) => {
            "a setting of the sandbox itself"
        }
        _ => return None,
    };
    Some(refusal(&format!("{what} is not available in a sandbox")))
}

/// `standard_conforming_strings` with a value that is not plainly the one it has.
fn sets_strings_off(tokens: &[Spanned]) -> bool {
    let named = |spanned: &Spanned| {
        names(spanned, &|name: &str| name.eq_ignore_ascii_case("standard_conforming_strings"))
    };
    let Some(at) = tokens.iter().position(named) else { return false };
    let on = |spanned: &Spanned| match &spanned.token {
        Token::Word(word) => {
            ["on", "true", "yes", "default", "to", "from", "current"].contains(&word.as_str())
        }
        Token::Text(range) => range.len() == 2,
        token => *token == Token::Sign(b'='),
    };
    !is_word(&tokens[at - 1], "reset") && !tokens[at + 1..].iter().all(on)
}

fn sets(tokens: &[Spanned], name: &str) -> bool {
    tokens
        .iter()
        .skip(1)
        .take(2)
        .any(|spanned| names(spanned, &|found: &str| found.eq_ignore_ascii_case(name)))
}

/// What acts at once, whether the sandbox is committed or not.
fn out_of_the_transaction(sql: &[u8], words: &[&str], tokens: &[Spanned]) -> Option<Refusal> {
    if let ["copy", ..] = words
        && copies_to_a_file(tokens)
    {
        return Some(refusal(
            "COPY to a file or a program of the server would not be undone with the sandbox",
        ));
    }
    let extension = match words {
        ["create", "extension", ..] => tokens.iter().find_map(|spanned| escaping(sql, spanned)),
        ["do", ..] | ["create", ..] if has_word(tokens, "language") => {
            tokens.iter().find_map(|spanned| escaping(sql, spanned)).filter(|name| name.starts_with("pl"))
        }
        _ => None,
    };
    if let Some(name) = extension {
        return Some(refusal(&format!("{name} reaches around the transaction that is the sandbox")));
    }
    has_name(tokens, |name| name == "dblink" || name.starts_with("dblink_"))
        .then(|| refusal("dblink writes outside of the transaction that is the sandbox"))
}

fn escaping(sql: &[u8], spanned: &Spanned) -> Option<&'static str> {
    let is = |name: &str| ESCAPING.into_iter().find(|escaping| name.eq_ignore_ascii_case(escaping));
    match &spanned.token {
        Token::Word(name) | Token::Quoted(name) => is(name),
        Token::Text(range) => is(&String::from_utf8_lossy(&sql[range.clone()])),
        _ => None,
    }
}

/// `COPY … TO 'file'`, `COPY … PROGRAM`, outside of parentheses; reading a file of the server does no harm.
fn copies_to_a_file(tokens: &[Spanned]) -> bool {
    let mut depth = 0usize;
    tokens.windows(2).any(|pair| {
        match pair[0].token {
            Token::Sign(b'(') => depth += 1,
            Token::Sign(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        let to = is_word(&pair[0], "to") && matches!(pair[1].token, Token::Text(_));
        let program = is_word(&pair[0], "program") && matches!(pair[1].token, Token::Text(_));
        depth == 0 && (to || program)
    })
}

/// What belongs to the sandbox: its guard, its savepoints. Reading it does no harm, and `pg_dump` does.
fn of_ours(words: &[&str], tokens: &[Spanned]) -> Option<Refusal> {
    let reads = matches!(
        words.first(),
        Some(&("select" | "copy" | "lock" | "explain" | "show" | "with" | "table")) | None
    );
    let writes = words.first() == Some(&"copy") && has_word(tokens, "from");
    // A name with escapes of its own making could be any.
    let savepoint = matches!(words.first(), Some(&("savepoint" | "release" | "rollback" | "abort")));
    let ours =
        has_name(tokens, |name| name.starts_with(PREFIX)) || (savepoint && has_word(tokens, "uescape"));
    if (!reads || writes) && ours {
        return Some(Refusal {
            code: "42501",
            message: format!("names that begin with {PREFIX} belong to the sandbox itself"),
            hint: None,
        });
    }
    None
}

fn refusal(message: &str) -> Refusal {
    Refusal { code: "0A000", message: message.to_owned(), hint: None }
}

fn has_word(tokens: &[Spanned], word: &str) -> bool {
    tokens.iter().any(|spanned| is_word(spanned, word))
}

fn is_word(spanned: &Spanned, word: &str) -> bool {
    matches!(&spanned.token, Token::Word(found) if found == word)
}

fn has_name(tokens: &[Spanned], holds: impl Fn(&str) -> bool) -> bool {
    tokens.iter().any(|spanned| names(spanned, &holds))
}

fn names(spanned: &Spanned, holds: &impl Fn(&str) -> bool) -> bool {
    matches!(&spanned.token, Token::Word(name) | Token::Quoted(name) if holds(name))
}

/// The calls of `set_config`.
fn configured(sql: &[u8], tokens: &[Spanned]) -> Vec<(String, bool)> {
    let calls =
        tokens.iter().enumerate().filter(|(_, spanned)| names(spanned, &|name: &str| name == "set_config"));
    calls.map(|(at, _)| configuration(sql, &tokens[at + 1..])).collect()
}

/// The first argument where it is a string, and whether a bare `true` is among the tokens up to the end of the call.
fn configuration(sql: &[u8], arguments: &[Spanned]) -> (String, bool) {
    let name = match arguments.get(1).map(|spanned| &spanned.token) {
        Some(Token::Text(range)) => String::from_utf8_lossy(&sql[range.clone()]).to_lowercase(),
        _ => String::new(),
    };
    let call = arguments.iter().take_while(|spanned| spanned.token != Token::Sign(b')'));
    (name, call.into_iter().any(|spanned| is_word(spanned, "true")))
}

/// Where the names of prepared statements are.
fn prepared_names(words: &[&str], tokens: &[Spanned]) -> Vec<Range<usize>> {
    let at = match words {
        ["deallocate", "all"] | ["deallocate", "prepare", "all"] => None,
        ["deallocate", "prepare", ..] if tokens.len() > 2 => Some(2),
        ["prepare" | "execute" | "deallocate", ..] => Some(1),
        ["explain" | "create", ..] => executed(words[0] == "create", tokens),
        _ => None,
    };
    at.and_then(|at| tokens.get(at)).map(|spanned| spanned.range.clone()).into_iter().collect()
}

/// The place after `EXECUTE` in `EXPLAIN (ANALYZE) EXECUTE x` and `CREATE TABLE t AS EXECUTE x`.
fn executed(after_as: bool, tokens: &[Spanned]) -> Option<usize> {
    let found = tokens.iter().position(|spanned| is_word(spanned, "execute"))?;
    let fits = !after_as || (found > 0 && is_word(&tokens[found - 1], "as"));
    fits.then_some(found + 1)
}

/// The name that a range of a statement is, as the server reads it.
pub fn name_at(sql: &[u8], range: &Range<usize>) -> String {
    let pieces = lexer::split(&sql[range.clone()], true);
    match pieces.first().and_then(|piece| piece.tokens.first()).map(|spanned| &spanned.token) {
        Some(Token::Word(name) | Token::Quoted(name)) => name.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
#[path = "statement_tests.rs"]
mod tests;
