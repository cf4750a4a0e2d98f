//! What a careful person should look at before committing.

use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType, RelPath};

use super::Seen;
use super::describe::is_binary_at;
use super::self_running::runs_by_itself;
use crate::root::Root;
use crate::xattrs::{self, CAPABILITY};

/// More than source code has: a binary file of more bytes is one that nobody can review, and that stays in a history for
/// good.
const LARGE: u64 = 5 << 20;

/// The flags of an entry as it is now. Its path, its kind and whether it is binary are known already.
pub fn flags_of(entry: &DiffEntry, now: Option<&Seen>) -> Vec<String> {
    now.map(|seen| raised(entry, &Facts::seen(seen))).unwrap_or_default()
}

/// The flags of an entry that somebody else has compared, by what is said of it. Of what nothing is said, the path counts.
pub fn flags_told(entry: &DiffEntry) -> Vec<String> {
    match &entry.new {
        Some(node) => raised(entry, &Facts::told(node)),
        None if entry.kind == DiffKind::Deleted => Vec::new(),
        None => raised(entry, &Facts::default()),
    }
}

/// The flags of such an entry, by what lies at its path below `root`. What cannot be looked at raises none: nobody else with the
/// same rights gets at it either.
pub fn flags_found(entry: &DiffEntry, root: &Root) -> Vec<String> {
    let Some(seen) = glance(root, &entry.path) else { return Vec::new() };
    let binary = entry.binary || (seen.stamp.size > LARGE && is_binary_at(root, &entry.path));
    raised(&DiffEntry { binary, ..entry.clone() }, &Facts::seen(&seen))
}

/// What is at `path`, its content unread.
fn glance(root: &Root, path: &RelPath) -> Option<Seen> {
    let parent = root.find_parent(path).ok()??;
    let stamp = parent.stamp(path.name()).ok()??;
    let target = match stamp.node_type() {
        NodeType::Symlink => parent.read_link(path.name()).ok()?,
        _ => Vec::new(),
    };
    let opened = stamp.is_file().then(|| parent.open_file(path.name()).ok()).flatten();
    let xattrs = opened.and_then(|fd| xattrs::read(fd).ok()).unwrap_or_default();
    Some(Seen { stamp, hash: None, xattrs, target })
}

/// What flags are raised by.
struct Facts<'a> {
    node_type: NodeType,
    mode: u32,
    size: u64,
    target: &'a [u8],
    is_capable: bool,
}

impl Default for Facts<'_> {
    fn default() -> Self {
        Self { node_type: NodeType::File, mode: 0, size: 0, target: &[], is_capable: false }
    }
}

impl<'a> Facts<'a> {
    fn seen(seen: &'a Seen) -> Self {
        Self {
            node_type: seen.stamp.node_type(),
            mode: seen.stamp.permissions(),
            size: seen.stamp.size,
            target: &seen.target,
            is_capable: seen.xattrs.contains_key(CAPABILITY),
        }
    }

    fn told(node: &'a Node) -> Self {
        let target = node.target.as_deref().unwrap_or_default().as_bytes();
        Self { node_type: node.node_type, mode: node.mode, size: node.size, target, ..Self::default() }
    }
}

fn raised(entry: &DiffEntry, now: &Facts<'_>) -> Vec<String> {
    let (is_link, is_file) = (now.node_type == NodeType::Symlink, now.node_type == NodeType::File);
    let is_dir = now.node_type == NodeType::Directory;
    let has = |bit: u32| is_file && now.mode & bit != 0;
    let new_content = entry.kind != DiffKind::Metadata && is_file;
    let flags = [
        (has(0o4000), "setuid"),
        (has(0o2000), "setgid"),
        (now.is_capable, "file capabilities"),
        (!is_dir && runs_by_itself(&entry.path, is_link), "runs by itself"),
        (is_link && leaves_the_tree(&entry.path, now.target), "link leaves the tree"),
        (new_content && entry.binary && now.size > LARGE, "large binary"),
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
    #[test]
    fn what_others_compared_is_flagged_by_what_they_say() {
        let told = |path: &str, node_type, mode, target: Option<&str>| {
            let target = target.map(str::to_owned);
            let (uid, gid, digest, xattrs) = (0, 0, None, None);
            let new = Some(Node { node_type, mode, uid, gid, size: LARGE + 1, digest, target, xattrs });
            flags_told(&DiffEntry { new, binary: true, ..DiffEntry::new(rel(path), DiffKind::Created) })
        };
        assert_eq!(told("a", NodeType::File, 0o4755, None), ["setuid", "large binary"]);
        assert_eq!(told("l", NodeType::Symlink, 0o777, Some("/etc/passwd")), ["link leaves the tree"]);
        assert!(told("d", NodeType::Directory, 0o2755, None).is_empty());
        let bare = |kind| flags_told(&DiffEntry::new(rel(".github/workflows/x.yml"), kind));
        assert_eq!(bare(DiffKind::Modified), ["runs by itself"]);
        assert!(bare(DiffKind::Deleted).is_empty());
    }

    #[test]
    fn what_others_compared_is_flagged_by_what_lies_there() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s"), "x").unwrap();
        std::fs::set_permissions(dir.path().join("s"), PermissionsExt::from_mode(0o4755)).unwrap();
        symlink("/etc/passwd", dir.path().join("l")).unwrap();
        let large = std::fs::File::create(dir.path().join("large")).unwrap();
        large.set_len(LARGE + 1).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let found = |path: &str| flags_found(&DiffEntry::new(rel(path), DiffKind::Created), &root);
        assert_eq!(found("s"), ["setuid"]);
        assert_eq!(found("l"), ["link leaves the tree"]);
        assert_eq!(found("large"), ["large binary"], "nobody said that it is binary");
        assert!(found("missing").is_empty());
    }
}
