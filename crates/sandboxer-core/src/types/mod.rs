//! The catalogue of resource types: what can be isolated, how it is recognised, and with what.
//!
//! A type is a YAML file. The shipped ones are in `resource-types/` and part of the binary; a user's configuration may
//! add more or replace shipped ones by name. Recognising a location ([`ResourceTypes::detect`]) asks the types in order
//! of their priority, so that the more special one wins: a mount point is a directory too.

mod detect;
mod location;
mod url;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Links, read_bounded, yaml};
use crate::{Error, Result, resolve};

pub use detect::{Detect, DetectKind};
pub use location::is_url;

/// What the shipped types are said to come from.
const BUILT_IN: &str = "built-in";

/// The handlers that there are.
const HANDLERS: [&str; 4] = ["database", "file", "generic", "git"];

/// The handler of what is not files.
const GENERIC: &str = "generic";

/// The handler of databases, on servers and in files.
pub(super) const DATABASE: &str = "database";

/// Name and content of every shipped type.
const EMBEDDED: [(&str, &str); 7] = [
    ("resource-types/fs-directory.yaml", include_str!("../../../../resource-types/fs-directory.yaml")),
    ("resource-types/fs-file.yaml", include_str!("../../../../resource-types/fs-file.yaml")),
    ("resource-types/fs-mount.yaml", include_str!("../../../../resource-types/fs-mount.yaml")),
    ("resource-types/git-checkout.yaml", include_str!("../../../../resource-types/git-checkout.yaml")),
    ("resource-types/mysql.yaml", include_str!("../../../../resource-types/mysql.yaml")),
    ("resource-types/postgres.yaml", include_str!("../../../../resource-types/postgres.yaml")),
    ("resource-types/sqlite.yaml", include_str!("../../../../resource-types/sqlite.yaml")),
];

/// One type of resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceType {
    /// Its name, such as `fs-directory`.
    pub name: String,
    /// One line for `sandbox types`.
    pub summary: String,
    /// Which handler does the work for it.
    pub handler: String,
    /// How it is recognised.
    pub detect: Detect,
    /// The strategy where nobody asks for one.
    pub default_strategy: String,
    /// The strategy where the caller, the profile and the resource ask for none; stronger than the global key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_strategy: Option<String>,
    /// The strategies it is compatible with.
    pub strategies: Vec<String>,
    /// Where it was defined: `built-in`, or the file.
    #[serde(skip_deserializing)]
    pub origin: String,
}

impl ResourceType {
    /// Whether it is a database, which programs connect to or open, and do not work in.
    pub fn is_database(&self) -> bool {
        self.handler == DATABASE
    }

    /// Whether it is one of ours, as opposed to one of a file of the user's.
    pub fn is_shipped(&self) -> bool {
        self.origin == BUILT_IN
    }
}

/// Every known type.
#[derive(Clone, Debug, Default)]
pub struct ResourceTypes {
    types: BTreeMap<String, ResourceType>,
}

impl ResourceTypes {
    /// The shipped types.
    pub fn embedded() -> Result<Self> {
        let types = EMBEDDED.iter().map(|(file, text)| parse(text, Path::new(file), BUILT_IN.to_owned()));
        Self::default().with_layer(types)
    }

    /// These types, and those of `files` on top: a name that exists is replaced, a name twice in `files` is refused.
    pub fn with_overrides(self, files: &[PathBuf]) -> Result<Self> {
        let types = files.iter().map(|file| {
            let text = read_bounded(file, Links::Follow)?;
            parse(&text, file, file.display().to_string())
        });
        self.with_layer(types)
    }

    /// The type files of a `resource-types` directory, by name; none where there is no such directory.
    pub fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("list", directory, error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| Error::io("list", directory, error))?.path();
            if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// The type of that name.
    pub fn get(&self, name: &str) -> Result<&ResourceType> {
        self.types.get(name).ok_or_else(|| Error::NotFound {
            what: "resource type",
            name: name.to_owned(),
            similar: resolve::nearest(name, self.types.keys()),
        })
    }

    /// All types by name.
    pub fn iter(&self) -> impl Iterator<Item = &ResourceType> {
        self.types.values()
    }

    fn with_layer(mut self, types: impl Iterator<Item = Result<ResourceType>>) -> Result<Self> {
        let mut seen = BTreeSet::new();
        for resource_type in types {
            let resource_type = resource_type?;
            if !seen.insert(resource_type.name.clone()) {
                let message = format!("resource type {:?} is defined twice", resource_type.name);
                return Err(wrong(Path::new(&resource_type.origin), message, None));
            }
            self.types.insert(resource_type.name.clone(), resource_type);
        }
        Ok(self)
    }

    /// In the order in which they are asked: priority first; of equals, the user's own before the shipped.
    fn by_priority(&self) -> Vec<&ResourceType> {
        let mut types: Vec<_> = self.types.values().collect();
        types.sort_by_key(|ty| (std::cmp::Reverse(ty.detect.priority), ty.is_shipped(), &ty.name));
        types
    }
}

/// Reads and checks one type.
fn parse(text: &str, file: &Path, origin: String) -> Result<ResourceType> {
    let parsed: Option<ResourceType> = yaml::parse(text, file)?;
    let mut resource_type = parsed.ok_or_else(|| wrong(file, "the file is empty".to_owned(), None))?;
    validate(&resource_type, file)?;
    let Detect { kind, schemes, .. } = &resource_type.detect;
    resource_type.detect.schemes =
        url::checked_schemes(*kind, schemes).map_err(|message| wrong(file, message, None))?;
    resource_type.origin = origin;
    Ok(resource_type)
}

fn validate(ty: &ResourceType, file: &Path) -> Result<()> {
    if !is_type_name(&ty.name) {
        let hint = "lower-case letters, digits and hyphens, such as fs-directory".to_owned();
        return Err(wrong(file, format!("{:?} is not a name for a resource type", ty.name), Some(hint)));
    }
    if !HANDLERS.contains(&ty.handler.as_str()) {
        return Err(wrong(
            file,
            format!("no handler {:?}", ty.handler),
            yaml::nearest_word(&ty.handler, &HANDLERS),
        ));
    }
    if ty.detect.kind == DetectKind::Url && ![GENERIC, DATABASE].contains(&ty.handler.as_str()) {
        let hint = Some(format!("handler: {GENERIC}"));
        return Err(wrong(file, format!("handler {:?} is for files, and a URL is none", ty.handler), hint));
    }
    if !ty.strategies.contains(&ty.default_strategy) {
        let message = format!("default_strategy {:?} is not among strategies", ty.default_strategy);
        return Err(wrong(file, message, Some(format!("listed: {}", ty.strategies.join(", ")))));
    }
    Ok(())
}

/// Whether a resource type can be called that.
pub(crate) fn is_type_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn wrong(file: &Path, message: String, hint: Option<String>) -> Error {
    Error::Config { file: file.to_path_buf(), line: None, column: None, message, hint }
}

#[cfg(test)]
mod tests;
