//! The use cases: what a person, an agent or a handler can do with sandboxes.
//!
//! [`SandboxManager`] is the one way in. It asks the permission service, takes the sandbox's lock, writes the operation
//! down, calls the strategies through the registry, and writes down what came of it, in that order. One file a use
//! case:
//!
//! | file | use case |
//! |---|---|
//! | `create.rs` | get or create a sandbox; undo of what was half made |
//! | `select.rs` | from what a user typed to a sandbox and its workspaces |
//! | `content.rs` | read, write, diff, rollback |
//! | `commit.rs` | prepare, look, decide, finish; several workspaces as one |
//! | `together.rs` | the coordinator's phases over everything that takes part |
//! | `pieces.rs` | the phases of a commit, workspace by workspace, of one sandbox or of several |
//! | `plan.rs` | all sandboxes of a plan as one: diff, commit, rollback |
//! | `settle.rs` | who decided about a commit that was interrupted while something else did |
//! | `undo.rs` | commits taken back, and what an operation did |
//! | `checkpoint.rs` | the [`CheckpointService`]: name, order, keep and prune |
//! | `environment/` | what a profile asks for, made around the workspaces, found again, made again |
//! | `lifecycle.rs` | destroy, time to live, garbage |
//! | `park.rs` | uncommitted work put away and taken up again |
//! | `budget.rs` | what may be kept, what goes, where the space is |
//! | `usage.rs` | what was used, by whom |
//! | `quotas.rs` | what may be used, and what is said where that is reached |
//! | `recover.rs` | what a killed process left |
//! | `abort.rs` | a decided commit that cannot be finished |
//! | `tokens.rs` | tokens: made, taken back, looked at when somebody shows one |
//! | `adopt.rs` | sandboxes on disk that the store has lost |
//! | `handler.rs` | the same for one resource of a plan, with plain results |

mod abort;
mod adopt;
mod apart;
mod budget;
mod checkpoint;
mod cleaning;
mod commit;
mod commit_log;
mod content;
mod create;
mod descriptor;
mod environment;
mod handler;
mod lifecycle;
mod lock;
mod manager;
mod names;
mod orphans;
mod park;
mod pieces;
mod plan;
mod quotas;
mod recover;
mod refresh;
mod select;
mod settle;
mod together;
mod tokens;
mod told;
mod undo;
mod usage;
mod views;

pub use budget::{DiskReport, SandboxDisk};
pub use checkpoint::CheckpointService;
pub use handler::SandboxHandler;
pub use lock::InUse;
pub use manager::{ManagerParts, SandboxManager};
pub use quotas::{Limit, Measure, Standing, UsageLimit};
pub use refresh::Refreshed;
pub use usage::{UsageBy, UsageQuery, UsageReport, UsageRow, Used};
pub use views::*;

#[cfg(test)]
mod tests;
