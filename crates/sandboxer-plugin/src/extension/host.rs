//! From a definition of the catalogue to an extension.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandboxer_core::config::{CustomStrategy, Source, parse_ttl};
use sandboxer_core::environment::{ExtensionContext, ExtensionDefinition, ExtensionFactory, Provider};
use sandboxer_core::verification::CheckResult;
use sandboxer_core::{Error, Result};

use super::EXTENSION;
use super::client::PluginExtension;
use crate::check_record::CheckRecord;
use crate::envelope::log::Log;
use crate::envelope::plugin::{Definition, Plugin};
use crate::envelope::secrets::Secrets;
use crate::python;
use crate::source::{greeting, launch, plugins};

/// How long a call may take where the definition does not say: what makes machines takes its time.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Makes the extensions of the provider `plugin`. Python modules are looked for beside the file of the definition, too.
pub fn factory() -> ExtensionFactory {
    Arc::new(|definition, context| Ok(Arc::new(extension(definition, context)?)))
}

/// Where an extension's standard error is kept.
pub fn log_path(home: &Path, id: &str) -> PathBuf {
    plugins(home, "extension/log").join(format!("{id}.log"))
}

fn extension(definition: &ExtensionDefinition, context: &ExtensionContext) -> Result<PluginExtension> {
    check_id(&definition.id)?;
    let about = |error| match error {
        Error::Usage { message, hint } => {
            Error::Usage { message: format!("{}: {message}", definition.id), hint }
        }
        other => other,
    };
    let source = source(definition).map_err(about)?;
    let record = check_record(&context.home, definition, &source);
    let state = plugins(&context.home, "extension/state").join(&definition.id);
    let log = log_path(&context.home, &definition.id);
    python::make_private(&state)?;
    python::make_private(log.parent().unwrap_or(&state))?;
    let secrets = Secrets::of(&source.env, std::env::vars_os());
    let modules = beside(&definition.origin);
    let plugin = Plugin::new(Definition {
        name: definition.id.clone(),
        role: &EXTENSION,
        launch: launch(&source, &context.home, &state)?,
        greeting: greeting(&source, modules.as_deref(), &state),
        timeout: source.timeout.unwrap_or(TIMEOUT),
        log: Log::new(&log, secrets.clone()),
        secrets,
        cancel: context.cancel.clone(),
    });
    Ok(PluginExtension { plugin, cancel: context.cancel.clone(), record, verified: OnceLock::new() })
}

/// The result of the last check of an extension, without starting it; `None` for one that is not a plugin.
pub fn last_check(home: &Path, definition: &ExtensionDefinition) -> Option<CheckResult> {
    if let Some(invalid) = &definition.invalid {
        return CheckResult::from_error(&invalid.to_error());
    }
    if !matches!(definition.provider, Provider::Plugin { .. }) {
        return None;
    }
    Some(match source(definition) {
        Ok(source) => check_record(home, definition, &source).load(),
        Err(error) => CheckResult::from_error(&error).unwrap_or_default(),
    })
}

/// Keeps the result of a full check of an extension; one that is not a plugin has none.
///
/// # Errors
/// The state directory cannot be written.
pub fn save_check(home: &Path, definition: &ExtensionDefinition, result: CheckResult) -> Result<()> {
    match source(definition) {
        Ok(source) => check_record(home, definition, &source).save(result),
        Err(_) => Ok(()),
    }
}

fn check_record(home: &Path, definition: &ExtensionDefinition, source: &CustomStrategy) -> CheckRecord {
    CheckRecord::open(home, &EXTENSION, &definition.id, source, beside(&definition.origin).as_deref())
}

/// The directory of the file that a definition comes from; what is built in has none.
fn beside(origin: &str) -> Option<PathBuf> {
    let directory = Path::new(origin).parent().filter(|directory| !directory.as_os_str().is_empty())?;
    std::path::absolute(directory).ok()
}

/// What is started, in the words of a configuration's entry.
fn source(definition: &ExtensionDefinition) -> Result<CustomStrategy> {
    let Provider::Plugin { module, class, python, timeout } = &definition.provider else {
        return Err(Error::usage(format!("its provider is `{}`, no plugin", definition.provider.word())));
    };
    let timeout = timeout.as_deref().map(parse_ttl).transpose()?.map(|time| time.unsigned_abs());
    let source = CustomStrategy {
        module: module.clone(),
        class: class.clone(),
        python: python.clone(),
        timeout,
        options: definition.options.clone(),
        ..CustomStrategy::default()
    };
    source.check()?;
    match source.source() {
        Source::Builtin(name) => Err(Error::usage(format!("`builtin:{name}` is no plugin"))),
        _ => Ok(source),
    }
}

/// It names a file and a directory.
fn check_id(id: &str) -> Result<()> {
    let is_plain = id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if is_plain && !id.is_empty() && !id.starts_with('.') && id.len() <= 100 {
        return Ok(());
    }
    Err(Error::Usage {
        message: format!("{id:?} is no id of an extension"),
        hint: Some("`ext.` and letters, digits, `_`, `-` or `.`, such as ext.team-vm".to_owned()),
    })
}
