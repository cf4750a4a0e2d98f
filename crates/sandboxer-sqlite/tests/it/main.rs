//! Tests on real SQLite databases.
#![allow(clippy::unwrap_used)]

mod applying;
mod cloning;
mod properties;
