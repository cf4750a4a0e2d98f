//! Overlay layers as what they are on disk: plain directories with marks in them.
//!
//! An overlay keeps what was changed in a directory of its own, the upper, and marks there what is gone. Everything in this
//! module reads, compares or copies such directories by name; nothing here mounts, and nothing here knows of sandboxes.

mod attrs;
mod copier;
pub mod layer;
pub mod touched;
pub mod transfer;
pub mod view;
