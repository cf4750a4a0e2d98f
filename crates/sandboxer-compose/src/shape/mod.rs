//! One form for each of the many that a key of a service can be written in.
//!
//! Compose files of one stack are merged key by key, and paths in them begin where their file lies. So before anything
//! is merged, short forms become long ones, lists of `NAME=value` become mappings, and paths become places below the
//! root. What is allowed is nobody's business here.

mod mounts;
mod ports;

use sandboxer_core::Result;
use serde_json::{Map, Value, json};

use crate::at::At;
use crate::files::Files;
use crate::read;

pub(crate) use ports::read as read_port;

/// What is needed to shape a service.
pub(crate) struct Shaper<'a> {
    /// Where paths are looked for.
    pub files: &'a Files,
    /// The directory that they begin at.
    pub base: &'a str,
}

impl Shaper<'_> {
    /// A service with every key in its long form.
    pub fn service(&self, keys: &Map<String, Value>, at: &At) -> Result<Map<String, Value>> {
        let mut shaped = Map::new();
        for (key, value) in keys.iter().filter(|(key, _)| !key.starts_with("x-")) {
            if !value.is_null() {
                shaped.insert(key.clone(), self.key(key, value, &at.key(key))?);
            }
        }
        Ok(shaped)
    }

    fn key(&self, key: &str, value: &Value, at: &At) -> Result<Value> {
        match key {
            "environment" | "labels" | "annotations" | "sysctls" => assignments(value, at),
            "extra_hosts" => extra_hosts(value, at),
            "env_file" => self.env_files(value, at),
            "volumes" => each(value, at, |item, at| mounts::shape(self, item, at)),
            "ports" => ports::shape(value, at),
            "depends_on" => named(value, at, || json!({"condition": "service_started"})),
            "networks" => named(value, at, || json!({})),
            "secrets" | "configs" => each(value, at, granted),
            "build" => self.build(value, at),
            "extends" => self.extends(value, at),
            "dns"
            | "dns_search"
            | "dns_opt"
            | "tmpfs"
            | "profiles"
            | "expose"
            | "links"
            | "external_links"
            | "volumes_from"
            | "cap_add"
            | "cap_drop"
            | "security_opt"
            | "devices"
            | "device_cgroup_rules"
            | "group_add" => strings(value, at),
            _ => Ok(value.clone()),
        }
    }

    /// The place that a path of this file leads to.
    pub fn place(&self, path: &str) -> Value {
        self.files.locate(self.base, path).to_value()
    }

    fn env_files(&self, value: &Value, at: &At) -> Result<Value> {
        let items = if value.is_array() { value.clone() } else { json!([value]) };
        each(&items, at, |item, at| {
            let long = if item.is_object() { item.clone() } else { json!({"path": item}) };
            let map = read::map(&long, at)?;
            read::known_keys(map, &["path", "required", "format"], at)?;
            let path = read::text(map.get("path").unwrap_or(&Value::Null), &at.key("path"))?;
            let mut shaped = map.clone();
            shaped.insert("path".to_owned(), self.place(&path));
            Ok(Value::Object(shaped))
        })
    }

    fn build(&self, value: &Value, at: &At) -> Result<Value> {
        let long = if value.is_object() { value.clone() } else { json!({"context": read::text(value, at)?}) };
        let mut shaped = Map::new();
        for (key, value) in read::map(&long, at)?.iter().filter(|(key, _)| !key.starts_with("x-")) {
            let at = at.key(key);
            let value = match key.as_str() {
                "context" => self.context(&read::text(value, &at)?),
                "args" | "labels" => assignments(value, &at)?,
                _ => value.clone(),
            };
            shaped.insert(key.clone(), value);
        }
        Ok(Value::Object(shaped))
    }

    /// Contexts can be addresses, of which no path is to be made by accident.
    fn context(&self, context: &str) -> Value {
        let remote =
            context.contains("://") || context.starts_with("git@") || context.starts_with("github.com/");
        let named = context.contains(':') && !context.contains('/');
        if remote || named { json!({ "outside": context }) } else { self.place(context) }
    }

    fn extends(&self, value: &Value, at: &At) -> Result<Value> {
        let long = if value.is_object() { value.clone() } else { json!({"service": value}) };
        let map = read::map(&long, at)?;
        read::known_keys(map, &["service", "file"], at)?;
        let service = read::text(map.get("service").unwrap_or(&Value::Null), &at.key("service"))?;
        let mut shaped = json!({"service": service});
        if let Some(file) = map.get("file") {
            shaped["file"] = self.place(&read::text(file, &at.key("file"))?);
        }
        Ok(shaped)
    }
}

/// A list with each of its items shaped.
fn each(value: &Value, at: &At, shape: impl Fn(&Value, &At) -> Result<Value>) -> Result<Value> {
    let items = read::list(value, at)?;
    items.iter().enumerate().map(|(index, item)| shape(item, &at.item(index))).collect()
}

fn strings(value: &Value, at: &At) -> Result<Value> {
    read::texts(value, at).map(Value::from)
}

/// `NAME=value` lines, or a mapping, as a mapping of texts; a name without a value has none.
pub(crate) fn assignments(value: &Value, at: &At) -> Result<Value> {
    let mut map = Map::new();
    if let Value::Object(given) = value {
        for (name, value) in given {
            let text = if value.is_null() { Value::Null } else { read::scalar(value, &at.key(name))?.into() };
            map.insert(name.clone(), text);
        }
        return Ok(Value::Object(map));
    }
    for line in read::texts(value, at)? {
        match line.split_once('=') {
            Some((name, value)) => map.insert(name.to_owned(), value.into()),
            None => map.insert(line, Value::Null),
        };
    }
    Ok(Value::Object(map))
}

/// `name:address` or `name=address` lines, or a mapping, as a mapping of lists.
fn extra_hosts(value: &Value, at: &At) -> Result<Value> {
    let mut map: Map<String, Value> = Map::new();
    if let Value::Object(given) = value {
        for (name, addresses) in given {
            map.insert(name.clone(), strings(addresses, &at.key(name))?);
        }
        return Ok(Value::Object(map));
    }
    for (index, line) in read::texts(value, at)?.into_iter().enumerate() {
        let (name, address) = line.split_once('=').or_else(|| line.split_once(':')).ok_or_else(|| {
            at.item(index).refuse(format!("{line:?} has no address"), "write it as `name:address`")
        })?;
        let known = map.entry(name).or_insert_with(|| json!([]));
        if let Some(known) = known.as_array_mut() {
            known.push(address.into());
        }
    }
    Ok(Value::Object(map))
}

/// A list of names, or a mapping of them, as a mapping.
fn named(value: &Value, at: &At, usual: impl Fn() -> Value) -> Result<Value> {
    let mut map = Map::new();
    if let Value::Object(given) = value {
        for (name, value) in given {
            let mut shaped = usual();
            if !value.is_null() {
                let more = read::map(value, &at.key(name))?;
                if let Some(shaped) = shaped.as_object_mut() {
                    shaped.extend(more.clone());
                }
            }
            map.insert(name.clone(), shaped);
        }
        return Ok(Value::Object(map));
    }
    map.extend(read::texts(value, at)?.into_iter().map(|name| (name, usual())));
    Ok(Value::Object(map))
}

/// A secret or a config that a service is given.
fn granted(value: &Value, at: &At) -> Result<Value> {
    let long = if value.is_object() { value.clone() } else { json!({"source": read::text(value, at)?}) };
    let map = read::map(&long, at)?;
    read::known_keys(map, &["source", "target", "uid", "gid", "mode"], at)?;
    let mut shaped = map.clone();
    for key in ["source", "target"] {
        if let Some(value) = map.get(key) {
            shaped.insert(key.to_owned(), read::text(value, &at.key(key))?.into());
        }
    }
    if !shaped.contains_key("source") {
        return Err(at.refuse("it does not say what is given", "write `source: NAME`"));
    }
    Ok(Value::Object(shaped))
}
