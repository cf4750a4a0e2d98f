//! The one place that lists the built-in strategies, and joins them with settings and resource types into a manager.
//!
//! The name a strategy is registered with here is stored beside every sandbox it makes, so a name is never given to
//! another strategy later.

#[cfg(feature = "containers")]
mod containers;
#[cfg(feature = "databases")]
mod databases;
pub mod left_out;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::config::{CustomStrategy, InvalidEntry, Settings, Source};
use sandboxer_core::contract::{
    CancelFlag, LocalPermissions, NoProgress, NothingRuns, PermissionService, Progress, Runtime,
};
use sandboxer_core::environment::{Catalogue, Environments, ExtensionContext, ExtensionRegistry, Known};
use sandboxer_core::registry::{Declaration, StrategyOptions, StrategyRegistry};
use sandboxer_core::service::{ManagerParts, SandboxManager};
use sandboxer_core::types::ResourceTypes;
use sandboxer_core::verification::{CheckResult, PluginProblem};
use sandboxer_core::{Error, Result};
use sandboxer_extensions::local::{self, Runtimes};
use sandboxer_plugin::strategy::{Surroundings, declaration};
use sandboxer_strategies::{copy_on_write, filesystem_copy, git_worktree, none, overlay};
use serde_json::json;

#[cfg(not(feature = "containers"))]
use left_out::containers;
#[cfg(not(feature = "databases"))]
use left_out::databases;

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
    /// Where Python modules of custom strategies are looked for besides the interpreter's own places.
    pub modules: Option<PathBuf>,
    /// Where the user's own profiles, extensions and hosts are: directories of those names in it.
    pub catalogue: Option<PathBuf>,
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
            modules: None,
            catalogue: None,
        }
    }
}

/// Every built-in strategy, then the custom ones of the settings. Plugins are declared: none is started.
pub fn registry(
    settings: &Settings,
    home: &Path,
    modules: Option<&Path>,
    cancel: &CancelFlag,
) -> Result<StrategyRegistry> {
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
    databases::register(&mut registry, settings)?;
    let around = Surroundings {
        home: home.to_path_buf(),
        modules: modules.map(Path::to_path_buf),
        scratch: settings.scratch.clone(),
        lock_wait: settings.lock_wait,
        cancel: cancel.clone(),
    };
    // Whatever the order of their names: `builtin:` of a plugin is told as what it is.
    let (again, plugins): (Vec<_>, Vec<_>) =
        settings.custom_strategies.iter().partition(|(_, custom)| custom.builtin().is_some());
    for (name, custom) in plugins.into_iter().chain(again) {
        if let Err(error) = add_custom(&mut registry, name, custom, &around) {
            registry.declare_instead(broken(name, custom, error));
        }
    }
    Ok(registry)
}

fn add_custom(
    registry: &mut StrategyRegistry,
    name: &str,
    custom: &CustomStrategy,
    around: &Surroundings,
) -> Result<()> {
    if let Some(InvalidEntry { message, hint }) = custom.invalid.clone() {
        return Err(Error::Usage { message, hint });
    }
    match custom.source() {
        Source::Builtin(existing) => {
            let is_left_out = |d: &&Declaration| d.name == existing && d.origin == left_out::ORIGIN;
            registry.declared().find(is_left_out).map_or(Ok(()), |d| (d.verify)().map(|_| ()))?;
            registry.register_again(existing, name, custom.options.clone())
        }
        _ => registry.declare(declaration(name, custom, around)?),
    }
}

/// An entry that cannot be meant troubles whoever asks for it, and no other command.
fn broken(name: &str, custom: &CustomStrategy, error: Error) -> Declaration {
    let hint = match &error {
        Error::Usage { hint: Some(hint), .. } => hint.clone(),
        Error::NotFound { similar, .. } if !similar.is_empty() => {
            format!("did you mean {}?", similar.join(" or "))
        }
        _ => "give the entry another name, or take it out".to_owned(),
    };
    let message = format!("custom_strategies.{name} in the configuration: {error}");
    let problems = vec![PluginProblem::Unusable { reason: message.clone() }];
    Declaration {
        name: name.to_owned(),
        origin: custom.module.clone(),
        resource_types: custom.resource_types.clone(),
        verify: Arc::new(move || Err(Error::Usage { message: message.clone(), hint: Some(hint.clone()) })),
        last_check: Arc::new(move || CheckResult::Broken { problems: problems.clone() }),
    }
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

/// The embedded profiles, extensions and hosts, extended and overridden by the directories of those names in `directory`.
pub fn catalogue(directory: Option<&Path>) -> Result<Catalogue> {
    let embedded = Catalogue::embedded()?;
    match directory {
        Some(directory) => embedded.with_directory(directory),
        None => Ok(embedded),
    }
}

/// A manager over the state in `setup.home`. Opening it does not recover: callers do that first.
pub fn open(setup: Setup) -> Result<SandboxManager> {
    SandboxManager::open(ManagerParts {
        environments: environments(&setup),
        runtime: runtime(&setup.home, setup.program.as_deref()),
        registry: registry(&setup.settings, &setup.home, setup.modules.as_deref(), &setup.cancel)?,
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

/// Every extension of the catalogue, and what makes it. None is started.
fn environments(setup: &Setup) -> Environments {
    let registry = extensions(ExtensionContext {
        home: setup.home.clone(),
        program: setup.program.clone(),
        cancel: setup.cancel.clone(),
        progress: setup.progress.clone(),
    });
    let directory = setup.catalogue.clone();
    Environments::new(registry, Box::new(move || catalogue(directory.as_deref()).map(|read| known(&read))))
}

/// What makes the extensions of each provider.
pub fn extensions(context: ExtensionContext) -> ExtensionRegistry {
    let mut registry = ExtensionRegistry::new(context);
    registry.provide("local", local::factory());
    containers::provide(&mut registry);
    registry.provide("plugin", sandboxer_plugin::extension::factory());
    registry
}

/// What a manager needs of the catalogue.
fn known(catalogue: &Catalogue) -> Known {
    Known {
        extensions: catalogue.extensions().map(|entry| (entry.id.clone(), entry.clone())).collect(),
        hosts: catalogue.hosts().map(|entry| (entry.id.clone(), entry.clone())).collect(),
    }
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

    use super::*;

    fn settings_with(module: &str) -> Settings {
        let custom = CustomStrategy { module: module.into(), ..CustomStrategy::default() };
        Settings { custom_strategies: BTreeMap::from([("mine".to_owned(), custom)]), ..Settings::default() }
    }

    fn registry_of(settings: &Settings, home: &Path) -> Result<StrategyRegistry> {
        registry(settings, home, None, &CancelFlag::default())
    }

    #[test]
    fn the_built_ins_go_by_their_names() {
        let registry = registry_of(&Settings::default(), Path::new("/nowhere")).unwrap();
        let registered = registry.entries().map(|entry| entry.name.as_str());
        let mut names: Vec<&str> = registered.chain(registry.declared().map(|d| d.name.as_str())).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "copy_on_write",
                "database_snapshot",
                "filesystem_copy",
                "git_worktree",
                "none",
                "overlay",
                "transaction_rollback",
            ]
        );
        assert!(!registry.get("none").unwrap().capabilities.isolates);
    }

    #[test]
    fn settings_reach_the_strategies() {
        let settings = Settings { threads: Some(3), exclude: vec!["target".into()], ..Settings::default() };
        let registry = registry_of(&settings, Path::new("/nowhere")).unwrap();
        let options = &registry.get("filesystem_copy").unwrap().options;
        assert_eq!(options["threads"], 3);
        assert_eq!(options["durability"], "volatile");
        assert_eq!(options["exclude"][0], "target");
    }

    #[test]
    fn a_built_in_goes_by_another_name_too() {
        let registry = registry_of(&settings_with("builtin:filesystem_copy"), Path::new("/nowhere")).unwrap();
        assert_eq!(registry.get("mine").unwrap().origin, "filesystem_copy with other options");
        assert!(registry.get("mine").unwrap().capabilities.isolates);
    }

    #[cfg(not(feature = "databases"))]
    #[test]
    fn a_left_out_strategy_is_refused_with_the_reason() {
        let registry =
            registry_of(&settings_with("builtin:transaction_rollback"), Path::new("/nowhere")).unwrap();
        for name in ["mine", "transaction_rollback"] {
            let error = registry.get(name).err().unwrap().to_string();
            assert!(error.contains("this build of sandbox has no database strategies"), "{error}");
        }
    }

    #[test]
    fn a_module_is_declared_and_not_started() {
        let home = tempfile::tempdir().unwrap();
        let registry = registry_of(&settings_with("my_company.strategies:Bucket"), home.path()).unwrap();
        let declared = registry.declared().find(|d| d.name == "mine").unwrap();
        assert_eq!(declared.origin, "my_company.strategies:Bucket");
        assert!(!registry.is_registered("mine"));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_entry_that_cannot_be_meant_troubles_nobody_else() {
        let plugin = CustomStrategy { module: "my_company.strategies:Bucket".into(), ..Default::default() };
        let alias = |of: &str| CustomStrategy { module: format!("builtin:{of}"), ..Default::default() };
        let entries = [
            ("typo", alias("filesystem_cpy"), "no strategy \"filesystem_cpy\""),
            ("none", plugin.clone(), "is registered already"),
            ("../odd", plugin.clone(), "is no name for a custom strategy"),
            ("again", alias("bucket"), "\"bucket\" is no built-in strategy"),
        ];
        let mut settings = Settings::default();
        settings.custom_strategies.insert("bucket".to_owned(), plugin);
        for (name, custom, _) in &entries {
            settings.custom_strategies.insert((*name).to_owned(), custom.clone());
        }
        let registry = registry_of(&settings, Path::new("/nowhere")).unwrap();
        assert!(registry.get("filesystem_copy").is_ok() && !registry.is_registered("bucket"));
        for (name, _, words) in entries {
            let error = registry.get(name).err().unwrap();
            assert!(matches!(&error, Error::Usage { hint: Some(_), .. }), "{error:?}");
            assert!(error.to_string().contains(words) && error.to_string().contains(name), "{error}");
        }
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
