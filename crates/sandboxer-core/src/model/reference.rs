//! The handle of one isolated resource.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CheckpointId, OpId, PlanId, RelPath, ResourceId};
use crate::{Error, Result};

/// Handle of one isolated resource. It is a value: stored, sent to another process, and valid there.
///
/// What a caller may need beyond the nine methods stands in `metadata`. Keys with a meaning to everybody:
/// `path` (the directory or file to work in), `base` (where content of the base is read, for patches),
/// `history` (a directory with the patch of each commit, as `OP/patch`), `notices` (a file with what its user has to know, line by
/// line), `work` (where the changes themselves are kept, if not at `path`), `preserved` (where content of the base is read before `base`). Some are set for one call alone:
/// `scope` (paths that a `rollback` is limited to), `operation` (under which a `commit` keeps what takes it back), `undo`
/// (the operation that a `commit` takes back), `part` (what a `cleanup` is limited to), `range` (which bytes a `read` is limited to). All others belong to the strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxRef {
    /// The plan it belongs to.
    pub plan_id: PlanId,
    /// What is isolated.
    pub resource_id: ResourceId,
    /// The registered name of the strategy that made it; loading never guesses.
    pub strategy_name: String,
    /// See above.
    pub metadata: BTreeMap<String, Value>,
}

/// A part of a workspace that `cleanup` can remove without the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What takes one operation back.
    Undo(OpId),
    /// One checkpoint, with what it alone holds.
    Checkpoint(CheckpointId),
    /// Everything but the changes and what tells them from the base: what is left can be brought back by `create`.
    Unchanged,
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("undo", id)) => Some(Self::Undo(OpId::from_string(id))),
            Some(("checkpoint", id)) => Some(Self::Checkpoint(CheckpointId::from_string(id))),
            None if text == "unchanged" => Some(Self::Unchanged),
            _ => None,
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Undo(id) => write!(f, "undo:{id}"),
            Self::Checkpoint(id) => write!(f, "checkpoint:{id}"),
            Self::Unchanged => f.write_str("unchanged"),
        }
    }
}

/// Which bytes of a file a `read` is limited to. What lies past its end is left out, so a shorter answer is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first byte.
    pub offset: u64,
    /// How many bytes at the most.
    pub length: u64,
}

/// The directories that a path to work in is confined to.
const CONFINED: &str = "confined";

impl SandboxRef {
    /// A ref without metadata.
    pub fn new(plan_id: PlanId, resource_id: ResourceId, strategy_name: impl Into<String>) -> Self {
        Self { plan_id, resource_id, strategy_name: strategy_name.into(), metadata: BTreeMap::new() }
    }

    /// The same ref with one more metadata value.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(key.to_owned(), value.into());
        self
    }

    /// The same ref with a path as metadata value.
    pub fn with_path(self, key: &str, path: &Path) -> Self {
        self.with(key, path.to_string_lossy().into_owned())
    }

    /// A metadata value that is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).and_then(Value::as_str)
    }

    /// The same ref, whose path to work in has to lie below one of these directories whenever somebody is sent there.
    pub fn confined_to(self, roots: &[&Path]) -> Self {
        let roots: Vec<Value> = roots.iter().map(|root| root.to_string_lossy().into_owned().into()).collect();
        self.with(CONFINED, Value::Array(roots))
    }

    /// The same ref, whose path may lie anywhere.
    pub fn anywhere(mut self) -> Self {
        self.metadata.remove(CONFINED);
        self
    }

    /// Refuses a path that leads out of where it is confined to. It did not when it was made; something has replaced it.
    pub fn check_path(&self) -> Result<()> {
        let (Some(path), Some(roots)) = (self.sandbox_path(), self.metadata.get(CONFINED)) else {
            return Ok(());
        };
        let found = std::fs::canonicalize(&path).map_err(|error| Error::io("find", &path, error))?;
        let is_below = |root: &Value| {
            let root = root.as_str().and_then(|root| std::fs::canonicalize(root).ok());
            root.is_some_and(|root| found.starts_with(&root) && found != root)
        };
        if roots.as_array().is_some_and(|roots| roots.iter().any(is_below)) {
            return Ok(());
        }
        Err(Error::refused(format!(
            "{} leads to {}, which is not in the sandbox",
            path.display(),
            found.display()
        )))
    }

    /// Where to work: the `path` of the metadata.
    pub fn sandbox_path(&self) -> Option<PathBuf> {
        self.text("path").map(PathBuf::from)
    }

    /// The same ref, for a `commit` that is logged as `operation`.
    pub fn for_operation(self, operation: &OpId) -> Self {
        self.with("operation", operation.as_str())
    }

    /// The operation that a `commit` is logged as.
    pub fn operation(&self) -> Option<OpId> {
        self.text("operation").map(OpId::from_string)
    }

    /// The same ref, for a `commit` that takes `operation` back.
    pub fn undoing(self, operation: &OpId) -> Self {
        self.with("undo", operation.as_str())
    }

    /// The operation that a `commit` takes back, if that is what it does.
    pub fn undo(&self) -> Option<OpId> {
        self.text("undo").map(OpId::from_string)
    }

    /// The same ref, for a `cleanup` of `part` alone.
    pub fn for_part(self, part: &Part) -> Self {
        self.with("part", part.to_string())
    }

    /// What a `cleanup` is limited to; `None` means everything. A part that cannot be read is an error: taken for
    /// everything, it would remove what nobody meant.
    pub fn part(&self) -> Result<Option<Part>> {
        let Some(value) = self.metadata.get("part") else { return Ok(None) };
        let part = value.as_str().and_then(Part::parse);
        part.map(Some)
            .ok_or_else(|| Error::corrupt(self.resource_id.as_str(), "its ref names an unknown part"))
    }

    /// The same ref, for a `read` of at most `length` bytes from `offset` on.
    pub fn ranged(self, offset: u64, length: u64) -> Self {
        self.with("range", serde_json::json!(Range { offset, length }))
    }

    /// Which bytes a `read` is limited to; `None` means all. A range that cannot be read is an error: taken for none, it
    /// would be answered with more than was asked for.
    pub fn range(&self) -> Result<Option<Range>> {
        let Some(value) = self.metadata.get("range") else { return Ok(None) };
        let range = serde_json::from_value(value.clone());
        range.map(Some).map_err(|e| Error::usage(format!("the range of the read cannot be read: {e}")))
    }

    /// The same ref, limited to `paths` for a `rollback`.
    pub fn scoped(self, paths: &[RelPath]) -> Self {
        let list = paths.iter().map(|p| serde_json::json!(p)).collect::<Vec<_>>();
        self.with("scope", Value::Array(list))
    }

    /// The paths that a `rollback` is limited to; empty means everything. A scope that cannot be read is an error: taken
    /// for none, it would throw away what was to be kept.
    pub fn scope(&self) -> Result<Vec<RelPath>> {
        match self.metadata.get("scope") {
            None => Ok(Vec::new()),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|e| Error::usage(format!("the scope of the rollback cannot be read: {e}"))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn reference() -> SandboxRef {
        SandboxRef::new(PlanId::from_string("pln_1"), ResourceId::from_string("path:/r"), "none")
    }

    #[test]
    fn metadata_is_text_or_nothing() {
        let reference = reference().with_path("path", Path::new("/work/tree")).with("count", 3);
        assert_eq!(reference.sandbox_path(), Some(PathBuf::from("/work/tree")));
        assert_eq!(reference.text("path"), Some("/work/tree"));
        assert_eq!(reference.text("count"), None);
        assert_eq!(reference.text("missing"), None);
    }

    #[test]
    fn a_path_that_is_replaced_by_a_link_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (root, tree, original) =
            (temp.path().join("ws"), temp.path().join("ws/tree"), temp.path().join("original"));
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::create_dir(&original).unwrap();
        let confined = reference().with_path("path", &tree).confined_to(&[&root]);
        assert!(confined.check_path().is_ok());
        std::fs::remove_dir(&tree).unwrap();
        assert!(confined.check_path().is_err(), "gone");
        std::os::unix::fs::symlink(&original, &tree).unwrap();
        assert!(matches!(confined.check_path(), Err(Error::Refused { .. })));
        assert!(confined.anywhere().check_path().is_ok());
        assert!(reference().check_path().is_ok());
    }

    #[test]
    fn a_ref_without_a_path_has_nowhere_to_work() {
        assert_eq!(reference().sandbox_path(), None);
    }

    #[test]
    fn a_scope_keeps_every_byte_and_no_scope_is_everything() {
        let paths = [RelPath::parse("a/b").unwrap(), RelPath::from_bytes(b"\xff".to_vec()).unwrap()];
        assert_eq!(reference().scoped(&paths).scope().unwrap(), paths);
        assert!(reference().scope().unwrap().is_empty());
        assert!(reference().scoped(&[]).scope().unwrap().is_empty());
        assert!(reference().with("scope", "a").scope().is_err());
    }

    #[test]
    fn a_range_is_two_numbers_and_no_range_is_everything() {
        let ranged = reference().ranged(4, u64::MAX);
        assert_eq!(ranged.range().unwrap(), Some(Range { offset: 4, length: u64::MAX }));
        assert_eq!(ranged.metadata["range"], serde_json::json!({"offset": 4, "length": u64::MAX}));
        assert_eq!(reference().range().unwrap(), None);
        for bad in [serde_json::json!("4-8"), serde_json::json!({"offset": -1, "length": 1}), Value::Null] {
            assert!(reference().with("range", bad.clone()).range().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_ref_is_the_same_in_another_process() {
        let reference = reference().with("path", "/work").scoped(&[RelPath::parse("a").unwrap()]);
        let json = serde_json::to_string(&reference).unwrap();
        assert_eq!(serde_json::from_str::<SandboxRef>(&json).unwrap(), reference);
    }
}
