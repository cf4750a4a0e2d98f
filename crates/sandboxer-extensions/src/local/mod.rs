//! Commands in namespaces of their own on this machine.
//!
//! [`Runtimes`] finds, starts and ends the runtimes of a state directory; an [`Attached`] client of one starts a command in it. Behind it
//! are two processes of this program: a supervisor outside and an init inside. See `docs/design/0005-contained-commands.md`.

mod client;
pub mod confine;
pub mod environment;
mod extension;
pub mod hidden;
mod home;
mod init;
pub mod limits;
mod mounting;
pub mod network;
mod places;
mod refusal;
mod report;
mod root;
mod running;
mod spawn;
pub mod spec;
mod stopping;
mod supervisor;
mod system;
mod terminal;
mod wire;

pub use client::{Attached, Called, Frozen, Runtimes, Started};
pub use extension::{LocalExtension, factory};
pub use refusal::Refusal;
pub use report::{Confined, Process, Ready, Report, Told, WaitedFor};
pub use running::{Command, Outcome, Running, Signals};
pub use spec::{Bind, Isolation, Limits, Link, Network, Spec};
pub use supervisor::supervise_if_asked;
pub use wire::End;
