#![allow(clippy::unwrap_used)]

mod fetching;
mod hostile;
mod properties;
mod sending;
mod services;
mod world;
