//! What plugins answer, and what is made of it. They may leave out what the host knows.

use sandboxer_core::model::{
    Change, CheckpointId, CommitResult, Conflict, DiffEntry, DiffKind, DiffView, Notice, RelPath, Revision,
    RollbackResult,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::envelope::secrets::Secrets;

/// An answer that cannot be used; why.
pub(super) type Read<T> = Result<T, String>;

/// The answer to `create`.
#[derive(Deserialize)]
pub(super) struct Created {
    #[serde(default)]
    pub plan_id: Option<String>,
    #[serde(default)]
    pub resource_id: Option<String>,
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// The answer to `diff`: the digest is computed here, from the entries.
#[derive(Deserialize)]
struct Difference {
    #[serde(default)]
    entries: Vec<DiffEntry>,
    #[serde(default)]
    at_decision: Option<String>,
}

/// The answer to `commit`. A digest is compared with what somebody reviewed, so it is not for the plugin to say.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Committed {
    entries: Option<Vec<DiffEntry>>,
    notices: Vec<Notice>,
    conflicts: Vec<Conflict>,
    undo_bytes: Option<u64>,
    revision: Option<Revision>,
    at_decision: Option<String>,
}

/// The answer to `rollback` and `restore_checkpoint`.
#[derive(Deserialize)]
#[serde(default)]
struct RolledBack {
    success: bool,
    restored_files: u64,
    message: String,
}

impl Default for RolledBack {
    fn default() -> Self {
        Self { success: true, restored_files: 0, message: String::new() }
    }
}

/// The metadata of a sandbox is kept with it, and sent with every call.
const LONGEST_REF: usize = 1 << 20;

/// Makes every text in it fit to be told to people and to be kept.
pub(super) trait Tell {
    fn tell(&mut self, secrets: &Secrets);
}

impl Tell for DiffEntry {
    fn tell(&mut self, secrets: &Secrets) {
        self.refused.iter_mut().chain(&mut self.flags).for_each(|text| *text = secrets.told(text));
        // A patch has many lines, and is shown as carefully as any content.
        self.text.iter_mut().for_each(|text| *text = secrets.taken_out(text));
    }
}

impl Tell for CommitResult {
    fn tell(&mut self, secrets: &Secrets) {
        self.entries.iter_mut().for_each(|entry| entry.tell(secrets));
        self.notices.iter_mut().for_each(|notice| notice.message = secrets.told(&notice.message));
        self.conflicts.iter_mut().for_each(|conflict| conflict.reason = secrets.told(&conflict.reason));
        self.at_decision.iter_mut().for_each(|reason| *reason = secrets.told(reason));
    }
}

impl Tell for RollbackResult {
    fn tell(&mut self, secrets: &Secrets) {
        self.message = secrets.told(&self.message);
    }
}

impl Tell for DiffView {
    fn tell(&mut self, secrets: &Secrets) {
        self.entries.iter_mut().for_each(|entry| entry.tell(secrets));
        self.at_decision.iter_mut().for_each(|reason| *reason = secrets.told(reason));
    }
}

/// Fields go by name: a list of them in order is a misunderstanding.
fn parse<T: DeserializeOwned>(said: &RawValue) -> Read<T> {
    if said.get().starts_with('[') {
        return Err("it is a list".to_owned());
    }
    serde_json::from_str(said.get()).map_err(|error| error.to_string())
}

pub(super) fn created(said: &RawValue) -> Read<Created> {
    if said.get().len() > LONGEST_REF {
        return Err(format!("it has {} bytes, {LONGEST_REF} is the limit", said.get().len()));
    }
    parse(said)
}

pub(super) fn difference(said: &RawValue) -> Read<DiffView> {
    let difference: Difference = parse(said)?;
    Ok(DiffView { at_decision: difference.at_decision, ..DiffView::new(difference.entries) })
}

/// A plugin that says nothing of what it committed has committed what there was.
pub(super) fn committed(said: &RawValue, pending: Vec<DiffEntry>) -> Read<CommitResult> {
    let said: Committed = parse::<Option<Committed>>(said)?.unwrap_or_default();
    let is_nothing = said.entries.as_ref().is_some_and(Vec::is_empty) && said.conflicts.is_empty();
    if is_nothing && !pending.is_empty() {
        return Err(format!("it has committed nothing of {} that differ", pending.len()));
    }
    let view = DiffView::new(said.entries.unwrap_or(pending));
    Ok(CommitResult {
        digest: view.digest,
        entries: view.entries,
        notices: said.notices,
        conflicts: said.conflicts,
        undo_bytes: said.undo_bytes,
        revision: said.revision,
        at_decision: said.at_decision,
    })
}

/// A plugin that says nothing of what it wrote has written what it was given.
pub(super) fn change(said: &RawValue, path: &RelPath, content: &[u8]) -> Read<Change> {
    match parse::<Option<Change>>(said)? {
        Some(change) if change.path == *path => Ok(change),
        Some(other) => Err(format!("it is about {:?}", other.path)),
        None => {
            let new_size = content.len() as u64;
            Ok(Change { path: path.clone(), kind: DiffKind::Modified, old_size: None, new_size })
        }
    }
}

pub(super) fn rolled_back(
    said: &RawValue,
    checkpoint_id: Option<CheckpointId>,
    done: &str,
) -> Read<RollbackResult> {
    let said: RolledBack = parse::<Option<RolledBack>>(said)?.unwrap_or_default();
    let message = if said.message.is_empty() { done.to_owned() } else { said.message };
    Ok(RollbackResult { success: said.success, checkpoint_id, restored_files: said.restored_files, message })
}

pub(super) fn kept_at(said: &RawValue) -> Read<Option<std::path::PathBuf>> {
    parse(said)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn raw(value: Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(&value).unwrap()
    }

    #[test]
    fn nothing_said_is_what_the_host_knows() {
        let pending = vec![DiffEntry::new(path("a"), DiffKind::Created)];
        let result = committed(RawValue::NULL, pending.clone()).unwrap();
        assert_eq!(result.entries, pending);
        assert_eq!(result.digest, DiffView::new(pending).digest);
        assert_eq!(change(RawValue::NULL, &path("a"), b"xyz").unwrap().new_size, 3);
        let back = rolled_back(RawValue::NULL, None, "rolled back").unwrap();
        assert!(back.success && back.message == "rolled back");
        assert_eq!(kept_at(RawValue::NULL).unwrap(), None);
    }

    #[test]
    fn what_is_said_counts() {
        let said = json!({"digest": "made up", "entries": [], "notices": [{"path": "a", "message": "m"}]});
        assert!(committed(&raw(said.clone()), vec![DiffEntry::new(path("a"), DiffKind::Created)]).is_err());
        let result = committed(&raw(said), Vec::new()).unwrap();
        assert!(result.digest.starts_with("blake3:") && result.notices.len() == 1);
        let failed = rolled_back(&raw(json!({"success": false, "message": "no"})), None, "done").unwrap();
        assert!(!failed.success && failed.message == "no");
    }

    #[test]
    fn entries_are_sorted_and_the_digest_is_ours() {
        let said = json!({"digest": "made up", "entries": [
            {"path": "b", "kind": "created"}, {"path": "a", "kind": "deleted"},
        ]});
        let view = difference(&raw(said)).unwrap();
        assert_eq!(view.entries[0].path, path("a"));
        assert!(view.digest.starts_with("blake3:"));
    }

    #[test]
    fn odd_answers_are_refused() {
        assert!(difference(&raw(json!({"entries": [{"path": "../x", "kind": "created"}]}))).is_err());
        assert!(difference(&raw(json!([1]))).is_err() && difference(&raw(json!("x"))).is_err());
        assert!(difference(&raw(json!({"entries": [{"path": "x", "kind": "exploded"}]}))).is_err());
        assert!(committed(&raw(json!(7)), Vec::new()).is_err());
        let about_b = json!({"path": "b", "kind": "created", "old_size": null, "new_size": 1});
        assert!(change(&raw(about_b), &path("a"), b"x").unwrap_err().contains("\"b\""));
        assert!(kept_at(&raw(json!({"a": 1}))).is_err() && created(&raw(json!([]))).is_err());
    }
}
