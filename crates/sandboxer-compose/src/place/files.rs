//! Secrets and configs: files that a service is given, from copies that nobody can write to.

use sandboxer_core::Result;
use serde_json::{Map, Value, json};

use super::Placer;
use super::mounts::expect_target;
use crate::at::At;
use crate::files::{Kind, Place};
use crate::model::{Declared, Definition};
use crate::read;

impl Placer<'_> {
    /// The mounts by which a service gets its secrets and configs.
    pub(super) fn given_files(&self, name: &str, definition: &Definition) -> Result<Vec<Value>> {
        let mut mounts = Vec::new();
        for (section, declared, home) in
            [("secrets", &self.model.secrets, "/run/secrets/"), ("configs", &self.model.configs, "/")]
        {
            let at = definition.at(name, section);
            let listed = definition.keys.get(section).map(|list| read::list(list, &at)).transpose()?;
            for (index, given) in listed.into_iter().flatten().enumerate() {
                let at = at.item(index);
                let source = read::text(&given["source"], &at)?;
                let Some(found) = declared.get(&source) else {
                    let names: Vec<&str> = declared.keys().map(String::as_str).collect();
                    return Err(at.unknown("the name", &source, &names));
                };
                mounts.push(self.given_file(read::map(given, &at)?, &source, found, (section, home), &at)?);
            }
        }
        Ok(mounts)
    }

    fn given_file(
        &self,
        given: &Map<String, Value>,
        source: &str,
        declared: &Declared,
        (section, home): (&str, &str),
        at: &At,
    ) -> Result<Value> {
        let target = given.get("target").map_or(Ok(source.to_owned()), |target| read::text(target, at))?;
        let target = if target.starts_with('/') { target } else { format!("{home}{target}") };
        expect_target(&target, at)?;
        for key in ["uid", "gid"].iter().filter(|key| given.contains_key(**key)) {
            self.note(&at.key(key), "dropped: the file belongs to whom it belongs to on the host");
        }
        let mode = given.get("mode").map(|mode| octal(mode, &at.key("mode"))).transpose()?;
        let path = self.declared_file(declared, &declared.at(section, source))?;
        let copy = self.seal(&path, Kind::File(0o444), Some(mode.unwrap_or(0o444)))?;
        Ok(json!({"type": "bind", "source": copy, "target": target, "read_only": true}))
    }

    fn declared_file(&self, declared: &Declared, at: &At) -> Result<String> {
        let known =
            ["file", "external", "environment", "content", "name", "labels", "driver", "template_driver"];
        read::known_keys(&declared.value, &known, at)?;
        let path = match declared.value.get("file").and_then(Place::from_value) {
            Some(place) if !declared.value.contains_key("external") => {
                crate::load::inside(place, &at.key("file"))?
            }
            _ => {
                return Err(
                    at.refuse("it does not come from a file of the workspace", "write `file: ./PATH`")
                );
            }
        };
        match self.expect_there(&path, &at.key("file"))? {
            Kind::File(_) => Ok(path),
            _ => Err(at.key("file").refuse(format!("{path:?} is not a file"), "name a file")),
        }
    }
}

/// Permission bits, as a number or as its octal digits.
fn octal(value: &Value, at: &At) -> Result<u32> {
    let bits = match value {
        Value::String(text) => u32::from_str_radix(text.trim_start_matches("0o"), 8).ok(),
        other => other.as_u64().and_then(|bits| u32::try_from(bits).ok()),
    };
    bits.filter(|bits| *bits <= 0o777)
        .ok_or_else(|| at.refuse("these are not permission bits", "write them as `\"0440\"`"))
}
