//! The schema as a script. There is no DDL in a held transaction, so it is the same inside and outside.

use std::collections::{BTreeMap, HashSet};

use mysql::Conn;
use mysql::prelude::Queryable;

use super::lexer::{Mode, tokens_of};
use super::tables::quoted;

/// A script that makes the schema of a database, in an order in which it can be run.
pub(super) fn script(conn: &mut Conn, database: &str) -> mysql::Result<String> {
    // Tables may refer to each other in a circle.
    let mut script = "SET FOREIGN_KEY_CHECKS = 0;\n".to_owned();
    for name in named(conn, SEQUENCES, database)? {
        script += &format!("\n{};\n", created(conn, "SEQUENCE", &name)?);
    }
    for name in named(conn, TABLES, database)? {
        script += &format!("\n{};\n", without_counter(&created(conn, "TABLE", &name)?));
    }
    for (kind, sql) in [("FUNCTION", FUNCTIONS), ("PROCEDURE", PROCEDURES)] {
        for name in named(conn, sql, database)? {
            script += &delimited(&created(conn, kind, &name)?);
        }
    }
    for definition in views(conn, database)? {
        script += &format!("\n{definition};\n");
    }
    for name in named(conn, TRIGGERS, database)? {
        script += &delimited(&created(conn, "TRIGGER", &name)?);
    }
    Ok(script)
}

const SEQUENCES: &str = "SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND table_type = 'SEQUENCE' ORDER BY 1";
const TABLES: &str = "SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1";
const VIEWS: &str = "SELECT table_name FROM information_schema.views WHERE table_schema = ? ORDER BY 1";
const FUNCTIONS: &str = "SELECT routine_name FROM information_schema.routines WHERE routine_schema = ? AND routine_type = 'FUNCTION' ORDER BY 1";
const PROCEDURES: &str = "SELECT routine_name FROM information_schema.routines WHERE routine_schema = ? AND routine_type = 'PROCEDURE' ORDER BY 1";
const TRIGGERS: &str = "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = ? ORDER BY event_object_table, action_timing, event_manipulation, action_order";

fn named(conn: &mut Conn, sql: &str, database: &str) -> mysql::Result<Vec<String>> {
    conn.exec(sql, (database,))
}

/// What `SHOW CREATE` says; the column with it has another number for each kind.
fn created(conn: &mut Conn, kind: &str, name: &str) -> mysql::Result<String> {
    let row: Option<mysql::Row> = conn.query_first(format!("SHOW CREATE {kind} {}", quoted(name)))?;
    let is_it = |column: &str| column.starts_with("Create ") || column == "SQL Original Statement";
    let text = row.and_then(|row| {
        let at = row.columns_ref().iter().position(|column| is_it(&column.name_str()))?;
        row.get::<Option<String>, _>(at)?
    });
    Ok(text.unwrap_or_else(|| format!("-- {} {} cannot be seen", kind.to_lowercase(), quoted(name))))
}

/// The next value of a counter is no part of the schema.
fn without_counter(definition: &str) -> String {
    let mark = " AUTO_INCREMENT=";
    // It stands behind the columns, in the last line.
    let options = definition.rfind("\n)").unwrap_or(0);
    let Some(at) = definition[options..].find(mark).map(|at| options + at) else {
        return definition.to_owned();
    };
    let rest = definition[at + mark.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{}{rest}", &definition[..at])
}

fn delimited(definition: &str) -> String {
    format!("\nDELIMITER ;;\n{definition};;\nDELIMITER ;\n")
}

/// Each view after those that it names.
fn views(conn: &mut Conn, database: &str) -> mysql::Result<Vec<String>> {
    let mut waiting = BTreeMap::new();
    for name in named(conn, VIEWS, database)? {
        let definition = created(conn, "VIEW", &name)?;
        waiting.insert(name, definition);
    }
    let mut ordered = Vec::new();
    while !waiting.is_empty() {
        let names: HashSet<String> = waiting.keys().map(|name| name.to_lowercase()).collect();
        let ready = waiting.iter().find(|(name, definition)| !names_another(name, definition, &names));
        // A circle cannot be, but for names that mean something else.
        let next = ready.or_else(|| waiting.iter().next()).map(|(name, _)| name.clone()).unwrap_or_default();
        ordered.extend(waiting.remove(&next));
    }
    Ok(ordered)
}

fn names_another(own: &str, definition: &str, names: &HashSet<String>) -> bool {
    let tokens = tokens_of(definition, Mode::default()).unwrap_or_default();
    let mut named = tokens.iter().filter_map(super::lexer::Token::name);
    named.any(|name| name != own.to_lowercase() && names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_left_out() {
        let with = "CREATE TABLE `t` (\n  `a` int COMMENT ' AUTO_INCREMENT=5'\n) ENGINE=InnoDB AUTO_INCREMENT=42 DEFAULT CHARSET=utf8";
        let without =
            "CREATE TABLE `t` (\n  `a` int COMMENT ' AUTO_INCREMENT=5'\n) ENGINE=InnoDB DEFAULT CHARSET=utf8";
        assert_eq!(without_counter(with), without);
        assert_eq!(without_counter(without), without);
    }
}
