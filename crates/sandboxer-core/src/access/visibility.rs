//! Whose a sandbox is, and who sees it.

use serde::{Deserialize, Serialize};

use crate::environment::Scope;
use crate::service::{Consumer, Sandbox};

/// Whose a sandbox is, and whom it is shared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Who asked for it; `None` for what was made without a server.
    pub principal: Option<String>,
    /// On whose behalf.
    pub consumer: Consumer,
    /// Whom its profile shares it with.
    pub scope: Scope,
}

impl Sandbox {
    /// Whose it is.
    pub fn owner(&self) -> Owner {
        Owner {
            principal: self.principal.clone(),
            consumer: self.consumer.clone(),
            scope: self.environment.as_ref().map_or(Scope::Consumer, |environment| environment.scope),
        }
    }
}

/// Which sandboxes somebody sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// All of them: whoever runs commands here, and administrators.
    #[default]
    Everything,
    /// Their own, and what is shared with them.
    Of {
        /// Who.
        principal: String,
        /// On whose behalf.
        consumer: Consumer,
    },
}

impl Visibility {
    /// Whether a sandbox is seen. The store asks the same of many at once: see `store::pages`.
    pub fn includes(&self, owner: &Owner) -> bool {
        let Self::Of { principal, consumer } = self else { return true };
        match owner.scope {
            Scope::Consumer => owner.principal.as_ref() == Some(principal) && owner.consumer == *consumer,
            Scope::Project => owner.consumer.project == consumer.project,
            Scope::Host => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(project: &str) -> Consumer {
        Consumer { actor_type: "agt".into(), project: project.into() }
    }

    fn seen(owner: Option<&str>, project: &str, scope: Scope) -> bool {
        let owner = Owner { principal: owner.map(str::to_owned), consumer: consumer(project), scope };
        Visibility::Of { principal: "ann".into(), consumer: consumer("web") }.includes(&owner)
    }

    #[test]
    fn a_consumers_own_is_nobody_elses() {
        assert!(seen(Some("ann"), "web", Scope::Consumer));
        assert!(!seen(Some("bob"), "web", Scope::Consumer), "of the same project, and another's");
        assert!(!seen(Some("ann"), "api", Scope::Consumer), "asked for on behalf of another project");
        assert!(!seen(None, "web", Scope::Consumer), "made by hand on the machine");
    }

    #[test]
    fn profiles_share_with_a_project_or_everybody() {
        assert!(seen(Some("bob"), "web", Scope::Project));
        assert!(!seen(Some("bob"), "api", Scope::Project));
        assert!(seen(None, "api", Scope::Host));
    }

    #[test]
    fn whoever_runs_commands_here_sees_all() {
        let owner = Owner { principal: None, consumer: consumer("api"), scope: Scope::Consumer };
        assert!(Visibility::Everything.includes(&owner));
    }
}
