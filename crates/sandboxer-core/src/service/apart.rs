//! Resources that lie in one another: refused, but for a database in a directory, which the directory leaves out.

use std::path::Path;

use serde_json::Value;

use super::manager::SandboxManager;
use crate::model::Resource;
use crate::{Error, Result};

/// The property that tells a strategy of files which paths belong to another workspace of the sandbox.
pub(super) const SKIP: &str = "skip";
/// The property that tells the strategy of a database in which directory of the same sandbox it lies.
const WITHIN: &str = "within";
/// What SQLite puts beside a database.
const COMPANIONS: [&str; 4] = ["", "-journal", "-shm", "-wal"];

impl SandboxManager {
    /// A database in a directory is a thing of its own: the directory's workspace leaves it out, and each knows of the other.
    pub(super) fn set_databases_apart(&self, resources: &mut [(Option<String>, Resource)]) -> Result<()> {
        for database in 0..resources.len() {
            if !self.parts.types.get(&resources[database].1.type_name)?.is_database() {
                continue;
            }
            for outer in 0..resources.len() {
                set_apart(resources, database, outer);
            }
        }
        Ok(())
    }
}

fn set_apart(resources: &mut [(Option<String>, Resource)], database: usize, outer: usize) {
    let (inner_path, outer_path) = (resources[database].1.path(), resources[outer].1.path());
    let within = inner_path.zip(outer_path).and_then(|(inner, outer)| inner.strip_prefix(outer).ok());
    let Some(path) = within.and_then(Path::to_str).filter(|path| !path.is_empty()) else { return };
    let skipped = COMPANIONS.map(|suffix| Value::from(format!("{path}{suffix}")));
    let above = resources[outer].1.location.clone();
    resources[database].1.properties.insert(WITHIN.to_owned(), above.into());
    let skip =
        resources[outer].1.properties.entry(SKIP.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    skip.as_array_mut().into_iter().for_each(|skip| skip.extend(skipped.clone()));
}

/// Whether `outer` leaves `inner` out.
fn is_apart(inner: &Resource, outer: &Resource) -> bool {
    let within = inner.path().zip(outer.path()).and_then(|(inner, outer)| inner.strip_prefix(outer).ok());
    within.and_then(Path::to_str).is_some_and(|path| outer.string_list(SKIP).iter().any(|skip| skip == path))
}

/// Two workspaces of one sandbox over the same files could not both be committed.
pub(super) fn refuse_nested(resources: &[(Option<String>, Resource)]) -> Result<()> {
    for (index, (_, one)) in resources.iter().enumerate() {
        let in_the_way =
            |other: &Resource| one.overlaps(other) && !is_apart(one, other) && !is_apart(other, one);
        if let Some((_, other)) = resources[..index].iter().find(|(_, other)| in_the_way(other)) {
            let (one, other) = (&one.location, &other.location);
            return Err(Error::refused(format!(
                "{one} and {other} overlap; a sandbox isolates each thing once"
            )));
        }
    }
    Ok(())
}
