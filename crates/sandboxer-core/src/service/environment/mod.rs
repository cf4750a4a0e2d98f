//! Environments around workspaces: made with a sandbox, found again, made again, and taken down before the workspaces they hold on to.
//!
//! The row that a create begins with holds the whole intent. Before each step its name is written durably, and the handle as soon as there is
//! one, so that whoever comes after a crash knows what may be there; what an extension made carries the sandbox's id besides.

mod copies;
mod making;
mod reconcile;
mod request;
mod steps;

#[cfg(test)]
pub(super) fn lost_for_tests() -> crate::environment::EnvironmentFailure {
    steps::failure("ready", "it is there and does not run".to_owned())
}

pub(super) use request::{designed, match_inputs, time_to_live};
