//! What a careful person should look at before committing.

use sandboxer_core::model::{NodeType, RelPath};

use super::Seen;
use crate::xattrs::CAPABILITY;

/// Files that a shell, an editor, a build tool or an agent runs or obeys without being asked.
const RUN_BY_THEMSELVES: &[&str] = &[
    ".envrc",
    ".bashrc",
    ".profile",
    ".zshrc",
    ".gitattributes",
    ".gitmodules",
    ".gitconfig",
    ".npmrc",
    ".pre-commit-config.yaml",
    ".mcp.json",
    "AGENTS.md",
    "CLAUDE.md",
    ".cursorrules",
    "sandboxer.yaml",
    "conftest.py",
    "sitecustomize.py",
    "build.rs",
];

const DIRECTORIES_OF_SUCH: &[&str] = &[
    ".git",
    ".husky",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".claude",
    ".cursor",
    ".github/workflows",
    ".cargo",
];

/// The flags of an entry as it is now.
pub fn flags_of(path: &RelPath, now: Option<&Seen>) -> Vec<String> {
    let Some(seen) = now else { return Vec::new() };
    let mut flags = Vec::new();
    let permissions = seen.stamp.permissions();
    if seen.stamp.is_file() && permissions & 0o4000 != 0 {
        flags.push("setuid");
    }
    if seen.stamp.is_file() && permissions & 0o2000 != 0 {
        flags.push("setgid");
    }
    if seen.xattrs.contains_key(CAPABILITY) {
        flags.push("file capabilities");
    }
    if runs_by_itself(path) && !seen.stamp.is_dir() {
        flags.push("runs by itself");
    }
    if seen.stamp.node_type() == NodeType::Symlink && leaves_the_tree(path, &seen.target) {
        flags.push("link leaves the tree");
    }
    flags.into_iter().map(str::to_owned).collect()
}

fn runs_by_itself(path: &RelPath) -> bool {
    let text = path.to_string();
    let name = String::from_utf8_lossy(path.name());
    let below = |dir: &&str| text.starts_with(&format!("{dir}/")) || text.contains(&format!("/{dir}/"));
    RUN_BY_THEMSELVES.contains(&name.as_ref()) || DIRECTORIES_OF_SUCH.iter().any(below)
}

/// Whether a link's target, taken by its text, is outside.
fn leaves_the_tree(path: &RelPath, target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut depth = path.components().count() as i64 - 1;
    target.split(|b| *b == b'/').any(|part| {
        match part {
            b".." => depth -= 1,
            b"" | b"." => {}
            _ => depth += 1,
        }
        depth < 0
    })
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

    #[test]
    fn privilege_and_self_running_files_are_flagged() {
        assert_eq!(flags_of(&rel("a"), Some(&seen(0o106_755, ""))), ["setuid", "setgid"]);
        let mut capable = seen(0o100_755, "");
        capable.xattrs.insert(CAPABILITY.to_vec(), vec![1]);
        assert_eq!(flags_of(&rel("a"), Some(&capable)), ["file capabilities"]);
        for path in [".envrc", "sub/.git/hooks/pre-commit", ".vscode/tasks.json", ".github/workflows/ci.yml"]
        {
            assert_eq!(flags_of(&rel(path), Some(&seen(0o100_644, ""))), ["runs by itself"], "{path}");
        }
        assert!(flags_of(&rel("src/main.rs"), Some(&seen(0o100_644, ""))).is_empty());
        assert!(flags_of(&rel(".envrc"), None).is_empty());
    }

    #[test]
    fn links_out_of_the_tree_are_flagged() {
        for (path, target, leaves) in [
            ("l", "/etc", true),
            ("l", "../x", true),
            ("d/l", "../x", false),
            ("d/l", "../../x", true),
            ("l", "a/../b", false),
        ] {
            let flags = flags_of(&rel(path), Some(&seen(0o120_777, target)));
            assert_eq!(!flags.is_empty(), leaves, "{path} -> {target}");
        }
    }
}
