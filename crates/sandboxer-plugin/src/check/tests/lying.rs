//! An honest strategy with one lie.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sandboxer_core::contract::{CancelFlag, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffEntry, DiffKind, DiffView, OnConflict, Phase,
    PlanId, RelPath, Resource, RollbackResult, SandboxRef,
};
use sandboxer_core::{Error, Result};

/// What a strategy may get wrong.
#[derive(Clone, Debug)]
pub(super) enum Lie {
    None,
    ReadOtherBytes,
    MissingIsEmpty,
    RangeIgnored,
    OffsetIgnored,
    WriteNothing,
    NewFileNothing,
    /// The first write alone: what follows from it is not the point.
    WriteThrough,
    LinkFollowed,
    DiffEmpty,
    DiffInvents,
    DigestConstant,
    DigestRandom,
    CheckpointNothing,
    RestoreNothing,
    RollbackNothing,
    RollbackAll,
    CommitNothing,
    CommitKeepsPending,
    CommitAll,
    AnyDigest,
    PrepareCommits,
    UndoNothing,
    PatternsIgnored,
    RenameIsTwo,
    HunksAll,
    MergeTakesOurs,
    PartIsAll,
    ParkedIsNew,
    OverConflict,
    ConflictHalfWay,
    NoFlags,
    KeepsSetuid,
    CleanupNothing,
    CleanupOnce,
    DiesAlways,
    Unavailable,
    InterruptedInDiff(CancelFlag),
}

pub(super) struct Lying {
    inner: Arc<dyn SandboxStrategy>,
    lie: Lie,
    resource: PathBuf,
    calls: AtomicUsize,
    committed: Mutex<Vec<DiffEntry>>,
    cleaned: Mutex<Vec<PlanId>>,
}

impl Lying {
    pub fn new(inner: Arc<dyn SandboxStrategy>, lie: Lie, resource: &Path) -> Self {
        let resource = resource.to_path_buf();
        Self {
            inner,
            lie,
            resource,
            calls: AtomicUsize::new(0),
            committed: Mutex::default(),
            cleaned: Mutex::default(),
        }
    }

    fn count(&self) -> usize {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Where any program would end up at that path.
    fn followed(&self, sandbox: &SandboxRef, path: &RelPath) -> Option<PathBuf> {
        Some(sandbox.sandbox_path()?.join(path.as_path()))
    }
}

fn died() -> Error {
    Error::Plugin { plugin: "lying".to_owned(), reason: "it died".to_owned(), log: None }
}

/// A rename as what is there and what is not there any more.
fn in_two(entry: DiffEntry) -> Vec<DiffEntry> {
    match entry.from.clone() {
        Some(from) => {
            vec![
                DiffEntry::new(from, DiffKind::Deleted),
                DiffEntry { kind: DiffKind::Created, from: None, ..entry },
            ]
        }
        None => vec![entry],
    }
}

fn nothing_happened(checkpoint_id: Option<CheckpointId>) -> RollbackResult {
    RollbackResult { success: true, checkpoint_id, restored_files: 1, message: "done".to_owned() }
}

impl SandboxStrategy for Lying {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let (strategy, path) = ("lying".to_owned(), self.resource.clone());
        match self.lie {
            Lie::DiesAlways => Err(died()),
            Lie::Unavailable => Err(Error::Unavailable { strategy, path, reason: "not here".to_owned() }),
            Lie::ParkedIsNew | Lie::PatternsIgnored => {
                let ignored = if matches!(self.lie, Lie::ParkedIsNew) { "parked" } else { "exclude" };
                let mut resource = resource.clone();
                resource.properties.remove(ignored);
                self.inner.create(plan_id, &resource)
            }
            _ => self.inner.create(plan_id, resource),
        }
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        let mut plain = sandbox.clone();
        plain.metadata.remove("range");
        match self.lie {
            Lie::ReadOtherBytes => self.inner.read(sandbox, path).map(|content| content.to_ascii_uppercase()),
            Lie::MissingIsEmpty if path.name() == b"missing.txt" => Ok(Vec::new()),
            Lie::OffsetIgnored => {
                let length = sandbox.range()?.map_or(usize::MAX, |range| range.length as usize);
                self.inner.read(&plain, path).map(|content| content.into_iter().take(length).collect())
            }
            Lie::RangeIgnored => self.inner.read(&plain, path),
            Lie::LinkFollowed => match self.followed(sandbox, path).and_then(|file| fs::read(file).ok()) {
                Some(content) if sandbox.range()?.is_none() => Ok(content),
                _ => self.inner.read(sandbox, path),
            },
            _ => self.inner.read(sandbox, path),
        }
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        let change = || Change {
            path: path.clone(),
            kind: DiffKind::Modified,
            old_size: None,
            new_size: content.len() as u64,
        };
        match self.lie {
            Lie::WriteNothing => Ok(change()),
            // Only until it was found out: a commit of it would fail as well.
            Lie::NewFileNothing if path.name().starts_with(b"new") && self.count() == 0 => Ok(change()),
            Lie::WriteThrough if self.count() == 0 => {
                fs::write(self.resource.join(path.as_path()), content)
                    .map_err(|e| Error::io("write", &self.resource, e))?;
                self.inner.write(sandbox, path, content)
            }
            _ => self.inner.write(sandbox, path, content),
        }
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        let mut view = self.inner.diff(sandbox)?;
        match &self.lie {
            Lie::DiffEmpty => view = DiffView::new(Vec::new()),
            Lie::DiffInvents => {
                view.entries.push(DiffEntry::new(RelPath::parse("invented.txt")?, DiffKind::Created));
                view = DiffView::new(view.entries);
            }
            Lie::RenameIsTwo => view = DiffView::new(view.entries.into_iter().flat_map(in_two).collect()),
            Lie::NoFlags => view.entries.iter_mut().for_each(|entry| entry.flags.clear()),
            Lie::DigestConstant => view.digest = "blake3:always".to_owned(),
            Lie::DigestRandom => view.digest = format!("blake3:{}", self.count()),
            Lie::CommitKeepsPending if view.entries.is_empty() => {
                view = DiffView::new(self.committed.lock().unwrap().clone());
            }
            Lie::InterruptedInDiff(flag) => {
                flag.cancel();
                return Err(Error::Cancelled);
            }
            _ => {}
        }
        Ok(view)
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let asked = |change: &dyn Fn(&mut CommitRequest)| {
            let mut other = request.clone();
            change(&mut other);
            self.inner.commit(sandbox, &other)
        };
        match self.lie {
            Lie::CommitNothing => Ok(CommitResult::default()),
            Lie::CommitAll => asked(&|other| other.paths.clear()),
            Lie::AnyDigest => asked(&|other| other.digest = None),
            Lie::PrepareCommits if request.phase == Phase::Prepare => {
                asked(&|other| other.phase = Phase::Whole)
            }
            Lie::UndoNothing if sandbox.undo().is_some() => Ok(CommitResult::default()),
            Lie::HunksAll => asked(&|other| other.hunks.clear()),
            Lie::MergeTakesOurs if request.on_conflict == OnConflict::Merge => {
                asked(&|other| other.on_conflict = OnConflict::Theirs)
            }
            Lie::OverConflict if request.on_conflict == OnConflict::default() => {
                asked(&|other| other.on_conflict = OnConflict::Theirs)
            }
            Lie::ConflictHalfWay => self.inner.commit(sandbox, request).inspect_err(|error| {
                if matches!(error, Error::Conflict { .. }) {
                    let _ = asked(&|other| other.on_conflict = OnConflict::Theirs);
                }
            }),
            Lie::KeepsSetuid => {
                let result = self.inner.commit(sandbox, request)?;
                let powerful = self.resource.join("sandboxer-check-1/powerful");
                let _ = fs::set_permissions(powerful, fs::Permissions::from_mode(0o4755));
                Ok(result)
            }
            Lie::CommitKeepsPending => {
                let result = self.inner.commit(sandbox, request)?;
                // Once: what was prepared is to be looked at without it.
                let mut committed = self.committed.lock().unwrap();
                *committed = if self.count() == 0 { result.entries.clone() } else { Vec::new() };
                Ok(result)
            }
            _ => self.inner.commit(sandbox, request),
        }
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let mut whole = sandbox.clone();
        whole.metadata.remove("scope");
        match self.lie {
            // Only the first: what is limited to a scope is a step of its own.
            Lie::RollbackNothing if self.count() == 0 => Ok(nothing_happened(None)),
            Lie::RollbackAll => self.inner.rollback(&whole),
            _ => self.inner.rollback(sandbox),
        }
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        match self.lie {
            Lie::CheckpointNothing => Ok(None),
            _ => self.inner.checkpoint(sandbox, checkpoint_id),
        }
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        match self.lie {
            Lie::RestoreNothing => Ok(nothing_happened(Some(checkpoint_id.clone()))),
            _ => self.inner.restore_checkpoint(sandbox, checkpoint_id),
        }
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        let mut whole = sandbox.clone();
        if whole.metadata.remove("part").is_some() {
            let is_all = matches!(self.lie, Lie::PartIsAll);
            return self.inner.cleanup(if is_all { &whole } else { sandbox });
        }
        let mut cleaned = self.cleaned.lock().unwrap();
        let again = cleaned.contains(&sandbox.plan_id);
        cleaned.push(sandbox.plan_id.clone());
        match self.lie {
            Lie::CleanupNothing => Ok(()),
            Lie::CleanupOnce if again => Err(died()),
            _ => self.inner.cleanup(sandbox),
        }
    }
}
