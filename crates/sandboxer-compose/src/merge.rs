//! One service over another: for `extends`, and for files that override others.

use serde_json::{Map, Value};

/// `stronger` over `weaker`, both in their long forms.
pub(crate) fn service(weaker: &Map<String, Value>, stronger: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = weaker.clone();
    for (key, value) in stronger {
        let joined = match merged.get(key) {
            Some(known) => value_of(key, known, value),
            None => value.clone(),
        };
        merged.insert(key.clone(), joined);
    }
    merged
}

/// One value over another at the same key.
fn value_of(key: &str, weaker: &Value, stronger: &Value) -> Value {
    match (key, weaker, stronger) {
        ("command" | "entrypoint" | "test", _, stronger) => stronger.clone(),
        ("logging", weaker, stronger) if weaker.get("driver") != stronger.get("driver") => stronger.clone(),
        ("volumes", Value::Array(weaker), Value::Array(stronger)) => keyed(weaker, stronger, "target"),
        ("secrets" | "configs", Value::Array(weaker), Value::Array(stronger)) => {
            keyed(weaker, stronger, "source")
        }
        (_, Value::Array(weaker), Value::Array(stronger)) => appended(weaker, stronger),
        (_, Value::Object(weaker), Value::Object(stronger)) => Value::Object(service(weaker, stronger)),
        (_, weaker, Value::Null) => weaker.clone(),
        (_, _, stronger) => stronger.clone(),
    }
}

fn appended(weaker: &[Value], stronger: &[Value]) -> Value {
    let new = stronger.iter().filter(|item| !weaker.contains(item));
    weaker.iter().chain(new).cloned().collect()
}

/// Lists whose items replace those with the same value at `key`.
fn keyed(weaker: &[Value], stronger: &[Value], key: &str) -> Value {
    let replaced = |item: &&Value| stronger.iter().any(|other| other.get(key) == item.get(key));
    weaker.iter().filter(|item| !replaced(item)).chain(stronger).cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn mappings_are_joined_lists_appended_and_commands_replaced() {
        let weaker = json!({
            "image": "a", "command": ["x", "y"], "environment": {"A": "1", "B": "2"}, "cap_drop": ["ALL"],
            "volumes": [{"target": "/a", "source": "one"}, {"target": "/b", "source": "two"}],
            "healthcheck": {"test": ["CMD", "a"], "retries": 3}, "ports": [{"target": 80}],
        });
        let stronger = json!({
            "image": "b", "command": ["z"], "environment": {"B": "3"}, "cap_drop": ["ALL", "NET_RAW"],
            "volumes": [{"target": "/b", "source": "other"}], "healthcheck": {"test": "b"}, "ports": [{"target": 80}],
        });
        let merged = service(weaker.as_object().unwrap(), stronger.as_object().unwrap());
        let expected = json!({
            "image": "b", "command": ["z"], "environment": {"A": "1", "B": "3"}, "cap_drop": ["ALL", "NET_RAW"],
            "volumes": [{"target": "/a", "source": "one"}, {"target": "/b", "source": "other"}],
            "healthcheck": {"test": "b", "retries": 3}, "ports": [{"target": 80}],
        });
        assert_eq!(Value::Object(merged), expected);
    }
}
