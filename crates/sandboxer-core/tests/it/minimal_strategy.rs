//! The least that a strategy can be: the nine methods over values in memory, no files, no phases, no selection. The
//! manager works with it through the public API alone, and says what it cannot do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sandboxer_core::config::Settings;
use sandboxer_core::contract::{CancelFlag, Capabilities, LocalPermissions, NoProgress, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffEntry, DiffKind, DiffView, PlanId, RelPath,
    Resource, RollbackResult, SandboxRef,
};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::registry::{StrategyEntry, StrategyOptions, StrategyRegistry};
use sandboxer_core::service::{Consumer, CreateRequest, Input, ManagerParts, SandboxManager, Uncommitted};
use sandboxer_core::types::ResourceTypes;
use sandboxer_core::{Error, Result};

type Values = BTreeMap<RelPath, Vec<u8>>;

/// What was written and not committed, and what was.
#[derive(Default)]
struct Memory {
    pending: Mutex<Values>,
    committed: Mutex<Values>,
}

impl Memory {
    fn unsupported<T>(&self, what: &'static str) -> Result<T> {
        Err(Error::Unsupported { strategy: "memory".into(), what, reason: "it is too simple".into() })
    }
}

impl SandboxStrategy for Memory {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        Ok(SandboxRef::new(plan_id.clone(), resource.id.clone(), "memory"))
    }

    fn read(&self, _: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        let found = self.pending.lock().unwrap().get(path).cloned();
        found.ok_or_else(|| Error::not_found("file", path.to_string()))
    }

    fn write(&self, _: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.pending.lock().unwrap().insert(path.clone(), content.to_vec());
        let new_size = content.len() as u64;
        Ok(Change { path: path.clone(), kind: DiffKind::Created, old_size: None, new_size })
    }

    fn diff(&self, _: &SandboxRef) -> Result<DiffView> {
        let pending = self.pending.lock().unwrap();
        Ok(DiffView::new(
            pending.keys().map(|path| DiffEntry::new(path.clone(), DiffKind::Created)).collect(),
        ))
    }

    fn commit(&self, sandbox: &SandboxRef, _: &CommitRequest) -> Result<CommitResult> {
        let view = self.diff(sandbox)?;
        self.committed.lock().unwrap().append(&mut self.pending.lock().unwrap());
        Ok(CommitResult { digest: view.digest, entries: view.entries, ..CommitResult::default() })
    }

    fn rollback(&self, _: &SandboxRef) -> Result<RollbackResult> {
        let gone = std::mem::take(&mut *self.pending.lock().unwrap()).len() as u64;
        Ok(RollbackResult {
            success: true,
            checkpoint_id: None,
            restored_files: gone,
            message: String::new(),
        })
    }

    fn checkpoint(&self, _: &SandboxRef, _: &CheckpointId) -> Result<Option<PathBuf>> {
        self.unsupported("take checkpoints")
    }

    fn restore_checkpoint(&self, _: &SandboxRef, _: &CheckpointId) -> Result<RollbackResult> {
        self.unsupported("restore checkpoints")
    }

    fn cleanup(&self, _: &SandboxRef) -> Result<()> {
        self.pending.lock().unwrap().clear();
        Ok(())
    }
}

fn open(home: &Path, memory: &Arc<Memory>) -> SandboxManager {
    let shared = memory.clone();
    let mut registry = StrategyRegistry::new();
    registry
        .register(StrategyEntry {
            name: "memory".into(),
            summary: "values in memory".into(),
            origin: "test:Memory".into(),
            capabilities: Capabilities::default(),
            options: StrategyOptions::new(),
            factory: Arc::new(move |_, _, _| Ok(shared.clone())),
        })
        .unwrap();
    SandboxManager::open(ManagerParts {
        home: home.to_path_buf(),
        registry,
        types: ResourceTypes::embedded().unwrap(),
        settings: Settings::default(),
        permissions: Arc::new(LocalPermissions),
        progress: Arc::new(NoProgress),
        cancel: CancelFlag::default(),
        on_removal: Arc::new(|_| {}),
        program: None,
        runtime: Arc::new(sandboxer_core::contract::NothingRuns),
        environments: sandboxer_core::environment::Environments::none(),
        remove_tree: |path| std::fs::remove_dir_all(path).map_err(|error| Error::io("remove", path, error)),
    })
    .unwrap()
}

fn request(resource: &Path) -> CreateRequest {
    CreateRequest {
        inputs: vec![Input {
            name: None,
            location: resource.to_str().unwrap().to_owned(),
            properties: BTreeMap::new(),
        }],
        strategy: Some("memory".into()),
        no_fallback: false,
        plan: None,
        name: Some("mini".into()),
        ttl: None,
        consumer: Consumer { actor_type: "atm".into(), project: "test".into() },
        disposable: false,
        environment: None,
    }
}

#[test]
fn nine_methods_are_enough() {
    let temp = tempfile::tempdir().unwrap();
    let memory = Arc::<Memory>::default();
    let manager = open(&temp.path().join("home"), &memory);
    let sandbox = manager.get_or_create_sandbox(&request(temp.path())).unwrap().sandbox;
    assert_eq!(sandbox.workspaces[0].reason, "--strategy");
    let target = manager.find("mini").unwrap();
    let key = RelPath::parse("key").unwrap();
    manager.write(&target, &key, b"value").unwrap();
    assert_eq!(manager.read(&target, &key).unwrap(), b"value");
    let digest = manager.diff(&target, &[]).unwrap().digest;
    let committed = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(committed.digest, digest);
    assert_eq!(memory.committed.lock().unwrap()[&key], b"value");
    manager.write(&target, &key, b"other").unwrap();
    assert_eq!(manager.rollback(&target, &[]).unwrap()[0].1.restored_files, 1);
    manager.write(&target, &key, b"other").unwrap();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert!(memory.pending.lock().unwrap().is_empty(), "a ref without metadata is cleaned up too");
}

#[test]
fn what_it_cannot_do_is_said_by_its_capabilities_before_it_is_called() {
    let temp = tempfile::tempdir().unwrap();
    let manager = open(&temp.path().join("home"), &Arc::default());
    manager.get_or_create_sandbox(&request(temp.path())).unwrap();
    let target = manager.find("mini").unwrap();
    let some = vec![RelPath::parse("key").unwrap()];
    let attempts = [
        manager.sandbox_path(&target).map(drop),
        manager.checkpoint(&target, None).map(drop),
        manager.rollback(&target, &some).map(drop),
        manager
            .commit(
                &target,
                &CommitRequest { paths: some, ..CommitRequest::default() },
                &CommitRules::default(),
            )
            .map(drop),
    ];
    for attempt in attempts {
        assert!(
            matches!(&attempt, Err(Error::Unsupported { strategy, .. }) if strategy == "memory"),
            "{attempt:?}"
        );
    }
}
