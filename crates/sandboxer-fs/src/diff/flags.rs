//! What a careful person should look at before committing.

use sandboxer_core::model::{DiffEntry, DiffKind, NodeType, RelPath};

use super::Seen;
use super::self_running::runs_by_itself;
use crate::xattrs::CAPABILITY;

/// More than source code has: a binary file of more bytes is one that nobody can review, and that stays in a history for
/// good.
const LARGE: u64 = 5 << 20;

/// The flags of an entry as it is now. Its path, its kind and whether it is binary are known already.
pub fn flags_of(entry: &DiffEntry, now: Option<&Seen>) -> Vec<String> {
    let Some(seen) = now else { return Vec::new() };
    let stamp = &seen.stamp;
    let is_link = stamp.node_type() == NodeType::Symlink;
    let has = |bit: u32| stamp.is_file() && stamp.permissions() & bit != 0;
    let new_content = entry.kind != DiffKind::Metadata && stamp.is_file();
    let flags = [
        (has(0o4000), "setuid"),
        (has(0o2000), "setgid"),
        (seen.xattrs.contains_key(CAPABILITY), "file capabilities"),
        (!stamp.is_dir() && runs_by_itself(&entry.path, is_link), "runs by itself"),
        (is_link && leaves_the_tree(&entry.path, &seen.target), "link leaves the tree"),
        (new_content && entry.binary && stamp.size > LARGE, "large binary"),
    ];
    flags.into_iter().filter(|(applies, _)| *applies).map(|(_, flag)| flag.to_owned()).collect()
}

/// Whether a link's target, taken by its text, is outside or may be: what `a/..` is depends on whether `a` is a link.
fn leaves_the_tree(path: &RelPath, target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut above = path.components().count() - 1;
    let mut below = false;
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if below || above == 0 => return true,
            b".." => above -= 1,
            _ => below = true,
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;
    use crate::xattrs::Xattrs;

    fn rel(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn seen(mode: u32, target: &str) -> Seen {
        let stamp = Stamp { mode, ..Stamp::default() };
        Seen { stamp, hash: None, xattrs: Xattrs::new(), target: target.into() }
    }

    fn flags(path: &str, now: &Seen) -> Vec<String> {
        flags_of(&DiffEntry::new(rel(path), DiffKind::Created), Some(now))
    }

    #[test]
    fn privilege_and_self_running_files_are_flagged() {
        assert_eq!(flags("a", &seen(0o106_755, "")), ["setuid", "setgid"]);
        let mut capable = seen(0o100_755, "");
        capable.xattrs.insert(CAPABILITY.to_vec(), vec![1]);
        assert_eq!(flags("a", &capable), ["file capabilities"]);
        assert_eq!(flags(".envrc", &seen(0o100_644, "")), ["runs by itself"]);
        assert_eq!(flags(".envrc", &seen(0o120_777, "src/x")), ["runs by itself"]);
        assert!(flags("src/main.rs", &seen(0o100_644, "")).is_empty());
        assert!(flags(".vscode", &seen(0o040_755, "")).is_empty());
        assert!(flags_of(&DiffEntry::new(rel(".envrc"), DiffKind::Deleted), None).is_empty());
        let metadata = DiffEntry::new(rel(".git/hooks/pre-push"), DiffKind::Metadata);
        assert_eq!(flags_of(&metadata, Some(&seen(0o100_755, ""))), ["runs by itself"]);
    }

    #[test]
    fn large_binaries_are_flagged_where_their_content_is_new() {
        let sized = |size| Seen { stamp: Stamp { mode: 0o100_644, size, ..Stamp::default() }, ..seen(0, "") };
        let flags = |kind, binary, size| {
            let entry = DiffEntry { binary, ..DiffEntry::new(rel("x"), kind) };
            flags_of(&entry, Some(&sized(size)))
        };
        assert_eq!(flags(DiffKind::Created, true, LARGE + 1), ["large binary"]);
        assert_eq!(flags(DiffKind::Modified, true, LARGE + 1), ["large binary"]);
        assert!(flags(DiffKind::Created, true, LARGE).is_empty());
        assert!(flags(DiffKind::Created, false, LARGE + 1).is_empty());
        assert!(flags(DiffKind::Metadata, true, LARGE + 1).is_empty());
    }

    #[test]
    fn links_out_of_the_tree_are_flagged() {
        for (path, target, leaves) in [
            ("l", "/etc", true),
            ("l", "../x", true),
            ("d/l", "../x", false),
            ("d/l", "../../x", true),
            ("d/l", "./..//x/.", false),
            ("l", "a/b", false),
            ("l", "a/../b", true),
            ("d/l", "a/..", true),
        ] {
            let flags = flags(path, &seen(0o120_777, target));
            assert_eq!(!flags.is_empty(), leaves, "{path} -> {target}");
        }
    }
}
