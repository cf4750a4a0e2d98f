#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use super::*;
use crate::fixtures::{self, command, contents, git};

const FORMATS: [ObjectFormat; 2] = [ObjectFormat::Sha1, ObjectFormat::Sha256];

/// A checkout, and a copy of it with a private repository.
struct Pair {
    temp: tempfile::TempDir,
    original: PathBuf,
    copy: PathBuf,
}

impl Pair {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (original, copy) = (temp.path().join("original"), temp.path().join("copy"));
        Self { temp, original, copy }
    }

    fn of(format: ObjectFormat) -> Self {
        let pair = Self::new();
        fixtures::repository(&pair.original, format);
        pair
    }

    fn git_dirs(&self) -> (PathBuf, PathBuf) {
        let told =
            |what| self.original.join(git(&self.original, &["rev-parse", what])).canonicalize().unwrap();
        (told("--git-dir"), told("--git-common-dir"))
    }

    fn sow(&self, format: ObjectFormat, stat: StatCheck) {
        let (git_dir, common_dir) = self.git_dirs();
        let base = command(&self.original, &["rev-parse", "-q", "--verify", "HEAD"]);
        let base = String::from_utf8(base.stdout).unwrap().trim().parse::<Oid>().ok();
        let objects = self.temp.path().join("objects");
        std::os::unix::fs::symlink(common_dir.join("objects"), &objects).unwrap();
        fixtures::copy_tree(&self.original, &self.copy);
        if let Ok(file) = self.copy.join(".git").symlink_metadata() {
            assert!(file.is_file());
            std::fs::remove_file(self.copy.join(".git")).unwrap();
        }
        std::fs::create_dir(self.copy.join(".git")).unwrap();
        let (refs, _) = refs_of(&git_dir).unwrap();
        let settings = settings_of(&git_dir).unwrap();
        let branch = branch_for("box", &refs);
        let seed = Seed {
            git_dir: &git_dir,
            common_dir: &common_dir,
            format,
            branch: &branch,
            base: base.as_ref(),
            objects: &objects,
            stat,
            refs: &refs,
            settings: &settings,
        };
        sow(&seed, &self.copy.join(".git")).unwrap();
    }

    fn status(&self, dir: &Path) -> String {
        git(dir, &["status", "--porcelain", "--untracked-files=all"])
    }

    /// What an agent does with git in a day.
    fn work(&self) {
        let copy = &self.copy;
        fixtures::write(copy, "a.txt", "changed\n");
        fixtures::write(copy, "new.txt", "new\n");
        assert_eq!(self.status(copy), " M a.txt\n?? new.txt");
        assert!(git(copy, &["diff"]).contains("+changed"));
        git(copy, &["stash", "-u"]);
        assert_eq!(self.status(copy), "");
        git(copy, &["stash", "pop"]);
        let mine = fixtures::commit(copy, "mine");
        git(copy, &["log", "--oneline", "main"]);
        git(copy, &["checkout", "-q", "-b", "topic", "main"]);
        fixtures::write(copy, "topic.txt", "topic\n");
        fixtures::commit(copy, "topic");
        git(copy, &["rebase", "-q", mine.as_str()]);
        git(copy, &["gc", "-q"]);
        git(copy, &["fsck", "--full", "--strict"]);
        assert_eq!(git(copy, &["rev-list", "--count", &format!("{mine}..topic")]), "1");
        assert_eq!(self.status(copy), "");
    }
}

#[test]
fn an_agent_can_work_in_it_and_the_original_does_not_change() {
    for format in FORMATS {
        for stat in [StatCheck::Full, StatCheck::Minimal] {
            let pair = Pair::of(format);
            git(&pair.original, &["branch", "other"]);
            git(&pair.original, &["tag", "-a", "v1", "-m", "tagged"]);
            git(&pair.original, &["pack-refs", "--all"]);
            let before = contents(&pair.original.join(".git"));
            pair.sow(format, stat);
            assert_eq!(git(&pair.copy, &["branch", "--show-current"]), "sandbox/box");
            assert_eq!(pair.status(&pair.copy), "");
            assert_eq!(
                git(&pair.copy, &["rev-parse", "v1^{commit}"]),
                fixtures::head(&pair.original).as_str()
            );
            pair.work();
            assert_eq!(before, contents(&pair.original.join(".git")));
        }
    }
}

#[test]
fn copied_files_are_clean_by_their_stat_data() {
    let pair = Pair::of(ObjectFormat::Sha1);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    for file in ["a.txt", "src/lib.rs", "docs/deep/x.md"] {
        File::open(pair.original.join(file)).unwrap().set_modified(old).unwrap();
    }
    git(&pair.original, &["update-index", "--refresh"]);
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    let times = |dir: &Path| dir.join(".git/index").metadata().unwrap().modified().unwrap();
    assert_eq!(times(&pair.original), times(&pair.copy));
    // `diff-files` goes by stat data alone.
    assert_eq!(git(&pair.copy, &["diff-files"]), "");
}

#[test]
fn a_linked_worktree_can_be_the_original() {
    let mut pair = Pair::of(ObjectFormat::Sha1);
    let main = pair.original.clone();
    pair.original = pair.temp.path().join("linked");
    git(&main, &["worktree", "add", "-q", "-b", "side", pair.original.to_str().unwrap()]);
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    assert_eq!(pair.status(&pair.copy), "");
    pair.work();
}

#[test]
fn a_branch_without_a_commit_gets_its_first() {
    let pair = Pair::new();
    fixtures::init(&pair.original, ObjectFormat::Sha256);
    fixtures::write(&pair.original, "a.txt", "one\n");
    git(&pair.original, &["add", "a.txt"]);
    pair.sow(ObjectFormat::Sha256, StatCheck::Minimal);
    assert_eq!(pair.status(&pair.copy), "A  a.txt");
    fixtures::commit(&pair.copy, "first");
    assert_eq!(git(&pair.copy, &["rev-list", "--count", "sandbox/box"]), "1");
}

#[test]
fn a_sparse_checkout_stays_sparse() {
    for index in ["--no-sparse-index", "--sparse-index"] {
        let pair = Pair::of(ObjectFormat::Sha1);
        if !command(&pair.original, &["sparse-checkout", "init", "--cone", index]).status.success() {
            eprintln!("skipped: a_sparse_checkout_stays_sparse: this git knows no {index}");
            continue;
        }
        git(&pair.original, &["sparse-checkout", "set", "src"]);
        assert!(!pair.original.join("docs").exists());
        pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
        assert_eq!(pair.status(&pair.copy), "");
        pair.work();
        assert!(!pair.copy.join("docs").exists());
    }
}

#[test]
fn a_shallow_clone_stays_shallow() {
    let mut pair = Pair::of(ObjectFormat::Sha1);
    fixtures::write(&pair.original, "a.txt", "two\n");
    fixtures::commit(&pair.original, "second");
    let url = format!("file://{}", pair.original.display());
    let shallow = pair.temp.path().join("shallow");
    git(pair.temp.path(), &["clone", "-q", "--depth", "1", &url, shallow.to_str().unwrap()]);
    pair.original = shallow;
    git(&pair.original, &["config", "user.name", "U"]);
    git(&pair.original, &["config", "user.email", "u@example.com"]);
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    assert_eq!(git(&pair.copy, &["log", "--format=%s"]), "second");
    assert_eq!(git(&pair.copy, &["rev-parse", "origin/main"]), fixtures::head(&pair.original).as_str());
    pair.work();
}

#[test]
fn a_split_index_is_whole_again() {
    let pair = Pair::of(ObjectFormat::Sha1);
    git(&pair.original, &["update-index", "--split-index"]);
    fixtures::write(&pair.original, "b.txt", "b\n");
    git(&pair.original, &["add", "b.txt"]);
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    assert_eq!(pair.status(&pair.copy), "A  b.txt");
    fixtures::commit(&pair.copy, "b");
    pair.work();
}

#[test]
fn a_sandbox_can_begin_with_another_commits_index() {
    let pair = Pair::of(ObjectFormat::Sha1);
    let first = fixtures::head(&pair.original);
    fixtures::write(&pair.original, "a.txt", "two\n");
    fixtures::commit(&pair.original, "second");
    fixtures::write(&pair.original, "staged", "x");
    git(&pair.original, &["add", "staged"]);
    let before = contents(&pair.original.join(".git"));
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    reset_index(&pair.copy.join(".git"), &pair.original, &first).unwrap();
    assert_eq!(before, contents(&pair.original.join(".git")));
    git(&pair.copy, &["update-ref", "HEAD", first.as_str()]);
    assert_eq!(pair.status(&pair.copy), " M a.txt\n?? staged");
    fixtures::write(&pair.copy, "a.txt", "one\n");
    std::fs::remove_file(pair.copy.join("staged")).unwrap();
    assert_eq!(pair.status(&pair.copy), "");
}

#[test]
fn nothing_that_runs_or_reaches_out_is_taken_over() {
    let pair = Pair::of(ObjectFormat::Sha1);
    let (marker, script) = fixtures::marker(pair.temp.path());
    for (key, value) in [
        ("core.hooksPath", pair.temp.path().to_str().unwrap()),
        ("core.fsmonitor", &script),
        ("core.sshCommand", &script),
        ("filter.x.clean", &script),
        ("alias.status", "!false"),
        ("remote.origin.url", "https://user:secret@example.com/x"),
        ("http.extraHeader", "secret"),
        ("credential.helper", &script),
        ("diff.external", &script),
    ] {
        git(&pair.original, &["config", key, value]);
    }
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    let config = std::fs::read_to_string(pair.copy.join(".git/config")).unwrap();
    let listed = git(&pair.copy, &["config", "--local", "--name-only", "--list"]);
    let allowed = |key: &str| {
        let ours = ["core.repositoryformatversion", "core.bare", "core.logallrefupdates", "gc.auto"];
        KEPT.contains(&key) || ours.contains(&key)
    };
    assert!(listed.lines().all(allowed), "{listed}");
    assert!(!config.contains("secret"));
    assert_eq!(git(&pair.copy, &["config", "user.name"]), "A \"quoted\" \\ User");
    let names: Vec<_> =
        std::fs::read_dir(pair.copy.join(".git")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name == "hooks"), "{names:?}");
    assert!(!marker.exists());
}

#[test]
fn ignore_rules_of_the_repository_come_along() {
    let pair = Pair::of(ObjectFormat::Sha1);
    fixtures::write(&pair.original, ".git/info/exclude", "*.log\n");
    fixtures::write(&pair.original, "x.log", "");
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    assert_eq!(pair.status(&pair.copy), "");
}

#[test]
fn the_branch_keeps_clear_of_others() {
    let refs = |names: &[&str]| {
        let line = |name: &&str| format!("{} refs/heads/{name}\n", "1".repeat(40));
        names.iter().map(line).collect::<String>().into_bytes()
    };
    assert_eq!(branch_for("x", b""), "sandbox/x");
    assert_eq!(branch_for("x", &refs(&["main", "sandbox/x", "sandbox/y"])), "sandbox/x");
    assert_eq!(branch_for("x", &refs(&["sandbox"])), "sandboxes/x");
    assert_eq!(branch_for("x", &refs(&["sandbox/x/y"])), "sandboxes/x");
    assert_eq!(branch_for("x", &refs(&["sandbox", "sandboxes"])), "sandbox-2/x");
    let pair = Pair::of(ObjectFormat::Sha1);
    git(&pair.original, &["branch", "sandbox"]);
    pair.sow(ObjectFormat::Sha1, StatCheck::Minimal);
    assert_eq!(git(&pair.copy, &["branch", "--show-current"]), "sandboxes/box");
    pair.work();
}

#[test]
fn values_are_quoted() {
    let temp = tempfile::tempdir().unwrap();
    let config_file = temp.path().join("config");
    for value in ["plain", " spaces ", "a\"b\\c", "two\nlines\tand # ; more", "", "\u{e9}\r"] {
        std::fs::write(&config_file, config_line("user.name", Some(value))).unwrap();
        let file = config_file.to_str().unwrap();
        let output = command(temp.path(), &["config", "-z", "-f", file, "user.name"]);
        assert_eq!(output.stdout, [value.as_bytes(), b"\0"].concat(), "{value:?}");
    }
}
