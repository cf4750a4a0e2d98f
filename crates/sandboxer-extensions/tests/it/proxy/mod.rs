//! A real proxy on the loopback device, with real servers behind it.

mod curl;
mod http;
mod limits;
mod namespace;
mod socks;
pub mod support;
mod tunnels;
