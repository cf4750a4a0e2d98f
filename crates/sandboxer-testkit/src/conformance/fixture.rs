//! A fresh state directory, a fresh resource and a strategy; and an open sandbox to poke at.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    CheckpointId, CommitRequest, CommitResult, Conflict, DiffKind, DiffView, OnConflict, OpId, Part, Phase,
    PlanId, RelPath, Resource, RollbackResult, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry};
use sandboxer_core::{Error, Result};
use sandboxer_keeper::Keepers;
use tempfile::TempDir;

use super::checkout::Checkout;
use crate::manifest::{Facets, Manifest};
use crate::mounts::DetachBelow;

/// Where a case runs: a state directory, a resource with a small tree in it, and a strategy to make anew at will.
pub struct Fixture {
    entry: StrategyEntry,
    home: PathBuf,
    original: PathBuf,
    outside: PathBuf,
    program: Option<PathBuf>,
    checkout: Option<Checkout>,
    // Dropped in this order: directories before the filesystems that hold them.
    _dirs: Vec<TempDir>,
    _guards: Vec<Box<dyn Any + Send>>,
}

/// What a case left running or mounted would keep its directories from being removed.
impl Drop for Fixture {
    fn drop(&mut self) {
        self.end_keepers();
        for dir in &self._dirs {
            drop(DetachBelow(dir.path().to_path_buf()));
            open_up(dir.path());
        }
    }
}

/// Makes every directory below `dir` one that its owner can remove: the kernel leaves some of mode 0.
fn open_up(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            let _ = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o700));
            open_up(&entry.path());
        }
    }
}

impl Fixture {
    /// Everything in one temporary directory.
    pub fn new(entry: StrategyEntry) -> Self {
        let dir = TempDir::with_prefix("sandboxer-conformance-").unwrap();
        let (home, original) = (dir.path().join("home"), dir.path().join("resource"));
        Self::at(entry, home, original, dir)
    }

    /// The state directory below `home` and the resource below `resource`, which exist.
    pub fn split(entry: StrategyEntry, home: &Path, resource: &Path) -> Self {
        Self::split_making(entry, home, resource, |_| ())
    }

    /// The same, where `make` makes the directory that is the resource: a subvolume, say.
    pub fn split_making(
        entry: StrategyEntry,
        home: &Path,
        resource: &Path,
        make: impl FnOnce(&Path),
    ) -> Self {
        let dir = TempDir::with_prefix_in("home-", home).unwrap();
        let other = TempDir::with_prefix_in("resource-", resource).unwrap();
        make(&other.path().join("tree"));
        let mut fixture = Self::at(entry, dir.path().join("home"), other.path().join("tree"), dir);
        fixture._dirs.push(other);
        fixture
    }

    /// The same fixture, which keeps `guard` (a mount, say) for as long as it lives.
    pub fn keeping(mut self, guard: impl Any + Send) -> Self {
        self._guards.push(Box::new(guard));
        self
    }

    /// The same fixture, whose resource is a git checkout. All that a case has put there is committed when it opens a sandbox; the
    /// repository itself lies elsewhere, and is no part of the trees that are compared.
    pub fn checked_out(mut self) -> Self {
        self.checkout = Some(Checkout::of(&self.original));
        self
    }

    /// Where the resource is a checkout, asserts that its repository is sound.
    #[track_caller]
    pub fn assert_sound(&self) {
        if let Some(checkout) = &self.checkout {
            checkout.assert_sound();
        }
    }

    /// A tree, entry by entry, without what belongs to git alone.
    fn capture(&self, root: &Path) -> Manifest {
        let manifest = Manifest::capture(root);
        if self.checkout.is_some() { Checkout::without_git(manifest) } else { manifest }
    }

    /// The keepers of the state directory, where there are any.
    pub fn keepers(&self) -> Option<Keepers> {
        let program = self.program.as_ref()?;
        Some(Keepers::new(&self.home.join("keepers"), program))
    }

    /// Ends the keepers of the state directory, and with them what they mounted.
    pub fn end_keepers(&self) {
        let Some(keepers) = self.keepers() else { return };
        for (id, pid) in keepers.running() {
            let _ = keepers.end(&id).inspect_err(|e| eprintln!("keeper {id} ({pid}): {e}"));
        }
    }

    /// The same fixture, whose keepers are started from `program`.
    pub fn with_keepers_from(mut self, program: &Path) -> Self {
        self.program = Some(program.to_path_buf());
        self
    }

    fn at(entry: StrategyEntry, home: PathBuf, original: PathBuf, dir: TempDir) -> Self {
        let outside = dir.path().join("outside");
        fs::create_dir_all(&home).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir_all(&original).unwrap();
        fs::write(outside.join("secret"), "secret\n").unwrap();
        small_tree(&original);
        let original = fs::canonicalize(original).unwrap();
        let (program, checkout) = (None, None);
        Self { entry, home, original, outside, program, checkout, _dirs: vec![dir], _guards: Vec::new() }
    }

    /// What the strategy declares.
    pub fn capabilities(&self) -> &Capabilities {
        &self.entry.capabilities
    }

    /// The strategy's registered name.
    pub fn strategy_name(&self) -> &str {
        &self.entry.name
    }

    /// A new instance of the strategy, as another process would make it.
    pub fn strategy(&self) -> Arc<dyn SandboxStrategy> {
        self.strategy_of(&self.entry)
    }

    /// The same of another strategy in the same state directory.
    pub fn strategy_of(&self, entry: &StrategyEntry) -> Arc<dyn SandboxStrategy> {
        let context = StrategyContext { program: self.program.clone(), ..StrategyContext::quiet(&self.home) };
        (entry.factory)(&entry.name, &entry.options, &context).unwrap()
    }

    /// The state directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A directory that is no part of the resource, with a file `secret` in it.
    pub fn outside(&self) -> &Path {
        &self.outside
    }

    /// A path within the original.
    pub fn original(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.original.clone() } else { self.original.join(path) }
    }

    /// The original, entry by entry.
    pub fn manifest(&self) -> Manifest {
        self.capture(&self.original)
    }

    /// Asserts that the original is exactly `expected`, down to the inodes.
    #[track_caller]
    pub fn assert_untouched(&self, expected: &Manifest) {
        expected.assert_same(&self.manifest(), Facets::UNTOUCHED, "the original was touched");
    }

    /// The resource.
    pub fn resource(&self) -> Resource {
        Resource::at_path("fs-directory", &self.original)
    }

    /// A sandbox over the resource.
    pub fn open(&self) -> Open<'_> {
        self.open_resource(&self.resource())
    }

    /// A sandbox over a resource of the case's own.
    pub fn open_resource(&self, resource: &Resource) -> Open<'_> {
        if let Some(checkout) = &self.checkout {
            checkout.commit_all();
        }
        let strategy = self.strategy();
        let sandbox = strategy.create(&PlanId::generate(), resource).unwrap();
        assert_eq!(sandbox.strategy_name, self.entry.name);
        assert_eq!(sandbox.resource_id, resource.id);
        Open { fixture: self, strategy, sandbox }
    }

    /// Everything that is left of sandboxes in the state directory and in scratch space beside the resource.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let mut found = files_below(&self.home);
        let plugins = self.home.join("plugins");
        found.retain(|path| path.file_name().is_some_and(|name| name != "scratch-roots"));
        // These belong to a plugin and to none of its sandboxes.
        let of_plugins = ["python", "log", "checks"].map(|name| plugins.join(name));
        found.retain(|path| !of_plugins.iter().any(|directory| path.starts_with(directory)));
        for ancestor in self.original.ancestors() {
            let own = ancestor.starts_with(self._dirs[self._dirs.len() - 1].path());
            let listing = fs::read_dir(ancestor).into_iter().flatten().flatten();
            let hidden = listing.filter(|e| e.file_name().to_string_lossy().starts_with(".sandboxer"));
            found.extend(hidden.filter(|_| own).map(|e| e.path()));
        }
        found
    }
}

/// Files (and workspace directories, even empty ones) below `dir`.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(entry.file_name().to_string_lossy().starts_with("ws_").then(|| entry.path()));
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn small_tree(dir: &Path) {
    fs::create_dir_all(dir.join("dir/sub")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    let files =
        [("a.txt", "alpha\n"), ("b.txt", "beta\n"), ("dir/c.txt", "gamma\n"), ("dir/sub/d.txt", "delta\n")];
    for (name, content) in files {
        fs::write(dir.join(name), content).unwrap();
    }
    fs::write(dir.join("run.sh"), "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a.txt", dir.join("link")).unwrap();
}

/// A path inside a workspace.
pub(super) fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

/// An open sandbox with the strategy that made it.
pub struct Open<'a> {
    /// Where it was made.
    pub fixture: &'a Fixture,
    /// The strategy in use.
    pub strategy: Arc<dyn SandboxStrategy>,
    /// Its handle.
    pub sandbox: SandboxRef,
}

impl Open<'_> {
    /// The same sandbox in another process: the ref as it comes out of JSON, and a new strategy.
    pub fn reopened(self) -> Self {
        let text = serde_json::to_string(&self.sandbox).unwrap();
        let fixture = self.fixture;
        drop(self);
        Self { fixture, strategy: fixture.strategy(), sandbox: serde_json::from_str(&text).unwrap() }
    }

    /// A path within the sandbox's tree.
    pub fn path(&self, path: &str) -> PathBuf {
        let root = self.sandbox.sandbox_path().expect("a file tree has a `path`");
        if path.is_empty() { root } else { root.join(path) }
    }

    /// Where the sandbox is a mount, that is gone, as after a reboot; and so is its keeper.
    pub fn unmount(&self) {
        let home = self.path("").parent().unwrap().to_path_buf();
        if let Some(keepers) = self.fixture.keepers() {
            // Without a sandbox to serve, it goes by the name of the workspace.
            keepers.end(&home.file_name().unwrap().to_string_lossy()).unwrap();
        }
        let _ = rustix::mount::unmount(self.path(""), rustix::mount::UnmountFlags::empty());
        open_up(&home.join("work"));
    }

    /// The sandbox's tree, entry by entry.
    pub fn manifest(&self) -> Manifest {
        // A sandbox of a keeper is reached by a link.
        let mut manifest = self.fixture.capture(&self.path("").join("."));
        if self.fixture.checkout.is_some() {
            // Its repository was made in it, and that changed the time of its top.
            let top = Manifest::capture_one(&self.fixture.original);
            manifest.entries.entry(PathBuf::new()).and_modify(|entry| entry.mtime = top.mtime);
        }
        manifest
    }

    /// Content as text.
    pub fn read(&self, path: &str) -> String {
        String::from_utf8(self.strategy.read(&self.sandbox, &rel(path)).unwrap()).unwrap()
    }

    /// Writes text through the strategy.
    pub fn write(&self, path: &str, content: &str) {
        self.strategy.write(&self.sandbox, &rel(path), content.as_bytes()).unwrap();
    }

    /// What differs.
    pub fn diff(&self) -> DiffView {
        self.strategy.diff(&self.sandbox).unwrap()
    }

    /// What differs, as path → kind.
    pub fn kinds(&self) -> BTreeMap<String, DiffKind> {
        self.diff().entries.iter().map(|e| (e.path.to_string(), e.kind)).collect()
    }

    /// Asserts that exactly these paths differ, in these ways.
    #[track_caller]
    pub fn assert_kinds(&self, expected: &[(&str, DiffKind)]) {
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect();
        assert_eq!(self.kinds(), expected);
    }

    /// Asserts that nothing differs.
    #[track_caller]
    pub fn assert_clean(&self) {
        let diff = self.diff();
        assert!(diff.is_empty(), "there are differences: {:?}", diff.entries);
    }

    /// Commits everything; it has to work, without conflicts.
    #[track_caller]
    pub fn commit(&self) -> CommitResult {
        let result = self.try_commit(&CommitRequest::default()).unwrap();
        assert_eq!(result.conflicts, []);
        result
    }

    /// Commits as asked.
    pub fn try_commit(&self, request: &CommitRequest) -> Result<CommitResult> {
        self.strategy.commit(&self.sandbox, request)
    }

    /// Commits as asked, logged as `operation`.
    pub fn commit_as(&self, operation: &str, request: &CommitRequest) -> Result<CommitResult> {
        let logged = self.sandbox.clone().for_operation(&OpId::from_string(operation));
        self.strategy.commit(&logged, request)
    }

    /// Takes `undone` back, logged as `operation`.
    pub fn undo(&self, operation: &str, undone: &str) -> Result<CommitResult> {
        let logged = self.sandbox.clone().for_operation(&OpId::from_string(operation));
        self.strategy.commit(&logged.undoing(&OpId::from_string(undone)), &CommitRequest::default())
    }

    /// Cleans a part up.
    pub fn cleanup_part(&self, part: &Part) -> Result<()> {
        self.strategy.cleanup(&self.sandbox.clone().for_part(part))
    }

    /// One phase of a commit of everything.
    pub fn phase(&self, phase: Phase) -> Result<CommitResult> {
        self.try_commit(&CommitRequest { phase, ..CommitRequest::default() })
    }

    /// Asserts that a commit is refused for conflicts and that the original is not touched by it; returns them.
    #[track_caller]
    pub fn assert_conflict(&self, paths: &[&str]) -> Vec<Conflict> {
        let before = self.fixture.manifest();
        let result = self.try_commit(&CommitRequest::default());
        self.fixture.assert_untouched(&before);
        let conflicts = match result {
            Err(Error::Conflict { conflicts }) => conflicts,
            other => panic!("expected a conflict on {paths:?}, got {other:?}"),
        };
        let found: Vec<String> = conflicts.iter().map(|c| c.path.to_string()).collect();
        assert!(
            paths.iter().all(|p| found.iter().any(|f| f == p)),
            "conflicts {found:?} do not name {paths:?}"
        );
        assert!(conflicts.iter().all(|c| !c.reason.is_empty()));
        conflicts
    }

    /// Throws everything away.
    pub fn rollback(&self) -> RollbackResult {
        let result = self.strategy.rollback(&self.sandbox).unwrap();
        assert!(result.success && result.checkpoint_id.is_none());
        result
    }

    /// Takes a checkpoint.
    pub fn checkpoint(&self, name: &str) {
        self.strategy.checkpoint(&self.sandbox, &CheckpointId::from_string(name)).unwrap();
    }

    /// Restores a checkpoint.
    pub fn restore(&self, name: &str) -> RollbackResult {
        let id = CheckpointId::from_string(name);
        let result = self.strategy.restore_checkpoint(&self.sandbox, &id).unwrap();
        assert!(result.success);
        assert_eq!(result.checkpoint_id, Some(id));
        result
    }
}

/// Twenty lines, some of them replaced: far enough apart, and each is a hunk of its own.
pub(super) fn lines(replaced: &[(usize, &str)]) -> String {
    let line =
        |number: usize| replaced.iter().find(|(n, _)| *n == number).map(|(_, text)| (*text).to_owned());
    (1..=20).map(|number| line(number).unwrap_or_else(|| number.to_string()) + "\n").collect()
}

/// A commit request that deals with conflicts in this way.
pub(super) fn resolving(on_conflict: OnConflict) -> CommitRequest {
    CommitRequest { on_conflict, ..CommitRequest::default() }
}

/// A commit request for some paths.
pub(super) fn only(paths: &[&str]) -> CommitRequest {
    CommitRequest { paths: paths.iter().map(|p| rel(p)).collect(), ..CommitRequest::default() }
}

impl Open<'_> {
    /// Asserts that `path` differs in this way, whatever else does.
    #[track_caller]
    pub fn assert_kinds_include(&self, path: &str, kind: DiffKind) {
        let kinds = self.kinds();
        assert_eq!(kinds.get(path), Some(&kind), "{kinds:?}");
    }
}
