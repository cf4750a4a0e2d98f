//! What there is to tell about a workspace of a checkout.

use sandboxer_core::Result;
use sandboxer_core::model::SandboxRef;
use sandboxer_fs::root::Root;
use sandboxer_git::private::{self, AgentHead};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::making::{short, tree_of};
use super::spec::GitSpec;
use crate::copies::home_of;

/// Where a sandbox stands in its repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct About {
    /// The branch that is checked out inside; `None` for a detached HEAD, or where it cannot be told.
    pub branch: Option<String>,
    /// The commit there.
    pub head: Option<String>,
    /// The commit that differences are told against.
    pub base: Option<String>,
    /// The branch of the checkout that commits go to; `None` where no branch is checked out.
    pub target: Option<String>,
    /// The user's repository.
    pub repository: String,
}

/// What there is to tell about a workspace; `None` where it is not one of a checkout.
pub fn about(sandbox: &SandboxRef) -> Result<Option<About>> {
    if !sandbox.metadata.contains_key("git") {
        return Ok(None);
    }
    let spec = GitSpec::load(&home_of(sandbox)?)?;
    let state = Root::open(tree_of(sandbox)?).and_then(|tree| private::read(&tree, spec.repository.format));
    let state = state.ok().flatten();
    let branch = state.as_ref().and_then(|state| match &state.head {
        AgentHead::Branch(name) => Some(name.clone()),
        AgentHead::Detached => None,
    });
    Ok(Some(About {
        branch,
        head: state.and_then(|state| state.commit).map(|oid| oid.to_string()),
        base: spec.base.map(|oid| oid.to_string()),
        target: spec.target.as_deref().map(|full| short(full).to_owned()),
        repository: spec.repository.common_dir.display().to_string(),
    }))
}
