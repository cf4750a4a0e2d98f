//! How a plugin is started, whatever its role is: from what the configuration says to a process and its greeting.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sandboxer_core::config::{CustomStrategy, Source};
use sandboxer_core::{Error, Result};
use serde_json::{Value, json};

use crate::envelope::process::Launch;
use crate::python;

/// What belongs to plugins, below the state directory: `state/NAME`, `log/NAME.log`, `locks`, `python`;
/// of extensions `extension/state/ID` and `extension/log/ID.log`.
pub(crate) fn plugins(home: &Path, part: &str) -> PathBuf {
    home.join("plugins").join(part)
}

/// How the process of a plugin is started.
pub(crate) fn launch(custom: &CustomStrategy, home: &Path, state: &Path) -> Result<Launch> {
    let mut env = custom.env.clone();
    let (program, arguments) = match custom.source() {
        Source::Python { .. } => {
            env.extend(module_path(custom));
            let host: OsString = python::unpacked(&plugins(home, "python"))?.into();
            (python::interpreter(custom.python.as_deref()), vec![host])
        }
        Source::Program { path, .. } => (path.to_path_buf(), Vec::new()),
        Source::Builtin(name) => return Err(Error::usage(format!("{name:?} is built in, and no plugin"))),
    };
    Ok(Launch { program, arguments, env, directory: state.to_path_buf() })
}

/// `PYTHONPATH` as it is meant: a plugin is started somewhere else than its user is.
fn module_path(custom: &CustomStrategy) -> Option<(String, String)> {
    const NAME: &str = "PYTHONPATH";
    let present = custom.env.get(NAME).cloned().or_else(|| std::env::var(NAME).ok())?;
    let absolute = |entry: &str| std::path::absolute(entry).ok()?.to_str().map(str::to_owned);
    let entries: Vec<String> = present.split(':').filter(|e| !e.is_empty()).filter_map(absolute).collect();
    Some((NAME.to_owned(), entries.join(":")))
}

/// The files that a plugin may be loaded from, whether they exist or not: the program, or the module in every directory that is
/// known without starting Python.
pub(crate) fn source_files(custom: &CustomStrategy, modules: Option<&Path>) -> Vec<PathBuf> {
    match custom.source() {
        Source::Builtin(_) => Vec::new(),
        Source::Program { path, .. } => vec![path.to_path_buf()],
        Source::Python { module, .. } => {
            let relative = module.replace('.', "/");
            let files = |directory: PathBuf| {
                let path = directory.join(&relative);
                [path.join("__init__.py"), path.with_extension("py")]
            };
            module_directories(custom, modules).into_iter().flat_map(files).collect()
        }
    }
}

fn module_directories(custom: &CustomStrategy, modules: Option<&Path>) -> Vec<PathBuf> {
    let path = module_path(custom).map(|(_, path)| path).unwrap_or_default();
    let listed = path.split(':').filter(|entry| !entry.is_empty()).map(PathBuf::from);
    let installed = python::site_packages(&python::interpreter(custom.python.as_deref()));
    listed.chain(installed).chain(modules.map(Path::to_path_buf)).collect()
}

/// What it is told first.
pub(crate) fn greeting(
    custom: &CustomStrategy,
    modules: Option<&Path>,
    state: &Path,
) -> BTreeMap<String, Value> {
    let (module, class) = match custom.source() {
        Source::Python { module, class } => (Some(module), Some(class)),
        Source::Program { class, .. } => (None, class),
        Source::Builtin(_) => (None, None),
    };
    [
        ("module", json!(module)),
        ("class", json!(class)),
        ("options", json!(custom.options)),
        ("modules", json!(modules.and_then(Path::to_str))),
        ("state", json!(state)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}
