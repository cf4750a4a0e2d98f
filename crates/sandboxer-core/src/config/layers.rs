//! From the layers to one set of values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file::{Links, read_bounded};
use super::keys::{KEYS, Setting};
use super::schema::{self, Entry};
use super::settings::Settings;
use super::trust::TrustStore;
use super::untrusted;
use crate::{Error, Result};

/// The name of a project's configuration file.
pub const PROJECT_FILE: &str = "sandboxer.yaml";

/// Where values come from, collected by the caller.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The user's file. It must exist: a default location is given only where there is a file.
    pub user_file: Option<PathBuf>,
    /// The project's file, as [`find_project_file`] found it.
    pub project_file: Option<PathBuf>,
    /// Variables of the environment by their whole names. Those that are no key's variable are passed over.
    pub env: BTreeMap<String, String>,
    /// Values from flags by dotted key, as text; lists are separated by colons.
    pub overrides: BTreeMap<String, String>,
}

/// Resolves every key over all layers.
pub fn load(layers: &Layers, trust: &TrustStore) -> Result<Settings> {
    let mut settings = Settings::default();
    if let Some(file) = &layers.user_file {
        let origin = format!("user file {}", file.display());
        for entry in schema::parse(&read_bounded(file, Links::Follow)?, file)? {
            entry.setting.apply(&mut settings, &origin);
        }
    }
    if let Some(file) = &layers.project_file {
        apply_project_file(file, trust, &mut settings)?;
    }
    apply_environment(&layers.env, &mut settings)?;
    apply_overrides(&layers.overrides, &mut settings)?;
    Ok(settings)
}

/// The `sandboxer.yaml` of the nearest directory from `start` upwards. Whatever has the name counts, so that a link
/// or a directory in its place is complained of rather than passed over.
pub fn find_project_file(start: &Path) -> Option<PathBuf> {
    let start = std::fs::canonicalize(start).or_else(|_| std::path::absolute(start)).ok()?;
    start.ancestors().map(|dir| dir.join(PROJECT_FILE)).find(|file| file.symlink_metadata().is_ok())
}

/// Reads the file once, so that what is trusted is what is used.
fn apply_project_file(file: &Path, trust: &TrustStore, settings: &mut Settings) -> Result<()> {
    let text = read_bounded(file, Links::Refuse)?;
    let entries = schema::parse(&text, file)?;
    entries.iter().try_for_each(|entry| untrusted::check_owner(entry, file))?;
    let trusted = entries.is_empty() || trust.trusts_content(file, text.as_bytes())?;
    if !trusted {
        let below = settings.clone();
        entries.iter().try_for_each(|entry| untrusted::check(entry, &below, file))?;
    }
    let origin =
        format!("{} {}", if trusted { "project file" } else { "untrusted project file" }, file.display());
    for Entry { setting, .. } in entries {
        if matches!(setting, Setting::Strategy(_)) && !trusted {
            settings.untrusted_strategy = Some(file.to_path_buf());
        }
        setting.apply(settings, &origin);
    }
    Ok(())
}

fn apply_environment(env: &BTreeMap<String, String>, settings: &mut Settings) -> Result<()> {
    for key in KEYS {
        let Some((variable, text)) = key.variable.and_then(|name| Some((name, env.get(name)?))) else {
            continue;
        };
        // An empty variable is how many programs unset one.
        if !text.is_empty() {
            let setting = Setting::from_text(key.name, text).map_err(|error| prefixed(error, variable))?;
            set(setting, settings, &format!("environment {variable}"));
        }
    }
    Ok(())
}

fn apply_overrides(overrides: &BTreeMap<String, String>, settings: &mut Settings) -> Result<()> {
    for (key, text) in overrides {
        let setting = Setting::from_text(key, text).map_err(|error| prefixed(error, key))?;
        set(setting, settings, "flag");
    }
    Ok(())
}

/// Applies a value of the caller's own, which takes the place of a stranger's choice.
fn set(setting: Setting, settings: &mut Settings, origin: &str) {
    if matches!(setting, Setting::Strategy(_)) {
        settings.untrusted_strategy = None;
    }
    setting.apply(settings, origin);
}

fn prefixed(error: Error, source: &str) -> Error {
    match error {
        Error::Usage { message, hint } => Error::Usage { message: format!("{source}: {message}"), hint },
        other => other,
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
