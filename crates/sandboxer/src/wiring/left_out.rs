//! Features that were left out of this build. Their strategies and providers keep their names, and every use of them
//! fails with the reason.

use sandboxer_core::Error;

/// How to get a build with all features.
pub const HINT: &str = "install it with its default features: cargo install --locked --path crates/sandboxer";

/// The origin of a built-in strategy that this build does not have.
pub const ORIGIN: &str = "left out of this build";

/// The error for a use of `what`, which this build does not have.
pub fn error(what: &str) -> Error {
    Error::Usage { message: format!("this build of sandbox has no {what}"), hint: Some(HINT.to_owned()) }
}

#[cfg(not(feature = "containers"))]
pub(super) mod containers {
    use std::sync::Arc;

    use sandboxer_core::environment::ExtensionRegistry;

    pub fn provide(registry: &mut ExtensionRegistry) {
        for provider in ["container", "compose-ssh"] {
            registry.provide(provider, Arc::new(|_, _| Err(super::error("container extensions"))));
        }
    }
}

#[cfg(not(feature = "databases"))]
pub(super) mod databases {
    use std::sync::Arc;

    use sandboxer_core::Result;
    use sandboxer_core::config::Settings;
    use sandboxer_core::registry::{Declaration, StrategyRegistry};
    use sandboxer_core::verification::CheckResult;

    pub fn register(registry: &mut StrategyRegistry, _settings: &Settings) -> Result<()> {
        ["database_snapshot", "transaction_rollback"].into_iter().try_for_each(|name| {
            registry.declare(Declaration {
                name: name.to_owned(),
                origin: super::ORIGIN.to_owned(),
                resource_types: ["mysql", "postgres", "sqlite"].map(str::to_owned).to_vec(),
                verify: Arc::new(|| Err(super::error("database strategies"))),
                last_check: Arc::new(CheckResult::default),
            })
        })
    }
}
