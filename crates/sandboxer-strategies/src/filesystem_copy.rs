//! Plain copies, made by several threads; they work everywhere.

use std::sync::Arc;

use sandboxer_core::registry::StrategyEntry;

use crate::copies::{self, CopyStrategy, Mode};

/// The name it is registered under.
pub const NAME: &str = "filesystem_copy";

/// The registration.
pub fn entry() -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "a parallel copy; works on every filesystem".to_owned(),
        origin: "built-in".to_owned(),
        capabilities: copies::capabilities(),
        options: Default::default(),
        factory: Arc::new(|name, options, context| {
            Ok(Arc::new(CopyStrategy::new(name, Mode::Bytes, options, context)?))
        }),
    }
}
