//! Overlays: layers of changes over an original, and what can be said of them without asking the kernel.
//!
//! An overlay keeps what was changed in a directory of its own, the upper, and marks there what is gone. [`layer`], [`touched`], [`view`] and
//! [`transfer`] read, compare and copy such directories as what they are on disk. [`instant`], [`records`] and [`base`] say what the
//! sandbox is compared with, [`stack`] and [`shift`] move between states, [`preserve`] keeps a state while the original changes,
//! [`refresh`] lets go of it, and [`space`] is the workspace that it all makes up. Nothing here mounts.

mod attrs;
pub mod base;
mod copier;
pub mod instant;
pub mod layer;
mod live;
mod new_names;
pub mod preserve;
pub mod records;
pub mod refresh;
mod shelf;
pub mod shift;
pub mod space;
pub mod stack;
pub mod taken;
pub mod touched;
pub mod transfer;
pub mod view;
