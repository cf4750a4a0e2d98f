//! Overlay mounts, made in this namespace or in a process that keeps one.
//!
//! Whoever may mount on the host calls [`mount::mount`] and is done. Whoever may not asks a *keeper*: this very program,
//! started once more under the name `sandbox-keeper`, which takes a user and a mount namespace of its own, mounts there, and
//! stays. [`Keepers`] finds, starts and ends them, [`Keeper`] asks one of them; what it mounted is reached from outside
//! through `/proc/PID/root`. A process that shall see the mounts where they are joins the keeper's namespaces,
//! `/proc/PID/ns/user` first and `/proc/PID/ns/mnt` second; there it may take a mount namespace of its own from that.

mod chain;
pub mod enter;
mod keeper;
mod keepers;
pub mod mount;
mod namespaces;
pub mod paths;
pub mod process;
mod serve;
pub mod socket;
mod wire;
mod work;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use keeper::Keeper;
pub use keepers::Keepers;
pub use namespaces::{enter as take_namespaces, why_no_namespaces};
pub use serve::serve_if_asked;
pub use work::fresh_work;

/// The extended attributes that an overlay keeps its marks in, and by that who mounts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `trusted.overlay.`, which takes the right to mount on the host.
    Host,
    /// `user.overlay.` (the option `userxattr`), which a keeper can do.
    User,
}

/// What an overlay is made of. In JSON, a path that is not UTF-8 is the list of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// The directories that are shown and never written, topmost first.
    #[serde(with = "paths::list")]
    pub lowers: Vec<PathBuf>,
    /// What is written goes here.
    #[serde(with = "paths::one")]
    pub upper: PathBuf,
    /// The kernel's own directory, empty and on the filesystem of `upper`. See [`fresh_work`].
    #[serde(with = "paths::one")]
    pub work: PathBuf,
    /// The directory it is mounted on.
    #[serde(with = "paths::one")]
    pub at: PathBuf,
    /// Whether the kernel may leave out every sync. It leaves a marker in `work` then, and refuses to mount over one.
    pub volatile: bool,
}

/// What came of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmounted {
    /// It is gone from this namespace. Only one that was copied into another namespace meanwhile lives on there.
    Done,
    /// Somebody works in it; it is still there.
    Busy,
    /// There was no overlay.
    NotMounted,
}
