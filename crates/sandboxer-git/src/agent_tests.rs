#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use super::*;
use crate::fixtures::{self, git};

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

    fn root(&self) -> Root {
        Root::open(&self.tree).unwrap()
    }

    fn state(&self) -> Option<State> {
        read(&self.root(), SHA1).unwrap()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.tree.join(".git").join(path)
    }

    /// A commit that changes one file, removes one and puts a file in place of a directory; made elsewhere, as a commit of a sandbox is.
    fn next(&self) -> (Oid, Vec<Edit>) {
        let other = self.temp.path().join("other");
        git(self.temp.path(), &["clone", "-q", self.tree.to_str().unwrap(), other.to_str().unwrap()]);
        git(&other, &["config", "user.name", "U"]);
        git(&other, &["config", "user.email", "u@example.com"]);
        fixtures::write(&other, "a.txt", "two\n");
        std::fs::remove_dir_all(other.join("src")).unwrap();
        fixtures::write(&other, "src", "now a file\n");
        let to = fixtures::commit(&other, "second");
        let rel = |text: &str| RelPath::parse(text).unwrap();
        let blob = |content: &[u8]| Some((0o100_644, SHA1.blob(content)));
        let edits = vec![
            (rel("src"), blob(b"now a file\n")),
            (rel("a.txt"), blob(b"two\n")),
            (rel("src/lib.rs"), None),
        ];
        (to, edits)
    }

    fn advance(&self, from: Option<&Oid>, to: &Oid, edits: &[Edit]) -> Advanced {
        let work = self.temp.path().join("work");
        std::fs::create_dir_all(&work).unwrap();
        let objects = self.temp.path().join("other/.git/objects");
        let job = Advance { work: &work, objects: &objects, format: SHA1, from, to, edits };
        let advanced = advance(&self.root(), &job).unwrap();
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "nothing is left behind");
        advanced
    }

    /// The tree as the commit has it, so that git finds the index and the files in agreement.
    fn follow(&self) {
        let objects = self.temp.path().join("other/.git/objects");
        std::fs::write(self.at("objects/info/alternates"), format!("{}\n", objects.display())).unwrap();
        std::fs::remove_dir_all(self.tree.join("src")).unwrap();
        fixtures::write(&self.tree, "src", "now a file\n");
        fixtures::write(&self.tree, "a.txt", "two\n");
    }
}

#[test]
fn branches_are_read_loose_packed_and_through_other_names() {
    let case = Case::new();
    let head = fixtures::head(&case.tree);
    let on = |name: &str, commit: Option<&Oid>| {
        Some(State { head: AgentHead::Branch(name.to_owned()), commit: commit.cloned() })
    };
    assert_eq!(case.state(), on("main", Some(&head)));
    git(&case.tree, &["pack-refs", "--all"]);
    assert_eq!(case.state(), on("main", Some(&head)));
    git(&case.tree, &["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
    git(&case.tree, &["symbolic-ref", "HEAD", "refs/heads/alias"]);
    assert_eq!(case.state(), on("main", Some(&head)));
    git(&case.tree, &["symbolic-ref", "HEAD", "refs/heads/unborn/yet"]);
    assert_eq!(case.state(), on("unborn/yet", None));
    git(&case.tree, &["checkout", "-q", "--detach", "main"]);
    assert_eq!(case.state(), Some(State { head: AgentHead::Detached, commit: Some(head) }));
}

#[test]
fn whatever_is_odd_says_nothing() {
    let case = Case::new();
    let heads = [
        "ref: ../../x",
        "ref: refs/heads/../../../x",
        "ref: /etc/passwd",
        "ref: refs/heads/a b",
        "ref: refs/heads/.invalid",
        "ref: refs/heads/x.lock",
        "ref: refs/tags/x",
        "ref: HEAD",
        "ref: ",
        "",
        "\0\0",
        "0000000000000000000000000000000000000000",
        "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391e69de29bb2d1d643",
        "main",
    ];
    for head in heads {
        std::fs::write(case.at("HEAD"), head).unwrap();
        assert_eq!(case.state(), None, "{head:?}");
    }
    std::fs::write(case.at("HEAD"), "ref: refs/heads/loop\n").unwrap();
    std::fs::write(case.at("refs/heads/loop"), "ref: refs/heads/loop\n").unwrap();
    assert_eq!(case.state(), None);
    std::fs::write(case.at("refs/heads/loop"), "junk\n").unwrap();
    assert_eq!(case.state(), None);
    std::fs::remove_file(case.at("refs/heads/loop")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", case.at("refs/heads/loop")).unwrap();
    assert_eq!(case.state(), None);
    std::fs::remove_file(case.at("refs/heads/loop")).unwrap();
    std::fs::write(case.at("packed-refs"), "junk refs/heads/loop\n\u{0}\n").unwrap();
    assert_eq!(case.state(), None);
    File::create(case.at("HEAD")).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(case.state(), None);
}

#[test]
fn another_thing_in_place_of_the_repository_is_left_alone() {
    let case = Case::new();
    let (to, edits) = case.next();
    let head = fixtures::head(&case.tree);
    std::fs::rename(case.tree.join(".git"), case.temp.path().join("moved")).unwrap();
    let before = fixtures::contents(&case.temp.path().join("moved"));
    std::os::unix::fs::symlink(case.temp.path().join("moved"), case.tree.join(".git")).unwrap();
    assert_eq!(case.state(), None);
    assert!(matches!(case.advance(Some(&head), &to, &edits), Advanced::LeftAlone(_)));
    std::fs::remove_file(case.tree.join(".git")).unwrap();
    std::fs::write(case.tree.join(".git"), "gitdir: ../moved\n").unwrap();
    assert_eq!(case.state(), None);
    assert!(matches!(case.advance(Some(&head), &to, &edits), Advanced::LeftAlone(_)));
    File::create(case.tree.join(".git")).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(case.state(), None);
    std::fs::remove_file(case.tree.join(".git")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let pipe = case.tree.join(".git");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(case.state(), None);
    assert!(matches!(case.advance(Some(&head), &to, &edits), Advanced::LeftAlone(_)));
    assert_eq!(before, fixtures::contents(&case.temp.path().join("moved")));
}

#[test]
fn the_branch_and_the_index_move_together() {
    for packed in [false, true] {
        for split in [false, true] {
            let case = Case::new();
            let (to, edits) = case.next();
            let head = fixtures::head(&case.tree);
            if packed {
                git(&case.tree, &["pack-refs", "--all"]);
            }
            if split {
                git(&case.tree, &["update-index", "--split-index"]);
            }
            fixtures::write(&case.tree, "staged", "staged\n");
            git(&case.tree, &["add", "staged"]);
            let written = case.at("index").metadata().unwrap().modified().unwrap();
            assert_eq!(case.advance(Some(&head), &to, &edits), Advanced::Moved);
            assert_eq!(written, case.at("index").metadata().unwrap().modified().unwrap());
            case.follow();
            assert_eq!(fixtures::head(&case.tree), to);
            assert_eq!(git(&case.tree, &["status", "--porcelain"]), "A  staged");
            git(&case.tree, &["fsck", "--strict"]);
        }
    }
}

#[test]
fn a_detached_head_moves_itself_and_an_unborn_branch_is_born() {
    let case = Case::new();
    let (to, edits) = case.next();
    git(&case.tree, &["checkout", "-q", "--detach"]);
    let head = fixtures::head(&case.tree);
    assert_eq!(case.advance(Some(&head), &to, &edits), Advanced::Moved);
    assert_eq!(std::fs::read_to_string(case.at("HEAD")).unwrap(), format!("{to}\n"));
    assert_eq!(std::fs::read_to_string(case.at("refs/heads/main")).unwrap(), format!("{head}\n"));
    git(&case.tree, &["symbolic-ref", "HEAD", "refs/heads/a/new/one"]);
    assert_eq!(case.advance(None, &to, &[]), Advanced::Moved);
    assert_eq!(std::fs::read_to_string(case.at("refs/heads/a/new/one")).unwrap(), format!("{to}\n"));
}

#[test]
fn what_moved_on_or_is_locked_or_broken_is_left_as_it_is() {
    let case = Case::new();
    let (to, edits) = case.next();
    let head = fixtures::head(&case.tree);
    let left_alone = |from: &Oid| {
        let before = fixtures::contents(&case.tree);
        let advanced = case.advance(Some(from), &to, &edits);
        assert!(matches!(advanced, Advanced::LeftAlone(_)), "{advanced:?}");
        assert_eq!(before, fixtures::contents(&case.tree));
    };
    left_alone(&to);
    std::fs::write(case.at("index.lock"), "").unwrap();
    left_alone(&head);
    std::fs::remove_file(case.at("index.lock")).unwrap();
    std::fs::write(case.at("refs/heads/main.lock"), "").unwrap();
    left_alone(&head);
    std::fs::remove_file(case.at("refs/heads/main.lock")).unwrap();
    std::fs::write(case.at("index"), "DIRC garbage").unwrap();
    left_alone(&head);
    std::fs::remove_file(case.at("index")).unwrap();
    File::create(case.at("index")).unwrap().set_len(INDEX_LIMIT + 1).unwrap();
    assert!(matches!(case.advance(Some(&head), &to, &edits), Advanced::LeftAlone(_)));
}

#[test]
fn the_agents_configuration_runs_nothing() {
    let case = Case::new();
    let (marker, script) = fixtures::marker(case.temp.path());
    let (to, edits) = case.next();
    let head = fixtures::head(&case.tree);
    for key in ["core.fsmonitor", "filter.x.clean", "filter.x.process", "core.sshCommand"] {
        git(&case.tree, &["config", key, &script]);
    }
    for hook in ["post-index-change", "reference-transaction"] {
        std::fs::create_dir_all(case.at("hooks")).unwrap();
        std::fs::copy(&script, case.at("hooks").join(hook)).unwrap();
    }
    std::fs::write(case.at("info/attributes"), "* filter=x\n").unwrap();
    assert_eq!(case.advance(Some(&head), &to, &edits), Advanced::Moved);
    let listed = indexed(&case.root(), case.temp.path(), SHA1).unwrap();
    assert_eq!(listed.len(), 3);
    assert!(!marker.exists());
}

#[test]
fn the_paths_of_an_index_are_listed_or_none() {
    let case = Case::new();
    git(&case.tree, &["update-index", "--split-index"]);
    let names = |case: &Case| -> Vec<String> {
        let listed = indexed(&case.root(), case.temp.path(), SHA1).unwrap();
        listed.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(&case), ["a.txt", "docs/deep/x.md", "src/lib.rs"]);
    std::fs::write(case.at("index"), "garbage").unwrap();
    assert!(names(&case).is_empty());
    std::fs::remove_file(case.at("index")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", case.at("index")).unwrap();
    assert!(names(&case).is_empty());
}

#[test]
fn several_can_look_at_an_index_at_a_time() {
    let case = Case::new();
    let (root, work) = (case.root(), case.temp.path());
    std::thread::scope(|scope| {
        let looks: Vec<_> =
            (0..4).map(|_| scope.spawn(|| indexed(&root, work, SHA1).unwrap().len())).collect();
        assert!(looks.into_iter().all(|look| look.join().unwrap() == 3));
    });
}

#[test]
fn a_sparse_index_stays_sparse() {
    let case = Case::new();
    let (to, edits) = case.next();
    if !fixtures::command(&case.tree, &["sparse-checkout", "init", "--cone", "--sparse-index"])
        .status
        .success()
    {
        eprintln!("skipped: a_sparse_index_stays_sparse: this git has no sparse index");
        return;
    }
    git(&case.tree, &["sparse-checkout", "set", "src"]);
    assert!(!case.tree.join("docs").exists());
    assert_eq!(case.advance(Some(&fixtures::head(&case.tree)), &to, &edits), Advanced::Moved);
    case.follow();
    assert_eq!(git(&case.tree, &["status", "--porcelain"]), "");
    assert!(!case.tree.join("docs").exists());
}
