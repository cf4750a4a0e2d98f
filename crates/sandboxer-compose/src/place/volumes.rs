//! Volumes that services share.

use std::collections::BTreeSet;

use sandboxer_core::Result;
use serde_json::{Map, Value, json};

use super::Placer;
use super::keys::is_tmpfs_option;
use crate::at::At;
use crate::policy::Allowance;
use crate::read;

impl Placer<'_> {
    /// The volumes that services mount.
    pub(super) fn volumes(&self, services: &Map<String, Value>) -> Result<Map<String, Value>> {
        let mounts = services.values().filter_map(|service| service.get("volumes").and_then(Value::as_array));
        let volumes = mounts.flatten().filter(|mount| mount["type"] == "volume");
        let used: BTreeSet<&str> =
            volumes.filter_map(|mount| mount.get("source").and_then(Value::as_str)).collect();
        let mut out = Map::new();
        for (name, declared) in &self.model.volumes {
            let at = declared.at("volumes", name);
            if used.contains(name.as_str()) {
                out.insert(name.clone(), self.volume(name, &declared.value, &at)?);
            }
        }
        Ok(out)
    }

    fn volume(&self, name: &str, value: &Map<String, Value>, at: &At) -> Result<Value> {
        read::known_keys(value, &["name", "driver", "driver_opts", "external", "labels"], at)?;
        if let Some(external) = self.external(value, name, at)? {
            return Ok(external);
        }
        if value.contains_key("name") {
            self.note(&at.key("name"), "dropped: names are the sandbox's");
        }
        let mut out = json!({"name": format!("{}_{name}", self.placing.project)});
        out["labels"] = self.labels(value.get("labels"), &at.key("labels"))?;
        let driver = value.get("driver").map(|driver| read::text(driver, &at.key("driver"))).transpose()?;
        if let Some(driver) = driver.filter(|driver| !matches!(driver.as_str(), "" | "local" | "default")) {
            self.demand(
                Allowance::VolumeDrivers,
                &at.key("driver"),
                "volumes of another kind reach the host's files",
            )?;
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-/:".contains(letter);
            out["driver"] = super::keys::plain_text(&driver.into(), &at.key("driver"), &fits)?;
        }
        if let Some(given) = value.get("driver_opts").filter(|given| *given != &json!({})) {
            let at = at.key("driver_opts");
            let given = options(given, &at)?;
            if !is_in_memory(&given) {
                self.demand(
                    Allowance::VolumeDrivers,
                    &at,
                    "options of volumes can mount anything of the host",
                )?;
            }
            out["driver_opts"] = given;
        }
        Ok(out)
    }
}

/// Options as texts.
pub(super) fn options(value: &Value, at: &At) -> Result<Value> {
    let mut out = Map::new();
    for (key, value) in read::map(value, at)? {
        if !read::is_label(key) {
            return Err(at.key(key).refuse("this is not an option", "leave it out"));
        }
        out.insert(key.clone(), read::scalar(value, &at.key(key))?.into());
    }
    Ok(out.into())
}

/// Whether the options make a volume in memory, and nothing else.
fn is_in_memory(options: &Value) -> bool {
    let Some(options) = options.as_object() else { return false };
    let text = |key: &str| options.get(key).and_then(Value::as_str);
    let known = options.keys().all(|key| matches!(key.as_str(), "type" | "device" | "o"));
    let device = text("device").is_none_or(|device| device == "tmpfs");
    known
        && device
        && text("type") == Some("tmpfs")
        && text("o").unwrap_or_default().split(',').all(is_tmpfs_option)
}
