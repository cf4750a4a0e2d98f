//! The catalogue: every profile, extension and host that is known, each by its id.
//!
//! An entry is a YAML file. The shipped ones are in `profiles/`, `extensions/` and `hosts/` and part of the binary; directories of those
//! names beside the user's configuration add to them or replace one by its id. A file is read with the bounds of a configuration and checked
//! by itself ([`super::validate`]); then what it refers to is looked for among all layers. A project has no say here: it may not bring
//! hosts or plugins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::validate::{self, Problem};
use super::{ExtensionDefinition, Host, InvalidDefinition, Profile};
use crate::config::{Links, read_bounded, yaml};
use crate::types::ResourceTypes;
use crate::{Error, Result, resolve};

/// What the shipped entries are said to come from.
const BUILT_IN: &str = "built-in";

/// What the id of every extension begins with.
const EXTENSION_PREFIX: &str = "ext.";

/// Name and content of every shipped profile.
const PROFILES: [(&str, &str); 3] = [
    ("profiles/profile.compose-e2e.yaml", include_str!("../../../../profiles/profile.compose-e2e.yaml")),
    ("profiles/profile.container.yaml", include_str!("../../../../profiles/profile.container.yaml")),
    ("profiles/profile.local.yaml", include_str!("../../../../profiles/profile.local.yaml")),
];

/// Name and content of every shipped extension.
const EXTENSIONS: [(&str, &str); 3] = [
    ("extensions/ext.compose-ssh.yaml", include_str!("../../../../extensions/ext.compose-ssh.yaml")),
    ("extensions/ext.container.yaml", include_str!("../../../../extensions/ext.container.yaml")),
    ("extensions/ext.local.yaml", include_str!("../../../../extensions/ext.local.yaml")),
];

/// Name and content of every shipped host.
const HOSTS: [(&str, &str); 1] = [("hosts/local.yaml", include_str!("../../../../hosts/local.yaml"))];

/// Every known profile, extension and host.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    profiles: BTreeMap<String, Profile>,
    extensions: BTreeMap<String, ExtensionDefinition>,
    hosts: BTreeMap<String, Host>,
}

/// What a file of the catalogue holds.
trait Entry: DeserializeOwned + Sized {
    /// Its id.
    fn id(&self) -> &str;

    /// Remembers where it was defined.
    fn set_origin(&mut self, origin: String);

    /// What is wrong with it, seen by itself.
    fn check(&self) -> Result<(), Problem>;

    /// What is wrong with it, seen among all the others.
    fn check_among(&self, catalogue: &Catalogue) -> Result<(), Problem>;

    /// The entry of a file whose content could not be read or parsed, because of `error`.
    fn unreadable(_file: &Path, _text: &str, error: Error) -> Result<Self> {
        Err(error)
    }

    /// The same entry, which did not pass its check because of `error`.
    fn invalid(self, error: Error) -> Result<Self> {
        Err(error)
    }
}

impl Entry for Profile {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_origin(&mut self, origin: String) {
        self.origin = origin;
    }

    fn check(&self) -> Result<(), Problem> {
        validate::profile(self)
    }

    fn check_among(&self, catalogue: &Catalogue) -> Result<(), Problem> {
        let Self { extension, placement, .. } = self;
        extension.id.iter().try_for_each(|id| known(&catalogue.extensions, "id", "extension", id))?;
        extension.among.iter().try_for_each(|id| known(&catalogue.extensions, "among", "extension", id))?;
        placement.prefer.iter().try_for_each(|id| known(&catalogue.hosts, "prefer", "host", id))?;
        placement.fallback.iter().try_for_each(|id| known(&catalogue.hosts, "fallback", "host", id))
    }
}

impl Entry for ExtensionDefinition {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_origin(&mut self, origin: String) {
        self.origin = origin;
    }

    fn check(&self) -> Result<(), Problem> {
        validate::extension(self)
    }

    fn check_among(&self, _catalogue: &Catalogue) -> Result<(), Problem> {
        Ok(())
    }

    fn unreadable(file: &Path, text: &str, error: Error) -> Result<Self> {
        Ok(Self::unreadable(id_in(text, file), invalid_definition(file, error)?))
    }

    fn invalid(self, error: Error) -> Result<Self> {
        let invalid = invalid_definition(Path::new(&self.origin), error)?;
        Ok(Self { invalid: Some(invalid), ..self })
    }
}

impl Entry for Host {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_origin(&mut self, origin: String) {
        self.origin = origin;
    }

    fn check(&self) -> Result<(), Problem> {
        validate::host(self)
    }

    fn check_among(&self, catalogue: &Catalogue) -> Result<(), Problem> {
        self.extensions.iter().try_for_each(|id| known(&catalogue.extensions, "extensions", "extension", id))
    }
}

/// An entry with the file that it stands in.
struct Sourced<T> {
    entry: T,
    file: PathBuf,
    text: String,
}

/// The entries of one layer, before they are laid over those below.
#[derive(Default)]
struct Layer {
    profiles: Vec<Sourced<Profile>>,
    extensions: Vec<Sourced<ExtensionDefinition>>,
    hosts: Vec<Sourced<Host>>,
}

impl Catalogue {
    /// What is shipped.
    pub fn embedded() -> Result<Self> {
        Self::default().with_layer(Layer {
            profiles: shipped(&PROFILES)?,
            extensions: shipped(&EXTENSIONS)?,
            hosts: shipped(&HOSTS)?,
        })
    }

    /// This, and `profiles/*.yaml`, `extensions/*.yaml` and `hosts/*.yaml` below `directory` on top: an id that exists is replaced, an id
    /// twice in the directory is refused. A directory that is not there adds nothing.
    pub fn with_directory(self, directory: &Path) -> Result<Self> {
        self.with_layer(Layer {
            profiles: read_all(&directory.join("profiles"))?,
            extensions: read_all(&directory.join("extensions"))?,
            hosts: read_all(&directory.join("hosts"))?,
        })
    }

    /// The profile of that id.
    pub fn profile(&self, id: &str) -> Result<&Profile> {
        get(&self.profiles, "profile", id)
    }

    /// The extension of that id.
    ///
    /// # Errors
    /// There is none, or its file cannot be used.
    pub fn extension(&self, id: &str) -> Result<&ExtensionDefinition> {
        let extension = get(&self.extensions, "extension", id)?;
        extension.invalid.as_ref().map_or(Ok(extension), |invalid| Err(invalid.to_error()))
    }

    /// The host of that id.
    pub fn host(&self, id: &str) -> Result<&Host> {
        get(&self.hosts, "host", id)
    }

    /// All profiles by id.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.profiles.values()
    }

    /// All extensions by id, those included whose file cannot be used.
    pub fn extensions(&self) -> impl Iterator<Item = &ExtensionDefinition> {
        self.extensions.values()
    }

    /// All hosts by id.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values()
    }

    /// Nothing below is ever taken away, so what a layer below refers to stays there: only the new entries are looked at.
    fn with_layer(mut self, layer: Layer) -> Result<Self> {
        lay_over(&mut self.profiles, &layer.profiles, "profile")?;
        lay_over(&mut self.extensions, &layer.extensions, "extension")?;
        lay_over(&mut self.hosts, &layer.hosts, "host")?;
        layer.profiles.iter().try_for_each(|it| it.check_among(&self))?;
        layer.hosts.iter().try_for_each(|it| it.check_among(&self))?;
        Ok(self)
    }
}

impl<T: Entry> Sourced<T> {
    /// Reads `text`, the content of `file`, and checks it by itself.
    fn parse(file: &Path, text: String, origin: String) -> Result<Self> {
        let parsed = yaml::parse(&text, file).and_then(|parsed| parsed.ok_or_else(|| empty(file)));
        let mut entry: T = match parsed {
            Ok(entry) => entry,
            Err(error) => return Self::unreadable(file, text, error, origin),
        };
        entry.set_origin(origin);
        if let Err(problem) = entry.check() {
            entry = entry.invalid(problem.located(file, &text))?;
        }
        Ok(Self { entry, file: file.to_path_buf(), text })
    }

    fn unreadable(file: &Path, text: String, error: Error, origin: String) -> Result<Self> {
        let mut entry = T::unreadable(file, &text, error)?;
        entry.set_origin(origin);
        Ok(Self { entry, file: file.to_path_buf(), text })
    }

    fn check_among(&self, catalogue: &Catalogue) -> Result<()> {
        self.entry.check_among(catalogue).map_err(|problem| problem.located(&self.file, &self.text))
    }
}

fn shipped<T: Entry>(files: &[(&str, &str)]) -> Result<Vec<Sourced<T>>> {
    let parse = |(file, text): &(&str, &str)| {
        Sourced::parse(Path::new(file), (*text).to_owned(), BUILT_IN.to_owned())
    };
    files.iter().map(parse).collect()
}

fn read_all<T: Entry>(directory: &Path) -> Result<Vec<Sourced<T>>> {
    let read = |file: &PathBuf| {
        let origin = file.display().to_string();
        match read_bounded(file, Links::Follow) {
            Ok(text) => Sourced::parse(file, text, origin),
            Err(error) => Sourced::unreadable(file, String::new(), error, origin),
        }
    };
    ResourceTypes::files_in(directory)?.iter().map(read).collect()
}

/// Puts one layer's entries over those that are there. Both files of an id that it has twice are named.
fn lay_over<T: Entry + Clone>(
    below: &mut BTreeMap<String, T>,
    layer: &[Sourced<T>],
    what: &str,
) -> Result<()> {
    let mut files: BTreeMap<&str, &Path> = BTreeMap::new();
    for Sourced { entry, file, text } in layer {
        if let Some(first) = files.insert(entry.id(), file) {
            let message = format!("{what} {:?} is defined in {} already", entry.id(), first.display());
            let problem = Problem::new("id", entry.id(), message).hint("give one of the two another id");
            return Err(problem.located(file, text));
        }
        below.insert(entry.id().to_owned(), entry.clone());
    }
    Ok(())
}

fn get<'a, T>(entries: &'a BTreeMap<String, T>, what: &'static str, id: &str) -> Result<&'a T> {
    let similar = || resolve::nearest(id, entries.keys());
    entries.get(id).ok_or_else(|| Error::NotFound { what, name: id.to_owned(), similar: similar() })
}

/// Whether what stands at `key` is there.
fn known<T>(entries: &BTreeMap<String, T>, key: &'static str, what: &str, id: &str) -> Result<(), Problem> {
    if entries.contains_key(id) {
        return Ok(());
    }
    let valid: Vec<&str> = entries.keys().map(String::as_str).collect();
    let near = yaml::nearest_word(id, &valid);
    Err(Problem::new(key, id, format!("no {what} {id:?}")).maybe_hint(near))
}

/// Why a file cannot be used; an error that is not about the file is returned as it is.
fn invalid_definition(file: &Path, error: Error) -> Result<InvalidDefinition> {
    match error {
        Error::Config { file, line, column, message, hint } => {
            Ok(InvalidDefinition { file, line, column, message, hint })
        }
        Error::Io { .. } => {
            let (file, message) = (file.to_path_buf(), error.in_full());
            Ok(InvalidDefinition { file, line: None, column: None, message, hint: None })
        }
        other => Err(other),
    }
}

/// The id that an unreadable file declares: the word at its first key `id`, else one made of the file's name.
fn id_in(text: &str, file: &Path) -> String {
    let id_at = |line: &str| {
        let value = line[validate::key_at(line, "id")?..].split_once(':')?.1;
        let value = value.trim_start_matches([' ', '"', '\'']);
        let end = value.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.'));
        let id = &value[..end.unwrap_or(value.len())];
        id.starts_with(EXTENSION_PREFIX).then(|| id.to_owned())
    };
    text.lines().find_map(id_at).unwrap_or_else(|| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        format!("{EXTENSION_PREFIX}{}", stem.strip_prefix(EXTENSION_PREFIX).unwrap_or(&stem))
    })
}

fn empty(file: &Path) -> Error {
    Error::Config {
        file: file.to_path_buf(),
        line: None,
        column: None,
        message: "the file is empty".to_owned(),
        hint: None,
    }
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
