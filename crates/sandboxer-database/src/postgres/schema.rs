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
    kind: &'static str,
    definition: String,
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

/// What of the schema is another inside than outside. The base is read before and after: what changes there meanwhile is not ours.
pub fn changed(inside: &mut dyn Session, outside: &mut dyn Session, base: &Base) -> Result<Vec<SchemaChange>> {
    let mut oids = owners(inside, &base.written("x"))?;
    oids.extend(owners(outside, &base.perhaps_changed("x"))?);
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let before = objects(outside, &base.hidden_schema, Some(&oids))?;
    let new = objects(inside, &base.hidden_schema, Some(&oids))?;
    let after = objects(outside, &base.hidden_schema, Some(&oids))?;
    let names: BTreeSet<_> = before.keys().chain(new.keys()).chain(after.keys()).collect();
    let stable = names.into_iter().filter(|name| before.get(*name) == after.get(*name));
    Ok(stable.filter_map(|name| change(name, before.get(name), new.get(name))).collect())
}

fn change(place: &Place, old: Option<&Object>, new: Option<&Object>) -> Option<SchemaChange> {
    let kind = old.or(new)?.kind.to_owned();
    let definition = |object: Option<&Object>| object.map(|object| object.definition.clone());
    let (old, new) = (definition(old), definition(new));
    (old != new).then(|| SchemaChange { kind, name: place.2.clone(), old, new })
}

/// The objects that rows of the catalogs belong to, for which a condition holds.
fn owners(session: &mut dyn Session, condition: &str) -> Result<BTreeSet<String>> {
    let parts = OWNERS_OF_ROWS.map(|(catalog, owner)| {
        format!("SELECT x.{owner}::oid AS owner FROM {catalog} x WHERE {condition}")
    });
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
            let rank = if oids.is_none() { text(&row, 2).parse().unwrap_or(0) } else { 0 };
            let object = Object { kind: kind.name, definition: text(&row, 1) };
            objects.insert((place, rank, text(&row, 0)), object);
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
    kind.query.replace("{user}", &user_schema(hidden_schema)).replace("{oids}", &chosen)
}
