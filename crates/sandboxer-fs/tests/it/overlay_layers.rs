//! Layers as the kernel writes and shows them: random stacks are made through real mounts, then what [`View`] works out and
//! what copies and squashed layers show is compared with the mount of the stack itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::XattrFlags;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::RelPath;
use sandboxer_fs::filter::Filter;
use sandboxer_fs::overlay::layer::{Layer, Marks};
use sandboxer_fs::overlay::touched::{Touched, touched};
use sandboxer_fs::overlay::transfer::{copy_layer, squash};
use sandboxer_fs::overlay::view::View;
use sandboxer_fs::root::Root;

/// An overlay, for as long as the guard lives.
struct Mounted(PathBuf);

impl Mounted {
    fn mount(
        point: &Path,
        marks: Marks,
        lower: &[PathBuf],
        upper: Option<(&Path, &Path)>,
    ) -> Result<Self, String> {
        let lower: Vec<_> = lower.iter().map(|path| path.to_str().unwrap()).collect();
        let mut options =
            format!("lowerdir={},redirect_dir=nofollow,index=off,metacopy=off", lower.join(":"));
        if let Some((upper, work)) = upper {
            options += &format!(",upperdir={},workdir={},volatile", upper.display(), work.display());
        }
        if marks == Marks::User {
            options += ",userxattr";
        }
        fs::create_dir_all(point).unwrap();
        let mount =
            Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(point).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Self(point.to_path_buf())),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process that another test is about to start holds our descriptors until it runs its program.
        let unmounted = (0..50).any(|_| {
            let output = Command::new("umount").arg(&self.0).output();
            let done = output.is_ok_and(|output| output.status.success());
            if !done {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done
        });
        if !unmounted {
            let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        }
    }
}

/// Whether overlays can be mounted here; says why where they cannot.
fn can_mount(test: &str, marks: Marks) -> bool {
    let temp = tempfile::tempdir().unwrap();
    let dirs = ["a", "b"].map(|name| temp.path().join(name));
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    match Mounted::mount(&temp.path().join("mnt"), marks, &dirs, None) {
        Ok(_) => true,
        Err(reason) => {
            eprintln!("skipped: {test}: no overlay can be mounted: {reason}");
            false
        }
    }
}

/// Something done in a sandbox. Where it is not possible it has no effect, here as there.
#[derive(Clone, Debug)]
enum Op {
    Write(String, u8),
    Grow(String, u32),
    Delete(String),
    MakeDir(String),
    Recreate(String),
    Rename(String, String),
    Link(String, String),
    Symlink(String),
    Chmod(String, u32),
    Chown(String),
    Label(String),
    /// Marks of the other kind, and of the own kind through the mount: the kernel keeps those apart from its own.
    Forge(String),
}

impl Op {
    /// An outcome is of no interest: most random operations are refused.
    fn run(&self, root: &Path) {
        let _ = self.attempt(&|path| root.join(path));
    }

    fn attempt(&self, at: &dyn Fn(&str) -> PathBuf) -> std::io::Result<()> {
        match self {
            Self::Write(path, byte) => {
                fs::create_dir_all(at(path).parent().unwrap())?;
                fs::write(at(path), vec![*byte; usize::from(*byte)])
            }
            Self::Grow(path, size) => {
                let file = fs::OpenOptions::new().write(true).open(at(path))?;
                file.set_len(u64::from(*size))?;
                file.write_all_at(b"end", u64::from(*size))
            }
            Self::Delete(path) => fs::remove_file(at(path)).or_else(|_| fs::remove_dir_all(at(path))),
            Self::MakeDir(path) => fs::create_dir_all(at(path)),
            Self::Recreate(path) => {
                let _ = fs::remove_dir_all(at(path));
                fs::create_dir(at(path))?;
                fs::write(at(path).join("new"), "new")
            }
            Self::Rename(from, to) => fs::rename(at(from), at(to)),
            Self::Link(from, to) => fs::hard_link(at(from), at(to)),
            Self::Symlink(path) => symlink("a/b", at(path)),
            Self::Chmod(path, mode) => fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)),
            Self::Chown(path) => lchown(at(path), Some(1234), Some(4321)),
            Self::Label(path) => label(&at(path), "user.label", b"value"),
            Self::Forge(path) => label(&at(path), "user.overlay.opaque", b"y")
                .and_then(|()| label(&at(path), "user.overlay.whiteout", b"")),
        }
    }
}

fn label(path: &Path, name: &str, value: &[u8]) -> std::io::Result<()> {
    Ok(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?)
}

/// Few names, so that operations meet.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d"]), 1..=3)
        .prop_map(|names| names.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (path(), 0..40_u8).prop_map(|(path, byte)| Op::Write(path, byte)),
        1 => (path(), 100_000..300_000_u32).prop_map(|(path, size)| Op::Grow(path, size)),
        4 => path().prop_map(Op::Delete),
        2 => path().prop_map(Op::MakeDir),
        3 => path().prop_map(Op::Recreate),
        3 => (path(), path()).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        1 => path().prop_map(Op::Symlink),
        2 => (path(), prop::sample::select(vec![0o700, 0o444, 0o4755, 0o1777])).prop_map(|(p, m)| Op::Chmod(p, m)),
        1 => path().prop_map(Op::Chown),
        1 => path().prop_map(Op::Label),
        1 => path().prop_map(Op::Forge),
    ]
}

/// What is done between one freeze and the next.
fn history() -> impl Strategy<Value = Vec<Vec<Op>>> {
    prop::collection::vec(prop::collection::vec(op(), 1..10), 1..5)
}

/// A stack of frozen layers over a tree.
struct Stack {
    temp: tempfile::TempDir,
    marks: Marks,
    /// Topmost first.
    layers: Vec<PathBuf>,
    bottom: PathBuf,
    /// Another tree of which the layers know nothing.
    other: PathBuf,
}

impl Stack {
    fn make(marks: Marks, history: &[Vec<Op>]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (bottom, other) = (temp.path().join("bottom"), temp.path().join("other"));
        fill(&bottom, &["a/a/a", "a/a/b", "a/b/c", "a/c", "b/a", "b/b/b", "c"]);
        fill(&other, &["a/b/c", "a/a", "b", "c/a/a", "c/b"]);
        fs::hard_link(bottom.join("a/c"), bottom.join("b/c")).unwrap();
        let mut stack = Self { temp, marks, layers: Vec::new(), bottom, other };
        for (number, ops) in history.iter().enumerate() {
            stack.work(number, ops);
        }
        stack
    }

    fn at(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn work(&mut self, number: usize, ops: &[Op]) {
        let (upper, work) = (self.at(&format!("layer{number}")), self.at(&format!("work{number}")));
        fs::create_dir(&upper).unwrap();
        fs::create_dir(&work).unwrap();
        let lower = with(&self.layers, &self.bottom);
        let point = self.at("mnt");
        let mounted = Mounted::mount(&point, self.marks, &lower, Some((&upper, &work))).unwrap();
        ops.iter().for_each(|op| op.run(&point));
        drop(mounted);
        self.layers.insert(0, upper);
    }

    fn open(&self, paths: &[PathBuf]) -> Vec<Layer> {
        paths.iter().map(|path| Layer::open(path, self.marks).unwrap()).collect()
    }

    /// What these layers show over `bottom`.
    fn shown(&self, layers: &[PathBuf], bottom: &Path) -> BTreeMap<PathBuf, Shown> {
        let point = self.at("mnt");
        let _mounted = Mounted::mount(&point, self.marks, &with(layers, bottom), None).unwrap();
        let mut shown = BTreeMap::new();
        snapshot(&point, &point, &mut shown);
        shown
    }
}

fn fill(root: &Path, files: &[&str]) {
    for file in files {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), file).unwrap();
    }
}

fn with(layers: &[PathBuf], bottom: &Path) -> Vec<PathBuf> {
    layers.iter().cloned().chain([bottom.to_path_buf()]).collect()
}

/// All that a program sees of an entry.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    mode: u32,
    owner: (u32, u32),
    /// A directory's is the filesystem's business.
    size: Option<u64>,
    modified: (i64, i64),
    content: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn snapshot(root: &Path, path: &Path, shown: &mut BTreeMap<PathBuf, Shown>) {
    let stat =
        fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{} is listed only: {e}", path.display()));
    shown.insert(path.strip_prefix(root).unwrap().to_path_buf(), look(path, &stat));
    if stat.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            snapshot(root, &entry.unwrap().path(), shown);
        }
    }
}

fn look(path: &Path, stat: &fs::Metadata) -> Shown {
    Shown {
        mode: stat.mode(),
        owner: (stat.uid(), stat.gid()),
        size: (!stat.is_dir()).then(|| stat.size()),
        modified: (stat.mtime(), stat.mtime_nsec()),
        content: content(path, stat),
        attributes: attributes(path),
    }
}

fn content(path: &Path, stat: &fs::Metadata) -> Vec<u8> {
    if stat.is_symlink() {
        return fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec();
    }
    if stat.is_file() { fs::read(path).unwrap() } else { Vec::new() }
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|b| *b == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value[..length].to_vec()
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// Runs `check` on random stacks of either kind.
fn for_random_stacks(test: &str, cases: u32, check: impl Fn(&Stack)) {
    for marks in [Marks::Trusted, Marks::User] {
        if can_mount(test, marks) {
            let config = Config { cases, failure_persistence: None, ..Config::default() };
            let checked = TestRunner::new(config).run(&history(), |history| {
                check(&Stack::make(marks, &history));
                Ok(())
            });
            checked.unwrap_or_else(|e| panic!("{marks:?}: {e}"));
        }
    }
}

fn rel(path: &Path) -> Option<RelPath> {
    RelPath::parse(path).ok()
}

#[test]
fn a_view_is_what_the_kernel_shows() {
    for_random_stacks("a_view_is_what_the_kernel_shows", 24, |stack| {
        let layers = stack.open(&stack.layers);
        for bottom in [&stack.bottom, &stack.other] {
            let shown = stack.shown(&stack.layers, bottom);
            let bottom = Root::open(bottom).unwrap();
            compare_view(&View { layers: layers.iter().collect(), bottom: &bottom }, &shown);
        }
    });
}

fn compare_view(view: &View<'_>, shown: &BTreeMap<PathBuf, Shown>) {
    for (path, entry) in shown {
        if entry.size.is_none() {
            let names = view.names(rel(path).as_ref()).unwrap();
            let below = shown.keys().filter(|p| p.parent() == Some(path.as_path()));
            let below: Vec<_> = below.map(|p| p.file_name().unwrap().as_bytes().to_vec()).collect();
            assert_eq!(names, below, "names in {}", path.display());
        }
        if let Some(path) = rel(path) {
            compare_entry(view, &path, entry);
        }
    }
    for path in all_paths().iter().filter(|path| !shown.contains_key(*path)) {
        assert_eq!(view.find(&rel(path).unwrap()).unwrap(), None, "{}", path.display());
    }
}

fn compare_entry(view: &View<'_>, path: &RelPath, entry: &Shown) {
    let found = view.find(path).unwrap().unwrap_or_else(|| panic!("{path} is not found"));
    let parent = view.open_parent(path, &found).unwrap();
    let place = parent.shown(path.name());
    let stat = fs::symlink_metadata(&place).unwrap();
    assert_eq!(found.stamp.ino, stat.ino(), "{path}");
    let there = Shown { attributes: BTreeMap::new(), ..look(&place, &stat) };
    let through_mount = (entry.mode, entry.owner, entry.size, entry.modified, &entry.content);
    assert_eq!(
        (there.mode, there.owner, there.size, there.modified, &there.content),
        through_mount,
        "{path}"
    );
}

/// Every path that an operation may have named, and some below.
fn all_paths() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut level = vec![PathBuf::new()];
    for _ in 0..4 {
        level = level.iter().flat_map(|above| ["a", "b", "c", "d"].map(|name| above.join(name))).collect();
        paths.extend_from_slice(&level);
    }
    paths
}

#[test]
fn a_squashed_stack_shows_the_same_over_anything() {
    for_random_stacks("a_squashed_stack_shows_the_same_over_anything", 24, compare_squashed);
}

#[test]
fn a_squashed_stack_lists_nothing_that_is_not_there() {
    if !can_mount("a_squashed_stack_lists_nothing_that_is_not_there", Marks::Trusted) {
        return;
    }
    let first = vec![Op::Recreate("a".into()), Op::Write("a/b/c".into(), 1), Op::Write("a/c".into(), 1)];
    let second = vec![Op::Delete("a/c".into()), Op::Delete("a/b/c".into())];
    compare_squashed(&Stack::make(Marks::Trusted, &[first, second]));
    let first = vec![Op::Write("d/a/b".into(), 1), Op::Write("d/b".into(), 1)];
    let second = vec![Op::Delete("d/b".into()), Op::Delete("d/a/b".into())];
    compare_squashed(&Stack::make(Marks::Trusted, &[first, second]));
}

/// Squashes the topmost layers, as many as may be, and looks at the result over the others.
fn compare_squashed(stack: &Stack) {
    for count in 1..=stack.layers.len() {
        let layers = stack.open(&stack.layers[..count]);
        let to = stack.at(&format!("squashed{count}"));
        fs::create_dir(&to).unwrap();
        let made = squash(&layers.iter().collect::<Vec<_>>(), &to, &CancelFlag::default()).unwrap();
        assert_eq!(made, count_below(&to));
        let squashed: Vec<_> = [to].into_iter().chain(stack.layers[count..].iter().cloned()).collect();
        for bottom in [&stack.bottom, &stack.other] {
            assert_eq!(stack.shown(&squashed, bottom), stack.shown(&stack.layers, bottom), "{count} layers");
        }
    }
}

fn count_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| 1 + if entry.file_type().unwrap().is_dir() { count_below(&entry.path()) } else { 0 })
        .sum()
}

#[test]
fn a_copied_stack_shows_the_same_and_has_the_same_marks() {
    for_random_stacks("a_copied_stack_shows_the_same_and_has_the_same_marks", 24, compare_copied);
}

#[test]
fn a_copied_stack_keeps_hard_links_of_symlinks() {
    for marks in [Marks::Trusted, Marks::User] {
        if can_mount("a_copied_stack_keeps_hard_links_of_symlinks", marks) {
            let history = [
                vec![Op::Recreate("d".into())],
                vec![Op::Symlink("d/d".into())],
                vec![Op::Link("d/d".into(), "d/a".into())],
            ];
            compare_copied(&Stack::make(marks, &history));
        }
    }
}

fn compare_copied(stack: &Stack) {
    let mut copies = Vec::new();
    for (number, layer) in stack.open(&stack.layers).iter().enumerate() {
        let to = stack.at(&format!("copy{number}"));
        fs::create_dir(&to).unwrap();
        let copied = copy_layer(layer, &to, &CancelFlag::default()).unwrap();
        assert_eq!((copied.entries, copied.unsteady), (count_below(&to), Vec::new()));
        copies.push(to);
    }
    assert_eq!(facts(stack, &copies), facts(stack, &stack.layers));
    for bottom in [&stack.bottom, &stack.other] {
        assert_eq!(stack.shown(&copies, bottom), stack.shown(&stack.layers, bottom));
    }
}

/// What the layers name, without the numbers and births of inodes, which differ between copies.
fn facts(stack: &Stack, layers: &[PathBuf]) -> Touched {
    let layers = stack.open(layers);
    let mut found =
        touched(&layers.iter().collect::<Vec<_>>(), &Filter::all(), 2, &CancelFlag::default()).unwrap();
    for facts in found.paths.values_mut() {
        facts.links = facts.links.map(|(_, names, nlink)| (0, names, nlink));
        facts.btime = 0;
    }
    found.lower_inos.clear();
    found
}

#[test]
fn the_kernels_origins_name_the_inodes_of_the_bottom() {
    if !can_mount("the_kernels_origins_name_the_inodes_of_the_bottom", Marks::Trusted) {
        return;
    }
    let first =
        vec![Op::Write("a/a/a".into(), 1), Op::Chmod("b/b".into(), 0o700), Op::Write("new".into(), 1)];
    let second = vec![Op::Write("a/a/a".into(), 2), Op::Write("new".into(), 2)];
    let stack = Stack::make(Marks::Trusted, &[first, second]);
    let found = facts(&stack, &stack.layers);
    for path in ["a", "a/a", "a/a/a", "b", "b/b"] {
        let expected = fs::metadata(stack.bottom.join(path)).unwrap().ino();
        let origin = found.paths[&RelPath::parse(path).unwrap()].origin.unwrap();
        assert!(origin.ino.is_none_or(|ino| ino == expected), "{path}: {origin:?} instead of {expected}");
    }
    assert_eq!(found.paths[&RelPath::parse("new").unwrap()].origin, None);
}

#[test]
fn a_live_upper_is_copied_while_it_is_written() {
    if !can_mount("a_live_upper_is_copied_while_it_is_written", Marks::Trusted) {
        return;
    }
    let stack = Stack::make(Marks::Trusted, &[]);
    let (upper, work, point) = (stack.at("upper"), stack.at("work"), stack.at("mnt"));
    fs::create_dir(&upper).unwrap();
    fs::create_dir(&work).unwrap();
    let lower = with(&[], &stack.bottom);
    let _mounted = Mounted::mount(&point, Marks::Trusted, &lower, Some((&upper, &work))).unwrap();
    let layer = Layer::open(&upper, Marks::Trusted).unwrap();
    fs::write(point.join("still"), "still").unwrap();
    chown(point.join("still"), Some(77), None).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| churn(&point, &done));
        for round in 0..30 {
            let to = stack.at(&format!("copy{round}"));
            fs::create_dir(&to).unwrap();
            let copied = copy_layer(&layer, &to, &CancelFlag::default());
            if copied.is_err() || round == 29 {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            assert_eq!(copied.unwrap().entries, count_below(&to));
            assert_eq!(fs::read_to_string(to.join("still")).unwrap(), "still");
            assert_eq!(fs::metadata(to.join("still")).unwrap().uid(), 77);
        }
    });
}

fn churn(point: &Path, done: &std::sync::atomic::AtomicBool) {
    while !done.load(std::sync::atomic::Ordering::Relaxed) {
        for op in [
            Op::Recreate("a".into()),
            Op::Write("a/b/c".into(), 9),
            Op::Write("b/a".into(), 7),
            Op::Delete("b/a".into()),
            Op::Symlink("b/a".into()),
            Op::Delete("b/a".into()),
            Op::Delete("a".into()),
            Op::Write("a".into(), 3),
            Op::Delete("a".into()),
        ] {
            op.run(point);
        }
    }
}
