//! Who may do what.

use crate::access::Visibility;
use crate::model::AccessResult;

/// Decides by principal, action and scope. Every refusal says why.
pub trait PermissionService: Send + Sync {
    /// Whether `principal` may do `action` (`create`, `read`, `commit`, …) on `scope` (a resource id or sandbox id).
    fn decide(&self, principal: &str, action: &str, scope: &str) -> AccessResult;

    /// Who asks, where that is known by more than what a request says of itself.
    fn caller(&self) -> Option<&str> {
        None
    }

    /// Which sandboxes whoever asks gets to see.
    fn visibility(&self) -> Visibility {
        Visibility::Everything
    }
}

/// Local mode: whoever can run the command has the operating system's permissions, and those decide.
#[derive(Debug, Default)]
pub struct LocalPermissions;

impl PermissionService for LocalPermissions {
    fn decide(&self, principal: &str, action: &str, scope: &str) -> AccessResult {
        AccessResult {
            permitted: true,
            principal: principal.to_owned(),
            action: action.to_owned(),
            scope: scope.to_owned(),
            reason: "local mode: the operating system's own permissions decide".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_mode_permits_and_says_why() {
        let answer = LocalPermissions.decide("adm", "commit", "sbx_1");
        assert!(answer.permitted && answer.reason.contains("local mode"));
        assert_eq!((&*answer.principal, &*answer.action, &*answer.scope), ("adm", "commit", "sbx_1"));
    }
}
