//! What of the network commands reach when only some of it is allowed.
//!
//! [`Rules`] are what a user types after `--allow-host`. A [`Proxy`] accepts connections from a listener that was made inside the
//! sandbox, asks the rules, resolves names outside, connects only to addresses it has checked, and reports each [`Decision`]. Everything
//! that comes in is hostile: whatever is not exactly a request is refused. See `docs/network.md`.

mod address;
mod bell;
mod connection;
mod decision;
mod dial;
mod entry;
mod head;
mod http;
mod proxy;
mod relay;
mod rules;
mod socks;
mod target;
mod tunnel;

pub use decision::Decision;
pub use proxy::{Bounds, OnDecision, Proxy};
pub use rules::Rules;
pub use target::{Host, Name, Target};

/// Where the proxy listens inside. The namespace is new, so the port is free.
pub const PORT: u16 = 3128;
