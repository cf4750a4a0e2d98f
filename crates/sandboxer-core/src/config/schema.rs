//! The shape of a configuration file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::keys::{self, Setting};
use super::settings::CustomStrategy;
use super::yaml;
use crate::{Error, Result};

/// A value of a file and the line it stands on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) setting: Setting,
    pub(super) line: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    sandbox: Option<SandboxSection>,
    state: Option<StateSection>,
    copy: Option<CopySection>,
    actor_type: Option<Spanned<String>>,
    project: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SandboxSection {
    strategy: Option<Spanned<String>>,
    custom_strategies: Option<Spanned<BTreeMap<String, CustomStrategy>>>,
    default_ttl: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StateSection {
    lock_wait: Option<Spanned<String>>,
    scratch: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CopySection {
    include: Option<Spanned<Vec<String>>>,
    exclude: Option<Spanned<Vec<String>>>,
    threads: Option<Spanned<u64>>,
}

/// Everything that `text`, the content of `file`, sets.
pub(super) fn parse(text: &str, file: &Path) -> Result<Vec<Entry>> {
    let document = yaml::parse::<Document>(text, file)?.unwrap_or_default();
    let (sandbox, state, copy) = (
        document.sandbox.unwrap_or_default(),
        document.state.unwrap_or_default(),
        document.copy.unwrap_or_default(),
    );
    let mut entries = Entries { file, found: Vec::new() };
    entries.text("sandbox.strategy", sandbox.strategy)?;
    entries.add(sandbox.custom_strategies, custom_strategies)?;
    entries.text("sandbox.default_ttl", sandbox.default_ttl)?;
    entries.text("state.lock_wait", state.lock_wait)?;
    entries.text("state.scratch", state.scratch)?;
    entries.add(copy.include, |list| Ok(Setting::Include(keys::patterns(list.into_iter())?)))?;
    entries.add(copy.exclude, |list| Ok(Setting::Exclude(keys::patterns(list.into_iter())?)))?;
    entries.add(copy.threads, |count| Ok(Setting::Threads(keys::threads(count)?)))?;
    entries.text("actor_type", document.actor_type)?;
    entries.text("project", document.project)?;
    Ok(entries.found)
}

fn custom_strategies(custom: BTreeMap<String, CustomStrategy>) -> Result<Setting> {
    for (name, strategy) in &custom {
        keys::word(name)?;
        keys::word(&strategy.module)?;
    }
    Ok(Setting::CustomStrategies(custom))
}

struct Entries<'a> {
    file: &'a Path,
    found: Vec<Entry>,
}

impl Entries<'_> {
    fn text(&mut self, key: &str, value: Option<Spanned<String>>) -> Result<()> {
        self.add(value, |text| Setting::from_text(key, &text))
    }

    fn add<T>(&mut self, value: Option<Spanned<T>>, read: impl FnOnce(T) -> Result<Setting>) -> Result<()> {
        let Some(spanned) = value else { return Ok(()) };
        let line = Some(spanned.referenced.line()).filter(|line| *line > 0);
        let setting = read(spanned.value).map_err(|error| located(error, self.file, line))?;
        self.found.push(Entry { setting, line });
        Ok(())
    }
}

/// A complaint about a value, told as a complaint about its place in the file.
fn located(error: Error, file: &Path, line: Option<u64>) -> Error {
    match error {
        Error::Usage { message, hint } => Error::Config { file: file.to_path_buf(), line, message, hint },
        other => other,
    }
}
