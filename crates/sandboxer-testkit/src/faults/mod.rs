//! The real binary, killed or failed at a system call of our choice.
//!
//! [`Cli`] runs `sandbox` with a state directory of its own. [`Trace`] lists the system calls of one command and then
//! runs the command again with the n-th of them killed or failed, by `strace`'s injection. [`Scenario`] is a tree with
//! fifty pending changes of every kind and knows what the tree has to look like afterwards: all old or all new. [`Case`] does
//! the same for everything else that can be interrupted: undo, merges, hunks, rollback, checkpoints, parking. [`Hosted`] does it for
//! sandboxes that an extension makes an environment for.
//!
//! A command may use several threads, so the calls of two runs need not be the same ones: a point that is not reached in
//! its run simply lets the command finish, and the check is the same. `strace` counts calls by thread, and so do we.

mod binary;
mod cli;
mod hosted;
mod interrupted;
mod points;
mod scenario;
mod trace;

pub use binary::{binary, workspace_root};
pub use cli::{Cli, Created};
pub use hosted::{Hosted, Row};
pub use interrupted::{Case, Interruption, Seen, Task};
pub use points::{Point, require_sampled, sample, sample_of, seed_for, spread};
pub use scenario::{Outcome, Scenario, UNFINISHED, change_fifty_files, fill_fifty_files};
pub use trace::{Ended, Failure, Trace};
