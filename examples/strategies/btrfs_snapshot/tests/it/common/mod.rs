//! A btrfs, and the strategy over it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sandboxer_core::config::CustomStrategy;
use sandboxer_core::contract::Capabilities;
use sandboxer_core::registry::{StrategyEntry, StrategyOptions};
use sandboxer_plugin::strategy::{Surroundings, declaration};
use sandboxer_testkit::conformance::Fixture;
use sandboxer_testkit::mounts::Mounted;

pub const NAME: &str = "btrfs_snapshot";

pub fn btrfs(words: &[&str], path: &Path) -> String {
    let done = Command::new("btrfs").args(words).arg(path).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

pub fn make_subvolume(path: &Path) {
    btrfs(&["subvolume", "create"], path);
}

/// Every subvolume of the filesystem mounted at `mount`, but for its top.
pub fn subvolumes(mount: &Path) -> Vec<PathBuf> {
    let listed = btrfs(&["subvolume", "list"], mount);
    listed.lines().filter_map(|line| Some(mount.join(line.split_once(" path ")?.1))).collect()
}

/// What the configuration says of the strategy.
pub fn declared() -> CustomStrategy {
    CustomStrategy {
        module: format!("exec:{}", env!("CARGO_BIN_EXE_btrfs-snapshot")),
        ..CustomStrategy::default()
    }
}

/// The strategy, started anew for every instance.
pub fn entry() -> StrategyEntry {
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
            let around = Surroundings::of_home(&context.home);
            let entry = (declaration(name, &declared(), &around)?.verify)()?;
            (entry.factory)(name, &entry.options, context)
        }),
    }
}

/// A subvolume with a small tree in it, or why there is none.
pub fn fixture() -> Result<Fixture, String> {
    let mounted = Mounted::btrfs(256 << 20)?;
    let place = mounted.path();
    Ok(Fixture::split_making(entry(), place, place, make_subvolume).keeping(mounted))
}
