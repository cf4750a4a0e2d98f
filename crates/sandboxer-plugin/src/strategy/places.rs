//! Where plugins may work: a workspace directory for each sandbox, and a directory of their own.

use std::path::{Path, PathBuf};

use sandboxer_core::model::{PlanId, Resource};
use sandboxer_core::{Error, Result};
use sandboxer_fs::scratch::{self, NewWorkspace};
use serde_json::{Map, Value};

/// The plugin's metadata of a sandbox, in its workspace: for whoever brings it back.
const METADATA: &str = "plugin.json";

/// The directories of one plugin.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The state directory.
    pub home: PathBuf,
    /// Where the settings want workspaces.
    pub chosen: Option<PathBuf>,
    /// The plugin's own directory.
    pub state: PathBuf,
}

impl Places {
    /// A workspace for a new sandbox: on the filesystem of the resource where it has one, since clones and snapshots stay on theirs.
    pub fn new_workspace(&self, plan: &PlanId, resource: &Resource) -> Result<NewWorkspace> {
        let mut roots = match resource.path() {
            Some(path) => scratch::on_filesystem_of(&self.home, path, self.chosen.as_deref()),
            None => self.chosen.iter().cloned().collect(),
        };
        roots.push(scratch::in_state(&self.home));
        let mut refusal = None;
        for root in roots {
            match NewWorkspace::create(&self.home, &root, plan, resource) {
                Ok(new) => return Ok(new),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| Error::refused("there is no place for a workspace")))
    }

    /// Refuses a path to work in that is not the plugin's to give: whoever works there would work on something real.
    pub fn check_path(&self, path: &str, workspace: &Path) -> Result<(), String> {
        let found = std::fs::canonicalize(path)
            .map_err(|error| format!("its path {path:?} cannot be found: {error}"))?;
        let is_below = |root: &Path| {
            std::fs::canonicalize(root).is_ok_and(|root| found.starts_with(&root) && found != root)
        };
        if Path::new(path).is_absolute() && (is_below(workspace) || is_below(&self.state)) {
            return Ok(());
        }
        if std::fs::canonicalize(workspace).is_ok_and(|workspace| workspace == found) {
            return Err(format!(
                "its path {path:?} is its scratch directory itself, and has to be one in it"
            ));
        }
        Err(format!("its path {path:?} is outside its scratch directory {}", workspace.display()))
    }
}

/// A path as plugins are told it. What is not text would be another path on the way back.
pub(super) fn as_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::Refused {
        reason: format!("a plugin cannot work in {}: its name is not UTF-8", path.display()),
        hint: Some(
            "choose another place for the state (--home DIR) or for scratch space (state.scratch)".to_owned(),
        ),
    })
}

/// Writes down what the plugin said of a sandbox.
pub(super) fn keep_metadata(workspace: &Path, own: &Map<String, Value>) -> Result<()> {
    let file = workspace.join(METADATA);
    sandboxer_fs::durable::write_lazily(&file, Value::Object(own.clone()).to_string().as_bytes())
}

/// What the plugin said of the sandbox in that workspace.
pub(super) fn kept_metadata(workspace: &Path) -> Result<Map<String, Value>> {
    let file = workspace.join(METADATA);
    let bytes = std::fs::read(&file).map_err(|error| Error::io("read", &file, error))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::corrupt(&file, error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_within_the_workspace_or_the_plugins_own_directory() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for name in ["ws/tree", "state/x", "original"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::os::unix::fs::symlink(at("original"), at("ws/link")).unwrap();
        let places = Places { home: at("home"), chosen: None, state: at("state") };
        let check = |name: &str| places.check_path(at(name).to_str().unwrap(), &at("ws"));
        assert_eq!((check("ws/tree"), check("state/x")), (Ok(()), Ok(())));
        for bad in ["original", "ws", "ws/link", "ws/../original", "ws/missing", "state"] {
            assert!(check(bad).unwrap_err().contains(bad), "{bad}");
        }
        assert!(places.check_path("ws/tree", &at("ws")).is_err(), "relative to what?");
    }
}
