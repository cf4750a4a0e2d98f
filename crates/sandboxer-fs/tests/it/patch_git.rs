//! Rendered patches are taken by the tools they are meant for: `git apply` both ways, and `patch -p1` for text.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use proptest::prelude::*;
use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType, RelPath};
use sandboxer_fs::patch::{is_binary, line_stat, render_entry};
use tempfile::TempDir;

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    File { content: Vec<u8>, executable: bool },
    Link(Vec<u8>),
}

/// Everything but directories, which patches do not know.
type Tree = BTreeMap<RelPath, Thing>;

fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    RelPath::from_bytes(bytes.as_ref()).unwrap()
}

fn file(content: impl AsRef<[u8]>) -> Thing {
    Thing::File { content: content.as_ref().to_vec(), executable: false }
}

impl Thing {
    fn content(&self) -> &[u8] {
        match self {
            Self::File { content, .. } => content,
            Self::Link(target) => target,
        }
    }

    fn node(&self) -> Node {
        let (node_type, mode) = match self {
            Self::File { executable: false, .. } => (NodeType::File, 0o644),
            Self::File { executable: true, .. } => (NodeType::File, 0o755),
            Self::Link(_) => (NodeType::Symlink, 0o777),
        };
        let size = self.content().len() as u64;
        Node { node_type, mode, uid: 0, gid: 0, size, digest: None, target: None, xattrs: None }
    }

    fn write(&self, at: &Path) {
        match self {
            Self::Link(target) => symlink(OsStr::from_bytes(target), at).unwrap(),
            Self::File { content, executable } => {
                fs::write(at, content).unwrap();
                fs::set_permissions(at, fs::Permissions::from_mode(if *executable { 0o755 } else { 0o644 }))
                    .unwrap();
            }
        }
    }
}

fn write_tree(root: &Path, tree: &Tree) {
    for (path, thing) in tree {
        let at = root.join(path.as_path());
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        thing.write(&at);
    }
}

fn read_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    read_below(root, root, &mut tree);
    tree
}

fn read_below(root: &Path, directory: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(directory).unwrap() {
        let at = entry.unwrap().path();
        let metadata = at.symlink_metadata().unwrap();
        if metadata.is_dir() {
            read_below(root, &at, tree);
            continue;
        }
        let thing = if metadata.is_symlink() {
            Thing::Link(fs::read_link(&at).unwrap().into_os_string().into_vec())
        } else {
            let executable = metadata.permissions().mode() & 0o100 != 0;
            Thing::File { content: fs::read(&at).unwrap(), executable }
        };
        tree.insert(path(at.strip_prefix(root).unwrap().as_os_str().as_bytes()), thing);
    }
}

/// The patch from one tree to another, with `renames` as (from, to).
fn patch_between(old: &Tree, new: &Tree, renames: &[(RelPath, RelPath)]) -> Vec<u8> {
    let mut patch = Vec::new();
    let paths: BTreeSet<&RelPath> = old.keys().chain(new.keys()).collect();
    for at in paths {
        let from = renames.iter().find(|(_, to)| to == at).map(|(from, _)| from);
        let moved_away = renames.iter().any(|(from, _)| from == at);
        let before = if moved_away { None } else { old.get(at) };
        let before = from.map_or(before, |from| old.get(from));
        let mut entry = DiffEntry::new(at.clone(), kind_of(before, new.get(at), from.is_some()));
        entry.from = from.cloned();
        entry.old = before.map(Thing::node);
        entry.new = new.get(at).map(Thing::node);
        render_entry(&entry, before.map(Thing::content), new.get(at).map(Thing::content), &mut patch)
            .unwrap();
    }
    patch
}

fn kind_of(old: Option<&Thing>, new: Option<&Thing>, renamed: bool) -> DiffKind {
    match (old, new) {
        _ if renamed => DiffKind::Renamed,
        (None, _) => DiffKind::Created,
        (_, None) => DiffKind::Deleted,
        (Some(old), Some(new)) if old.node().node_type != new.node().node_type => DiffKind::Type,
        (Some(old), Some(new)) if old.content() == new.content() => DiffKind::Metadata,
        _ => DiffKind::Modified,
    }
}

/// Whether a program can be started; says so if not.
fn is_there(program: &str) -> bool {
    let there =
        Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// Two directories: the tree that is patched, and where the patch lies.
struct Bench {
    tree: TempDir,
    aside: TempDir,
}

impl Bench {
    fn new(tree: &Tree, patch: &[u8]) -> Self {
        let bench = Self { tree: TempDir::new().unwrap(), aside: TempDir::new().unwrap() };
        write_tree(bench.tree.path(), tree);
        fs::write(bench.aside.path().join("patch"), patch).unwrap();
        bench
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.aside.path().join("patch")).current_dir(self.tree.path());
        command.env("GIT_CEILING_DIRECTORIES", self.tree.path().parent().unwrap()).env("LC_ALL", "C");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_DIR");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(text) } else { Err(format!("{program} {arguments:?}: {text}")) }
    }

    fn tree(&self) -> Tree {
        read_tree(self.tree.path())
    }
}

/// Renders a patch, applies it with `git apply`, looks at the result, takes it back, and looks again.
fn check_git(old: &Tree, new: &Tree, renames: &[(RelPath, RelPath)]) -> Result<(), TestCaseError> {
    check_git_with(old, new, renames, &patch_between(old, new, renames))
}

fn check_git_with(
    old: &Tree,
    new: &Tree,
    renames: &[(RelPath, RelPath)],
    patch: &[u8],
) -> Result<(), TestCaseError> {
    if patch.is_empty() {
        prop_assert_eq!(old, new);
        return Ok(());
    }
    let bench = Bench::new(old, patch);
    let shown = || String::from_utf8_lossy(patch).into_owned();
    bench.run("git", &["apply", "--whitespace=nowarn"]).map_err(|e| TestCaseError::fail(e + &shown()))?;
    prop_assert_eq!(&bench.tree(), new, "after apply of\n{}", shown());
    bench
        .run("git", &["apply", "-R", "--whitespace=nowarn"])
        .map_err(|e| TestCaseError::fail(e + &shown()))?;
    let expected =
        if git_takes_back_modes() { old.clone() } else { without_modes_of_the_deleted(old, new, renames) };
    prop_assert_eq!(bench.tree(), expected, "after apply -R of\n{}", shown());
    Ok(())
}

/// Whether this git gives a deleted file its mode back with `apply -R`: before 2.48 it did not, even of its own patches.
fn git_takes_back_modes() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let patch =
            b"diff --git a/f b/f\ndeleted file mode 100755\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
        let bench = Bench::new(&Tree::new(), patch);
        bench.run("git", &["apply", "-R"]).unwrap();
        let fine = bench.tree() != of_one(&path("f"), Some(file("x\n")));
        if !fine {
            eprintln!("skipped: modes after `git apply -R` of a deletion, which this git does not restore");
        }
        fine
    })
}

/// The tree as such a git brings it back: what was deleted is a plain file, a link with its target as content.
fn without_modes_of_the_deleted(old: &Tree, new: &Tree, renames: &[(RelPath, RelPath)]) -> Tree {
    let is_link = |thing: &Thing| matches!(thing, Thing::Link(_));
    let came_back = |at: &RelPath, thing: &Thing| {
        let to = renames.iter().find(|(from, _)| from == at).map_or(at, |(_, to)| to);
        match new.get(to) {
            Some(now) if is_link(now) == is_link(thing) => thing.clone(),
            _ => file(thing.content()),
        }
    };
    old.iter().map(|(at, thing)| (at.clone(), came_back(at, thing))).collect()
}

/// The same with `patch -p1`.
fn check_patch(old: &Tree, new: &Tree, patch: &[u8]) -> Result<(), TestCaseError> {
    let bench = Bench::new(old, patch);
    let shown = || String::from_utf8_lossy(patch).into_owned();
    bench.run("patch", &["-p1", "-s", "-f", "-i"]).map_err(|e| TestCaseError::fail(e + &shown()))?;
    prop_assert_eq!(&bench.tree(), new, "after patch of\n{}", shown());
    bench.run("patch", &["-p1", "-s", "-f", "-R", "-i"]).map_err(|e| TestCaseError::fail(e + &shown()))?;
    prop_assert_eq!(&bench.tree(), old, "after patch -R of\n{}", shown());
    Ok(())
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => "[abc]{0,2}\n".prop_map(String::into_bytes),
        1 => Just(b"windows\r\n".to_vec()),
        1 => Just(b"-- \n".to_vec()),
        1 => Just(b"++ b/x\n".to_vec()),
        1 => Just(b"\xff\xfe\x1b[0m\r\n".to_vec()),
    ];
    (proptest::collection::vec(line, 0..40), prop_oneof!["", "end", "end\r"])
        .prop_map(|(lines, end)| [lines.concat(), end.into_bytes()].concat())
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => text(),
        1 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => (text(), text()).prop_map(|(a, b)| [a, b"\0".to_vec(), b].concat()),
    ]
}

/// Names as nobody should choose them; `.git` alone is left out, for git refuses to touch it.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let odd = [
        &b"plain"[..],
        b"with space",
        b" led",
        b"trailed ",
        b"a b/x b",
        b"\"quoted\"",
        b"back\\slash",
        b"tab\there",
        b"new\nline",
        b"\xff\xfe",
        "é".as_bytes(),
        b"\x01\x7f",
        b"-rf",
        b"*",
        b"deep/er/still",
        b"a/b/a/b",
        b"\r",
    ];
    let random = proptest::collection::vec(any::<u8>(), 1..12)
        .prop_map(|bytes| bytes.into_iter().filter(|byte| !b"\0/.".contains(byte)).collect::<Vec<u8>>())
        .prop_filter("empty", |bytes| !bytes.is_empty());
    prop_oneof![2 => proptest::sample::select(odd.to_vec()).prop_map(<[u8]>::to_vec), 1 => random]
}

fn of_one(path: &RelPath, thing: Option<Thing>) -> Tree {
    thing.into_iter().map(|thing| (path.clone(), thing)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn git_applies_any_single_file(
        name in name(), old in proptest::option::of(content()), new in proptest::option::of(content()),
    ) {
        if !is_there("git") { return Ok(()); }
        let at = path(name);
        let (old, new) = (of_one(&at, old.map(file)), of_one(&at, new.map(file)));
        check_git(&old, &new, &[])?;
    }

    #[test]
    fn patch_applies_any_single_text(
        name in name(), old in proptest::option::of(text()), new in proptest::option::of(text()),
    ) {
        if !is_there("patch") { return Ok(()); }
        let at = path(name);
        let (old, new) = (of_one(&at, old.map(file)), of_one(&at, new.map(file)));
        if old != new {
            check_patch(&old, &new, &patch_between(&old, &new, &[]))?;
        }
    }

    #[test]
    fn git_counts_the_lines_we_count(old in text(), new in text()) {
        if !is_there("git") || old == new { return Ok(()); }
        let at = path("f");
        let patch = patch_between(&of_one(&at, Some(file(&old))), &of_one(&at, Some(file(&new))), &[]);
        let told = Bench::new(&Tree::new(), &patch).run("git", &["apply", "--numstat"]).unwrap();
        let (added, removed) = line_stat(&old, &new);
        prop_assert_eq!(told.trim(), format!("{added}\t{removed}\tf"));
    }

    #[test]
    fn git_applies_whole_trees_at_once(old in tree(), new in tree(), rename in any::<bool>()) {
        if !is_there("git") { return Ok(()); }
        let renames = if rename { some_renames(&old, &new) } else { Vec::new() };
        check_git(&old, &new, &renames)?;
    }
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        4 => (content(), any::<bool>()).prop_map(|(content, executable)| Thing::File { content, executable }),
        1 => "[a-c/ \n]{1,9}".prop_map(|target| Thing::Link(target.into_bytes())),
    ]
}

/// A few paths, some of which are directories in one tree and files in another.
fn tree() -> impl Strategy<Value = Tree> {
    let paths = ["d", "d/x", "d/x/y", "d y", "e/1", "e/2", "f", "f\ng", "z\u{e9}"];
    proptest::collection::vec((proptest::sample::select(paths.to_vec()), thing()), 0..8).prop_map(|entries| {
        let mut tree = Tree::new();
        for (at, thing) in entries {
            let at = path(at);
            if !tree.keys().any(|other| other.is_within(&at) || at.is_within(other)) {
                tree.insert(at, thing);
            }
        }
        tree
    })
}

/// Pairs what is gone with what is new, as a rename detector might.
fn some_renames(old: &Tree, new: &Tree) -> Vec<(RelPath, RelPath)> {
    let gone = old.keys().filter(|at| !new.contains_key(*at));
    let come = new.keys().filter(|at| !old.contains_key(*at));
    gone.cloned().zip(come.cloned()).collect()
}

fn lines(count: usize, edit: impl Fn(usize) -> Option<&'static str>) -> String {
    (0..count).map(|n| edit(n).map_or_else(|| format!("line {n}\n"), str::to_owned)).collect()
}

#[test]
fn every_kind_of_change_in_one_patch() {
    if !is_there("git") {
        return;
    }
    let script = |executable| Thing::File { content: b"#!/bin/sh\n".to_vec(), executable };
    let (long, edited) = (lines(50, |_| None), lines(50, |n| (n == 20).then_some("edited\n")));
    let old = Tree::from([
        (path("becomes-dir"), file("was a file\n")),
        (path("becomes-link"), file("was a file\n")),
        (path("binary"), file(b"\0one")),
        (path("dir-becomes-file/a"), file("a\n")),
        (path("dir-becomes-file/b/c"), file("c\n")),
        (path("gone"), file("gone\n")),
        (path("gone-empty"), file("")),
        (path("link"), Thing::Link(b"here".to_vec())),
        (path("mode"), script(false)),
        (path("old name"), file(&long)),
        (path("swap-1"), file("1\n")),
        (path("swap-2"), file("2\n")),
    ]);
    let new = Tree::from([
        (path("becomes-dir/inside"), file("now inside\n")),
        (path("becomes-link"), Thing::Link(b"elsewhere".to_vec())),
        (path("binary"), file(b"\0two and more")),
        (path("dir-becomes-file"), file("now a file\n")),
        (path("empty"), file("")),
        (path("link"), Thing::Link(b"there".to_vec())),
        (path("made-binary"), file([0; 5000])),
        (path("mode"), script(true)),
        (path("new/\"name\"\n"), Thing::File { content: edited.into_bytes(), executable: true }),
        (path("old name"), file("another one under the old name\n")),
        (path("swap-1"), file("2\n")),
        (path("swap-2"), file("1\n")),
    ]);
    let renames = [
        (path("old name"), path("new/\"name\"\n")),
        (path("swap-1"), path("swap-2")),
        (path("swap-2"), path("swap-1")),
    ];
    check_git(&old, &new, &renames).unwrap();
}

#[test]
fn patch_takes_what_is_not_binary() {
    if !is_there("patch") {
        return;
    }
    let old = Tree::from([
        (path("gone"), file("gone\n")),
        (path("link"), Thing::Link(b"here".to_vec())),
        (path("mode"), file("#!/bin/sh\n")),
        (path("moved"), file(lines(50, |_| None))),
    ]);
    let new = Tree::from([
        (path("empty"), file("")),
        (path("link"), Thing::Link(b"there".to_vec())),
        (path("mode"), Thing::File { content: b"#!/bin/sh\n".to_vec(), executable: true }),
        (path("moved here"), file(lines(50, |n| (n == 20).then_some("edited\n")))),
    ]);
    check_patch(&old, &new, &patch_between(&old, &new, &[(path("moved"), path("moved here"))])).unwrap();
}

#[test]
fn ten_thousand_hunks_apply() {
    if !is_there("git") {
        return;
    }
    let old = lines(100_000, |_| None);
    let new = lines(100_000, |n| (n % 10 == 5).then_some("changed\n"));
    assert!(!is_binary(new.as_bytes()));
    let at = path("f");
    let (old, new) = (of_one(&at, Some(file(old))), of_one(&at, Some(file(new))));
    let patch = patch_between(&old, &new, &[]);
    assert_eq!(patch.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"@@ ")).count(), 10_000);
    check_git_with(&old, &new, &[], &patch).unwrap();
}

#[test]
fn our_patch_leads_where_gits_own_leads() {
    if !is_there("git") {
        return;
    }
    let (old, new) = (lines(300, |_| None), lines(290, |n| (n % 40 < 3).then_some("\tindented();\n")));
    let pair = TempDir::new().unwrap();
    fs::write(pair.path().join("old"), &old).unwrap();
    fs::write(pair.path().join("new"), &new).unwrap();
    let arguments = ["diff", "--no-index", "--histogram", "--no-ext-diff", "--no-color", "old", "new"];
    let output = Command::new("git").args(arguments).current_dir(pair.path()).output().unwrap();
    let gits = String::from_utf8(output.stdout).unwrap().replace("a/old", "a/f").replace("b/new", "b/f");
    let at = path("f");
    let (old, new) = (of_one(&at, Some(file(old))), of_one(&at, Some(file(new))));
    check_git_with(&old, &new, &[], gits.as_bytes()).unwrap();
    check_git(&old, &new, &[]).unwrap();
}
