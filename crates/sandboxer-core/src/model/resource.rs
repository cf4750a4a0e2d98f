//! A thing that may be changed.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ResourceId;

/// A thing that may be changed: a directory, a file, later a repository or a database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// From the canonical path, or the URL without credentials.
    pub id: ResourceId,
    /// Name of its resource type, such as `fs-directory`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Canonical path or URL.
    pub location: String,
    /// What the caller set for this one resource: `include`, `exclude`, `strategy` and a strategy's own options.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Value>,
}

impl Resource {
    /// A resource at a canonical path.
    pub fn at_path(type_name: impl Into<String>, canonical: &Path) -> Self {
        let location = canonical.to_string_lossy().into_owned();
        Self {
            id: ResourceId::from_string(format!("path:{location}")),
            type_name: type_name.into(),
            location,
            properties: BTreeMap::new(),
        }
    }

    /// The location as a path.
    pub fn path(&self) -> &Path {
        Path::new(&self.location)
    }

    /// A property that is a list of strings; a missing one is empty.
    pub fn string_list(&self, key: &str) -> Vec<String> {
        let values = self.properties.get(key).and_then(Value::as_array);
        values.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    }
}
