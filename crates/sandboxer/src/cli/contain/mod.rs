//! Commands that are contained: what `run`, `exec` and `shell` have in common.
//!
//! [`ContainArgs`] are the flags; what they ask for is joined with the settings and becomes the runtime's spec. [`Work`] finds the sandbox's
//! runtime or starts one, runs a command in it and waits; [`told`] says what holds a command and what came of it.

mod args;
mod attach;
mod command;
mod environment;
pub mod spec;
pub mod told;
mod work;

pub use args::{Asked, ContainArgs, Wanted};
pub use attach::runtimes;
pub use command::Ended;
pub use work::{Begun, Done, Work, check, check_place};
