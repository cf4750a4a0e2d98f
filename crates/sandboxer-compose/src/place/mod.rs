//! The model against the allowlist, with names, labels, networks and limits of ours.

mod build;
mod files;
mod health;
mod keys;
mod limits;
mod mounts;
mod namespaces;
mod networks;
mod service;
mod stack;
mod volumes;
mod write;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::Result;
use serde_json::{Map, Value};

use crate::at::At;
use crate::model::{Definition, Model};
use crate::policy::{Allowance, Policy};
use crate::read;

pub use keys::service_keys;
pub use networks::BRIDGE_NAME;
pub use service::PROXIES;
pub use stack::{Expected, Port, Sealed, Service, Stack};

/// Whether what runs may reach a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Services reach each other and nothing else; no port is published.
    Deny,
    /// Networks are the engine's usual ones; ports are published on loopback.
    Open,
}

/// What all services of a stack may use together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// Where and how a stack is to run.
#[derive(Clone, Copy, Debug)]
pub struct Placing<'a> {
    /// The project's name: what everything is named after.
    pub project: &'a str,
    /// Where the workspace's root is on the host that runs it, absolute.
    pub workspace: &'a str,
    /// The directory there that holds [`Stack::sealed`], absolute and not below the workspace.
    pub sealed: &'a str,
    /// Labels on all services, networks, volumes and built images.
    pub labels: &'a BTreeMap<String, String>,
    /// Whether there is a network.
    pub network: Network,
    /// What the stack may use as a whole.
    pub limits: Limits,
    /// The prefix of the bridges of networks that nothing leaves; ten digits follow.
    pub bridges: &'a str,
    /// A name server that nobody has.
    pub nobody: &'a str,
    /// What the host allows.
    pub policy: &'a Policy,
    /// The volumes, as the file calls them, that begin with what was kept of them and not with what an image has there.
    pub kept_volumes: &'a BTreeSet<String>,
}

/// The stack as one file, or what in it is not allowed.
pub fn place(model: &Model, placing: &Placing<'_>) -> Result<Stack> {
    let placer = Placer::new(model, placing);
    placer.stack()
}

/// One placing, as it goes on.
struct Placer<'a> {
    model: &'a Model,
    placing: &'a Placing<'a>,
    shares: BTreeMap<String, limits::Share>,
    /// Places that some service can write to.
    writable: BTreeSet<String>,
    sealed: RefCell<Vec<Sealed>>,
    expected: RefCell<BTreeSet<Expected>>,
    bases: RefCell<BTreeSet<String>>,
    notes: RefCell<Vec<String>>,
}

impl<'a> Placer<'a> {
    fn new(model: &'a Model, placing: &'a Placing<'a>) -> Self {
        Self {
            model,
            placing,
            shares: BTreeMap::new(),
            writable: mounts::writable(model),
            sealed: RefCell::default(),
            expected: RefCell::default(),
            bases: RefCell::default(),
            notes: RefCell::new(model.notes.clone()),
        }
    }

    fn denied(&self) -> bool {
        self.placing.network == Network::Deny
    }

    fn allows(&self, allowance: Allowance) -> bool {
        self.placing.policy.allows(allowance)
    }

    /// Lets through what the host allows.
    fn demand(&self, allowance: Allowance, at: &At, what: &str) -> Result<()> {
        if self.allows(allowance) { Ok(()) } else { Err(at.needs(what, allowance)) }
    }

    fn note(&self, at: &At, what: &str) {
        let note = at.says(what);
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Labels of the file, and ours over them.
    fn labels(&self, given: Option<&Value>, at: &At) -> Result<Value> {
        let mut labels = Map::new();
        for (key, value) in given.map(|given| read::map(given, at)).transpose()?.into_iter().flatten() {
            let ours = key.starts_with("sandboxer.") || key.starts_with("com.docker.compose.");
            let ours = ours || key.starts_with("io.podman.compose.");
            if ours {
                self.note(&at.key(key), "dropped: this label is not the file's to set");
            } else if !read::is_label(key) {
                return Err(at
                    .key(key)
                    .refuse("this is not the name of a label", "use letters, digits, `.`, `-`, `/`"));
            } else if !self.allows(Allowance::Labels) {
                self.note(at, "dropped: programs of the host may obey labels; its policy can allow `labels`");
            } else {
                labels.insert(key.clone(), value.as_str().unwrap_or_default().into());
            }
        }
        labels.extend(self.placing.labels.iter().map(|(key, value)| (key.clone(), value.clone().into())));
        Ok(Value::Object(labels))
    }

    /// Whether a service by that name runs.
    fn expect_service(&self, name: &str, at: &At) -> Result<&'a Definition> {
        if let Some(found) = self.model.services.get(name) {
            return Ok(found);
        }
        if self.model.left_out.iter().any(|left| left == name) {
            let what = format!("the service {name:?} belongs to a profile that is not asked for");
            return Err(
                at.refuse(what, "name the profile in COMPOSE_PROFILES, among the profile's variables")
            );
        }
        let names: Vec<&str> = self.model.services.keys().map(String::as_str).collect();
        Err(at.unknown("the service", name, &names))
    }
}
