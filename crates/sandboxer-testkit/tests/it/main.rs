//! Tests of the whole program and of every strategy. The first module of a test says what it needs: `sweeps` need strace,
//! `disks` need loop mounts.
#![allow(clippy::unwrap_used)]

mod adversarial;
mod conformance;
mod disks;
mod features;
mod fuzz;
mod git_hostile;
mod git_model;
mod git_races;
mod histories;
mod overlay_hostile;
mod overlay_races;
mod plugin_conformance;
mod plugin_extensions;
mod plugin_features;
mod plugin_hostile;
mod posix;
mod properties;
mod sweeps;
