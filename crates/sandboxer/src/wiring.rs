//! The one place that lists the built-in strategies, and joins them with settings and resource types into a manager.
//!
//! The name a strategy is registered with here is stored beside every sandbox it makes, so a name is never given to
//! another strategy later.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::Result;
use sandboxer_core::config::{Settings, register_custom_strategies};
use sandboxer_core::contract::{
    CancelFlag, LocalPermissions, NoProgress, NothingRuns, PermissionService, Progress, Runtime,
};
use sandboxer_core::registry::{StrategyOptions, StrategyRegistry};
use sandboxer_core::service::{ManagerParts, SandboxManager};
use sandboxer_core::types::ResourceTypes;
use sandboxer_extensions::local::Runtimes;
use sandboxer_strategies::{copy_on_write, filesystem_copy, git_worktree, none, overlay};
use serde_json::json;

/// What a manager is made of, as far as callers differ.
pub struct Setup {
    /// The state directory.
    pub home: PathBuf,
    /// Resolved configuration.
    pub settings: Settings,
    /// YAML files that add resource types or override the embedded ones.
    pub type_files: Vec<PathBuf>,
    /// Who may do what.
    pub permissions: Arc<dyn PermissionService>,
    /// Hears of long work.
    pub progress: Arc<dyn Progress>,
    /// Set when the user wants to stop.
    pub cancel: CancelFlag,
    /// Hears of everything that is removed to keep within the budgets.
    pub on_removal: Arc<dyn Fn(&str) + Send + Sync>,
    /// The program that keepers are started from: one whose `main` begins with [`sandboxer_strategies::serve_if_asked`].
    pub program: Option<PathBuf>,
}

impl Setup {
    /// State in `home`, defaults for everything else, silence.
    pub fn quiet(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            settings: Settings::default(),
            type_files: Vec::new(),
            permissions: Arc::new(LocalPermissions),
            progress: Arc::new(NoProgress),
            cancel: CancelFlag::default(),
            on_removal: Arc::new(|_| {}),
            program: None,
        }
    }
}

/// Every built-in strategy, then the custom ones of the settings.
pub fn registry(settings: &Settings) -> Result<StrategyRegistry> {
    let mut registry = StrategyRegistry::new();
    let built_in = [
        filesystem_copy::entry(),
        copy_on_write::entry(),
        none::entry(),
        overlay::entry(),
        git_worktree::entry(),
    ];
    for mut entry in built_in {
        entry.options = file_options(settings);
        registry.register(entry)?;
    }
    register_custom_strategies(settings, &mut registry)?;
    Ok(registry)
}

/// What the settings say to every strategy of files, in the strategies' own terms.
fn file_options(settings: &Settings) -> StrategyOptions {
    let mut options = StrategyOptions::from([
        ("include".to_owned(), json!(settings.include)),
        ("exclude".to_owned(), json!(settings.exclude)),
        ("lock_wait_ms".to_owned(), json!(settings.lock_wait.as_millis() as u64)),
        ("durability".to_owned(), json!(settings.durability.as_str())),
    ]);
    options.extend(settings.threads.map(|threads| ("threads".to_owned(), json!(threads))));
    options.extend(settings.keep_base.map(|bytes| ("keep_base".to_owned(), json!(bytes))));
    options.extend(settings.scratch.as_ref().map(|path| ("scratch".to_owned(), json!(path))));
    options
}

/// The embedded resource types, extended and overridden by `files`.
pub fn resource_types(files: &[PathBuf]) -> Result<ResourceTypes> {
    ResourceTypes::embedded()?.with_overrides(files)
}

/// A manager over the state in `setup.home`. Opening it does not recover: callers do that first.
pub fn open(setup: Setup) -> Result<SandboxManager> {
    SandboxManager::open(ManagerParts {
        runtime: runtime(&setup.home, setup.program.as_deref()),
        registry: registry(&setup.settings)?,
        types: resource_types(&setup.type_files)?,
        home: setup.home,
        settings: setup.settings,
        permissions: setup.permissions,
        progress: setup.progress,
        cancel: setup.cancel,
        on_removal: setup.on_removal,
        program: setup.program,
        remove_tree: overlay::remove_workspace,
    })
}

/// What runs in sandboxes, where there is a program to start it from.
fn runtime(home: &Path, program: Option<&Path>) -> Arc<dyn Runtime> {
    match program {
        Some(program) => Arc::new(Runtimes::new(home, program)),
        None => Arc::new(NothingRuns),
    }
}

/// Whether there is any state in `home`: without it there is no sandbox, and a listing need not open a thing.
pub fn has_state(home: &Path) -> bool {
    home.join("state.db").exists()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use sandboxer_core::Error;
    use sandboxer_core::config::CustomStrategy;

    use super::*;

    fn settings_with(module: &str) -> Settings {
        let custom = CustomStrategy { module: module.into(), ..CustomStrategy::default() };
        Settings { custom_strategies: BTreeMap::from([("mine".to_owned(), custom)]), ..Settings::default() }
    }

    #[test]
    fn the_built_ins_go_by_their_names() {
        let registry = registry(&Settings::default()).unwrap();
        let names: Vec<&str> = registry.entries().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["copy_on_write", "filesystem_copy", "git_worktree", "none", "overlay"]);
        assert!(!registry.get("none").unwrap().capabilities.isolates);
    }

    #[test]
    fn settings_reach_the_strategies() {
        let settings = Settings { threads: Some(3), exclude: vec!["target".into()], ..Settings::default() };
        let registry = registry(&settings).unwrap();
        let options = &registry.get("filesystem_copy").unwrap().options;
        assert_eq!(options["threads"], 3);
        assert_eq!(options["durability"], "volatile");
        assert_eq!(options["exclude"][0], "target");
    }

    #[test]
    fn a_built_in_goes_by_another_name_too() {
        let registry = registry(&settings_with("builtin:filesystem_copy")).unwrap();
        assert!(registry.get("mine").unwrap().capabilities.isolates);
    }

    #[test]
    fn modules_that_need_a_plugin_host_are_an_honest_gap() {
        let error = registry(&settings_with("my_company.strategies")).err().unwrap();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    }

    #[test]
    fn a_manager_opens_on_an_empty_directory() {
        let home = tempfile::tempdir().unwrap();
        assert!(!has_state(home.path()));
        let manager = open(Setup::quiet(home.path())).unwrap();
        assert!(manager.list(true).unwrap().is_empty());
        assert!(!has_state(home.path()), "looking makes nothing");
    }
}
