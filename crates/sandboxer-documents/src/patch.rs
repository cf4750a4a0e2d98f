//! Patches as `git apply` takes them, byte for byte.

use std::io::Write;
use std::path::PathBuf;

use sandboxer_core::model::{DiffEntry, Node, NodeType, Row, RowChange};
use sandboxer_core::service::{TargetDiff, Workspace, WorkspaceDiff};
use sandboxer_core::{Error, Result};
use sandboxer_fs::content;
use sandboxer_fs::patch::render_entry;

use super::words::{shell_word, size};

/// A patch has one root, so it is of one workspace.
pub fn single(diff: &TargetDiff) -> Result<&WorkspaceDiff> {
    match diff.workspaces.as_slice() {
        [only] => Ok(only),
        several => {
            let names: Vec<String> = several.iter().map(|w| shell_word(&w.workspace.name)).collect();
            let hint = format!("`sandbox diff ID:{} --patch`", names.first().cloned().unwrap_or_default());
            let message = format!("a patch is of one workspace; this sandbox has {}", names.join(", "));
            Err(Error::Usage { message, hint: Some(hint) })
        }
    }
}

/// Whether content is too large to be rendered for a person, or for `git apply` to hold in memory.
pub fn is_huge(entry: &DiffEntry) -> bool {
    let huge = |node: &Option<Node>| node.as_ref().is_some_and(|n| n.size > content::RENDER_LIMIT);
    huge(&entry.old) || huge(&entry.new)
}

/// Why an entry has no place in a patch. One such entry must not make the rest unusable: `git apply` refuses a whole patch
/// over a path below `.git`.
pub fn left_out(entry: &DiffEntry) -> Option<String> {
    if let Some(reason) = &entry.refused {
        return Some(reason.clone());
    }
    if is_huge(entry) {
        return Some(format!("it is larger than {}", size(content::RENDER_LIMIT)));
    }
    let inside_git = entry.path.components().any(|part| part.eq_ignore_ascii_case(b".git"));
    inside_git.then(|| "git applies nothing below `.git`".to_owned())
}

/// Writes the patch of a difference of one workspace, without what [`left_out`] names.
pub fn write(of: &WorkspaceDiff, out: &mut dyn Write) -> Result<()> {
    for entry in of.entries.iter().filter(|entry| left_out(entry).is_none()) {
        let rendered = render(&of.workspace, entry)?;
        out.write_all(&rendered).map_err(|e| Error::io("write the patch of", entry.path.as_path(), e))?;
    }
    Ok(())
}

/// The same, in memory.
pub fn bytes(of: &WorkspaceDiff) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    write(of, &mut all)?;
    Ok(all)
}

/// The patch of one entry.
pub fn render(workspace: &Workspace, entry: &DiffEntry) -> Result<Vec<u8>> {
    if let Some(text) = &entry.text {
        return Ok(text.clone().into_bytes());
    }
    if let Some(row) = &entry.row {
        return row_patch(entry, row);
    }
    let mut rendered = Vec::new();
    let sides = load(workspace, entry)?;
    render_entry(entry, sides.old.as_deref(), sides.new.as_deref(), &mut rendered)
        .map_err(|e| Error::io("render", entry.path.as_path(), e))?;
    Ok(rendered)
}

/// A row as a file of its own, column by column.
fn row_patch(entry: &DiffEntry, row: &RowChange) -> Result<Vec<u8>> {
    let (old, new) = (row.old.as_ref().map(row_as_file), row.new.as_ref().map(row_as_file));
    let node = |content: &Vec<u8>| Node {
        node_type: NodeType::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: content.len() as u64,
        digest: None,
        target: None,
        xattrs: None,
    };
    let entry = DiffEntry { old: old.as_ref().map(node), new: new.as_ref().map(node), ..entry.clone() };
    let mut rendered = Vec::new();
    render_entry(&entry, old.as_deref(), new.as_deref(), &mut rendered)
        .map_err(|e| Error::io("render", entry.path.as_path(), e))?;
    Ok(rendered)
}

/// Both sides of an entry, from the files of its workspace.
pub fn load(workspace: &Workspace, entry: &DiffEntry) -> Result<content::Sides> {
    let place = |key: &str| workspace.sandbox_ref.text(key).map(PathBuf::from);
    let (Some(base), Some(sandbox)) = (place("base"), place("path")) else {
        let unsupported = Error::Unsupported {
            strategy: workspace.sandbox_ref.strategy_name.clone(),
            what: "show a patch",
            reason: "its content is not files".to_owned(),
        };
        return Err(unsupported);
    };
    // What others have replaced in the original is kept beside the workspace.
    let old_path = entry.from.as_ref().unwrap_or(&entry.path).as_path();
    let preserved = place("preserved").filter(|kept| kept.join(old_path).symlink_metadata().is_ok());
    let mut sides = content::load_sides(&preserved.unwrap_or(base), &sandbox, entry)?;
    // So is what its own history had to be asked for, by its hash.
    let digest = entry.old.as_ref().and_then(|old| old.digest.as_ref()?.rsplit(':').next());
    let recalled = place("recalled").zip(digest).map(|(dir, digest)| dir.join(digest));
    if let Some(content) = recalled.and_then(|path| std::fs::read(path).ok()) {
        sides.old = Some(content);
    }
    Ok(sides)
}

/// A row as the lines of a file, for patches.
pub fn row_as_file(row: &Row) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(row).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::{DiffKind, RelPath};
    use serde_json::json;

    use super::*;

    fn entry(path: &str) -> DiffEntry {
        DiffEntry::new(RelPath::parse(path).unwrap(), DiffKind::Created)
    }

    #[test]
    fn what_git_would_not_apply_is_left_out() {
        assert_eq!(left_out(&entry("a/.gitignore")), None);
        assert!(left_out(&entry("a/.GIT/config")).unwrap().contains("below `.git`"));
        let refused = DiffEntry { refused: Some("a device".into()), ..entry("d") };
        assert_eq!(left_out(&refused).as_deref(), Some("a device"));
    }

    #[test]
    fn a_row_is_a_file_of_its_columns() {
        let new: Row = serde_json::from_value(json!({"id": 7})).unwrap();
        let row = RowChange { table: "t".into(), key: Row::default(), old: None, new: Some(new) };
        let patch = String::from_utf8(row_patch(&entry("tables/t/rows/7.json"), &row).unwrap()).unwrap();
        assert!(patch.ends_with("+{\n+  \"id\": 7\n+}\n"), "{patch}");
    }
}
