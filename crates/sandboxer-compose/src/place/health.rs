//! How the health of services is asked for, and who waits for whom.

use std::collections::BTreeMap;

use sandboxer_core::Result;
use serde_json::{Map, Value, json};

use super::Placer;
use crate::at::At;
use crate::model::Definition;
use crate::read;

const CONDITIONS: [&str; 3] = ["service_started", "service_healthy", "service_completed_successfully"];

impl Placer<'_> {
    pub(super) fn healthcheck(&self, value: &Value, at: &At) -> Result<Value> {
        let map = read::map(value, at)?;
        let known = ["test", "interval", "timeout", "start_period", "start_interval", "retries", "disable"];
        read::known_keys(map, &known, at)?;
        let mut out = Map::new();
        for (key, value) in map.iter().filter(|(key, value)| !key.starts_with("x-") && !value.is_null()) {
            let at = at.key(key);
            let written = match key.as_str() {
                "test" => test(value, &at)?,
                "retries" => read::integer(value, &at)?.max(0).into(),
                "disable" => read::flag(value, &at)?.into(),
                "start_interval" => {
                    self.note(&at, "dropped: not every compose program knows it");
                    continue;
                }
                _ => format!("{}ms", read::milliseconds(value, &at)?).into(),
            };
            out.insert(key.clone(), written);
        }
        Ok(out.into())
    }

    /// The services that have to be there first; how far, is kept.
    pub(super) fn depends_on(
        &self,
        name: &str,
        definition: &Definition,
        out: &mut Map<String, Value>,
    ) -> Result<BTreeMap<String, String>> {
        let at = definition.at(name, "depends_on");
        let given = definition.keys.get("depends_on").map(|given| read::map(given, &at)).transpose()?;
        let mut waits = BTreeMap::new();
        for (other, how) in given.into_iter().flatten() {
            let at = at.key(other);
            let how = read::map(how, &at)?;
            read::known_keys(how, &["condition", "required", "restart"], &at)?;
            let required =
                how.get("required").map_or(Ok(true), |flag| read::flag(flag, &at.key("required")))?;
            if !required && !self.model.services.contains_key(other) {
                continue;
            }
            self.expect_service(other, &at)?;
            let condition =
                read::text(how.get("condition").unwrap_or(&json!(CONDITIONS[0])), &at.key("condition"))?;
            if !CONDITIONS.contains(&condition.as_str()) {
                return Err(at.key("condition").unknown("the condition", &condition, &CONDITIONS));
            }
            waits.insert(other.clone(), condition);
        }
        if !waits.is_empty() {
            let written: Map<String, Value> =
                waits.iter().map(|(other, how)| (other.clone(), json!({"condition": how}))).collect();
            out.insert("depends_on".to_owned(), written.into());
        }
        Ok(waits)
    }
}

fn test(value: &Value, at: &At) -> Result<Value> {
    let Value::Array(items) = value else { return read::text(value, at).map(Value::from) };
    let words: Result<Vec<String>> =
        items.iter().enumerate().map(|(index, item)| read::scalar(item, &at.item(index))).collect();
    let words = words?;
    match words.first().map(String::as_str) {
        Some("NONE" | "CMD" | "CMD-SHELL") => Ok(words.into()),
        other => Err(at.unknown("the first word", other.unwrap_or_default(), &["CMD", "CMD-SHELL", "NONE"])),
    }
}
