//! Every strategy under its name, built-in and custom alike.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::contract::{CancelFlag, Capabilities, NoProgress, Progress, SandboxStrategy};
use crate::{Error, Result};

/// What every strategy is made with.
#[derive(Clone)]
pub struct StrategyContext {
    /// The state directory.
    pub home: PathBuf,
    /// Hears of long work.
    pub progress: Arc<dyn Progress>,
    /// Looked at between entries.
    pub cancel: CancelFlag,
}

impl StrategyContext {
    /// A context that tells nobody and is never cancelled.
    pub fn quiet(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into(), progress: Arc::new(NoProgress), cancel: CancelFlag::default() }
    }
}

/// Options of a registration: the keys of its configuration entry.
pub type StrategyOptions = BTreeMap<String, Value>;

/// Makes a strategy that goes by `name`.
pub type StrategyFactory =
    Arc<dyn Fn(&str, &StrategyOptions, &StrategyContext) -> Result<Arc<dyn SandboxStrategy>> + Send + Sync>;

/// One registered strategy.
#[derive(Clone)]
pub struct StrategyEntry {
    /// Its name, stored beside each sandbox.
    pub name: String,
    /// One line for `sandbox strategies`.
    pub summary: String,
    /// Where it comes from: `built-in`, or the configuration entry's module and class.
    pub origin: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Options given to the factory.
    pub options: StrategyOptions,
    /// Makes it.
    pub factory: StrategyFactory,
}

/// Holds every strategy; the factory and the manager reach them through it and no other way.
#[derive(Default)]
pub struct StrategyRegistry {
    entries: BTreeMap<String, StrategyEntry>,
}

impl StrategyRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a strategy; a name that is taken is refused.
    pub fn register(&mut self, entry: StrategyEntry) -> Result<()> {
        if self.entries.contains_key(&entry.name) {
            return Err(Error::usage(format!("strategy {:?} is registered already", entry.name)));
        }
        self.entries.insert(entry.name.clone(), entry);
        Ok(())
    }

    /// Registers `existing` once more as `name`, with other options on top of its own.
    pub fn register_again(&mut self, existing: &str, name: &str, options: StrategyOptions) -> Result<()> {
        let mut entry = self.get(existing)?.clone();
        entry.origin = format!("{existing} with other options");
        entry.name = name.to_owned();
        entry.options.extend(options);
        self.register(entry)
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Result<&StrategyEntry> {
        self.entries.get(name).ok_or_else(|| Error::NotFound {
            what: "strategy",
            name: name.to_owned(),
            similar: crate::resolve::nearest(name, self.entries.keys()),
        })
    }

    /// Makes the strategy of that name.
    pub fn open(&self, name: &str, context: &StrategyContext) -> Result<Arc<dyn SandboxStrategy>> {
        let entry = self.get(name)?;
        (entry.factory)(&entry.name, &entry.options, context)
    }

    /// All entries by name.
    pub fn entries(&self) -> impl Iterator<Item = &StrategyEntry> {
        self.entries.values()
    }
}
