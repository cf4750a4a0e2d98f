//! The conformance suite over the plugin, on a btrfs of its own.
#![allow(missing_docs)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use sandboxer_core::config::CustomStrategy;
use sandboxer_core::contract::Capabilities;
use sandboxer_core::registry::{StrategyEntry, StrategyOptions};
use sandboxer_plugin::strategy::{Surroundings, declaration};
use sandboxer_testkit::conformance::Fixture;
use sandboxer_testkit::conformance_tests;
use sandboxer_testkit::mounts::Mounted;

const NAME: &str = "btrfs_snapshot";

fn subvolume(path: &Path) {
    let made = Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(path).status().unwrap();
    assert!(made.success());
}

/// The strategy as the configuration declares it, started anew for every instance.
fn entry() -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: String::new(),
        origin: String::new(),
        capabilities: Capabilities {
            file_tree: true,
            faithful: true,
            select_paths: true,
            checkpoints: true,
            ranges: true,
            resource_types: vec!["fs-directory".to_owned(), "fs-mount".to_owned()],
            ..Capabilities::default()
        },
        options: StrategyOptions::new(),
        factory: Arc::new(|name, _, context| {
            let custom = CustomStrategy {
                module: format!("exec:{}", env!("CARGO_BIN_EXE_btrfs-snapshot")),
                ..CustomStrategy::default()
            };
            let around = Surroundings { home: context.home.clone(), modules: None, scratch: None };
            let entry = (declaration(name, &custom, &around)?.verify)()?;
            (entry.factory)(name, &entry.options, context)
        }),
    }
}

fn fixture() -> Result<Fixture, String> {
    let mounted = Mounted::btrfs(256 << 20)?;
    let place = mounted.path();
    Ok(Fixture::split_making(entry(), place, place, subvolume).keeping(mounted))
}

conformance_tests!(btrfs_snapshot, fixture);
