#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::fixtures::{self, git};
use crate::oid::ObjectFormat;
use crate::private::StatCheck;

const SHA1: ObjectFormat = ObjectFormat::Sha1;

struct Case {
    temp: tempfile::TempDir,
    tree: PathBuf,
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let tree = temp.path().join("tree");
        fixtures::repository(&tree, SHA1);
        Self { temp, tree }
    }

    fn with<T>(&self, settings: &[OsString], ask: impl FnOnce(&Checkout<'_>) -> T) -> T {
        let work = self.temp.path().join("work");
        std::fs::create_dir_all(&work).unwrap();
        let git_dir = self.tree.join(".git");
        let objects = git_dir.join("objects");
        let kept = private::settings_of(&git_dir).unwrap();
        let seed = Seed {
            git_dir: &git_dir,
            common_dir: &git_dir,
            format: SHA1,
            branch: "none",
            base: None,
            objects: &objects,
            stat: StatCheck::Full,
            refs: b"",
            settings: &kept,
        };
        let before = fixtures::contents(&git_dir);
        let answer = ask(&Checkout { seed, work_tree: &self.tree, work: &work, settings });
        assert_eq!(before, fixtures::contents(&git_dir), "the repository is as it was");
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "nothing is left behind");
        answer
    }

    fn differing(&self, commit: &Oid) -> Vec<String> {
        let found = self.with(&[], |checkout| differing(checkout, commit).unwrap());
        let shown = |differs: &Differs| match differs {
            Differs::Tracked { path, mode, blob } => {
                let content = git(&self.tree, &["cat-file", "blob", blob.as_str()]);
                format!("{path} {mode:o} {content}")
            }
            Differs::Extra { path } => format!("+{path}"),
        };
        found.iter().map(shown).collect()
    }

    fn ignored(&self, settings: &[OsString]) -> Vec<String> {
        let found = self.with(settings, |checkout| ignored(checkout).unwrap());
        found.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_clean_checkout_differs_in_nothing_touched_or_not() {
    let case = Case::new();
    let head = fixtures::head(&case.tree);
    assert!(case.differing(&head).is_empty());
    fixtures::write(&case.tree, "a.txt", "one\n");
    assert!(case.differing(&head).is_empty());
}

#[test]
fn every_kind_of_difference_is_found() {
    let case = Case::new();
    let head = fixtures::head(&case.tree);
    fixtures::write(&case.tree, ".git/info/exclude", "*.log\n");
    fixtures::write(&case.tree, "a.txt", "two\n");
    std::fs::remove_dir_all(case.tree.join("docs")).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(case.tree.join("src/lib.rs"), executable).unwrap();
    fixtures::write(&case.tree, "new/odd\nname", "x");
    fixtures::write(&case.tree, "x.log", "x");
    fixtures::write(&case.tree, "forced.log", "x");
    git(&case.tree, &["add", "-f", "forced.log"]);
    fixtures::write(&case.tree, "staged", "x");
    git(&case.tree, &["add", "staged", "a.txt"]);
    let expected = [
        "a.txt 100644 one",
        "docs/deep/x.md 100644 text",
        "+forced.log",
        "+new/odd\nname",
        "src/lib.rs 100644 fn main() {}",
        "+staged",
    ];
    assert_eq!(case.differing(&head), expected);
}

#[test]
fn another_commit_can_be_compared_with() {
    let case = Case::new();
    let first = fixtures::head(&case.tree);
    fixtures::write(&case.tree, "a.txt", "two\n");
    fixtures::write(&case.tree, "later", "x");
    std::fs::remove_file(case.tree.join("src/lib.rs")).unwrap();
    std::fs::remove_dir(case.tree.join("src")).unwrap();
    fixtures::write(&case.tree, "src", "a file");
    let second = fixtures::commit(&case.tree, "second");
    assert!(case.differing(&second).is_empty());
    let expected = ["a.txt 100644 one", "+later", "+src", "src/lib.rs 100644 fn main() {}"];
    assert_eq!(case.differing(&first), expected);
}

#[test]
fn a_sparse_checkout_lacks_nothing() {
    let case = Case::new();
    git(&case.tree, &["sparse-checkout", "init", "--cone"]);
    git(&case.tree, &["sparse-checkout", "set", "src"]);
    assert!(!case.tree.join("docs").exists());
    assert!(case.differing(&fixtures::head(&case.tree)).is_empty());
}

#[test]
fn no_filter_runs() {
    let case = Case::new();
    let (marker, script) = fixtures::marker(case.temp.path());
    for key in ["filter.x.clean", "filter.x.smudge", "filter.x.process", "core.fsmonitor"] {
        git(&case.tree, &["config", key, &script]);
    }
    fixtures::write(&case.tree, ".git/info/attributes", "* filter=x\n");
    fixtures::write(&case.tree, "a.txt", "two\n");
    fixtures::write(&case.tree, "src/lib.rs", "fn main() {}\n");
    assert_eq!(case.differing(&fixtures::head(&case.tree)), ["a.txt 100644 one"]);
    assert!(!marker.exists());
}

#[test]
fn line_ends_of_the_work_tree_are_no_difference() {
    let case = Case::new();
    git(&case.tree, &["config", "core.autocrlf", "true"]);
    fixtures::write(&case.tree, "quo\nted\r", "one\n");
    let head = fixtures::commit(&case.tree, "an odd name");
    for path in ["a.txt", "quo\nted\r"] {
        fixtures::write(&case.tree, path, "one\r\n");
    }
    assert!(case.differing(&head).is_empty());
    fixtures::write(&case.tree, "a.txt", "two\r\n");
    assert_eq!(case.differing(&head), ["a.txt 100644 one"]);
}

#[test]
fn ignored_files_are_listed_and_whole_directories_once() {
    let case = Case::new();
    fixtures::write(&case.tree, ".gitignore", "target/\n*.log\n");
    for path in [
        "target/a/b",
        "target/c",
        "src/x.log",
        "src/forced.log",
        "plain",
        "logs/1.log",
        "logs/2.log",
        "user.tmp",
    ] {
        fixtures::write(&case.tree, path, "x");
    }
    git(&case.tree, &["add", "-f", "src/forced.log"]);
    let listed = case.ignored(&[]);
    let whole: &[&str] =
        if version().unwrap() >= COLLAPSES { &["target"] } else { &["target/a/b", "target/c"] };
    assert_eq!(listed, [&["logs/1.log", "logs/2.log", "src/x.log"], whole].concat());
    let user = case.temp.path().join("excludes");
    std::fs::write(&user, "*.tmp\n").unwrap();
    let setting = format!("core.excludesFile={}", user.display());
    let listed = case.ignored(&[setting.into()]);
    assert_eq!(listed, [&["logs/1.log", "logs/2.log", "src/x.log"], whole, &["user.tmp"]].concat());
}
