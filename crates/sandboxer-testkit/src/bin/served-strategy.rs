//! A plugin that serves a built-in strategy, the one that `class` names: what it does in a process of its own is what it does here.

use std::process::ExitCode;

use sandboxer_core::registry::{StrategyContext, StrategyEntry};
use sandboxer_core::{Error, Result};
use sandboxer_plugin::{Served, Start};
use sandboxer_strategies::{copy_on_write, filesystem_copy, none};

fn main() -> ExitCode {
    sandboxer_plugin::serve_with(served)
}

fn served(start: &Start) -> Result<Served> {
    let entry = entry(start)?;
    let context = StrategyContext::quiet(&start.state);
    let strategy = (entry.factory)(&start.name, &start.options, &context)?;
    Ok(Served {
        strategy,
        capabilities: entry.capabilities,
        summary: entry.summary,
        concurrency: 4,
        locks: true,
    })
}

fn entry(start: &Start) -> Result<StrategyEntry> {
    match start.class.as_deref() {
        Some("filesystem_copy") => Ok(filesystem_copy::entry()),
        Some("copy_on_write") => Ok(copy_on_write::entry()),
        Some("none") => Ok(none::entry()),
        other => Err(Error::usage(format!("this plugin has no class {other:?}"))),
    }
}
