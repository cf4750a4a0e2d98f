//! The file engine: everything that is done to trees of files, and the places where they are kept; nothing that knows of strategies.
//!
//! [`space::Space`] is the way in: an original, the tree that is worked in, and the handful of verbs a strategy needs. [`tree::Workspace`] is
//! one whose tree is a copy. Below it, each module does one thing: [`root`] confines,
//! [`stamp`] tells whether something was touched, [`manifest`] remembers the base, [`commit`] makes changes real.

pub mod base;
pub mod checkpoint;
pub mod clone;
pub mod commit;
pub mod content;
pub mod copy;
pub mod diff;
pub mod durable;
pub mod filter;
pub mod hash;
pub mod identity;
pub mod list;
pub mod lock;
pub mod manifest;
pub mod merge;
pub mod overlay;
pub mod pack;
pub mod park;
pub mod patch;
pub mod pool;
mod remove;
pub mod restore;
pub mod rollback;
pub mod root;
pub mod scratch;
mod sealed;
pub mod space;
pub mod stamp;
pub mod tree;
pub mod xattrs;

pub use remove::{remove_below, remove_entry, remove_tree};
