//! What is left of a stack's files when all that they refer to has been followed.

use std::collections::BTreeMap;
use std::path::Path;

use sandboxer_core::model::RelPath;
use serde_json::{Map, Value};

use crate::at::At;
use crate::bases::Bases;
use crate::dockerfile::Fetch;
use crate::files::Kind;

/// Where a stack is described.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The workspace's root on this machine.
    pub root: &'a Path,
    /// The file that the profile names, relative to the root; `None` for whichever [`find`](crate::find) finds.
    pub file: Option<&'a str>,
    /// What `${…}` stands for. Stronger than `.env` beside the file; the environment of this process counts for nothing.
    pub variables: &'a BTreeMap<String, String>,
}

/// A stack that refers to nothing any more but places below the root. Nothing in it has been allowed yet.
#[derive(Debug)]
pub struct Model {
    pub(crate) file: RelPath,
    pub(crate) services: BTreeMap<String, Definition>,
    pub(crate) networks: BTreeMap<String, Declared>,
    pub(crate) volumes: BTreeMap<String, Declared>,
    pub(crate) secrets: BTreeMap<String, Declared>,
    pub(crate) configs: BTreeMap<String, Declared>,
    /// What is at the places that services refer to.
    pub(crate) kinds: BTreeMap<String, Kind>,
    /// What builds would make the engine fetch, by the Dockerfile's place.
    pub(crate) fetches: BTreeMap<String, Option<Fetch>>,
    /// What they build from, likewise.
    pub(crate) bases: BTreeMap<String, Bases>,
    pub(crate) left_out: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl Model {
    /// The file that it begins with.
    pub fn file(&self) -> &RelPath {
        &self.file
    }

    /// The names of the services that run.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.services.keys().map(String::as_str)
    }
}

/// A service, and which file each of its keys comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definition {
    pub file: String,
    pub origins: BTreeMap<String, String>,
    pub keys: Map<String, Value>,
}

impl Definition {
    /// Where a key of it stands.
    pub fn at(&self, name: &str, key: &str) -> At {
        self.at_itself_in(name, key).key(key)
    }

    /// Where it stands in the file that a key comes from.
    pub fn at_itself_in(&self, name: &str, key: &str) -> At {
        let file = self.origins.get(key).unwrap_or(&self.file);
        At::file(file).key("services").key(name)
    }

    /// Where it stands itself.
    pub fn at_itself(&self, name: &str) -> At {
        At::file(&self.file).key("services").key(name)
    }

    /// This one over `weaker`.
    pub fn over(&self, weaker: &Definition) -> Definition {
        let mut origins = weaker.origins.clone();
        origins.extend(self.origins.clone());
        Definition { file: self.file.clone(), origins, keys: crate::merge::service(&weaker.keys, &self.keys) }
    }
}

/// A network, a volume, a secret or a config, and the file that declares it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Declared {
    pub file: String,
    pub value: Map<String, Value>,
}

impl Declared {
    /// Where it stands.
    pub fn at(&self, section: &str, name: &str) -> At {
        At::file(&self.file).key(section).key(name)
    }
}
