//! From what a user typed to a sandbox and its workspaces: an id, a unique beginning of one, a name or `@last`, each
//! with `:WORKSPACE` behind it if one workspace is meant.

use super::manager::SandboxManager;
use super::{Sandbox, Target, Workspace};
use crate::model::SandboxId;
use crate::{Error, Result, resolve};

const PREFIX: &str = "sbx_";
/// Fewer characters of an id than this are taken for a name.
const SHORTEST: usize = 4;
const LENGTH: usize = 26;

impl SandboxManager {
    /// The live sandbox that `selector` names.
    pub fn find(&self, selector: &str) -> Result<Target> {
        self.select(selector, false)
    }

    /// The same among all that ever were: destroying what is destroyed already is fine.
    pub fn find_any(&self, selector: &str) -> Result<Target> {
        self.select(selector, true)
    }

    /// The sandbox of exactly this id, whatever its state.
    pub fn find_exact(&self, id: &str) -> Result<Option<Sandbox>> {
        if !id.starts_with(PREFIX) {
            return Ok(None);
        }
        Ok(self.store.sandbox(&SandboxId::from_string(id))?.filter(|sandbox| self.sees(sandbox)))
    }

    fn select(&self, selector: &str, all: bool) -> Result<Target> {
        let (name, workspace) = match selector.split_once(':') {
            Some((name, workspace)) => (name, Some(workspace)),
            None => (selector, None),
        };
        let sandbox = self.select_sandbox(name, all)?;
        let workspaces = match workspace {
            Some(workspace) => vec![workspace_of(&sandbox, workspace)?],
            None => sandbox.workspaces.clone(),
        };
        Ok(Target { sandbox, workspaces })
    }

    fn select_sandbox(&self, name: &str, all: bool) -> Result<Sandbox> {
        if name == "@last" {
            return self.list(false)?.into_iter().next().ok_or_else(|| Error::not_found("sandbox", name));
        }
        let id = name.to_ascii_lowercase();
        let exact = self.store.sandbox(&SandboxId::from_string(id.as_str()))?;
        if let Some(sandbox) = exact.filter(|sandbox| (all || sandbox.state.is_live()) && self.sees(sandbox))
        {
            return Ok(sandbox);
        }
        let named = self.store.sandboxes_by_name(name, all)?;
        if let Some(sandbox) = named.into_iter().find(|sandbox| self.sees(sandbox)) {
            return Ok(sandbox);
        }
        match &self.by_prefix(&id, all)?[..] {
            [] => Err(self.unknown(name)?),
            [only] => Ok(only.clone()),
            several => Err(ambiguous(name, several)),
        }
    }

    fn by_prefix(&self, text: &str, all: bool) -> Result<Vec<Sandbox>> {
        let ulid = text.strip_prefix(PREFIX).unwrap_or(text);
        let possible =
            (SHORTEST..=LENGTH).contains(&ulid.len()) && ulid.chars().all(|c| c.is_ascii_alphanumeric());
        if !possible {
            return Ok(Vec::new());
        }
        let mut found = self.store.sandboxes_by_prefix(&format!("{PREFIX}{ulid}"), all)?;
        found.retain(|sandbox| self.sees(sandbox));
        Ok(found)
    }

    fn unknown(&self, name: &str) -> Result<Error> {
        let names: Vec<String> = self.list(false)?.into_iter().map(|sandbox| sandbox.name).collect();
        let similar = resolve::nearest(name, names.iter());
        Ok(Error::NotFound { what: "sandbox", name: name.to_owned(), similar })
    }
}

fn ambiguous(name: &str, candidates: &[Sandbox]) -> Error {
    let list: Vec<String> = candidates.iter().map(|s| format!("{} ({})", s.id, s.name)).collect();
    Error::Usage {
        message: format!("{name:?} is the beginning of {} sandbox ids: {}", list.len(), list.join(", ")),
        hint: Some("give more of the id, or the name".to_owned()),
    }
}

fn workspace_of(sandbox: &Sandbox, name: &str) -> Result<Workspace> {
    sandbox.workspace(name).cloned().ok_or_else(|| Error::NotFound {
        what: "workspace",
        name: name.to_owned(),
        similar: sandbox.workspaces.iter().map(|w| w.name.clone()).collect(),
    })
}
