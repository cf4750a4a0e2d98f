//! Tests of the extensions. The tests in `docker` need a docker daemon.
//!
//! `proxy_bytes` and `proxy_threads` count panics and threads of their own process, so each test needs its own process,
//! which cargo-nextest gives it.
#![allow(clippy::unwrap_used)]

mod docker;
mod limits;
mod proxy;
mod proxy_bytes;
mod proxy_threads;
