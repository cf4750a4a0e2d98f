//! Networks, volumes, secrets and configs of one file.

use std::collections::BTreeMap;

use sandboxer_core::Result;
use serde_json::{Map, Value};

use crate::at::At;
use crate::model::Declared;
use crate::read;
use crate::shape::{Shaper, assignments};

/// The entries of a section, with paths and labels in their one form.
pub(crate) fn section(
    shaper: &Shaper<'_>,
    section: Option<&Value>,
    file: &str,
    at: &At,
) -> Result<BTreeMap<String, Declared>> {
    let Some(section) = section.filter(|value| !value.is_null()) else { return Ok(BTreeMap::new()) };
    let mut declared = BTreeMap::new();
    for (name, value) in read::map(section, at)? {
        let at = at.key(name);
        if !read::is_name(name) {
            return Err(at.refuse("this is not a name", "use letters, digits, `_`, `.` and `-`"));
        }
        let value = if value.is_null() { Map::new() } else { shaped(shaper, read::map(value, &at)?, &at)? };
        declared.insert(name.clone(), Declared { file: file.to_owned(), value });
    }
    Ok(declared)
}

fn shaped(shaper: &Shaper<'_>, map: &Map<String, Value>, at: &At) -> Result<Map<String, Value>> {
    let mut shaped = Map::new();
    for (key, value) in map.iter().filter(|(key, value)| !key.starts_with("x-") && !value.is_null()) {
        let at = at.key(key);
        let value = match key.as_str() {
            "labels" => assignments(value, &at)?,
            "file" => shaper.place(&read::text(value, &at)?),
            _ => value.clone(),
        };
        shaped.insert(key.clone(), value);
    }
    Ok(shaped)
}
