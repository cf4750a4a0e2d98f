//! What the host sees to itself, whatever a plugin says: a commit is where the work of an agent becomes real.
//!
//! Flags come from what lies in the sandbox's tree and from what is said of it, not from the plugin's own list. What was committed
//! to a directory of this machine is looked at afterwards, and has to be what was reviewed.

use std::collections::BTreeSet;
use std::path::Path;

use sandboxer_core::Result;
use sandboxer_core::model::{
    CommitRequest, CommitResult, DiffEntry, Notice, OnConflict, RelPath, SandboxRef,
};
use sandboxer_fs::commit::relieve;
use sandboxer_fs::diff::{flags_found, flags_told};
use sandboxer_fs::root::Root;

/// Adds the flags that a careful person needs to see.
pub(super) fn flag(sandbox: &SandboxRef, entries: &mut [DiffEntry]) {
    let tree = sandbox.sandbox_path().and_then(|path| open(&path));
    for entry in entries {
        let found = tree.iter().flat_map(|tree| flags_found(entry, tree));
        let ours: Vec<String> = flags_told(entry).into_iter().chain(found).collect();
        for flag in ours {
            if !entry.flags.contains(&flag) {
                entry.flags.push(flag);
            }
        }
    }
}

/// Takes from what was committed to a place on this machine the powers that nothing gets out of a sandbox with.
pub(super) fn take_powers(sandbox: &SandboxRef, entries: &[DiffEntry]) -> Result<Vec<Notice>> {
    let original = sandbox.resource_id.as_str().strip_prefix("path:").and_then(|path| open(Path::new(path)));
    original.map_or(Ok(Vec::new()), |original| relieve(&original, entries))
}

/// A tree; of a single file, the directory that it is in.
fn open(path: &Path) -> Option<Root> {
    Root::open(path).ok().or_else(|| Root::open(path.parent()?).ok())
}

/// Why what was committed is not what was reviewed; `None` where it is. Where conflicts are resolved, less may be committed, and
/// other content, but nothing elsewhere.
pub(super) fn unreviewed(
    request: &CommitRequest,
    pending: &[DiffEntry],
    done: &CommitResult,
) -> Option<String> {
    let reviewed = request.digest.as_ref()?;
    if request.on_conflict == OnConflict::Fail {
        return (*reviewed != done.digest).then(|| elsewhere(pending, done).unwrap_or_default());
    }
    elsewhere(pending, done)
}

/// The first path that was committed and not reviewed.
fn elsewhere(pending: &[DiffEntry], done: &CommitResult) -> Option<String> {
    let known: BTreeSet<&RelPath> = pending.iter().map(|entry| &entry.path).collect();
    let other = done.entries.iter().find(|entry| !known.contains(&entry.path))?;
    Some(format!(" ({})", other.path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sandboxer_core::model::{DiffKind, DiffView};

    use super::*;

    fn entries(paths: &[&str]) -> Vec<DiffEntry> {
        paths.iter().map(|path| DiffEntry::new(RelPath::parse(path).unwrap(), DiffKind::Created)).collect()
    }

    fn verdict(on_conflict: OnConflict, committed: &[&str]) -> Option<String> {
        let pending = entries(&["a", "b"]);
        let digest = Some(DiffView::new(pending.clone()).digest);
        let view = DiffView::new(entries(committed));
        let done = CommitResult { digest: view.digest, entries: view.entries, ..CommitResult::default() };
        unreviewed(&CommitRequest { digest, on_conflict, ..CommitRequest::default() }, &pending, &done)
    }

    #[test]
    fn what_was_reviewed_is_all_that_may_be_committed() {
        assert_eq!(verdict(OnConflict::Fail, &["a", "b"]), None);
        assert_eq!(verdict(OnConflict::Fail, &["a"]).as_deref(), Some(""));
        assert_eq!(verdict(OnConflict::Fail, &["a", "b", "secret/x"]).as_deref(), Some(" (secret/x)"));
    }

    #[test]
    fn who_resolves_conflicts_may_commit_less_and_nothing_else() {
        assert_eq!(verdict(OnConflict::Ours, &["a"]), None);
        assert_eq!(verdict(OnConflict::Merge, &["a", "c"]).as_deref(), Some(" (c)"));
    }
}
