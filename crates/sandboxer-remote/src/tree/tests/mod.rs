#![allow(clippy::unwrap_used)]

mod cut;
mod fetching;
mod hostile;
mod properties;
mod sending;
mod services;
mod world;
