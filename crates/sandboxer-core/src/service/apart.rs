//! Resources that lie in one another: refused, but for a database in a directory, which the directory leaves out.

use std::path::Path;

use serde_json::Value;

use super::manager::SandboxManager;
use crate::model::Resource;
use crate::{Error, Result};

/// The property that tells a strategy of files which paths belong to another workspace of the sandbox.
pub(super) const SKIP: &str = "skip";
/// What SQLite puts beside a database.
const COMPANIONS: [&str; 4] = ["", "-journal", "-shm", "-wal"];

impl SandboxManager {
    /// A database in a directory is a thing of its own: the directory's workspace leaves it out.
    pub(super) fn set_databases_apart(&self, resources: &mut [(Option<String>, Resource)]) -> Result<()> {
        let mut databases = Vec::new();
        for (_, resource) in resources.iter() {
            if self.parts.types.get(&resource.type_name)?.is_database() {
                databases.extend(resource.path().map(Path::to_path_buf));
            }
        }
        for (_, outer) in resources {
            let inside = databases.iter().filter_map(|path| path.strip_prefix(outer.path()?).ok());
            let inside = inside.filter(|path| !path.as_os_str().is_empty()).filter_map(Path::to_str);
            let skipped: Vec<Value> =
                inside.flat_map(|path| COMPANIONS.map(|suffix| format!("{path}{suffix}").into())).collect();
            if !skipped.is_empty() {
                outer.properties.insert(SKIP.to_owned(), Value::Array(skipped));
            }
        }
        Ok(())
    }
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
