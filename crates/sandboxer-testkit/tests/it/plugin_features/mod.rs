//! Runs `features/extensibility/*.feature` with real Python classes, a configuration file and a real manager.

mod configuration;
mod registration;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sandboxer::wiring::{self, Setup};
use sandboxer_core::config::{Layers, Settings, TrustStore, load};
use sandboxer_core::service::{SandboxManager, Target};
use sandboxer_core::{Error, Result};
use sandboxer_testkit::faults::workspace_root;
use sandboxer_testkit::features::{Steps, find_feature_files, load_scenarios};
use sandboxer_testkit::manifest::Manifest;
use tempfile::TempDir;

/// One scenario: what the configuration says, and what the manager answered last.
struct Extending {
    /// Opened when it is first needed; goes before the directory.
    manager: Option<SandboxManager>,
    entries: BTreeMap<String, String>,
    chosen: Option<String>,
    types: Vec<PathBuf>,
    target: Option<Target>,
    error: Option<Error>,
    /// What the last command printed.
    printed: String,
    before: Manifest,
    dir: TempDir,
}

impl fmt::Debug for Extending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#?} {:?} {:?}", self.entries, self.target, self.error)
    }
}

impl Extending {
    fn new() -> Self {
        Self {
            manager: None,
            entries: BTreeMap::new(),
            chosen: None,
            types: Vec::new(),
            target: None,
            error: None,
            printed: String::new(),
            before: Manifest::default(),
            dir: TempDir::with_prefix("sandboxer-extending-").unwrap(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn original(&self) -> PathBuf {
        self.at("project")
    }

    fn module(&self, name: &str) -> PathBuf {
        self.at("strategies").join(format!("{name}.py"))
    }

    /// The plugin's own directory.
    fn noted_by(&self, plugin: &str) -> PathBuf {
        self.at("home/plugins/state").join(plugin).join("noted")
    }

    fn manager(&mut self) -> &SandboxManager {
        if self.manager.is_none() {
            self.manager = Some(self.opened().unwrap());
        }
        self.manager.as_ref().unwrap()
    }

    fn opened(&self) -> Result<SandboxManager> {
        let (type_files, modules) = (self.types.clone(), Some(self.at("strategies")));
        wiring::open(Setup {
            settings: self.settings()?,
            type_files,
            modules,
            ..Setup::quiet(self.at("home"))
        })
    }

    fn settings(&self) -> Result<Settings> {
        let layers = Layers { user_file: Some(self.write_configuration()), ..Layers::default() };
        load(&layers, &TrustStore::new(self.at("home")))
    }

    fn write_configuration(&self) -> PathBuf {
        let file = self.at("config.yaml");
        fs::write(&file, self.configuration()).unwrap();
        file
    }

    fn configuration(&self) -> String {
        let plugins = plugins().display().to_string();
        let entries = self
            .entries
            .iter()
            .map(|(name, entry)| format!("    {name}: {}\n", entry.replace("{plugins}", &plugins)));
        let custom = format!("sandbox:\n  custom_strategies:\n{}", entries.collect::<String>());
        self.chosen.iter().fold(custom, |text, name| format!("{text}  strategy: {name}\n"))
    }

    fn target(&self) -> &Target {
        self.target.as_ref().unwrap_or_else(|| panic!("no sandbox was made: {:?}", self.error))
    }

    /// Keeps how it failed, if it did.
    fn remember<T>(&mut self, result: Result<T>) -> Option<T> {
        let (value, error) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error)),
        };
        self.error = error;
        value
    }
}

/// Where the plugins of the tests are.
fn plugins() -> PathBuf {
    workspace_root().join("crates/sandboxer-testkit/tests/plugins")
}

/// An error with all its causes.
fn full_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

fn workspaces_below(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ws_") {
            found.push(entry.path());
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(workspaces_below(&entry.path()));
        }
    }
    found
}

/// The rules that have a test of their own.
const REGISTERED: &str = "The configuration names a strategy";
const COMPLETE: &str = "What lacks a method is no strategy";
const VERIFIED: &str = "Registration verifies";

fn steps() -> Steps<Extending> {
    Steps::new(|steps| {
        configuration::register(steps);
        registration::register(steps);
        work::register(steps);
    })
}

/// Runs the scenarios of the rules that `filter` selects.
fn run(filter: impl Fn(&str) -> bool, min_steps: usize) {
    let mut scenarios = load_scenarios(&find_feature_files(&workspace_root().join("features/extensibility")));
    scenarios.retain(|scenario| filter(&scenario.rule));
    let steps = steps().run(Extending::new, &scenarios).unwrap_or_else(|report| panic!("{report}"));
    assert!(steps >= min_steps, "only {steps} steps ran");
}

#[test]
fn strategies_are_registered() {
    run(|rule| rule == REGISTERED, 40);
}

#[test]
fn strategies_are_complete() {
    run(|rule| rule == COMPLETE, 80);
}

#[test]
fn registration_verifies() {
    run(|rule| rule == VERIFIED, 60);
}

#[test]
fn strategies_are_used() {
    run(|rule| ![REGISTERED, COMPLETE, VERIFIED].contains(&rule), 120);
}

#[test]
fn every_step_is_used() {
    let scenarios = load_scenarios(&find_feature_files(&workspace_root().join("features/extensibility")));
    steps().check_usage(&scenarios).unwrap_or_else(|report| panic!("{report}"));
}
