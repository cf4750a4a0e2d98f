//! The rows of the strategy `overlay`: how much a sandbox costs where nothing is copied, and how little of that grows
//! with the tree. All of them work in one [`Forest`] on an ext4 of its own: three trees of tiny files that are written when the
//! first row asks for them, and are gone at the end with every sandbox and every mount.

mod bare;
mod checkpoint;
mod create;
mod diff;
mod forest;
mod work;

use crate::failure::{Failure, Result};
use crate::place::{Place, is_root};
use crate::report::Row;
use crate::tree::TreeSpec;

use super::{Bench, count};
use forest::Forest;

/// The strategy under test.
const STRATEGY: &str = "overlay";
/// A command that is over in milliseconds has to run often for a steady median.
const RUNS_A_ROUND: usize = 6;
const GIB: u64 = 1 << 30;

/// The names that select a part of these rows.
pub const GROUPS: [&str; 6] = [
    "overlay-create",
    "overlay-user",
    "overlay-copies",
    "overlay-diff",
    "overlay-checkpoint",
    "overlay-work",
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    small: TreeSpec,
    middle: TreeSpec,
    large: TreeSpec,
    /// What is changed before a checkpoint; a multiple of 4 MiB.
    changed: u64,
    /// How many files are unpacked.
    unpacked: TreeSpec,
}

impl Scale {
    /// What the kept table is measured with.
    pub const FULL: Self = Self {
        small: TreeSpec::tiny(1_000),
        middle: TreeSpec::tiny(50_000),
        large: TreeSpec::tiny(500_000),
        changed: GIB,
        unpacked: TreeSpec::tiny(20_000),
    };
    /// To see that it works.
    pub const QUICK: Self = Self {
        small: TreeSpec::tiny(1_000),
        middle: TreeSpec::tiny(5_000),
        large: TreeSpec::tiny(20_000),
        changed: GIB / 16,
        unpacked: TreeSpec::tiny(2_000),
    };

    /// What all of it takes on disk: the trees, what git keeps of two of them, changes and what a checkpoint has of
    /// them, and two builds.
    pub fn room(&self) -> u64 {
        let trees = [self.small, self.middle, self.large, self.unpacked].map(|spec| spec.bytes_on_disk());
        trees.iter().sum::<u64>() * 2 + self.changed * 2 + (2 << 30)
    }

    /// How many inodes all of it takes.
    pub fn inodes(&self) -> u64 {
        let trees = [self.small, self.middle, self.large, self.unpacked].map(|spec| spec.inodes());
        trees.iter().sum::<u64>() * 2 + 100_000
    }
}

/// The rows of the groups that are `wanted`, in the order of the table.
pub fn rows(bench: &Bench, scale: Scale, place: Place, wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>> {
    let forest = Forest::new(bench, scale, place);
    let mut rows = Vec::new();
    for group in GROUPS.into_iter().filter(|group| wanted(group)) {
        rows.extend(match group {
            "overlay-create" => create::rows(&forest)?,
            "overlay-user" => vec![create::by_an_ordinary_user(&forest)?],
            "overlay-copies" => create::against_copies(&forest)?,
            "overlay-diff" => diff::rows(&forest)?,
            "overlay-checkpoint" => checkpoint::rows(&forest)?,
            _ => work::rows(&forest)?,
        });
    }
    Ok(rows)
}

fn need_root(what: &str) -> Result<()> {
    if is_root() { Ok(()) } else { Err(Failure::Skipped(format!("{what} needs root"))) }
}
