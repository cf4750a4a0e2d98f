//! Git, used so that nothing an agent wrote can run.
//!
//! [`git`] starts git with a configuration of ours and no hooks; [`repository`] finds out what a checkout is; [`ledger`] is the git directory
//! that commits are made in, which only we write; [`private`] is the one that the agent gets.

mod agent;
pub mod attributes;
pub mod differing;
#[cfg(test)]
mod fixtures;
pub mod git;
mod hostile;
pub mod import;
pub mod incoming;
pub mod index;
pub mod ledger;
pub mod objects;
pub mod oid;
mod patterns;
pub mod private;
pub mod quarantine;
pub mod refs;
pub mod repository;
mod scratch;
pub mod screen;
pub mod settings;
mod wildmatch;

#[cfg(test)]
mod testing;
