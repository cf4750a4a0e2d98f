//! A shell on another machine, and trees of files between here and there.
//!
//! [`Ssh`] runs scripts on a host by the system's OpenSSH, all of them over one connection. [`Mirror`] makes a tree there what it is
//! here, and the other way round. Neither knows what the host is for.

mod address;
mod process;
mod quote;
mod shell;
mod ssh;
mod tree;
mod words;

pub use address::Address;
pub use quote::quote;
pub use shell::{Answer, Call, Hears, Here, Running, Shell};
pub use ssh::{Fault, Settings, Ssh, Trouble, trouble};
pub use tree::{Mirror, Moved};
pub use words::last_line;
