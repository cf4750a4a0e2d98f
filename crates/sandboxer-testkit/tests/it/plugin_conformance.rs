//! The conformance suite over strategies in processes of their own: same cases, same results as in process.

use std::path::Path;
use std::sync::Arc;

use sandboxer_core::config::CustomStrategy;
use sandboxer_core::contract::Capabilities;
use sandboxer_core::registry::StrategyEntry;
use sandboxer_plugin::strategy::{Surroundings, declaration};
use sandboxer_strategies::{filesystem_copy, none};
use sandboxer_testkit::conformance::Fixture;
use sandboxer_testkit::conformance_tests;
use sandboxer_testkit::faults::require_sampled;

/// A strategy that is started anew for every instance, as every process of ours would.
fn plugin(name: &str, custom: CustomStrategy, capabilities: Capabilities) -> StrategyEntry {
    StrategyEntry {
        name: name.to_owned(),
        summary: String::new(),
        origin: custom.module.clone(),
        capabilities,
        options: custom.options.clone(),
        factory: Arc::new(move |name, _, context| {
            let around = Surroundings::of_home(&context.home);
            let entry = (declaration(name, &custom, &around)?.verify)()?;
            (entry.factory)(name, &entry.options, context)
        }),
    }
}

/// A built-in, served by the Rust SDK.
fn served(built_in: StrategyEntry) -> Fixture {
    let custom = CustomStrategy {
        module: format!("exec:{}", env!("CARGO_BIN_EXE_served-strategy")),
        class: Some(built_in.name.clone()),
        ..CustomStrategy::default()
    };
    Fixture::new(plugin(&built_in.name, custom, built_in.capabilities))
}

/// The example that the documentation walks through.
fn minimal() -> Fixture {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/strategies/minimal");
    let custom = CustomStrategy {
        module: "minimal:MinimalStrategy".to_owned(),
        env: [("PYTHONPATH".to_owned(), modules.to_string_lossy().into_owned())].into(),
        ..CustomStrategy::default()
    };
    let capabilities = Capabilities {
        file_tree: true,
        checkpoints: true,
        resource_types: vec!["fs-directory".to_owned()],
        ..Capabilities::default()
    };
    Fixture::new(plugin("minimal", custom, capabilities))
}

conformance_tests!(served_filesystem_copy, || Ok(served(filesystem_copy::entry())));
conformance_tests!(served_none, || require_sampled(3).map(|()| served(none::entry())));
conformance_tests!(python_minimal, || require_sampled(3).map(|()| minimal()));
