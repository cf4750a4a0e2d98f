//! The result of a command.

use std::collections::BTreeSet;

use serde_json::Value;

/// What a command left behind.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn document(&self) -> Value {
        let text = if self.code == 0 { &self.stdout } else { &self.stderr };
        serde_json::from_str(text).or_else(|_| serde_json::from_str(&self.stdout)).unwrap_or_default()
    }

    pub fn describe(&self) -> String {
        format!("exit {}: {}{}", self.code, self.stdout.trim(), self.stderr.trim())
    }
}

/// The texts at `key` of the objects in a list.
pub fn texts(list: &Value, key: &str) -> Vec<String> {
    let objects = list.as_array().into_iter().flatten();
    objects.filter_map(|object| object[key].as_str().map(str::to_owned)).collect()
}

/// The paths that the entries of a document name.
pub fn entry_paths(document: &Value) -> BTreeSet<String> {
    let entries = &document["entries"];
    texts(entries, "path").into_iter().chain(texts(entries, "from")).collect()
}
