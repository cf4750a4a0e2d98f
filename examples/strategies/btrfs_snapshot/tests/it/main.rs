//! The strategy, on a btrfs of its own: the conformance suite, a life in the hands of the manager, and whatever is moved about.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod conformance;
mod life;
mod moves;
