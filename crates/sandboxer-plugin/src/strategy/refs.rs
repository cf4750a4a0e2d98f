//! Refs, as the host keeps them and as the plugin sees them.
//!
//! The plugin's metadata is kept whole under one key, so that it can hold whatever it likes; what others read in a ref is shown
//! beside it. What the core adds to a ref for one call goes on top of the plugin's own.

use std::path::Path;

use sandboxer_core::model::SandboxRef;
use sandboxer_core::{Error, Result};
use serde_json::{Map, Value};

/// Where the plugin's own metadata is kept.
const OWN: &str = "plugin";
/// The workspace directory that the host made, for whoever looks for orphans.
const DIR: &str = "dir";
/// The same, for the plugin.
pub(super) const SCRATCH: &str = "scratch";

/// What of the plugin's metadata others read.
const SHOWN: [&str; 4] = ["path", "base", "history", "fallback_reason"];
/// What the core adds for one call.
const FOR_A_CALL: [&str; 5] = ["operation", "undo", "part", "scope", "range"];

/// The ref that the host keeps of a sandbox whose plugin answered with `own` metadata. Whatever it makes of its path later, nobody is
/// sent anywhere but into the workspace, or into `state`, the plugin's own directory.
pub(super) fn kept(bare: SandboxRef, own: &Map<String, Value>, workspace: &Path, state: &Path) -> SandboxRef {
    let mut reference =
        bare.with_path(DIR, workspace).with(OWN, own.clone()).confined_to(&[workspace, state]);
    for key in SHOWN {
        if let Some(value) = own.get(key) {
            reference = reference.with(key, value.clone());
        }
    }
    reference
}

/// The same ref as the plugin made it, with what this call is about.
pub(super) fn for_plugin(kept: &SandboxRef) -> SandboxRef {
    let own = kept.metadata.get(OWN).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut reference = SandboxRef { metadata: own.into_iter().collect(), ..kept.clone() };
    if let Some(workspace) = kept.text(DIR) {
        reference = reference.with(SCRATCH, workspace);
    }
    for key in FOR_A_CALL {
        if let Some(value) = kept.metadata.get(key) {
            reference = reference.with(key, value.clone());
        }
    }
    reference
}

/// Where the host keeps what belongs to the sandbox.
pub(super) fn workspace_of(kept: &SandboxRef) -> Result<&Path> {
    let workspace = kept.text(DIR).map(Path::new);
    workspace.ok_or_else(|| Error::corrupt(kept.resource_id.as_str(), "its ref has no directory"))
}

#[cfg(test)]
mod tests {
    use sandboxer_core::model::{OpId, PlanId, ResourceId};
    use serde_json::json;

    use super::*;

    fn bare() -> SandboxRef {
        SandboxRef::new(PlanId::from_string("pln_1"), ResourceId::from_string("path:/r"), "mine")
    }

    fn own() -> Map<String, Value> {
        json!({"path": "/w/tree", "dir": "/own", "versions": {"a": 1}})
            .as_object()
            .cloned()
            .unwrap_or_default()
    }

    #[test]
    fn a_plugin_sees_its_own_metadata_and_its_scratch() {
        let kept = kept(bare(), &own(), Path::new("/w"), Path::new("/s"));
        assert_eq!((kept.text("dir"), kept.text("path")), (Some("/w"), Some("/w/tree")));
        assert!(!kept.metadata.contains_key("versions"));
        let seen = for_plugin(&kept);
        assert_eq!((seen.text("dir"), seen.text("scratch")), (Some("/own"), Some("/w")));
        assert_eq!(seen.metadata["versions"], json!({"a": 1}));
        assert!(!seen.metadata.contains_key(OWN));
        assert_eq!(workspace_of(&kept).ok(), Some(Path::new("/w")));
    }

    #[test]
    fn what_a_call_is_about_comes_along() {
        let kept =
            kept(bare(), &own(), Path::new("/w"), Path::new("/s")).for_operation(&OpId::from_string("op_1"));
        assert_eq!(for_plugin(&kept).text("operation"), Some("op_1"));
    }

    #[test]
    fn a_ref_of_somebody_else_is_told() {
        assert!(workspace_of(&bare()).is_err());
        assert!(for_plugin(&bare()).metadata.is_empty());
    }
}
