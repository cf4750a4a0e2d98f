//! Tests of the HTTP server, `sandbox serve`.

mod access;
mod api;
mod boundaries;
mod crowd;
mod hostile;
mod lifetime;
