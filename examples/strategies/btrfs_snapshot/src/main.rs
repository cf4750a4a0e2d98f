//! A custom strategy for btrfs: a sandbox is a writable snapshot of a subvolume, and another snapshot is its base.
//!
//! [`command`] speaks to the `btrfs` command and [`stream`] understands what `btrfs send` answers; [`touched`] makes a list of
//! paths of that, and [`base`] lets the file engine of sandboxer compare and commit just those. [`places`] keeps the snapshots
//! of one sandbox, [`strategy`] has the nine methods.

mod base;
mod command;
mod places;
mod prune;
mod space;
mod strategy;
mod stream;
mod top;
mod touched;

use std::process::ExitCode;

use sandboxer_core::{Error, Result};
use sandboxer_plugin::{Served, Start};

use crate::command::Btrfs;
use crate::strategy::{SnapshotStrategy, capabilities};

fn main() -> ExitCode {
    sandboxer_plugin::serve_with(served)
}

fn served(start: &Start) -> Result<Served> {
    let mut program = "btrfs".to_owned();
    for (key, value) in &start.options {
        match (key.as_str(), value.as_str()) {
            ("btrfs", Some(path)) => program = path.to_owned(),
            ("btrfs", None) => return Err(Error::usage("option \"btrfs\" is the path of a command")),
            _ => return Err(Error::usage(format!("there is no option {key:?}; there is \"btrfs\""))),
        }
    }
    let strategy = SnapshotStrategy::new(&start.name, Btrfs::new(program));
    let summary = "snapshots of a btrfs subvolume".to_owned();
    Ok(Served { summary, locks: true, ..Served::new(strategy, capabilities()) })
}
