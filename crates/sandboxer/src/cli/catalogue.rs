//! What the commands on profiles, extensions and hosts share: reading the catalogue, showing an entry, and what a route depends on
//! besides it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use sandboxer::wiring;
use sandboxer_core::environment::{
    Capacity, Catalogue, ExtensionContext, ExtensionDefinition, ExtensionRegistry, Health, Host, LOCAL_HOST,
    Load, Surroundings,
};
use sandboxer_documents::Told;
use serde::Serialize;
use serde_json::Value;

use super::error::CliError;
use super::output::{self, Ui, style};
use super::places::Places;
use super::session::App;

/// All of an entry: as a document, or a line for each key.
pub fn show(ui: &mut Ui, entry: &impl Serialize) -> Result<(), CliError> {
    if ui.json {
        return ui.document(entry);
    }
    let value = serde_json::to_value(entry).map_err(|error| CliError::output(error.into()))?;
    let Value::Object(mut fields) = value else { return Ok(()) };
    let id = fields.remove("id").map(|id| flow(&id)).unwrap_or_default();
    ui.line(ui.paint(style::HEAD, id))?;
    let summary = fields.remove("summary").map(|summary| ("summary".to_owned(), summary));
    summary.into_iter().chain(fields).try_for_each(|(key, value)| field(ui, &key, &flow(&value)))
}

/// One line of a description.
pub fn field(ui: &mut Ui, name: &str, value: &str) -> Result<(), CliError> {
    ui.line(format_args!("  {name:<12}  {value}"))
}

/// The word that a value has in files.
pub fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).map(|value| flow(&value)).unwrap_or_default()
}

/// A list of them.
pub fn words<T: Serialize>(values: &[T]) -> String {
    values.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => output::sentence(text),
        Value::Array(items) => items.iter().map(nested).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let pair =
                |(key, value): (&String, &Value)| format!("{}: {}", output::sentence(key), nested(value));
            fields.iter().map(pair).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn nested(value: &Value) -> String {
    match value {
        Value::Object(_) => format!("{{{}}}", flow(value)),
        Value::Array(_) => format!("[{}]", flow(value)),
        other => flow(other),
    }
}

impl App {
    /// What is shipped, and what the user has beside the configuration file.
    pub fn catalogue(&self) -> Result<Catalogue, CliError> {
        Ok(wiring::catalogue(self.places.catalogue())?)
    }

    /// Each extension of the catalogue, and whether it can be used on this machine now.
    pub fn extension_health(&self) -> Result<Vec<(ExtensionDefinition, Health)>, CliError> {
        let (catalogue, extensions) = (self.catalogue()?, extensions(&self.places));
        Ok(catalogue
            .extensions()
            .map(|known| (known.clone(), health(&extensions, known, &Host::local())))
            .collect())
    }

    /// Every host of the catalogue that is another machine.
    pub fn remote_hosts(&self) -> Result<Vec<Host>, CliError> {
        let catalogue = self.catalogue()?;
        Ok(catalogue.hosts().filter(|host| host.address != LOCAL_HOST).cloned().collect())
    }

    /// What a route depends on besides the catalogue.
    pub fn nearby(&self) -> Result<Nearby, CliError> {
        // Where nothing was ever made, or no host is ever full, nobody has to be counted.
        let is_bounded = |host: &Host| host.capacity != Capacity::default();
        let loads = match wiring::has_state(&self.places.home) && self.catalogue()?.hosts().any(is_bounded) {
            true => Load::by_host(&self.open()?.manager.list(false)?),
            false => BTreeMap::new(),
        };
        Ok(Nearby::new(&self.places, loads))
    }
}

/// What makes the extensions of the catalogue; none is started.
fn extensions(places: &Places) -> ExtensionRegistry {
    let program = std::env::current_exe().ok();
    wiring::extensions(ExtensionContext { program, ..ExtensionContext::quiet(&places.home) })
}

/// This machine, and what its state knows of the others.
pub struct Nearby {
    loads: BTreeMap<String, Load>,
    extensions: ExtensionRegistry,
    /// What each has said, on each host.
    asked: RefCell<BTreeMap<(String, String), Health>>,
}

impl Nearby {
    /// With so much on each host.
    pub fn new(places: &Places, loads: BTreeMap<String, Load>) -> Self {
        Self { loads, extensions: extensions(places), asked: RefCell::default() }
    }
}

/// One that cannot even be opened is not well.
fn health(extensions: &ExtensionRegistry, definition: &ExtensionDefinition, host: &Host) -> Health {
    let there = extensions.open(definition).and_then(|it| Ok(it.on(host)?.unwrap_or(it)));
    match there {
        Ok(extension) => extension.health(),
        Err(error) => Health::Unhealthy(Told::from(error).message),
    }
}

impl Surroundings for Nearby {
    fn health(&self, extension: &ExtensionDefinition, host: &Host) -> Health {
        let mut asked = self.asked.borrow_mut();
        let key = (extension.id.clone(), host.id.clone());
        asked.entry(key).or_insert_with(|| health(&self.extensions, extension, host)).clone()
    }

    fn load(&self, host: &str) -> Load {
        self.loads.get(host).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use sandboxer_core::environment::Provider;

    use super::*;

    #[test]
    fn values_stand_on_one_line() {
        assert_eq!(flow(&json!("a\u{1b}")), "a\\x1b");
        assert_eq!(flow(&json!(["a", 1])), "a, 1");
        assert_eq!(flow(&json!({"a": ["b"], "c": {"d": true}})), "a: [b], c: {d: true}");
        assert_eq!(word(&Provider::Container), "container");
    }
}
