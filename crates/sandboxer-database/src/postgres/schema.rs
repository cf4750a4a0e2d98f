//! Definitions: the whole schema as SQL, and what of it the held transaction changed.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::Result;

use super::diff::Base;
use super::rows::{Session, text, user_schema};
use super::schema_sql::{KINDS, Kind, OWNERS_OF_ROWS};
use crate::engine::SchemaChange;

/// A kind's place in the order, a rank within it, and a name.
type Place = (usize, i64, String);

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    /// Its number, or that of the table that it belongs to.
    oid: String,
    kind: &'static str,
    definition: String,
}

/// Definitions as they were once: for tables that the held transaction has locked against everybody, whose definitions nobody can
/// read outside. Nobody can have changed them either.
#[derive(Clone, Debug, Default)]
pub struct Definitions(BTreeMap<Place, Object>);

impl Definitions {
    /// All that there are.
    pub fn read(session: &mut dyn Session, hidden_schema: &str) -> Result<Self> {
        let all = objects(session, hidden_schema, None)?;
        Ok(Self(all.into_iter().map(|((kind, _, name), object)| ((kind, 0, name), object)).collect()))
    }
}

/// The whole schema, as SQL in an order in which it can be run.
pub fn schema(session: &mut dyn Session, hidden_schema: &str) -> Result<String> {
    let objects = objects(session, hidden_schema, None)?;
    let mut sql = "SET check_function_bodies = false;\n".to_owned();
    for object in objects.values().filter(|object| object.kind != "owner") {
        sql += "\n";
        sql += &object.definition;
        sql += "\n";
    }
    Ok(sql)
}

/// What of the schema differs, and what cannot be told.
#[derive(Debug, Default)]
pub struct SchemaChanges {
    /// In the order of kinds and names.
    pub changes: Vec<SchemaChange>,
    /// What cannot be compared, and why.
    pub notices: Vec<String>,
}

/// What of the schema is another inside than outside. The base is read before and after: what changes there meanwhile is not ours.
/// `known` is for what is locked.
pub fn changed(
    inside: &mut dyn Session,
    outside: &mut dyn Session,
    base: &Base,
    known: Option<&Definitions>,
) -> Result<SchemaChanges> {
    let mut oids = owners(inside, &base.written("x"))?;
    oids.extend(owners(outside, &base.perhaps_changed("x"))?);
    if oids.is_empty() {
        return Ok(SchemaChanges::default());
    }
    let locked = locked(inside)?;
    let readable: BTreeSet<_> = oids.difference(&locked).cloned().collect();
    let mut before = objects(outside, &base.hidden_schema, Some(&readable))?;
    let mut new = objects(inside, &base.hidden_schema, Some(&oids))?;
    let after = objects(outside, &base.hidden_schema, Some(&readable))?;
    new.retain(|place, _| before.get(place) == after.get(place));
    before.retain(|place, object| after.get(place) == Some(object));
    let notices = match known {
        Some(Definitions(known)) => {
            let old = known.iter().filter(|(_, object)| locked.contains(&object.oid));
            before.extend(old.map(|(place, object)| (place.clone(), object.clone())));
            Vec::new()
        }
        None => leave_out(outside, &mut new, &locked)?,
    };
    let names: BTreeSet<_> = before.keys().chain(new.keys()).collect();
    let changes =
        names.into_iter().filter_map(|name| change(name, before.get(name), new.get(name))).collect();
    Ok(SchemaChanges { changes, notices })
}

/// What the held transaction has locked against everybody.
fn locked(inside: &mut dyn Session) -> Result<BTreeSet<String>> {
    let answer = inside.query(
        "SELECT DISTINCT relation FROM pg_locks WHERE locktype = 'relation' AND pid = pg_backend_pid() \
         AND mode = 'AccessExclusiveLock' AND granted",
    )?;
    Ok(answer.rows.iter().map(|row| text(row, 0)).collect())
}

/// Takes out what is locked and was there before, and says so.
fn leave_out(
    outside: &mut dyn Session,
    new: &mut BTreeMap<Place, Object>,
    locked: &BTreeSet<String>,
) -> Result<Vec<String>> {
    let list: Vec<_> = locked.iter().cloned().collect();
    let answer = outside.query(&format!(
        "SELECT c.oid, format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid = ANY('{{{}}}'::oid[]) AND c.relkind <> 't' AND n.nspname !~ '^pg_' ORDER BY 2",
        list.join(",")
    ))?;
    let old: BTreeSet<_> = answer.rows.iter().map(|row| text(row, 0)).collect();
    new.retain(|_, object| !old.contains(&object.oid));
    let told = |row: &Vec<Option<String>>| {
        format!(
            "{} is locked against all others: what changed of its definition cannot be told",
            text(row, 1)
        )
    };
    Ok(answer.rows.iter().map(told).collect())
}

fn change(place: &Place, old: Option<&Object>, new: Option<&Object>) -> Option<SchemaChange> {
    let kind = old.or(new)?.kind.to_owned();
    let definition = |object: Option<&Object>| object.map(|object| object.definition.clone());
    let (old, new) = (definition(old), definition(new));
    (old != new).then(|| SchemaChange { kind, name: place.2.clone(), old, new })
}

/// The objects that rows of the catalogs belong to, for which a condition holds.
fn owners(session: &mut dyn Session, condition: &str) -> Result<BTreeSet<String>> {
    let parts = OWNERS_OF_ROWS
        .map(|(catalog, owner)| format!("SELECT x.{owner}::oid AS owner FROM {catalog} x WHERE {condition}"));
    let answer = session.query(&parts.join(" UNION "))?;
    Ok(answer.rows.iter().map(|row| text(row, 0)).filter(|oid| !oid.is_empty()).collect())
}

/// Every object, or those with one of these numbers, in order.
fn objects(
    session: &mut dyn Session,
    hidden_schema: &str,
    oids: Option<&BTreeSet<String>>,
) -> Result<BTreeMap<Place, Object>> {
    let mut objects = BTreeMap::new();
    for (place, kind) in KINDS.iter().enumerate() {
        for row in session.query(&kind_query(kind, hidden_schema, oids))?.rows {
            // The rank is for the order of all; of one object it may have changed.
            let rank = if oids.is_none() { text(&row, 3).parse().unwrap_or(0) } else { 0 };
            let object = Object { oid: text(&row, 0), kind: kind.name, definition: text(&row, 2) };
            objects.insert((place, rank, text(&row, 1)), object);
        }
    }
    Ok(objects)
}

/// The query of a kind, for all or some; `{user}` in it stands for the schemas to show, `{oids}` for the objects.
fn kind_query(kind: &Kind, hidden_schema: &str, oids: Option<&BTreeSet<String>>) -> String {
    let chosen = match oids {
        None => "true".to_owned(),
        Some(oids) => {
            let list: Vec<_> = oids.iter().cloned().collect();
            format!("{} = ANY('{{{}}}'::oid[])", kind.oid, list.join(","))
        }
    };
    let query = kind.query.replacen("SELECT ", &format!("SELECT {}, ", kind.oid), 1);
    query.replace("{user}", &user_schema(hidden_schema)).replace("{oids}", &chosen)
}
