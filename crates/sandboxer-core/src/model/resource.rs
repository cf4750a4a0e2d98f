//! A thing that may be changed.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ResourceId;
use crate::{Error, Result};

/// What the id of a resource at a URL begins with.
const URL: &str = "url:";

/// A thing that may be changed: a directory, a file, a checkout, or whatever a plugin finds at a URL.
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

    /// A resource at a canonical URL, which holds no credentials.
    pub fn at_url(type_name: impl Into<String>, url: &str) -> Self {
        Self {
            id: ResourceId::from_string(format!("{URL}{url}")),
            type_name: type_name.into(),
            location: url.to_owned(),
            properties: BTreeMap::new(),
        }
    }

    /// Where it is on this machine; `None` for what is at a URL.
    pub fn path(&self) -> Option<&Path> {
        (!self.id.as_str().starts_with(URL)).then(|| Path::new(&self.location))
    }

    /// The same, for those that cannot do without.
    pub fn require_path(&self) -> Result<&Path> {
        let no_path = || Error::usage(format!("{} is no path on this machine", self.location));
        self.path().ok_or_else(no_path)
    }

    /// Whether two resources have anything in common: one is the other, or lies in it.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.id == other.id || self.lies_in(other) || other.lies_in(self)
    }

    fn lies_in(&self, outer: &Self) -> bool {
        match (self.path(), outer.path()) {
            (Some(inner), Some(outer)) => {
                inner.is_absolute() && outer != Path::new("") && inner.starts_with(outer)
            }
            (None, None) => {
                self.location.strip_prefix(&outer.location).is_some_and(|rest| rest.starts_with('/'))
            }
            _ => false,
        }
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
        assert_eq!(resource.path(), Some(Path::new("/srv/data")));
        assert_eq!(resource.require_path().unwrap(), Path::new("/srv/data"));
        assert_eq!(resource, Resource::at_path("fs-directory", Path::new("/srv/data")));
    }

    #[test]
    fn a_url_is_no_path() {
        let resource = Resource::at_url("s3-bucket", "s3://bucket/a");
        assert_eq!((resource.id.as_str(), &*resource.location), ("url:s3://bucket/a", "s3://bucket/a"));
        assert_eq!(resource.path(), None);
        let error = resource.require_path().unwrap_err();
        assert_eq!(error.to_string(), "s3://bucket/a is no path on this machine");
    }

    #[test]
    fn what_lies_in_another_overlaps_it() {
        let path = |path: &str| Resource::at_path("fs-directory", Path::new(path));
        let url = |url: &str| Resource::at_url("s3-bucket", url);
        let overlapping = [
            (path("/a"), path("/a")),
            (path("/a"), path("/a/b")),
            (url("s3://b"), url("s3://b")),
            (url("s3://b"), url("s3://b/c/d")),
        ];
        let apart = [
            (path("/a"), path("/ab")),
            (url("s3://b"), url("s3://bc")),
            (url("s3://b/c"), url("s3://b/d")),
            (url("s3://b"), url("gs://b")),
            (path("/"), url("s3://b")),
            (path("s3://b"), url("s3://b/c")),
        ];
        for (expected, table) in [(true, &overlapping[..]), (false, &apart)] {
            for (one, other) in table {
                assert_eq!(one.overlaps(other), expected, "{} {}", one.id, other.id);
                assert_eq!(other.overlaps(one), expected, "{} {}", other.id, one.id);
            }
        }
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
