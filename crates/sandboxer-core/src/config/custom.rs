//! Custom strategies from the configuration into the registry.

use super::Settings;
use crate::registry::StrategyRegistry;
use crate::{Error, Result};

/// Registers each entry of `sandbox.custom_strategies`. A built-in with other options is all that this version knows;
/// any other module is [`Error::Unsupported`].
pub fn register_custom_strategies(settings: &Settings, registry: &mut StrategyRegistry) -> Result<()> {
    for (name, custom) in &settings.custom_strategies {
        let Some(builtin) = custom.builtin() else {
            return Err(Error::Unsupported {
                strategy: name.clone(),
                what: "be registered",
                reason: format!(
                    "this version has no plugins, so it cannot load module {:?}; `builtin:NAME` works",
                    custom.module
                ),
            });
        };
        registry.register_again(builtin, name, custom.options.clone())?;
    }
    Ok(())
}
