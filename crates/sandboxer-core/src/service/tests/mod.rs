//! The use cases over a scripted strategy, with every step failing or dying in turn.
#![allow(clippy::unwrap_used)]

mod abandon;
mod abort;
mod access;
mod adopt;
mod budget;
mod checkpoint;
mod commit;
mod content;
mod create;
mod elsewhere;
mod environment;
mod fake;
mod handler;
mod lifecycle;
mod orphans;
mod park;
mod plan;
mod prepared_last;
mod quotas;
mod race;
mod reconcile;
mod recover;
mod runtime;
mod select;
mod undo;
mod urls;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::config::Settings;
use crate::contract::{CancelFlag, LocalPermissions, PermissionService, Progress};
use crate::environment::Environments;
use crate::model::{AccessResult, PlanId, RelPath};
use crate::policy::CommitRules;
use crate::types::ResourceTypes;
use crate::{Error, Result};
use fake::{Fault, Script};

/// A state directory, resources, and a script for the strategies. Managers come and go over it, as processes do.
struct World {
    temp: TempDir,
    removals: Arc<std::sync::Mutex<Vec<String>>>,
    script: Arc<Script>,
    cancel: CancelFlag,
    under_way: Arc<UnderWay>,
}

/// The step that somebody who watches is shown.
#[derive(Default)]
struct UnderWay(std::sync::Mutex<Option<String>>);

impl Progress for UnderWay {
    fn begin(&self, step: &str, _: Option<u64>) {
        *self.0.lock().unwrap() = Some(step.to_owned());
    }

    fn end(&self) {
        *self.0.lock().unwrap() = None;
    }
}

impl World {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (removals, script, under_way) = Default::default();
        Self { temp, removals, script, cancel: CancelFlag::default(), under_way }
    }

    fn home(&self) -> PathBuf {
        self.temp.path().join("home")
    }

    /// What was removed for want of room since this was last asked.
    fn removals(&self) -> Vec<String> {
        std::mem::take(&mut self.removals.lock().unwrap())
    }

    fn parts(&self) -> ManagerParts {
        let removals = self.removals.clone();
        ManagerParts {
            program: None,
            on_removal: Arc::new(move |told| removals.lock().unwrap().push(told.to_owned())),
            home: self.home(),
            registry: fake::registry(&self.script),
            types: ResourceTypes::embedded().unwrap(),
            settings: Settings { lock_wait: Duration::from_millis(50), ..Settings::default() },
            permissions: Arc::new(LocalPermissions),
            progress: self.under_way.clone(),
            cancel: self.cancel.clone(),
            runtime: Arc::new(crate::contract::NothingRuns),
            environments: Environments::none(),
            remove_tree,
        }
    }

    /// A manager of its own, as another process would have.
    fn manager(&self) -> SandboxManager {
        SandboxManager::open(self.parts()).unwrap()
    }

    /// A resource: a directory `name` with one file `a` that holds `old`.
    fn resource(&self, name: &str) -> PathBuf {
        let path = self.temp.path().join("res").join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("a"), "old").unwrap();
        path.canonicalize().unwrap()
    }

    /// A sandbox over one resource `proj`.
    fn one(&self) -> (SandboxManager, Target) {
        let resource = self.resource("proj");
        self.over(&[&resource])
    }

    /// A sandbox over two resources `x` and `y`.
    fn two(&self) -> (SandboxManager, Target) {
        let (x, y) = (self.resource("x"), self.resource("y"));
        self.over(&[&x, &y])
    }

    fn over(&self, resources: &[&Path]) -> (SandboxManager, Target) {
        let manager = self.manager();
        let sandbox = manager.get_or_create_sandbox(&request(resources)).unwrap().sandbox;
        let target = manager.find(sandbox.id.as_str()).unwrap();
        (manager, target)
    }

    fn content(&self, resource: &str) -> String {
        fs::read_to_string(self.temp.path().join("res").join(resource).join("a")).unwrap()
    }

    /// Everything in the scratch and sandbox directories.
    fn leftovers(&self) -> Vec<String> {
        let names = |directory: &str| {
            let entries = fs::read_dir(self.home().join(directory)).into_iter().flatten();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        [names("scratch"), names("sandboxes")].concat()
    }
}

fn remove_tree(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).map_err(|error| Error::io("remove", path, error))
}

fn request(resources: &[&Path]) -> CreateRequest {
    let input = |path: &&Path| Input {
        name: None,
        location: path.to_str().unwrap().to_owned(),
        properties: BTreeMap::new(),
    };
    CreateRequest {
        inputs: resources.iter().map(input).collect(),
        strategy: None,
        no_fallback: false,
        plan: None,
        name: None,
        ttl: None,
        consumer: Consumer { actor_type: "adm".into(), project: "test".into() },
        disposable: false,
        environment: None,
    }
}

fn with_plan(plan: &str, resources: &[&Path]) -> CreateRequest {
    CreateRequest { plan: Some(PlanId::from_string(plan)), ..request(resources) }
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// Runs something that is scripted to die on the way, like a process under `kill -9`.
fn dies<T>(work: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err(), "it was meant to die");
}

/// Changes the file `a` in every workspace.
fn change_all(manager: &SandboxManager, target: &Target) {
    for workspace in &target.workspaces {
        let one = Target { sandbox: target.sandbox.clone(), workspaces: vec![workspace.clone()] };
        manager.write(&one, &path("a"), b"new").unwrap();
    }
}

/// The newest operation of that kind: its state and summary.
fn last(manager: &SandboxManager, kind: &str) -> (String, String) {
    let log = manager.log(None, 1000).unwrap();
    let operation = log.into_iter().find(|operation| operation.kind == kind).unwrap();
    (operation.state, operation.summary)
}

/// Permits everything but one action.
struct AllBut(&'static str);

impl PermissionService for AllBut {
    fn decide(&self, principal: &str, action: &str, scope: &str) -> AccessResult {
        let permitted = action != self.0;
        let reason = format!("{principal} may not {action}");
        AccessResult { permitted, reason, ..LocalPermissions.decide(principal, action, scope) }
    }
}
