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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::CustomStrategy;
    use crate::resolve::test_support::registry;
    use serde_json::json;

    fn settings(name: &str, module: &str) -> Settings {
        let options = [("threads".to_owned(), json!(2))].into();
        let custom = CustomStrategy { module: module.to_owned(), options, ..CustomStrategy::default() };
        Settings { custom_strategies: [(name.to_owned(), custom)].into(), ..Settings::default() }
    }

    #[test]
    fn a_built_in_is_registered_again_with_its_options() {
        let mut registry = registry();
        register_custom_strategies(&settings("fast", "builtin:filesystem_copy"), &mut registry).unwrap();
        let entry = registry.get("fast").unwrap();
        assert_eq!(entry.options["threads"], json!(2));
        assert_ne!(entry.origin, "built-in");
    }

    #[test]
    fn other_modules_are_an_honest_gap() {
        let error =
            register_custom_strategies(&settings("x", "company.strategies"), &mut registry()).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { strategy, .. } if strategy == "x"), "{error:?}");
    }

    #[test]
    fn unknown_built_ins_and_taken_names_are_refused() {
        let unknown = register_custom_strategies(&settings("x", "builtin:filesystem_cpy"), &mut registry());
        assert!(matches!(unknown, Err(Error::NotFound { similar, .. }) if similar == ["filesystem_copy"]));
        let taken = register_custom_strategies(&settings("none", "builtin:filesystem_copy"), &mut registry());
        assert!(matches!(taken, Err(Error::Usage { .. })));
    }
}
