//! What a manager knows of extensions and hosts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::{ExtensionContext, ExtensionDefinition, ExtensionRegistry, Host, LOCAL_HOST, Provider};
use crate::contract::EnvironmentExtension;
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
        let context = ExtensionContext::quiet(PathBuf::new());
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

    /// The extension itself, as it is on a host.
    pub fn extension_on(&self, id: &str, host: &str) -> Result<Arc<dyn EnvironmentExtension>> {
        let extension = self.extension(id)?;
        Ok(extension.on(&*self.host(host)?)?.unwrap_or(extension))
    }

    /// The hosts that an extension works on, each apart; none where hosts make no difference to it.
    pub fn hosts_apart(&self, definition: &ExtensionDefinition) -> Result<Vec<&Host>> {
        let hosts = self.known()?.hosts.values();
        let lists = |host: &&Host| host.extensions.contains(&definition.id);
        Ok(hosts.filter(|_| definition.provider == Provider::ComposeSsh).filter(lists).collect())
    }

    /// A host.
    pub fn host(&self, host: &str) -> Result<Cow<'_, Host>> {
        let hosts = &self.known()?.hosts;
        match hosts.get(host) {
            Some(host) => Ok(Cow::Borrowed(host)),
            None if host == LOCAL_HOST => Ok(Cow::Owned(Host::local())),
            None => Err(Error::NotFound {
                what: "host",
                name: host.to_owned(),
                similar: resolve::nearest(host, hosts.keys()),
            }),
        }
    }

    /// Whether a sandbox's environment can be seen to without starting a program of somebody else's, or asking another machine.
    pub(crate) fn is_at_hand(&self, sandbox: &Sandbox) -> bool {
        let Some(environment) = &sandbox.environment else { return true };
        let definition = self.definition(&environment.route.extension_id);
        definition
            .is_ok_and(|known| !matches!(known.provider, Provider::Plugin { .. } | Provider::ComposeSsh))
    }
}
