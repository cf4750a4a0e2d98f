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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_id_comes_from_the_path() {
        let resource = Resource::at_path("fs-directory", Path::new("/srv/data"));
        assert_eq!(resource.id.as_str(), "path:/srv/data");
        assert_eq!(resource.path(), Path::new("/srv/data"));
        assert_eq!(resource, Resource::at_path("fs-directory", Path::new("/srv/data")));
    }

    #[test]
    fn lists_of_strings_leave_out_what_is_none() {
        let mut resource = Resource::at_path("fs-directory", Path::new("/r"));
        resource.properties.insert("exclude".into(), serde_json::json!(["target", 3, "*.o"]));
        resource.properties.insert("strategy".into(), "none".into());
        assert_eq!(resource.string_list("exclude"), ["target", "*.o"]);
        assert!(resource.string_list("strategy").is_empty());
        assert!(resource.string_list("include").is_empty());
    }

    #[test]
    fn json_says_type_and_leaves_out_empty_properties() {
        let resource = Resource::at_path("fs-file", Path::new("/f"));
        let json = serde_json::to_value(&resource).unwrap();
        assert_eq!(json, serde_json::json!({"id": "path:/f", "type": "fs-file", "location": "/f"}));
        assert_eq!(serde_json::from_value::<Resource>(json).unwrap(), resource);
    }
}
