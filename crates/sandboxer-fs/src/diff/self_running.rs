//! Which files run by themselves: what a shell, an editor, version control, a build tool, an agent or a build server runs
//! or obeys because it lies there, without anybody naming it.
//!
//! The lists hold what is rarely changed and acts at once. What a person starts (a Makefile, a `package.json` with its
//! scripts) is not among them: a flag on every other commit is one that nobody reads. Names are compared as the most
//! forgiving filesystem does (ext4 with casefolding, vfat): case, trailing dots and spaces, and characters that are not
//! seen make no difference, or `.GIT/hooks` would slip past where it is `.git/hooks`.

use sandboxer_core::model::RelPath;

/// Names that count wherever they are; sorted.
const NAMES: &[&str] = &[
    ".aider.conf.yml",
    ".appveyor.yml",
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".bazelrc",
    ".cirrus.yml",
    ".clinerules",
    ".cshrc",
    ".cursorrules",
    ".devcontainer.json",
    ".dir-locals.el",
    ".drone.yml",
    ".emacs",
    ".envrc",
    ".exrc",
    ".gdbinit",
    ".git",
    ".gitattributes",
    ".gitconfig",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".goosehints",
    ".irbrc",
    ".kshrc",
    ".lefthook.yml",
    ".lfsconfig",
    ".lldbinit",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".nvim.lua",
    ".nvimrc",
    ".pnpmfile.cjs",
    ".pnpmfile.mjs",
    ".pre-commit-config.yaml",
    ".profile",
    ".pryrc",
    ".tcshrc",
    ".tmux.conf",
    ".travis.yml",
    ".vimrc",
    ".windsurfrules",
    ".woodpecker.yml",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".yarnrc",
    ".yarnrc.yml",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "agents.md",
    "appveyor.yml",
    "authorized_keys",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "build.rs",
    "bunfig.toml",
    "claude.local.md",
    "claude.md",
    "conftest.py",
    "crontab",
    "gemini.md",
    "git~1",
    "jenkinsfile",
    "ld.so.preload",
    "lefthook.yml",
    "mise.toml",
    "opencode.json",
    "pnpmfile.cjs",
    "rust-toolchain",
    "rust-toolchain.toml",
    "sandboxer.yaml",
    "sitecustomize.py",
    "sudoers",
    "usercustomize.py",
];

/// Directories everything below which counts; sorted.
const DIRECTORIES: &[&str] = &[
    ".buildkite",
    ".bundle",
    ".cargo",
    ".circleci",
    ".claude",
    ".clinerules",
    ".codex",
    ".continue",
    ".cursor",
    ".devcontainer",
    ".direnv",
    ".gemini",
    ".githooks",
    ".goose",
    ".husky",
    ".idea",
    ".junie",
    ".kiro",
    ".mise",
    ".mvn",
    ".opencode",
    ".roo",
    ".ssh",
    ".vscode",
    ".windsurf",
    ".woodpecker",
    ".yarn",
    ".zed",
    "cron.d",
    "profile.d",
    "sudoers.d",
];

/// The same for directories that need the one above them to be told, and single files likewise.
const PLACES: &[&str] = &[
    ".config/autostart",
    ".config/fish",
    ".config/git",
    ".config/mise",
    ".config/systemd",
    ".forgejo/workflows",
    ".gitea/workflows",
    ".github/actions",
    ".github/agents",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".github/prompts",
    ".github/workflows",
    ".hg/hgrc",
    "gradle/wrapper",
];

/// What git runs or obeys in its own directory. The rest of it is data, and changes with every commit.
const IN_GIT: &[&str] =
    &["attributes", "commondir", "config", "config.worktree", "git-rebase-todo", "gitdir", "hooks"];

/// Data of git's own directory, where any of those words can be the name of a branch.
const GIT_DATA: &[&str] = &["logs", "objects", "refs"];

/// Where Python runs what is in a `.pth` file; elsewhere that is the content of a model.
const PYTHON_PATHS: &[&str] = &["dist-packages", "site-packages"];

/// Whether what lies at `path`, which is no directory, runs by itself. A link there can stand for a directory.
pub fn runs_by_itself(path: &RelPath, is_link: bool) -> bool {
    let parts: Vec<String> = path.components().map(folded).collect();
    let Some((name, above)) = parts.split_last() else { return false };
    listed(NAMES, name)
        || name.ends_with(".code-workspace")
        || (name.ends_with(".pth") && above.iter().any(|part| listed(PYTHON_PATHS, part)))
        || parts.iter().any(|part| listed(DIRECTORIES, part))
        || in_a_place(&parts)
        || in_git(above, name)
        || (is_link && leads_to_a_place(name))
}

fn listed(list: &[&str], word: &str) -> bool {
    list.binary_search(&word).is_ok()
}

fn in_a_place(parts: &[String]) -> bool {
    let whole = format!("/{}/", parts.join("/"));
    PLACES.iter().any(|place| whole.contains(&format!("/{place}/")))
}

/// A link in place of `.github` brings workflows with it that lie elsewhere.
fn leads_to_a_place(name: &str) -> bool {
    PLACES.iter().any(|place| place.split('/').next() == Some(name))
}

fn in_git(above: &[String], name: &str) -> bool {
    let Some(at) = above.iter().position(|part| part == ".git" || part == "git~1") else { return false };
    let inside = &above[at + 1..];
    let is_data = inside.first().is_some_and(|first| listed(GIT_DATA, first));
    !is_data && (listed(IN_GIT, name) || inside.iter().any(|part| part == "hooks"))
}

/// A name as it is looked up where case, trailing dots and unseen characters make no difference.
fn folded(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let folded: String = if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        let upper = text.chars().filter(|c| !is_unseen(*c)).flat_map(char::to_uppercase);
        upper.flat_map(char::to_lowercase).collect()
    };
    folded.trim_end_matches(['.', ' ']).to_owned()
}

/// What Unicode calls default ignorable.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn runs(path: &str) -> bool {
        runs_by_itself(&RelPath::parse(path).unwrap(), false)
    }

    #[test]
    fn the_lists_are_sorted_and_folded() {
        for list in [NAMES, DIRECTORIES, PLACES, IN_GIT, GIT_DATA, PYTHON_PATHS] {
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
            assert!(list.iter().all(|word| folded(word.as_bytes()) == *word), "{list:?}");
        }
    }

    #[test]
    fn what_acts_by_lying_there_is_found_at_any_depth() {
        for path in [
            ".envrc",
            "a/b/.npmrc",
            ".vscode/tasks.json",
            "sub/.claude/settings.json",
            "CLAUDE.md",
            "docs/AGENTS.md",
            ".github/workflows/ci.yml",
            "x/.github/copilot-instructions.md",
            ".cargo/config.toml",
            "crate/build.rs",
            "team.code-workspace",
            "lib/site-packages/x.pth",
            ".yarn/releases/yarn.cjs",
            "sandboxer.yaml",
            ".ssh/authorized_keys",
        ] {
            assert!(runs(path), "{path}");
        }
    }

    #[test]
    fn ordinary_work_is_not_flagged() {
        for path in [
            "src/main.rs",
            "package.json",
            "Makefile",
            "Justfile",
            "Cargo.toml",
            ".gitignore",
            ".tool-versions",
            ".github/ISSUE_TEMPLATE.md",
            "models/resnet.pth",
            "src/config/mod.rs",
            "hooks/useState.ts",
            "docs/claude.md.txt",
            "env",
        ] {
            assert!(!runs(path), "{path}");
        }
    }

    #[test]
    fn of_gits_own_directory_what_it_obeys() {
        for path in [
            ".git",
            ".git/config",
            ".git/hooks/pre-commit",
            ".git/info/attributes",
            "sub/.git/modules/lib/hooks/post-checkout",
            ".git/modules/lib/config",
            ".git/rebase-merge/git-rebase-todo",
        ] {
            assert!(runs(path), "{path}");
        }
        for path in [
            ".git/index",
            ".git/objects/ab/cdef",
            ".git/refs/heads/config",
            ".git/logs/refs/heads/hooks/x",
            ".git/HEAD",
            ".git/COMMIT_EDITMSG",
        ] {
            assert!(!runs(path), "{path}");
        }
    }

    #[test]
    fn another_spelling_is_the_same_name_on_some_filesystems() {
        for path in [
            ".ENVRC",
            ".GIT/Hooks/pre-commit",
            "GIT~1/config",
            ".git./config",
            ".vscode /tasks.json",
            ".g\u{200c}it/config",
            ".hus\u{212a}y/pre-commit",
            ".\u{17f}\u{17f}h/rc",
            "agents.MD",
        ] {
            assert!(runs(path), "{path}");
        }
    }

    #[test]
    fn a_link_can_stand_for_a_whole_directory() {
        let link = |path: &str| runs_by_itself(&RelPath::parse(path).unwrap(), true);
        assert!(link(".vscode") && link(".git/hooks") && link(".github") && link("a/.github/workflows"));
        assert!(!link("src") && !runs(".github"));
    }
}
