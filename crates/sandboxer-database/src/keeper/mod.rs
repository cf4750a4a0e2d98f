//! The process that an engine lives in, and those who talk to it.

mod client;
mod record;
mod serve;
mod wire;

pub(crate) use client::Keeper;
pub(crate) use record::Record;
pub use serve::serve_if_asked;
pub(crate) use wire::{Answer, Request};
