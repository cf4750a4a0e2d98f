//! What a service mounts, in its long form.

use sandboxer_core::Result;
use serde_json::{Map, Value, json};

use super::Shaper;
use crate::at::{At, shown};
use crate::read;

const KEYS: [&str; 8] = ["type", "source", "target", "read_only", "consistency", "bind", "volume", "tmpfs"];

/// One entry of `volumes`.
pub(super) fn shape(shaper: &Shaper<'_>, value: &Value, at: &At) -> Result<Value> {
    match value {
        Value::Object(map) => long(shaper, map, at),
        other => short(shaper, &read::text(other, at)?, at),
    }
}

/// `[SOURCE:]TARGET[:MODE]`
fn short(shaper: &Shaper<'_>, text: &str, at: &At) -> Result<Value> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, modes) = match parts.as_slice() {
        [target] => (None, *target, ""),
        [source, target] => (Some(*source), *target, ""),
        [source, target, modes] => (Some(*source), *target, *modes),
        _ => {
            let what = format!("{:?} has more than two colons", shown(text));
            return Err(at.refuse(what, "write it in the long form: `type`, `source`, `target`"));
        }
    };
    let mut shaped = json!({"target": target, "type": "volume"});
    if let Some(source) = source {
        let is_path = source.starts_with(['.', '/', '~']);
        shaped["type"] = if is_path { "bind".into() } else { "volume".into() };
        shaped["source"] = if is_path { shaper.place(source) } else { source.into() };
    }
    for mode in modes.split(',').filter(|mode| !mode.is_empty()) {
        apply(&mut shaped, mode, at)?;
    }
    Ok(shaped)
}

/// One word after the second colon.
fn apply(shaped: &mut Value, mode: &str, at: &At) -> Result<()> {
    match mode {
        "ro" => shaped["read_only"] = true.into(),
        "nocopy" => shaped["volume"] = json!({"nocopy": true}),
        // What SELinux calls the files, and how macOS caches them, is the host's business.
        "rw" | "z" | "Z" | "cached" | "delegated" | "consistent" => {}
        "private" | "rprivate" | "shared" | "rshared" | "slave" | "rslave" => {
            shaped["bind"] = json!({"propagation": mode});
        }
        odd => return Err(at.unknown("the mode", odd, &["ro", "rw", "nocopy", "z", "Z"])),
    }
    Ok(())
}

fn long(shaper: &Shaper<'_>, map: &Map<String, Value>, at: &At) -> Result<Value> {
    read::known_keys(map, &KEYS, at)?;
    let text = |key: &str| map.get(key).map(|value| read::text(value, &at.key(key))).transpose();
    let Some(target) = text("target")? else {
        return Err(at.refuse("it has no target", "write `target: /path/in/the/container`"));
    };
    let kind = text("type")?.unwrap_or_else(|| "volume".to_owned());
    let mut shaped = json!({"target": target, "type": kind});
    if let Some(source) = text("source")? {
        shaped["source"] = if kind == "bind" { shaper.place(&source) } else { source.into() };
    }
    for key in ["read_only", "bind", "volume", "tmpfs"] {
        if let Some(value) = map.get(key).filter(|value| !value.is_null()) {
            shaped[key] = value.clone();
        }
    }
    Ok(shaped)
}
