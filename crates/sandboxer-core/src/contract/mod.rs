//! What the parts promise one another: strategies, resource handlers, permissions, progress.

mod handler;
mod permission;
mod progress;
mod strategy;

pub use handler::ResourceHandler;
pub use permission::{LocalPermissions, PermissionService};
pub use progress::{CancelFlag, NoProgress, Progress};
pub use strategy::{Capabilities, METHODS, SandboxStrategy};
