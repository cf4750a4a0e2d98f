//! A strategy that does its work with plain copies and does at each step what the script says: fail, or die.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::contract::{Capabilities, SandboxStrategy};
use crate::model::{
    Change, CheckpointId, CommitRequest, CommitResult, Conflict, DiffEntry, DiffKind, DiffView, Node,
    NodeType, OpId, Part, Phase, PlanId, RelPath, Resource, RollbackResult, SandboxRef,
};
use crate::registry::{StrategyEntry, StrategyOptions, StrategyRegistry};
use crate::{Error, Result};

/// What is to happen at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Says once that a commit is decided.
    Decided,
    /// Answers once with a refusal, as a keeper does that does not answer in time.
    Refuse,
    /// An error, once.
    Fail,
    /// An error every time.
    AlwaysFail,
    /// A panic, once: the process dies here.
    Die,
}

type Hook = Box<dyn FnOnce() + Send>;

/// Shared by all fake strategies of a test.
#[derive(Default)]
pub struct Script {
    faults: Mutex<Vec<(String, Fault)>>,
    calls: Mutex<Vec<String>>,
    hooks: Mutex<Vec<(String, Hook)>>,
    /// `create` falls back to this strategy.
    pub fall_back_to: Mutex<Option<String>>,
    /// `read` answers with the whole file, whatever the range.
    pub ignores_ranges: AtomicBool,
    /// Two of the strategies are such as are prepared last.
    pub some_end: AtomicBool,
    /// Workspaces go here instead of the state directory.
    pub scratch: Mutex<Option<PathBuf>>,
}

impl Script {
    /// Sets a fault at `point`: a method or a step of one, such as `commit.finish`, optionally ` NAME` of the resource.
    pub fn at(&self, point: &str, fault: Fault) {
        self.faults.lock().unwrap().push((point.to_owned(), fault));
    }

    /// Has something else happen at `point`, once.
    pub fn meanwhile(&self, point: &str, hook: impl FnOnce() + Send + 'static) {
        self.hooks.lock().unwrap().push((point.to_owned(), Box::new(hook)));
    }

    fn run_hooks(&self, point: &str, full: &str) {
        let mut hooks = self.hooks.lock().unwrap();
        let (now, later) = hooks.drain(..).partition(|(at, _)| at == point || at == full);
        *hooks = later;
        drop(hooks);
        let now: Vec<(String, Hook)> = now;
        now.into_iter().for_each(|(_, hook)| hook());
    }

    /// Takes all faults away.
    pub fn calm(&self) {
        self.faults.lock().unwrap().clear();
    }

    /// Every point passed so far.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub fn pass(&self, point: &str, of: &str) -> Result<()> {
        let full = format!("{point} {of}");
        self.calls.lock().unwrap().push(full.clone());
        self.run_hooks(point, &full);
        let mut faults = self.faults.lock().unwrap();
        let Some(index) = faults.iter().position(|(at, _)| at == point || *at == full) else { return Ok(()) };
        let fault = faults[index].1;
        if fault != Fault::AlwaysFail {
            faults.remove(index);
        }
        drop(faults);
        assert!(fault != Fault::Die, "killed at {full}");
        match fault {
            Fault::Decided => Err(Error::already_decided("of the fake")),
            Fault::Refuse => Err(Error::refused(format!("scripted refusal at {full}"))),
            _ => Err(Error::usage(format!("scripted failure at {full}"))),
        }
    }
}

/// Where some end: of the first, what is prepared and aborted is gone, as a transaction is; the other cannot even be prepared.
pub const ENDING: &str = "overlay";
pub const DECIDING: &str = "filesystem_copy";
const NO_PREPARING: &str = "no prepared transactions here";

/// A registry in which every strategy is the fake, with more or fewer abilities.
pub fn registry(script: &Arc<Script>) -> StrategyRegistry {
    let mut registry = StrategyRegistry::new();
    let able = Capabilities {
        file_tree: true,
        faithful: true,
        two_phase: true,
        select_paths: true,
        scoped_rollback: true,
        checkpoints: true,
        undo: true,
        parts: true,
        ranges: true,
        ..Capabilities::default()
    };
    let ends = script.some_end.load(Ordering::Relaxed);
    let ending = Capabilities { undo: !ends, prepare_ends: ends, ..able.clone() };
    registry.register(entry("copy_on_write", able, script)).unwrap();
    for name in [ENDING, DECIDING] {
        registry.register(entry(name, ending.clone(), script)).unwrap();
    }
    registry.register(entry("none", Capabilities::default(), script)).unwrap();
    registry
}

/// A plugin that isolates what is not files.
pub fn plugin(name: &str, script: &Arc<Script>) -> StrategyEntry {
    let capabilities = Capabilities { checkpoints: true, two_phase: true, ..Capabilities::default() };
    StrategyEntry { origin: "company.strategies:Bucket".into(), ..entry(name, capabilities, script) }
}

fn entry(name: &str, capabilities: Capabilities, script: &Arc<Script>) -> StrategyEntry {
    let script = script.clone();
    StrategyEntry {
        name: name.to_owned(),
        summary: "scripted".into(),
        origin: "built-in".into(),
        capabilities,
        options: StrategyOptions::new(),
        factory: Arc::new(move |name, _, context| {
            script.pass("open", name)?;
            Ok(Arc::new(Fake { name: name.to_owned(), home: context.home.clone(), script: script.clone() }))
        }),
    }
}

struct Fake {
    name: String,
    home: PathBuf,
    script: Arc<Script>,
}

/// The places of one workspace.
struct Places {
    of: String,
    resource: PathBuf,
    dir: PathBuf,
}

impl Places {
    fn new(sandbox: &SandboxRef) -> Self {
        let resource = PathBuf::from(sandbox.text("original").unwrap());
        let of = resource.file_name().unwrap().to_str().unwrap().to_owned();
        Self { of, resource, dir: PathBuf::from(sandbox.text("dir").unwrap()) }
    }

    fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn base(&self) -> PathBuf {
        self.dir.join("base")
    }

    fn stage(&self) -> PathBuf {
        self.dir.join("stage")
    }

    fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// What takes the operation back: the resource as it was before.
    fn undo(&self, operation: &OpId) -> PathBuf {
        self.dir.join(format!("undo-{operation}"))
    }
}

impl Fake {
    /// Where the resource itself is; what is at a URL is played by a directory.
    fn original(&self, resource: &Resource) -> PathBuf {
        match resource.path() {
            Some(path) => path.to_path_buf(),
            None => self.home.join("remote").join(resource.location.replace("://", "/")),
        }
    }

    /// The ref of the workspace in `dir`.
    fn reference(&self, plan: &PlanId, resource: &Resource, name: &str, dir: &Path) -> SandboxRef {
        let made = SandboxRef::new(plan.clone(), resource.id.clone(), name);
        let made = made.with_path("dir", dir).with_path("original", &self.original(resource));
        if resource.path().is_none() { made } else { made.with_path("path", &dir.join("tree")) }
    }

    fn pass(&self, point: &str, places: &Places) -> Result<()> {
        self.script.pass(point, &places.of)
    }

    fn entries(&self, places: &Places) -> DiffView {
        let (base, tree) = (read_tree(&places.base()), read_tree(&places.tree()));
        let mut entries = Vec::new();
        for (path, content) in &tree {
            let kind = match base.get(path) {
                None => DiffKind::Created,
                Some(old) if old != content => DiffKind::Modified,
                Some(_) => continue,
            };
            let mut entry = DiffEntry::new(path.clone(), kind);
            entry.new = Some(node(content));
            entries.push(entry);
        }
        let gone = base.keys().filter(|path| !tree.contains_key(*path));
        entries.extend(gone.map(|path| DiffEntry::new(path.clone(), DiffKind::Deleted)));
        DiffView::new(entries)
    }

    fn check(&self, places: &Places, view: &DiffView, request: &CommitRequest) -> Result<()> {
        if let Some(expected) = request.digest.as_ref().filter(|digest| **digest != view.digest) {
            return Err(Error::DigestMismatch { expected: expected.clone(), found: view.digest.clone() });
        }
        let (base, now) = (read_tree(&places.base()), read_tree(&places.resource));
        let moved = view.entries.iter().filter(|entry| base.get(&entry.path) != now.get(&entry.path));
        let conflict = |entry: &DiffEntry| Conflict::new(entry.path.clone(), "moved");
        let conflicts: Vec<_> = moved.map(conflict).collect();
        if conflicts.is_empty() { Ok(()) } else { Err(Error::Conflict { conflicts }) }
    }

    fn prepare(
        &self,
        sandbox: &SandboxRef,
        places: &Places,
        request: &CommitRequest,
    ) -> Result<CommitResult> {
        let (mut view, mut from) = (self.entries(places).select(&request.paths), places.tree());
        match sandbox.undo() {
            Some(undone) => {
                from = places.undo(&undone);
                let record =
                    fs::read(from.join(".result")).map_err(|_| Error::refused("it is no longer kept"))?;
                let result: CommitResult = serde_json::from_slice(&record).unwrap();
                view = DiffView::new(result.entries);
                let (base, now) = (read_tree(&places.base()), read_tree(&places.resource));
                if let Some(moved) = view.entries.iter().find(|e| base.get(&e.path) != now.get(&e.path)) {
                    return Err(Error::Conflict {
                        conflicts: vec![Conflict::new(moved.path.clone(), "moved")],
                    });
                }
            }
            None => self.check(places, &view, request)?,
        }
        let result = CommitResult { digest: view.digest, entries: view.entries, ..CommitResult::default() };
        fs::write(places.stage(), serde_json::to_vec(&(&result, from)).unwrap()).unwrap();
        Ok(result)
    }

    fn apply(&self, sandbox: &SandboxRef, places: &Places) -> Result<CommitResult> {
        let staged: (CommitResult, PathBuf) =
            serde_json::from_slice(&fs::read(places.journal()).unwrap()).unwrap();
        let (mut result, from) = staged;
        self.pass("commit.apply", places)?;
        let kept = sandbox.operation().map(|operation| places.undo(&operation));
        if let Some(kept) = kept.as_ref().filter(|kept| !kept.exists()) {
            copy_tree(&places.resource, kept);
            result.undo_bytes = Some(7);
            fs::write(kept.join(".result"), serde_json::to_vec(&result).unwrap()).unwrap();
        }
        for entry in &result.entries {
            for root in [&places.resource, &places.base()] {
                let (from, to) = (from.join(entry.path.as_path()), root.join(entry.path.as_path()));
                if fs::copy(from, &to).is_err() {
                    fs::remove_file(to).unwrap();
                }
            }
        }
        fs::remove_file(places.journal()).unwrap();
        self.pass("commit.applied", places)?;
        Ok(result)
    }

    /// Whether it is that one of those that end.
    fn is(&self, name: &str) -> bool {
        self.name == name && self.script.some_end.load(Ordering::Relaxed)
    }

    /// Whether the operation was committed, by what has to know for good.
    fn is_committed(&self, sandbox: &SandboxRef, places: &Places) -> bool {
        self.is(DECIDING) && sandbox.operation().is_some_and(|op| places.undo(&op).exists())
    }

    /// What was prepared and then aborted is gone.
    fn check_there(&self, places: &Places) -> Result<()> {
        match places.dir.join("ended").exists() {
            true => Err(Error::usage("it was aborted, and its work is lost")),
            false => Ok(()),
        }
    }

    /// A published journal rolls forward; a stage that was prepared becomes one; a stage of a whole commit is discarded.
    fn finish(&self, sandbox: &SandboxRef, places: &Places) -> Result<CommitResult> {
        if places.dir.join("prepared").exists() {
            fs::rename(places.stage(), places.journal()).unwrap();
            fs::remove_file(places.dir.join("prepared")).unwrap();
        }
        if places.journal().exists() {
            return self.apply(sandbox, places);
        }
        let _ = fs::remove_file(places.stage());
        let done = sandbox.operation().and_then(|op| fs::read(places.undo(&op).join(".result")).ok());
        Ok(done.map(|json| serde_json::from_slice(&json).unwrap()).unwrap_or_default())
    }
}

impl SandboxStrategy for Fake {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let fall_back_to = self.script.fall_back_to.lock().unwrap().clone();
        let scratch =
            self.script.scratch.lock().unwrap().clone().unwrap_or_else(|| self.home.join("scratch"));
        let of = resource.location.rsplit('/').next().unwrap();
        self.script.pass("create", of)?;
        if let Some(parked) = resource.properties.get("parked").and_then(|v| v.as_str()) {
            let (dir, mut made) = (PathBuf::from(parked), BTreeMap::new());
            made.extend(read_tree(&self.original(resource)));
            made.extend(read_tree(&dir.join("tree")));
            made.iter().for_each(|(path, content)| {
                fs::write(dir.join("tree").join(path.as_path()), content).unwrap()
            });
            return Ok(self.reference(plan_id, resource, &self.name, &dir));
        }
        let dir = scratch.join(format!("ws_{}", ulid::Ulid::generate().to_string().to_lowercase()));
        fs::create_dir_all(&dir).unwrap();
        let lock = File::open(&dir).unwrap();
        lock.lock().unwrap();
        self.script.pass("create.ownerless", of)?;
        let owner = json!({"plan_id": plan_id, "resource_id": resource.id, "home": self.home});
        fs::write(dir.join("owner.json"), owner.to_string()).unwrap();
        self.script.pass("create.half", of)?;
        for name in ["base", "tree"] {
            copy_tree(&self.original(resource), &dir.join(name));
        }
        let name = fall_back_to.as_deref().unwrap_or(&self.name);
        let made = self.reference(plan_id, resource, name, &dir);
        Ok(if fall_back_to.is_some() { made.with("fallback_reason", "no reflinks here") } else { made })
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        let places = Places::new(sandbox);
        self.pass("read", &places)?;
        let at = places.tree().join(path.as_path());
        let content = fs::read(&at).map_err(|error| Error::io("read", at, error))?;
        match sandbox.range()? {
            Some(range) if !self.script.ignores_ranges.load(Ordering::Relaxed) => {
                assert!(self.name != "none", "it declares no ranges");
                let rest = content.into_iter().skip(range.offset as usize);
                Ok(rest.take(range.length as usize).collect())
            }
            _ => Ok(content),
        }
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        let places = Places::new(sandbox);
        self.pass("write", &places)?;
        let at = places.tree().join(path.as_path());
        let old = fs::read(&at).ok();
        fs::write(&at, content).unwrap();
        Ok(Change {
            path: path.clone(),
            kind: if old.is_some() { DiffKind::Modified } else { DiffKind::Created },
            old_size: old.map(|old| old.len() as u64),
            new_size: content.len() as u64,
        })
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        let places = Places::new(sandbox);
        self.pass("diff", &places)?;
        self.check_there(&places)?;
        let at_decision = (self.is(DECIDING)).then(|| NO_PREPARING.to_owned());
        Ok(DiffView { at_decision, ..self.entries(&places) })
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let places = Places::new(sandbox);
        match request.phase {
            Phase::Whole => {
                self.pass("commit.whole", &places)?;
                self.check_there(&places)?;
                let result = self.prepare(sandbox, &places, request)?;
                fs::rename(places.stage(), places.journal()).unwrap();
                self.apply(sandbox, &places).map(|_| result)
            }
            Phase::Prepare => {
                self.pass("commit.prepare", &places)?;
                self.check_there(&places)?;
                let is_last = self.is(ENDING) || self.is(DECIDING);
                assert_eq!(
                    is_last,
                    request.digest.is_some(),
                    "what comes last is held to what was looked at"
                );
                if self.is(DECIDING) {
                    let result = self.prepare(sandbox, &places, request)?;
                    fs::rename(places.stage(), places.dir.join("held")).unwrap();
                    return Ok(CommitResult { at_decision: Some(NO_PREPARING.to_owned()), ..result });
                }
                let result = self.prepare(sandbox, &places, request)?;
                fs::write(places.dir.join("prepared"), "").unwrap();
                self.pass("commit.prepared", &places)?;
                Ok(result)
            }
            Phase::FinishPossible => {
                // What cannot be applied is left out.
                self.script.faults.lock().unwrap().retain(|(point, _)| !point.starts_with("commit.apply"));
                self.finish(sandbox, &places)
            }
            Phase::Finish => {
                self.pass("commit.finish", &places)?;
                if places.dir.join("held").exists() {
                    fs::rename(places.dir.join("held"), places.journal()).unwrap();
                }
                let result = self.finish(sandbox, &places)?;
                self.pass("commit.finished", &places)?;
                Ok(result)
            }
            Phase::Abort => {
                self.pass("commit.abort", &places)?;
                if places.journal().exists() || self.is_committed(sandbox, &places) {
                    return Err(Error::already_decided("of the fake"));
                }
                let was_prepared =
                    [places.dir.join("prepared"), places.dir.join("held")].map(fs::remove_file);
                if was_prepared.iter().any(Result::is_ok) && self.is(ENDING) {
                    fs::write(places.dir.join("ended"), "").unwrap();
                }
                let _ = fs::remove_file(places.stage());
                Ok(CommitResult::default())
            }
        }
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let places = Places::new(sandbox);
        self.pass("rollback", &places)?;
        let _ = fs::remove_file(places.dir.join("ended"));
        let scope = sandbox.scope()?;
        let undone: Vec<_> = self.entries(&places).select(&scope).entries;
        for entry in &undone {
            let (from, to) =
                (places.base().join(entry.path.as_path()), places.tree().join(entry.path.as_path()));
            if fs::copy(from, &to).is_err() {
                fs::remove_file(to).unwrap();
            }
        }
        Ok(RollbackResult {
            success: true,
            checkpoint_id: None,
            restored_files: undone.len() as u64,
            message: String::new(),
        })
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        let places = Places::new(sandbox);
        self.pass("checkpoint", &places)?;
        let at = places.dir.join("checkpoints").join(checkpoint_id.as_str());
        let _ = fs::remove_dir_all(&at);
        copy_tree(&places.tree(), &at);
        Ok(Some(at))
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        let places = Places::new(sandbox);
        self.pass("restore", &places)?;
        fs::remove_dir_all(places.tree()).unwrap();
        copy_tree(&places.dir.join("checkpoints").join(checkpoint_id.as_str()), &places.tree());
        let checkpoint_id = Some(checkpoint_id.clone());
        Ok(RollbackResult { success: true, checkpoint_id, restored_files: 1, message: String::new() })
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        let places = Places::new(sandbox);
        match sandbox.part()? {
            Some(Part::Undo(operation)) => {
                self.pass("drop", &places)?;
                drop(fs::remove_dir_all(places.undo(&operation)));
            }
            Some(Part::Checkpoint(id)) => {
                self.pass("drop", &places)?;
                drop(fs::remove_dir_all(places.dir.join("checkpoints").join(id.as_str())));
            }
            Some(Part::Unchanged) => {
                self.pass("park", &places)?;
                let (base, tree) = (read_tree(&places.base()), read_tree(&places.tree()));
                let same = tree.iter().filter(|(path, content)| base.get(*path) == Some(content));
                same.for_each(|(path, _)| fs::remove_file(places.tree().join(path.as_path())).unwrap());
            }
            None => {
                self.pass("cleanup", &places)?;
                let _ = fs::remove_dir_all(places.dir);
            }
        }
        Ok(())
    }
}

fn node(content: &[u8]) -> Node {
    Node {
        node_type: NodeType::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: content.len() as u64,
        digest: Some(format!("blake3:{}", blake3::hash(content).to_hex())),
        target: None,
        xattrs: None,
    }
}

/// Files only, one level deep or more; a single file is the tree `a`.
fn read_tree(root: &Path) -> BTreeMap<RelPath, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(root).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = RelPath::parse(entry.file_name()).unwrap();
        if entry.path().is_file() {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

fn copy_tree(from: &Path, to: &Path) {
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for (path, content) in read_tree(from) {
        fs::write(to.join(path.as_path()), content).unwrap();
    }
}
