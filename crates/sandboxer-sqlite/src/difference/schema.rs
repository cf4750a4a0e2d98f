//! What differs in definitions.

use std::collections::{BTreeMap, BTreeSet};

use crate::schema::Object;

/// One definition that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange {
    /// `table`, `index`, `view`, `trigger`; `pragma` for a version number in the file's header.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The table that it belongs to.
    pub table: String,
    /// Its definition in the base; `None` if it is new.
    pub old: Option<String>,
    /// Its definition in the clone; `None` if it is gone.
    pub new: Option<String>,
    /// Whether the definition of a virtual table makes it, and its end ends it.
    pub is_shadow: bool,
}

type Objects = BTreeMap<(String, String), Object>;

pub(super) fn changes(old: &Objects, new: &Objects) -> Vec<SchemaChange> {
    let keys: BTreeSet<&(String, String)> = old.keys().chain(new.keys()).collect();
    keys.into_iter().filter_map(|key| change(old.get(key), new.get(key))).collect()
}

fn change(old: Option<&Object>, new: Option<&Object>) -> Option<SchemaChange> {
    let object = new.or(old)?;
    let sql = |object: Option<&Object>| object.map(|object| object.sql.clone());
    (sql(old) != sql(new)).then(|| SchemaChange {
        kind: object.kind.clone(),
        name: object.name.clone(),
        table: object.table.clone(),
        old: sql(old),
        new: sql(new),
        is_shadow: object.is_shadow,
    })
}
