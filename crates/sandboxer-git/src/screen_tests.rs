#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;
use crate::fixtures::{self, git};

/// Tracked paths as a test names them.
#[derive(Default)]
struct Listed {
    base: BTreeSet<RelPath>,
    index: Arc<BTreeSet<RelPath>>,
}

impl Tracked for Listed {
    fn in_base(&self, path: &RelPath) -> bool {
        holds(&self.base, path, true)
    }

    fn in_index(&self) -> Arc<BTreeSet<RelPath>> {
        self.index.clone()
    }
}

fn rel(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn set(paths: &[&str]) -> BTreeSet<RelPath> {
    paths.iter().map(|path| rel(path)).collect()
}

fn screen(dir: &Path, exclude: &str, tracked: Listed) -> GitScreen<Listed> {
    let excludes = Excludes { repository: exclude.into(), ..Excludes::default() };
    GitScreen::new(Arc::new(Root::open(dir).unwrap()), &excludes, tracked)
}

#[test]
fn git_itself_and_ignored_files_are_hidden() {
    let temp = tempfile::tempdir().unwrap();
    fixtures::write(temp.path(), ".gitignore", "*.log\ntarget/\n");
    fixtures::write(temp.path(), "sub/.gitignore", "!keep.log\n");
    let screen = screen(temp.path(), "secret\n", Listed::default());
    for (path, is_dir, hidden) in [
        (".git", true, true),
        (".git", false, true),
        (".GIT", true, false),
        ("sub/.git", true, false),
        ("a.log", false, true),
        ("sub/a.log", false, true),
        ("sub/keep.log", false, false),
        ("target", true, true),
        ("target", false, false),
        ("target/x", false, true),
        ("deep/er/secret", false, true),
        ("a.txt", false, false),
    ] {
        assert_eq!(screen.hides(&rel(path), is_dir), hidden, "{path}");
    }
}

#[test]
fn what_is_tracked_is_shown() {
    let temp = tempfile::tempdir().unwrap();
    fixtures::write(temp.path(), ".gitignore", "*.log\ntarget\n");
    let tracked = Listed {
        base: set(&["a.log", "target/kept", "target-2"]),
        index: Arc::new(set(&["added.log", "vendor/target/x", "vendor/target-2"])),
    };
    let screen = screen(temp.path(), "", tracked);
    for (path, is_dir, hidden) in [
        ("a.log", false, false),
        ("b.log", false, true),
        ("added.log", false, false),
        ("target", true, false),
        ("target/kept", false, false),
        ("target/other", false, true),
        ("vendor/target", true, false),
        ("vendor/target/x", false, false),
        ("vendor/target/y", false, true),
        ("other/target", true, true),
    ] {
        assert_eq!(screen.hides(&rel(path), is_dir), hidden, "{path}");
    }
}

#[test]
fn an_ignore_file_that_is_none_is_not_read_and_one_too_large_hides_nothing() {
    let temp = tempfile::tempdir().unwrap();
    fixtures::write(temp.path(), "rules", "*\n");
    std::os::unix::fs::symlink("rules", temp.path().join(".gitignore")).unwrap();
    fixtures::write(temp.path(), "pipe/x", "");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let pipe = temp.path().join("pipe/.gitignore");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fixtures::write(temp.path(), "large/.gitignore", "*\n");
    let large = std::fs::File::options().write(true).open(temp.path().join("large/.gitignore")).unwrap();
    large.set_len(IGNORE_LIMIT + 1).unwrap();
    let screen = screen(temp.path(), "*.o\n", Listed::default());
    for (path, hidden) in [
        ("x", false),
        ("x.o", true),
        ("pipe/x", false),
        ("pipe/x.o", true),
        ("large/x", false),
        ("large/d/x.o", false),
    ] {
        assert_eq!(screen.hides(&rel(path), false), hidden, "{path}");
    }
}

#[test]
fn the_private_index_counts_as_it_is_now() {
    let temp = tempfile::tempdir().unwrap();
    let tree = temp.path().join("tree");
    fixtures::repository(&tree, ObjectFormat::Sha1);
    let root = Arc::new(Root::open(&tree).unwrap());
    let work = temp.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let names = || PrivateIndex::new(root.clone(), work.clone(), ObjectFormat::Sha1).names();
    assert!(!names().contains(&rel("forced.log")));
    fixtures::write(&tree, "forced.log", "x");
    git(&tree, &["add", "-f", "forced.log"]);
    let listed = git(&tree, &["ls-files"]);
    for _ in ["asked", "kept"] {
        let found: Vec<String> = names().iter().map(ToString::to_string).collect();
        assert_eq!(found, listed.lines().collect::<Vec<_>>());
    }
    assert!(work.join(NAMES).exists() && names().contains(&rel("forced.log")));
    std::fs::write(tree.join(".git/index"), "garbage").unwrap();
    assert!(names().is_empty());
}

#[test]
fn repositories_inside_are_found() {
    let temp = tempfile::tempdir().unwrap();
    fixtures::write(temp.path(), "a/b/.git", "gitdir: elsewhere");
    fixtures::write(temp.path(), "a/b/c/x", "");
    fixtures::write(temp.path(), ".git/HEAD", "");
    let tree = Root::open(temp.path()).unwrap();
    let none = |_: &RelPath| false;
    assert_eq!(nested_repository(&tree, &rel("a/b/c/x"), none), Some(rel("a/b")));
    assert_eq!(nested_repository(&tree, &rel("a/b/.git"), none), Some(rel("a/b")));
    assert_eq!(nested_repository(&tree, &rel("a/x"), none), None);
    assert_eq!(nested_repository(&tree, &rel("x"), none), None);
    assert_eq!(nested_repository(&tree, &rel("a/b/c/x"), |dir| dir == &rel("a/b")), None);
}

#[test]
fn names_that_git_refuses_are_known() {
    let bad = [
        ".git",
        "a/.git",
        ".GIT/x",
        ".Git",
        "git~1",
        "a/GIT~1/b",
        ".git ",
        ".git...",
        ".git . .",
        ".git::$INDEX_ALLOCATION",
        ".git:x",
        "a\\.git",
        ".git\\x",
        ".g\u{200c}it",
        "\u{feff}.git",
        ".gi\u{206f}T",
    ];
    let good = [".gitignore", "git", ".git-x", "x.git", "git~2", ".gi\u{200b}t", ".gits/.github", "..git"];
    for name in bad {
        assert!(names_git(&rel(name)), "{name:?}");
    }
    for name in good {
        assert!(!names_git(&rel(name)), "{name:?}");
    }
}

#[test]
fn git_agrees_on_the_names_it_refuses() {
    let temp = tempfile::tempdir().unwrap();
    fixtures::init(temp.path(), ObjectFormat::Sha1);
    for name in [
        ".git/x",
        ".GIT",
        "git~1",
        ".git ",
        ".git...",
        ".git:x",
        "a\\.git",
        "\u{feff}.git",
        ".gitx",
        "git",
        "x.git",
        "git~2",
    ] {
        let info = format!("100644,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,{name}");
        let args = [
            "-c",
            "core.protectHFS=true",
            "-c",
            "core.protectNTFS=true",
            "update-index",
            "--add",
            "--cacheinfo",
            &info,
        ];
        let taken = fixtures::command(temp.path(), &args).status.success();
        assert_eq!(names_git(&rel(name)), !taken, "{name:?}");
    }
}

/// Numbers that look random and are the same in every run of a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn pattern(&mut self) -> String {
        const PIECES: [&str; 30] = [
            "a",
            "b",
            "ab",
            "a.b",
            "*",
            "**",
            "?",
            "[ab]",
            "[!a]",
            "[^b]",
            "[a-c]",
            "[[:alpha:]]",
            "\\a",
            "{a,b}",
            "/",
            "/",
            "/",
            "/**/",
            "**/",
            "/**",
            "a*",
            "*b",
            "*.b",
            " ",
            "\\ ",
            "[]a]",
            "[",
            "\\",
            "]",
            "[\\]b]",
        ];
        let start = self.pick(&["", "", "", "!", "!", "/", "#", "\\!", "\\#"]);
        let body: String = (0..1 + self.roll(4)).map(|_| self.pick(&PIECES)).collect();
        format!("{start}{body}{}", self.pick(&["", "", "", "/", " ", "\r"]))
    }

    fn patterns(&mut self) -> String {
        let lines: Vec<String> = (0..1 + self.roll(5)).map(|_| self.pattern()).collect();
        lines.join("\n") + self.pick(&["", "\n"])
    }
}

const SEEDS: u64 = 25;

/// Random trees and rules: what is hidden is exactly what git calls ignored.
#[test]
fn git_agrees_on_what_is_ignored() {
    let mut hidden_in_all = 0;
    for seed in 0..SEEDS {
        let mut dice = Dice(seed * 7919 + 1);
        let temp = tempfile::tempdir().unwrap();
        fixtures::init(temp.path(), ObjectFormat::Sha1);
        let names = ["a", "b", "c", "ab", "a.b", "x.b", "{a,b}", "a ", "!a", "#b", "[", "]", "a]b"];
        let mut files = BTreeSet::new();
        for _ in 0..40 {
            let path: Vec<&str> = (0..1 + dice.roll(4)).map(|_| dice.pick(&names)).collect();
            let path = path.join("/");
            let _ = std::fs::create_dir_all(temp.path().join(&path).parent().unwrap());
            if std::fs::write(temp.path().join(&path), "").is_ok() {
                files.insert(rel(&path));
            }
        }
        let exclude = dice.patterns();
        fixtures::write(temp.path(), ".git/info/exclude", &exclude);
        let mut rules = vec![format!("exclude: {exclude:?}")];
        for dir in ["", "a/", "b/", "a/b/", "ab/"] {
            if dice.roll(2) == 0 && (dir.is_empty() || temp.path().join(dir).is_dir()) {
                let text = dice.patterns();
                rules.push(format!("{dir}.gitignore: {text:?}"));
                fixtures::write(temp.path(), &format!("{dir}.gitignore"), &text);
                files.insert(rel(&format!("{dir}.gitignore")));
            }
        }
        // Some of it is tracked, ignored or not.
        let base: BTreeSet<RelPath> = files.iter().filter(|_| dice.roll(6) == 0).cloned().collect();
        let words: Vec<String> = base.iter().map(ToString::to_string).collect();
        let add =
            ["--literal-pathspecs", "add", "-f", "--"].into_iter().chain(words.iter().map(String::as_str));
        git(temp.path(), &add.collect::<Vec<_>>());
        let told = git(temp.path(), &["ls-files", "-z", "--others", "--ignored", "--exclude-standard"]);
        let ignored: BTreeSet<RelPath> = told.split('\0').filter(|text| !text.is_empty()).map(rel).collect();
        let screen = screen(temp.path(), &exclude, Listed { base, ..Listed::default() });
        let filter = sandboxer_fs::filter::Filter::all().screened(Arc::new(screen));
        let hidden: BTreeSet<RelPath> =
            files.iter().filter(|path| !filter.passes_all(path, false)).cloned().collect();
        assert_eq!(hidden, ignored, "seed {seed}: {rules:#?}");
        hidden_in_all += hidden.len();
    }
    assert!(hidden_in_all > 100, "the rules hide hardly anything");
}
