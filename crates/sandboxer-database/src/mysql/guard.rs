//! Tables that do not take part in transactions, and what could write to them.
//!
//! What is written to MyISAM, Aria or MEMORY is written for good, and no setting makes the server refuse it. Looking afterwards is too late, and the server does not
//! tell beforehand which tables a statement writes to, by triggers and routines. So everything that a statement *names* is followed: from tables to the bodies of
//! their triggers, from views and routines to what those name. If such a table is met, the statement is refused. That is more than necessary (a table that is
//! only read by a writing statement counts, as does one of the same name in another database), and never less: what runs SQL that was put together at run time
//! may name anything, and is refused where such a table exists.

use std::collections::{HashMap, HashSet};

use mysql::Conn;
use mysql::prelude::Queryable;
use sandboxer_core::{Error, Result};

use super::lexer::{Mode, Statement, Token, tokens_of};
use super::statements::Kind;
use super::tables::SYSTEM;

/// What is written for good, and the ways there.
#[derive(Default)]
pub(super) struct Guard {
    /// Names in lower case, and what to call it.
    unsafe_tables: HashMap<String, String>,
    objects: HashMap<String, Vec<Object>>,
}

struct Object {
    kind: ObjectKind,
    label: String,
    mentions: HashSet<String>,
    /// Puts SQL together at run time.
    dynamic: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectKind {
    /// Known by the name of its table.
    Trigger,
    View,
    Routine,
}

/// A name that was reached, how, and whether what is there would be written.
struct Reached {
    name: String,
    through: Option<String>,
    writes: bool,
}

const TABLES: &str = "SELECT t.table_schema, t.table_name, COALESCE(t.engine, 'an unknown engine') FROM information_schema.tables t \
    LEFT JOIN information_schema.engines e ON e.engine = t.engine WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') \
    AND t.table_schema NOT IN ('mysql','information_schema','performance_schema','sys') \
    AND NOT (COALESCE(e.transactions, 'NO') = 'YES' AND COALESCE(e.xa, 'NO') = 'YES' AND COALESCE(e.savepoints, 'NO') = 'YES')";
const TRIGGERS: &str = "SELECT event_object_table, trigger_name, action_statement FROM information_schema.triggers \
    WHERE trigger_schema NOT IN ('sys')";
const ROUTINES: &str = "SELECT routine_name, routine_name, routine_definition FROM information_schema.routines \
    WHERE routine_schema NOT IN ('sys', 'mysql')";
const VIEWS: &str = "SELECT table_name, table_name, view_definition FROM information_schema.views \
    WHERE table_schema NOT IN ('sys', 'mysql')";

impl Guard {
    /// What is so now; production may change it at any time.
    pub(super) fn load(conn: &mut Conn) -> mysql::Result<Self> {
        let mut guard = Self::default();
        for (schema, name, engine) in conn.query::<(String, String, String), _>(TABLES)? {
            guard.unsafe_tables.insert(name.to_lowercase(), format!("{schema}.{name} ({engine})"));
        }
        for (kind, sql) in
            [(ObjectKind::Trigger, TRIGGERS), (ObjectKind::Routine, ROUTINES), (ObjectKind::View, VIEWS)]
        {
            for (name, label, body) in conn.query::<(String, String, Option<String>), _>(sql)? {
                guard.add(kind, &name, &label, body.as_deref());
            }
        }
        Ok(guard)
    }

    /// A body that cannot be seen, or not be read, may do anything.
    fn add(&mut self, kind: ObjectKind, name: &str, label: &str, body: Option<&str>) {
        let seen = body.filter(|body| !body.is_empty());
        let tokens = seen.and_then(|body| tokens_of(body, Mode::default()).ok());
        let dynamic = tokens.as_ref().is_none_or(|tokens| kind != ObjectKind::View && is_dynamic(tokens));
        let what = match kind {
            ObjectKind::Trigger => "the trigger",
            ObjectKind::View => "the view",
            ObjectKind::Routine => "the routine",
        };
        let mentions = mentions(&tokens.unwrap_or_default());
        let object = Object { kind, label: format!("{what} {label}"), mentions, dynamic };
        self.objects.entry(name.to_lowercase()).or_default().push(object);
    }

    /// Refuses what may write for good.
    pub(super) fn check(&self, statement: &Statement, kind: Kind) -> Result<()> {
        let writes = kind == Kind::Write;
        let names = mentions(&statement.tokens());
        let mut waiting: Vec<Reached> =
            names.into_iter().map(|name| Reached { name, through: None, writes }).collect();
        let mut seen = HashSet::new();
        while let Some(reached) = waiting.pop() {
            if !seen.insert((reached.name.clone(), reached.writes)) {
                continue;
            }
            self.must_be_safe(statement, &reached)?;
            for object in self.objects.get(&reached.name).into_iter().flatten() {
                waiting.extend(self.follow(statement, &reached, object)?);
            }
        }
        Ok(())
    }

    fn must_be_safe(&self, statement: &Statement, reached: &Reached) -> Result<()> {
        if !reached.writes {
            return Ok(());
        }
        let what = match (reached.name.as_str(), self.unsafe_tables.get(&reached.name)) {
            (OUTSIDE, _) => {
                "what lies outside of transactions: files, or the counter of a sequence".to_owned()
            }
            (name, _) if name.ends_with('.') => {
                format!("the server's own database {}", &name[..name.len() - 1])
            }
            (_, Some(table)) => format!("{table}, which takes no part in transactions"),
            _ => return Ok(()),
        };
        Err(leak(statement, reached.through.as_deref(), &what))
    }

    fn follow(&self, statement: &Statement, reached: &Reached, object: &Object) -> Result<Vec<Reached>> {
        if object.kind == ObjectKind::Trigger && !reached.writes {
            return Ok(Vec::new());
        }
        if object.dynamic && !self.unsafe_tables.is_empty() {
            let what = "tables that take no part in transactions, because it runs SQL that cannot be seen beforehand";
            return Err(leak(statement, Some(&object.label), what));
        }
        let writes = reached.writes || object.kind == ObjectKind::Routine;
        let next =
            |name: &String| Reached { name: name.clone(), through: Some(object.label.clone()), writes };
        Ok(object.mentions.iter().map(next).collect())
    }
}

/// Stands for everything that is no table, and is not rolled back.
const OUTSIDE: &str = "\0outside";

/// The names in a text; a database of the server's own with a dot.
fn mentions(tokens: &[Token]) -> HashSet<String> {
    let mut names = HashSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(name) = token.name() else { continue };
        let next = tokens.get(at + 1);
        if SYSTEM.contains(&name.as_str()) && next == Some(&Token::Symbol('.')) {
            // Nobody can write to that one.
            if name != "information_schema" {
                names.insert(format!("{name}."));
            }
        } else if is_outside(token, next) {
            names.insert(OUTSIDE.to_owned());
        } else {
            names.insert(name);
        }
    }
    names
}

fn is_outside(token: &Token, next: Option<&Token>) -> bool {
    let to_file = token.is("INTO") && next.is_some_and(|next| next.is("OUTFILE") || next.is("DUMPFILE"));
    to_file || (token.is("SETVAL") && next == Some(&Token::Symbol('(')))
}

fn is_dynamic(tokens: &[Token]) -> bool {
    tokens.iter().any(|token| token.is("PREPARE") || token.is("EXECUTE"))
}

fn leak(statement: &Statement, through: Option<&str>, what: &str) -> Error {
    let way = through.map(|through| format!(" through {through}")).unwrap_or_default();
    Error::Refused {
        reason: format!("{}: it could write{way} to {what}; that would be real at once", statement.short()),
        hint: Some(
            "convert the table to InnoDB (ALTER TABLE … ENGINE=InnoDB), outside of the sandbox".to_owned(),
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mysql::lexer::Script;
    use crate::mysql::statements::judge;

    fn guard() -> Guard {
        let mut guard = Guard::default();
        guard.unsafe_tables.insert("log".into(), "db.log (MyISAM)".into());
        guard.add(ObjectKind::Trigger, "users", "audit", Some("begin insert into `Log` values (1); end"));
        guard.add(ObjectKind::Routine, "note", "note", Some("insert into log values (1)"));
        guard.add(ObjectKind::Routine, "outer_one", "outer_one", Some("call note()"));
        guard.add(ObjectKind::Routine, "dyn", "dyn", Some("prepare s from @a"));
        guard.add(ObjectKind::Routine, "hidden", "hidden", None);
        guard.add(ObjectKind::View, "unseen", "unseen", Some(""));
        guard.add(ObjectKind::View, "v", "v", Some("select * from users"));
        guard.add(ObjectKind::View, "w", "w", Some("select note() from log"));
        guard
    }

    fn check(sql: &str) -> Result<()> {
        let statement = Script::new(sql).next(Mode::default()).unwrap().unwrap();
        guard().check(&statement, judge(&statement)?)
    }

    #[test]
    fn every_way_to_such_a_table_is_found() {
        for sql in [
            "insert into log values (1)",
            "insert into db.LOG values (1)",
            "update users set a = 1",
            "update v set a = 1",
            "call note()",
            "call outer_one()",
            "select note()",
            "select * from w",
            "call dyn()",
            "call hidden()",
            "delete from unseen",
            "set @a = note()",
            "insert into mysql.user values (1)",
            "insert into t select setval(s, 1)",
            "delete t, log from t join log",
        ] {
            assert!(matches!(check(sql), Err(Error::Refused { .. })), "{sql}");
        }
    }

    #[test]
    fn reading_such_a_table_is_no_harm() {
        for sql in [
            "select * from log",
            "select * from users",
            "select * from v",
            "insert into other values ('log')",
        ] {
            check(sql).unwrap();
        }
    }
}
