//! Copies that share their blocks with the original, where the filesystem can do that (btrfs, XFS, bcachefs).

use std::sync::Arc;

use sandboxer_core::registry::StrategyEntry;

use crate::copies::{self, CopyStrategy, Mode};

/// The name it is registered under.
pub const NAME: &str = "copy_on_write";

/// The registration.
pub fn entry() -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "a copy that shares its blocks with the original (reflinks); falls back to filesystem_copy"
            .to_owned(),
        origin: "built-in".to_owned(),
        capabilities: copies::capabilities(),
        options: Default::default(),
        factory: Arc::new(|name, options, context| {
            Ok(Arc::new(CopyStrategy::new(name, Mode::Reflink, options, context)?))
        }),
    }
}
