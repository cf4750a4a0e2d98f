//! Tests of the file engine by its public interface.
#![allow(clippy::unwrap_used)]

mod conflicts;
mod engine;
mod hunks_git;
mod merge_git;
mod overlay_layers;
mod parking;
mod patch_git;
mod undo;
