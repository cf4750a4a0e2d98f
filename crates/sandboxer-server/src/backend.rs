//! What the program around the server supplies.

use std::path::{Path, PathBuf};
use std::process::Command;

use sandboxer_core::environment::{Catalogue, SandboxCreateRequest};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{EnvironmentRequest, SandboxManager};
use sandboxer_documents::Told;

use crate::log::Line;

/// Where the use cases come from, and who hears of what the server does. Everything here may block.
pub trait Backend: Send + Sync + 'static {
    /// The use cases, for whoever may do everything.
    fn manager(&self) -> &SandboxManager;

    /// The use cases with the settings of the project that is at `start`.
    fn manager_at(&self, start: &Path) -> Result<SandboxManager, Told>;

    /// The environment that a request asks for, routed; nothing is made.
    fn environment(&self, request: &SandboxCreateRequest) -> Result<EnvironmentRequest, Told>;

    /// Profiles, extensions and hosts.
    fn catalogue(&self) -> Result<Catalogue, Told>;

    /// What a commit to these places is held to: the rules of the configuration and of the projects that are there, then these; `accept_flags` lets
    /// flagged paths pass.
    fn rules(
        &self,
        places: &[PathBuf],
        conditions: &[String],
        accept_flags: bool,
    ) -> Result<CommitRules, Told>;

    /// The program itself, on the same state, ready for the arguments of a command.
    fn program(&self) -> Command;

    /// What is due every second: sandboxes whose time is up.
    fn expire(&self);

    /// What is due every minute: recovery, times to live, environments that nobody owns.
    fn tend(&self);

    /// Hears what the server has to say of itself.
    fn log(&self, line: &Line);
}
