//! The use cases over HTTP.
//!
//! The only place with `async`: whatever looks at files, takes locks or starts programs is synchronous and runs on threads that may wait. A
//! request passes the [`gate`] (who asks, from where), a handler in [`routes`] that parses, calls a use case and converts, and comes back as
//! one of the documents that the command line prints, or as a problem (RFC 9457). [`serve`] is all of it: listeners, limits, the feed of
//! events, the minute's housekeeping, and an end that loses nothing.

mod app;
mod backend;
mod connection;
mod feed;
mod gate;
mod listen;
mod lock;
mod log;
mod metrics;
pub mod openapi;
mod problem;
mod routes;
mod serve;

pub use backend::Backend;
pub use listen::{Listen, handed_over};
pub use lock::ServeLock;
pub use log::Line;
pub use routes::exec::HANDED_VARIABLES;
pub use serve::{Options, serve};
