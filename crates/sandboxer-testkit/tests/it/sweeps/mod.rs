//! Runs of the binary under strace that are killed, or get an error, at one system call after another.

mod abort;
mod adversarial;
mod container;
mod database;
mod environment;
mod fail;
pub mod git;
mod kill;
mod operations;
mod overlay;
mod several;
mod sqlite;
