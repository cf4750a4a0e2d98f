//! Every strategy under its name, built-in and custom alike.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use crate::contract::{CancelFlag, Capabilities, NoProgress, Progress, SandboxStrategy};
use crate::resolve::BUILT_IN;
use crate::verification::CheckResult;
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

/// A strategy that the configuration promises. Nothing of it is started before somebody asks for it by name; then it is
/// verified, and registered if it is what it says.
#[derive(Clone)]
pub struct Declaration {
    /// The name it goes by.
    pub name: String,
    /// Where it comes from: the configuration entry's module and class.
    pub origin: String,
    /// The resource types that the configuration limits it to; empty where the strategy itself decides.
    pub resource_types: Vec<String>,
    /// Starts it and looks whether it is a strategy.
    pub verify: Arc<dyn Fn() -> Result<StrategyEntry> + Send + Sync>,
    /// Reads the result of the last check; starts nothing.
    pub last_check: Arc<dyn Fn() -> CheckResult + Send + Sync>,
}

/// What goes by a name.
enum Slot {
    Registered(StrategyEntry),
    Declared(Pending),
}

/// A declared strategy, and its entry once it has been asked for.
struct Pending {
    declaration: Declaration,
    verified: OnceLock<StrategyEntry>,
    verifying: Mutex<()>,
}

impl Pending {
    /// The entry; verified now where nobody has asked for it before. A failure is not remembered: it may be mended.
    fn entry(&self) -> Result<&StrategyEntry> {
        if let Some(entry) = self.verified.get() {
            return Ok(entry);
        }
        let _one_at_a_time = self.verifying.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = self.verified.get() {
            return Ok(entry);
        }
        let entry = (self.declaration.verify)()?;
        Ok(self.verified.get_or_init(|| entry))
    }
}

impl Slot {
    fn registered(&self) -> Option<&StrategyEntry> {
        match self {
            Self::Registered(entry) => Some(entry),
            Self::Declared(pending) => pending.verified.get(),
        }
    }

    fn declared(&self) -> Option<&Declaration> {
        match self {
            Self::Declared(pending) if pending.verified.get().is_none() => Some(&pending.declaration),
            _ => None,
        }
    }
}

/// Holds every strategy; the factory and the manager reach them through it and no other way.
#[derive(Default)]
pub struct StrategyRegistry {
    slots: BTreeMap<String, Slot>,
}

impl StrategyRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a strategy; a name that is taken is refused.
    pub fn register(&mut self, entry: StrategyEntry) -> Result<()> {
        let name = entry.name.clone();
        self.add(name, Slot::Registered(entry))
    }

    /// Verifies a declared strategy now and adds it; a name that is taken is refused before anything is started.
    ///
    /// # Errors
    /// [`Error::InvalidPlugin`] names every method that is missing or cannot be called; the registry stays as it was.
    pub fn register_verified(&mut self, declaration: &Declaration) -> Result<()> {
        self.check_free(&declaration.name)?;
        self.register((declaration.verify)()?)
    }

    /// Adds a strategy that is verified when it is first asked for; a name that is taken is refused.
    pub fn declare(&mut self, declaration: Declaration) -> Result<()> {
        let name = declaration.name.clone();
        let (verified, verifying) = (OnceLock::new(), Mutex::default());
        self.add(name, Slot::Declared(Pending { declaration, verified, verifying }))
    }

    fn add(&mut self, name: String, slot: Slot) -> Result<()> {
        self.check_free(&name)?;
        self.slots.insert(name, slot);
        Ok(())
    }

    fn check_free(&self, name: &str) -> Result<()> {
        match self.slots.contains_key(name) {
            true => Err(Error::usage(format!("strategy {name:?} is registered already"))),
            false => Ok(()),
        }
    }

    /// Puts a declaration in the place of whatever goes by its name. For one that says what is wrong with an entry of that name:
    /// whoever asks for it is told, and nobody gets something else instead.
    pub fn declare_instead(&mut self, declaration: Declaration) {
        self.slots.remove(&declaration.name);
        let (verified, verifying) = (OnceLock::new(), Mutex::default());
        let name = declaration.name.clone();
        self.slots.insert(name, Slot::Declared(Pending { declaration, verified, verifying }));
    }

    /// Registers the built-in strategy `existing` once more as `name`, with other options on top of its own. Nothing is started for
    /// it, so what is not built in is refused.
    pub fn register_again(&mut self, existing: &str, name: &str, options: StrategyOptions) -> Result<()> {
        let mut entry = match self.slots.get(existing) {
            Some(Slot::Registered(entry)) if entry.origin == BUILT_IN => entry.clone(),
            Some(_) => {
                let message = format!("{existing:?} is no built-in strategy");
                let hint = Some("`builtin:` is for those; `sandbox strategies` lists them".to_owned());
                return Err(Error::Usage { message, hint });
            }
            None => return Err(self.unknown(existing)),
        };
        entry.origin = format!("{existing} with other options");
        entry.name = name.to_owned();
        entry.options.extend(options);
        self.register(entry)
    }

    /// The entry of that name. One that is only declared is started and verified first.
    pub fn get(&self, name: &str) -> Result<&StrategyEntry> {
        match self.slots.get(name) {
            Some(Slot::Registered(entry)) => Ok(entry),
            Some(Slot::Declared(pending)) => pending.entry(),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let similar = crate::resolve::nearest(name, self.slots.keys());
        Error::NotFound { what: "strategy", name: name.to_owned(), similar }
    }

    /// Whether that name is registered already: asking for it starts nothing.
    pub fn is_registered(&self, name: &str) -> bool {
        self.slots.get(name).is_some_and(|slot| slot.registered().is_some())
    }

    /// Makes the strategy of that name.
    pub fn open(&self, name: &str, context: &StrategyContext) -> Result<Arc<dyn SandboxStrategy>> {
        let entry = self.get(name)?;
        (entry.factory)(&entry.name, &entry.options, context)
    }

    /// All registered entries by name. What is only declared is not among them: see [`Self::declared`].
    pub fn entries(&self) -> impl Iterator<Item = &StrategyEntry> {
        self.slots.values().filter_map(Slot::registered)
    }

    /// What is declared and has not been asked for yet, by name.
    pub fn declared(&self) -> impl Iterator<Item = &Declaration> {
        self.slots.values().filter_map(Slot::declared)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::verification::PluginProblem;

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

    fn declaration(
        name: &str,
        verify: impl Fn() -> Result<StrategyEntry> + Send + Sync + 'static,
    ) -> Declaration {
        Declaration {
            name: name.into(),
            origin: "company:Class".into(),
            resource_types: Vec::new(),
            verify: Arc::new(verify),
            last_check: Arc::new(CheckResult::default),
        }
    }

    #[test]
    fn what_is_declared_is_verified_once_and_when_asked_for() {
        let (mut registry, calls) = registry();
        let asked = Arc::new(Mutex::new(0));
        let verify = {
            let asked = asked.clone();
            move || {
                *asked.lock().unwrap() += 1;
                Ok(entry("mine", &calls))
            }
        };
        registry.declare(declaration("mine", verify)).unwrap();
        assert_eq!(registry.entries().count(), 1);
        assert_eq!(registry.declared().map(|d| d.origin.as_str()).collect::<Vec<_>>(), ["company:Class"]);
        assert!(registry.is_registered("overlay") && !registry.is_registered("mine"));
        assert_eq!(*asked.lock().unwrap(), 0, "nobody asked");
        registry.get("mine").unwrap();
        registry.get("mine").unwrap();
        assert_eq!(*asked.lock().unwrap(), 1);
        assert_eq!((registry.entries().count(), registry.declared().count()), (2, 0));
    }

    #[test]
    fn what_is_not_a_strategy_harms_no_other_and_may_be_mended() {
        let (mut registry, calls) = registry();
        let mended = Arc::new(Mutex::new(false));
        let verify = {
            let mended = mended.clone();
            move || {
                if *mended.lock().unwrap() { Ok(entry("mine", &calls)) } else { Err(Error::usage("broken")) }
            }
        };
        registry.declare(declaration("mine", verify)).unwrap();
        assert!(registry.get("mine").is_err() && registry.get("overlay").is_ok());
        *mended.lock().unwrap() = true;
        assert!(registry.get("mine").is_ok());
    }

    #[test]
    fn a_verified_registration_starts_the_strategy_and_refuses_a_broken_one() {
        let (mut registry, calls) = registry();
        let taken = declaration("overlay", || panic!("it was started"));
        assert!(registry.register_verified(&taken).is_err());
        let problems = vec![PluginProblem::MissingMethod { method: "read".into() }];
        let invalid = move || {
            let problems = problems.clone();
            Err(Error::InvalidPlugin { plugin: "mine".into(), role: "strategy", problems })
        };
        let error = registry.register_verified(&declaration("mine", invalid)).unwrap_err();
        assert!(matches!(error, Error::InvalidPlugin { problems, .. } if problems.len() == 1));
        assert!(registry.get("mine").is_err(), "a broken strategy was registered");
        registry.register_verified(&declaration("mine", move || Ok(entry("mine", &calls)))).unwrap();
        assert!(registry.is_registered("mine"));
    }

    #[test]
    fn only_what_is_built_in_goes_by_another_name_and_nothing_is_started_for_it() {
        let (mut registry, _) = registry();
        registry.declare(declaration("mine", || panic!("it was started"))).unwrap();
        registry.register_again("overlay", "deep", options("depth", 9)).unwrap();
        for existing in ["mine", "deep"] {
            let refused = registry.register_again(existing, "again", StrategyOptions::new()).unwrap_err();
            assert!(refused.to_string().contains("is no built-in strategy"), "{refused}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_entry_is_told_to_whoever_asks_for_it() {
        let (mut registry, _) = registry();
        registry.declare_instead(declaration("overlay", || Err(Error::usage("taken"))));
        assert_eq!(registry.get("overlay").err().unwrap().to_string(), "taken");
        assert_eq!(registry.entries().count(), 0);
    }

    #[test]
    fn a_declaration_takes_a_free_name() {
        let (mut registry, _) = registry();
        let error = registry.declare(declaration("overlay", || Err(Error::usage("never")))).unwrap_err();
        assert!(matches!(error, Error::Usage { message, .. } if message.contains("\"overlay\"")));
    }

    #[test]
    fn a_quiet_context_is_never_cancelled() {
        let context = StrategyContext::quiet("/home");
        assert_eq!(context.home, PathBuf::from("/home"));
        assert!(!context.cancel.is_cancelled());
        context.progress.begin("step", None);
    }
}
