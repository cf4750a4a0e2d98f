//! Every extension under its id: what its definition says, and what makes it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::{ExtensionDefinition, Provider};
use crate::contract::{CancelFlag, EnvironmentExtension, NoProgress, Progress};
use crate::{Error, Result};

/// What every extension is made with.
#[derive(Clone)]
pub struct ExtensionContext {
    /// The state directory.
    pub home: PathBuf,
    /// The program that processes of ours are started from.
    pub program: Option<PathBuf>,
    /// Looked at while waiting.
    pub cancel: CancelFlag,
    /// Hears of long work.
    pub progress: Arc<dyn Progress>,
}

impl ExtensionContext {
    /// With state in `home`, and silent.
    pub fn quiet(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            program: None,
            cancel: CancelFlag::default(),
            progress: Arc::new(NoProgress),
        }
    }
}

/// Makes the extension that a definition describes.
pub type ExtensionFactory = Arc<
    dyn Fn(&ExtensionDefinition, &ExtensionContext) -> Result<Arc<dyn EnvironmentExtension>> + Send + Sync,
>;

/// Makes extensions, each once, when it is first used.
pub struct ExtensionRegistry {
    context: ExtensionContext,
    providers: BTreeMap<&'static str, ExtensionFactory>,
    opened: Mutex<BTreeMap<String, Arc<dyn EnvironmentExtension>>>,
}

impl Provider {
    /// The word that a factory is registered under.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Container => "container",
            Self::ComposeSsh => "compose-ssh",
            Self::Plugin { .. } => "plugin",
        }
    }
}

impl ExtensionRegistry {
    /// Without any provider.
    pub fn new(context: ExtensionContext) -> Self {
        Self { context, providers: BTreeMap::new(), opened: Mutex::default() }
    }

    /// Adds what makes the extensions of one provider.
    pub fn provide(&mut self, provider: &'static str, factory: ExtensionFactory) {
        self.providers.insert(provider, factory);
    }

    /// The extension of a definition; made now where nobody has used it before.
    pub fn open(&self, definition: &ExtensionDefinition) -> Result<Arc<dyn EnvironmentExtension>> {
        if let Some(invalid) = &definition.invalid {
            return Err(invalid.to_error());
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(extension) = opened.get(&definition.id) {
            return Ok(extension.clone());
        }
        let word = definition.provider.word();
        let factory =
            self.providers.get(word).ok_or_else(|| Error::not_found("provider of extensions", word))?;
        let extension = factory(definition, &self.context)?;
        opened.insert(definition.id.clone(), extension.clone());
        Ok(extension)
    }

    /// The extension of a definition, verified now instead of at its first use.
    ///
    /// # Errors
    /// [`Error::InvalidPlugin`] names every method that is missing or cannot be called.
    pub fn open_verified(&self, definition: &ExtensionDefinition) -> Result<Arc<dyn EnvironmentExtension>> {
        let extension = self.open(definition)?;
        extension.verify()?;
        Ok(extension)
    }
}
