//! What a manager knows of extensions and hosts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::{ExtensionContext, ExtensionDefinition, ExtensionRegistry, Host, LOCAL_HOST, Provider};
use crate::contract::{CancelFlag, EnvironmentExtension};
use crate::service::Sandbox;
use crate::{Error, Result, resolve};

/// Every extension that can be used, and every host, by id.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What is known of extensions.
    pub extensions: BTreeMap<String, ExtensionDefinition>,
    /// Where environments can be.
    pub hosts: BTreeMap<String, Host>,
}

/// Reads the catalogue. Done once, when something of it is first asked for: most commands have nothing to do with it, and a file of
/// it that is wrong is nothing to them.
pub type ReadCatalogue = Box<dyn Fn() -> Result<Known> + Send + Sync>;

/// Extensions and hosts, and what makes the former.
pub struct Environments {
    registry: ExtensionRegistry,
    read: ReadCatalogue,
    known: OnceLock<Known>,
}

impl Environments {
    /// What `read` knows, made by `registry`.
    pub fn new(registry: ExtensionRegistry, read: ReadCatalogue) -> Self {
        Self { registry, read, known: OnceLock::new() }
    }

    /// For callers that only handle workspaces.
    pub fn none() -> Self {
        let context = ExtensionContext { home: PathBuf::new(), program: None, cancel: CancelFlag::default() };
        Self::new(ExtensionRegistry::new(context), Box::new(|| Ok(Known::default())))
    }

    /// The catalogue.
    pub fn known(&self) -> Result<&Known> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let known = (self.read)()?;
        Ok(self.known.get_or_init(|| known))
    }

    /// What is known of an extension.
    pub fn definition(&self, id: &str) -> Result<&ExtensionDefinition> {
        let extensions = &self.known()?.extensions;
        extensions.get(id).ok_or_else(|| Error::NotFound {
            what: "extension",
            name: id.to_owned(),
            similar: resolve::nearest(id, extensions.keys()),
        })
    }

    /// The extension itself.
    pub fn extension(&self, id: &str) -> Result<Arc<dyn EnvironmentExtension>> {
        self.registry.open(self.definition(id)?)
    }

    /// The address of a host.
    pub fn address(&self, host: &str) -> Result<&str> {
        let hosts = &self.known()?.hosts;
        match hosts.get(host) {
            Some(host) => Ok(&host.address),
            None if host == LOCAL_HOST => Ok(LOCAL_HOST),
            None => Err(Error::NotFound {
                what: "host",
                name: host.to_owned(),
                similar: resolve::nearest(host, hosts.keys()),
            }),
        }
    }

    /// Whether a sandbox's environment can be seen to without starting a program of somebody else's.
    pub(crate) fn is_at_hand(&self, sandbox: &Sandbox) -> bool {
        let Some(environment) = &sandbox.environment else { return true };
        let definition = self.definition(&environment.route.extension_id);
        definition.is_ok_and(|known| !matches!(known.provider, Provider::Plugin { .. }))
    }
}
