//! Tests against real plugin processes.
#![allow(clippy::unwrap_used)]

mod connection;
mod extensions;
