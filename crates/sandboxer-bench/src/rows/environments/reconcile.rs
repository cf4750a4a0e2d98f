//! Reconciling at the start of a program, over sandboxes whose environments are all as they should be, against reading their rows. What asks
//! an engine is left out: the extension is one in this process, which has its list at hand and hands out a copy of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandboxer::SandboxManager;
use sandboxer::wiring::{registry, resource_types};
use sandboxer_core::config::Settings;
use sandboxer_core::contract::{CancelFlag, EnvironmentExtension, LocalPermissions, NoProgress, NothingRuns};
use sandboxer_core::environment::{
    Catalogue, Environments, ExtensionContext, ExtensionRegistry, Found, Handle, Known, Provision, Ready,
};
use sandboxer_core::model::{PlanId, SandboxId};
use sandboxer_core::service::{ManagerParts, Sandbox};
use sandboxer_core::store::Store;
use sandboxer_strategies::overlay;
use serde_json::json;

use super::Scale;
use super::scene::{project, request, timed};
use crate::failure::{During, Failure, Result};
use crate::measure::interleave;
use crate::place::Place;
use crate::report::Row;
use crate::rows::{Bench, count};

const GOAL: f64 = 3.0;
const GRACE: Duration = Duration::from_secs(60);
const EXTENSION: &str = "ext.container";
/// A row, its event and their indexes take some kilobytes.
const ROOM_OF_ONE: u64 = 16 << 10;

/// The comparison. Each side opens the state first, as a program that starts does.
pub fn row(bench: &Bench, scale: &Scale) -> Result<Row> {
    let name = format!("reconcile of {} sandboxes vs reading their rows", count(scale.known));
    bench.row(&name, Some(GOAL), || {
        let place = Place::tmpfs((64 << 20) + scale.known as u64 * ROOM_OF_ONE)?;
        let home = place.root().join("state");
        let found = Arc::new(fill(&place, &home, scale.known)?);
        let ours = || timed(|| reconciled(&manager(&home, found.clone())?, scale.known));
        let theirs = || timed(|| listed(&manager(&home, found.clone())?, scale.known));
        let sides = interleave(bench.rounds * 2, &bench.interrupt, ours, theirs)?;
        Ok(Row::timed(&name, Some(GOAL), &sides).noting("all are sound; the extension is in this process"))
    })
}

fn reconciled(manager: &SandboxManager, known: usize) -> Result<()> {
    let report = manager.reconcile(GRACE, false).during("reconcile", manager.home())?;
    let trouble = report.lost.len() + report.removed.len() + report.young.len() + report.failed.len();
    expect(report.sound, known).and_then(|()| expect(trouble, 0))
}

fn listed(manager: &SandboxManager, known: usize) -> Result<()> {
    expect(manager.list(false).during("list", manager.home())?.len(), known)
}

fn expect(found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Failure::new(format!("{found} instead of {expected}"))) }
}

/// Makes one sandbox and as many copies of its row as there are to be; what the extension finds of them.
fn fill(place: &Place, home: &Path, known: usize) -> Result<Vec<Found>> {
    let request = request(&project(place.root())?, "filesystem_copy", "profile.container")?;
    let manager = manager(home, Arc::default())?;
    let first = manager.get_or_create_sandbox(&request).during("create a sandbox in", home)?.sandbox;
    let store = Store::open(home).during("open", home)?;
    let mut all = vec![running(&first.id)];
    for number in 1..known {
        let copy = like(&first, number);
        store.adopt(&copy, &[], 0).during("fill", home)?;
        all.push(running(&copy.id));
    }
    Ok(all)
}

fn like(first: &Sandbox, number: usize) -> Sandbox {
    let id = SandboxId::generate();
    let mut copy = Sandbox { name: format!("copy{number}"), plan_id: PlanId::generate(), ..first.clone() };
    if let Some(handle) = copy.environment.as_mut().and_then(|environment| environment.handle.as_mut()) {
        handle.sandbox_id = id.clone();
    }
    Sandbox { id, ..copy }
}

fn running(sandbox: &SandboxId) -> Found {
    Found { sandbox_id: sandbox.clone(), what: "container 0123456789ab".into(), running: true, made_at: None }
}

/// A manager as a program opens it, with one extension of ours in the place of containers.
fn manager(home: &Path, found: Arc<Vec<Found>>) -> Result<SandboxManager> {
    let (settings, cancel) = (Settings::default(), CancelFlag::default());
    let parts = ManagerParts {
        home: home.to_path_buf(),
        registry: registry(&settings, home, None, &cancel).during("register strategies for", home)?,
        types: resource_types(&[]).during("read resource types for", home)?,
        settings,
        permissions: Arc::new(LocalPermissions),
        progress: Arc::new(NoProgress),
        environments: environments(home, found, &cancel),
        cancel,
        on_removal: Arc::new(|_| {}),
        program: None,
        runtime: Arc::new(NothingRuns),
        remove_tree: overlay::remove_workspace,
    };
    SandboxManager::open(parts).during("open", home)
}

fn environments(home: &Path, found: Arc<Vec<Found>>, cancel: &CancelFlag) -> Environments {
    let context = ExtensionContext { cancel: cancel.clone(), ..ExtensionContext::quiet(home) };
    let mut registry = ExtensionRegistry::new(context);
    registry.provide("container", Arc::new(move |_, _| Ok(Arc::new(Standing(found.clone())))));
    Environments::new(registry, Box::new(known))
}

fn known() -> sandboxer_core::Result<Known> {
    let catalogue = Catalogue::embedded()?;
    let extension = catalogue.extension(EXTENSION)?.clone();
    let hosts = catalogue.hosts().map(|host| (host.id.clone(), host.clone())).collect();
    Ok(Known { extensions: [(EXTENSION.to_owned(), extension)].into(), hosts })
}

/// Environments that are there, all of them.
struct Standing(Arc<Vec<Found>>);

impl EnvironmentExtension for Standing {
    fn provision(&self, request: &Provision) -> sandboxer_core::Result<Handle> {
        let sandbox_id = request.sandbox_id.clone();
        let data = json!({"container": "0".repeat(64)});
        let exec = ["docker", "exec", "-i"].map(str::to_owned).into();
        Ok(Handle { version: 1, sandbox_id, data, exec, exec_on_terminal: Vec::new() })
    }

    fn wait_ready(&self, _: &Handle, _: Duration, _: &CancelFlag) -> sandboxer_core::Result<Ready> {
        Ok(Ready::default())
    }

    fn teardown(&self, _: &SandboxId, _: Option<&Handle>) -> sandboxer_core::Result<()> {
        Ok(())
    }

    fn inspect(&self, _: Option<&SandboxId>) -> sandboxer_core::Result<Vec<Found>> {
        Ok((*self.0).clone())
    }
}
