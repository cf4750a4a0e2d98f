//! Notices about the held transaction of a workspace.

use sandboxer_core::model::RelPath;
use sandboxer_core::service::{SandboxManager, Target, Workspace};
use sandboxer_database::engine::Status;
use sandboxer_database::transaction;

/// The notices of the transaction of `workspace`, which is the only one of `target`; none if it has no transaction.
pub(crate) fn notices(manager: &SandboxManager, target: &Target, workspace: &Workspace) -> Vec<String> {
    match status(manager, target, workspace) {
        Some(Status::Held { notices }) => notices,
        Some(Status::Lost { reason }) => {
            vec![format!("lost: {reason}; `sandbox rollback ID` begins a new transaction")]
        }
        None => Vec::new(),
    }
}

fn status(manager: &SandboxManager, target: &Target, workspace: &Workspace) -> Option<Status> {
    if workspace.sandbox_ref.strategy_name != transaction::NAME {
        return None;
    }
    let text = manager.read(target, &RelPath::parse(transaction::STATUS).ok()?).ok()?;
    serde_json::from_slice(&text).ok()
}
