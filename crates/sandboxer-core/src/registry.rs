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
    /// The program that keepers are started from; without it, what needs one does not work.
    pub program: Option<PathBuf>,
}

impl StrategyContext {
    /// A context that tells nobody and is never cancelled.
    pub fn quiet(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            progress: Arc::new(NoProgress),
            cancel: CancelFlag::default(),
            program: None,
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What the factories were asked for.
    type Calls = Arc<Mutex<Vec<(String, StrategyOptions)>>>;

    fn options(key: &str, value: impl Into<Value>) -> StrategyOptions {
        StrategyOptions::from([(key.to_owned(), value.into())])
    }

    fn entry(name: &str, calls: &Calls) -> StrategyEntry {
        let calls = calls.clone();
        let factory: StrategyFactory = Arc::new(move |name, options, context| {
            calls.lock().unwrap().push((name.to_owned(), options.clone()));
            Err(Error::Unavailable {
                strategy: name.into(),
                path: context.home.clone(),
                reason: "fake".into(),
            })
        });
        StrategyEntry {
            name: name.into(),
            summary: "a fake".into(),
            origin: "built-in".into(),
            capabilities: Capabilities::default(),
            options: options("depth", 1),
            factory,
        }
    }

    fn registry() -> (StrategyRegistry, Calls) {
        let calls = Calls::default();
        let mut registry = StrategyRegistry::new();
        registry.register(entry("overlay", &calls)).unwrap();
        (registry, calls)
    }

    #[test]
    fn a_taken_name_is_refused() {
        let (mut registry, calls) = registry();
        let error = registry.register(entry("overlay", &calls)).unwrap_err();
        assert!(matches!(error, Error::Usage { message, .. } if message.contains("\"overlay\"")));
        assert!(registry.register_again("overlay", "overlay", StrategyOptions::new()).is_err());
    }

    #[test]
    fn an_unknown_name_brings_near_ones() {
        let (mut registry, _) = registry();
        let Err(Error::NotFound { what, name, similar }) = registry.get("overlai") else { panic!("found") };
        assert_eq!((what, &*name, &*similar), ("strategy", "overlai", &["overlay".to_owned()][..]));
        assert!(registry.register_again("missing", "x", StrategyOptions::new()).is_err());
        assert!(registry.open("missing", &StrategyContext::quiet("/h")).is_err());
    }

    #[test]
    fn a_strategy_is_made_under_its_own_name_and_options() {
        let (mut registry, calls) = registry();
        registry.register_again("overlay", "deep", options("depth", 9)).unwrap();
        assert_eq!(registry.get("deep").unwrap().origin, "overlay with other options");
        for name in ["deep", "overlay"] {
            let result = registry.open(name, &StrategyContext::quiet("/h"));
            assert!(
                matches!(result, Err(Error::Unavailable { path, .. }) if path == std::path::Path::new("/h"))
            );
        }
        let calls = calls.lock().unwrap();
        assert_eq!(*calls, [("deep".into(), options("depth", 9)), ("overlay".into(), options("depth", 1))]);
    }

    #[test]
    fn entries_come_by_name() {
        let (mut registry, calls) = registry();
        registry.register(entry("none", &calls)).unwrap();
        let names: Vec<_> = registry.entries().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["none", "overlay"]);
    }

    #[test]
    fn a_quiet_context_is_never_cancelled() {
        let context = StrategyContext::quiet("/home");
        assert_eq!(context.home, PathBuf::from("/home"));
        assert!(!context.cancel.is_cancelled());
        context.progress.begin("step", None);
    }
}
