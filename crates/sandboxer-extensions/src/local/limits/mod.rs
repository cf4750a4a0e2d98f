//! What a command may use, and who sees to it.
//!
//! A [`Group`] is the cgroup of one runtime, in one directory or in several: version 2 where its controllers are within reach, version 1 where
//! those are mounted, and both on a machine that has both. It is made even where nothing is limited, because it is also what freezes, kills and
//! counts. What no cgroup does is left to resource limits and processor affinity, which the process takes upon itself ([`apply_fallback`]).
//! [`Enforcement`] says which limit is held by what.
//!
//! [`Group::plan`] looks and makes nothing: its paths can be written down first, so that [`remove_paths`] finds them after a crash.

mod enforcement;
mod fallback;
mod find;
mod group;
mod plan;
mod remove;
mod settle;
#[cfg(test)]
mod tests;
mod text;
mod wait;

use std::path::PathBuf;

pub use enforcement::{By, Enforcement};
pub use fallback::apply_fallback;
pub use group::{Group, Usage};
pub use plan::Plan;
pub use remove::remove_paths;

/// Where the kernel is asked what there is.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The table of mounts, in the format of `/proc/self/mountinfo`.
    pub mountinfo: PathBuf,
    /// The cgroups of the process that asks, in the format of `/proc/self/cgroup`.
    pub cgroup: PathBuf,
    /// Whether what runs belongs to root, whose processes `RLIMIT_NPROC` does not bind.
    pub superuser: bool,
}

impl Roots {
    /// Those of this process.
    pub fn system() -> Self {
        Self {
            mountinfo: "/proc/self/mountinfo".into(),
            cgroup: "/proc/self/cgroup".into(),
            superuser: rustix::process::geteuid().is_root(),
        }
    }
}
