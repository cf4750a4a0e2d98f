//! What the parts promise one another: strategies, resource handlers, permissions, progress, what runs, what makes environments.

mod extension;
mod handler;
mod permission;
mod progress;
mod runtime;
mod strategy;

pub use extension::EnvironmentExtension;
pub use handler::ResourceHandler;
pub use permission::{LocalPermissions, PermissionService};
pub use progress::{CancelFlag, NoProgress, Progress};
pub use runtime::{NothingRuns, Quiet, Runtime};
pub use strategy::{Capabilities, METHODS, SandboxStrategy};
