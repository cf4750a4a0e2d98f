//! Commands in namespaces of their own on this machine.
//!
//! `Runtimes` finds, starts and ends the runtimes of a state directory; a `Runtime` is one of them, and starts commands in it. Behind it
//! are two processes of this program: a supervisor outside and an init inside. See `docs/design/0005-contained-commands.md`.

pub mod limits;
pub mod spec;

pub use spec::{Isolation, Limits, Network, Spec};
