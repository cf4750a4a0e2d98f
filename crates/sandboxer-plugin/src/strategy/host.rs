//! From an entry of the configuration to a strategy in the registry.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::config::{CustomStrategy, Source};
use sandboxer_core::contract::{CancelFlag, Capabilities};
use sandboxer_core::registry::{Declaration, StrategyEntry};
use sandboxer_core::{Error, Result};
use serde_json::{Value, json};

use super::client::PluginStrategy;
use super::locks::Locks;
use super::places::{self, Places};
use super::{STRATEGY, failure};
use crate::check_record::CheckRecord;
use crate::envelope::log::Log;
use crate::envelope::plugin::{Definition, Failure, Plugin, Welcome};
use crate::envelope::secrets::Secrets;
use crate::python;
use crate::source::{greeting, launch, plugins};

/// How long a call may take where the configuration does not say.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a commit waits for another where nobody says.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// What a plugin is surrounded by.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The state directory.
    pub home: PathBuf,
    /// Where Python modules are looked for besides the interpreter's own places.
    pub modules: Option<PathBuf>,
    /// Where the settings want workspaces.
    pub scratch: Option<PathBuf>,
    /// How long a commit waits for another one to the same resource.
    pub lock_wait: Duration,
    /// Set when the user wants to stop.
    pub cancel: CancelFlag,
}

impl Surroundings {
    /// A state directory, and nothing special.
    pub fn of_home(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            modules: None,
            scratch: None,
            lock_wait: LOCK_WAIT,
            cancel: CancelFlag::default(),
        }
    }
}

/// Where a plugin's standard error is kept.
pub fn log_path(home: &Path, name: &str) -> PathBuf {
    plugins(home, "log").join(format!("{name}.log"))
}

/// A custom strategy that is not built in, as the registry takes it: nothing is started before somebody asks for it.
pub fn declaration(name: &str, custom: &CustomStrategy, around: &Surroundings) -> Result<Declaration> {
    check_name(name)?;
    let record = {
        let (name, custom, around) = (name.to_owned(), custom.clone(), around.clone());
        move || check_record(&around.home, &name, &custom, around.modules.as_deref())
    };
    let verify = {
        let (name, custom, around, record) =
            (name.to_owned(), custom.clone(), around.clone(), record.clone());
        move || {
            let record = record();
            let entry = entry(&name, &custom, &around);
            record.save_verification(&entry);
            entry
        }
    };
    Ok(Declaration {
        name: name.to_owned(),
        origin: origin(custom),
        resource_types: custom.resource_types.clone(),
        verify: Arc::new(verify),
        last_check: Arc::new(move || record().load()),
    })
}

/// The record of the last check of a strategy that is declared like this.
pub fn check_record(home: &Path, name: &str, custom: &CustomStrategy, modules: Option<&Path>) -> CheckRecord {
    CheckRecord::open(home, &STRATEGY, name, custom, modules)
}

/// It names a file and a directory.
fn check_name(name: &str) -> Result<()> {
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if is_plain && !name.starts_with('.') && name.len() <= 100 {
        return Ok(());
    }
    Err(Error::Usage {
        message: format!("{name:?} is no name for a custom strategy"),
        hint: Some("letters, digits, `_`, `-` and `.`, such as team_bucket".to_owned()),
    })
}

fn origin(custom: &CustomStrategy) -> String {
    match custom.source() {
        Source::Builtin(name) => format!("{name} with other options"),
        Source::Python { module, class } => format!("{module}:{class}"),
        Source::Program { path, class: Some(class) } => format!("exec:{} ({class})", path.display()),
        Source::Program { path, class: None } => format!("exec:{}", path.display()),
    }
}

/// Starts it, and registers it if it is a strategy.
fn entry(name: &str, custom: &CustomStrategy, around: &Surroundings) -> Result<StrategyEntry> {
    let (state, log) = (plugins(&around.home, "state").join(name), log_path(&around.home, name));
    places::as_text(&state)?;
    python::make_private(&state)?;
    python::make_private(log.parent().unwrap_or(&state))?;
    let secrets = Secrets::of(&custom.env, std::env::vars_os());
    let log = Log::new(&log, secrets.clone());
    let definition = Definition {
        name: name.to_owned(),
        role: &STRATEGY,
        launch: launch(custom, &around.home, &state)?,
        greeting: greeting(custom, around.modules.as_deref(), &state),
        timeout: custom.timeout.unwrap_or(TIMEOUT),
        log,
        secrets,
        cancel: around.cancel.clone(),
    };
    let plugin = Arc::new(Plugin::new(definition));
    let welcome = plugin.welcome().map_err(|failure| not_registered(&plugin, failure))?.clone();
    let mut capabilities = capabilities(&plugin, &welcome)?;
    if !custom.resource_types.is_empty() {
        capabilities.resource_types.clone_from(&custom.resource_types);
    }
    let places = Places { home: around.home.clone(), chosen: around.scratch.clone(), state };
    let (made_of, locks_itself, around) = (capabilities.clone(), welcome.locks, around.clone());
    Ok(StrategyEntry {
        name: name.to_owned(),
        summary: welcome.summary,
        origin: origin(custom),
        capabilities,
        options: custom.options.clone(),
        // One process serves every instance.
        factory: Arc::new(move |_, _, context| {
            let locks = || Locks::new(plugins(&around.home, "locks"), around.lock_wait);
            Ok(Arc::new(PluginStrategy {
                plugin: plugin.clone(),
                capabilities: made_of.clone(),
                places: places.clone(),
                locks: (!locks_itself).then(locks),
                cancel: context.cancel.clone(),
            }))
        }),
    })
}

fn not_registered(plugin: &Plugin, failure: Failure) -> Error {
    let log = Some(plugin.log().to_path_buf());
    let plugin_error = |reason| Error::Plugin { plugin: plugin.name().to_owned(), reason, log: log.clone() };
    match failure {
        Failure::Broken { reason, .. } => plugin_error(reason),
        Failure::Told(error) => {
            failure::from_wire(plugin.name(), "initialize", error, plugin.log().to_path_buf())
        }
        Failure::Invalid(problems) => plugin.invalid(problems),
        Failure::Cancelled => Error::Cancelled,
    }
}

/// A word that is no capability is a mistake, and so is one that its `commit` cannot live up to.
fn capabilities(plugin: &Plugin, welcome: &Welcome) -> Result<Capabilities> {
    let refused = |reason: String| Error::Plugin {
        plugin: plugin.name().to_owned(),
        reason,
        log: Some(plugin.log().to_path_buf()),
    };
    let known = json!(Capabilities::default());
    let declared = match &welcome.capabilities {
        Value::Null => serde_json::Map::new(),
        Value::Object(declared) => declared.clone(),
        _ => return Err(refused("its capabilities are no object".to_owned())),
    };
    let unknown: Vec<&str> =
        declared.keys().filter(|key| known.get(key).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(refused(format!("it declares what is no capability: {}", unknown.join(", "))));
    }
    let can: Capabilities = serde_json::from_value(Value::Object(declared))
        .map_err(|error| refused(format!("its capabilities cannot be read: {error}")))?;
    if can.prepare_ends && !can.two_phase {
        return Err(refused("it declares `prepare_ends`, and not `two_phase`".to_owned()));
    }
    let takes_request = welcome.methods.get("commit").is_some_and(|shape| shape.takes(2));
    let needs_request = [
        (can.two_phase, "two_phase"),
        (can.prepare_ends, "prepare_ends"),
        (can.select_paths, "select_paths"),
        (can.select_hunks, "select_hunks"),
        (can.keeps_base, "keeps_base"),
        (can.resolves, "resolves"),
        (can.branches, "branches"),
    ];
    match needs_request.iter().find(|(declared, _)| *declared && !takes_request) {
        Some((_, word)) => Err(refused(format!("it declares `{word}`, and its `commit` takes no request"))),
        None => Ok(can),
    }
}
