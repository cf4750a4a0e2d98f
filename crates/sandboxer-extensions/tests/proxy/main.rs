//! A real proxy on the loopback device, with real servers behind it.
#![allow(clippy::unwrap_used)]

mod curl;
mod http;
mod limits;
mod namespace;
mod socks;
mod support;
mod tunnels;
