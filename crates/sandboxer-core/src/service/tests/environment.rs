//! Environments over a scripted extension: every step fails once and dies once, and nothing is left.

use std::collections::BTreeSet;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::contract::{EnvironmentExtension, Quiet};
use crate::environment::{
    Binding, Endpoint, ExtensionCapabilities, ExtensionContext, ExtensionDefinition, ExtensionRegistry,
    Found, Handle, Health, InputSpec, IsolationLevel, Known, NetworkNeed, Placement, Policy, Pricing,
    PricingModel, Profile, Provider, Provision, Reachability, Ready, ResourceNeeds, Route, Scope, Setup,
    WorkspaceAccess, WorkspaceMode,
};
use crate::model::{CommitRequest, SandboxId};

/// What happens when the room has been looked at, and before anybody hears of it.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// What the fake extension has made, whichever process asks: a machine room.
#[derive(Default)]
pub(super) struct Room {
    pub there: Mutex<BTreeSet<String>>,
    pub stopped: Mutex<BTreeSet<String>>,
    held: Mutex<Vec<&'static str>>,
    pub sick: Mutex<Option<String>>,
    pub absent: Mutex<bool>,
    /// Whether everything has a cable, which never runs.
    pub cables: Mutex<bool>,
    pub meanwhile: Mutex<Option<Meanwhile>>,
    /// How far ports have moved.
    pub port: Mutex<u16>,
}

/// Makes entries in the room, and does at each step what the script says.
struct FakeExtension {
    room: Arc<Room>,
    script: Arc<Script>,
}

impl EnvironmentExtension for FakeExtension {
    fn provision(&self, request: &Provision) -> Result<Handle> {
        self.script.pass("provision", "env")?;
        self.room.there.lock().unwrap().insert(request.sandbox_id.to_string());
        self.script.pass("provisioned", "env")?;
        let data = json!({"mounts": request.mounts.len()});
        Ok(Handle {
            version: 1,
            sandbox_id: request.sandbox_id.clone(),
            data,
            exec: vec!["enter".into()],
            exec_on_terminal: Vec::new(),
        })
    }

    fn wait_ready(&self, _: &Handle, _: Duration, _: &CancelFlag) -> Result<Ready> {
        self.script.pass("wait_ready", "env")?;
        Ok(Ready {
            endpoints: vec![Endpoint {
                name: "80/tcp".into(),
                host: "127.0.0.1".into(),
                port: *self.room.port.lock().unwrap() + 8080,
                forward: None,
            }],
            notes: Vec::new(),
        })
    }

    fn teardown(&self, sandbox: &SandboxId, _: Option<&Handle>) -> Result<()> {
        self.script.pass("teardown", "env")?;
        self.room.there.lock().unwrap().remove(sandbox.as_str());
        self.script.pass("torn_down", "env")
    }

    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
        self.script.pass("inspect", "env")?;
        let stopped = self.room.stopped.lock().unwrap().clone();
        let found = |id: &String, what: &str, running| Found {
            sandbox_id: SandboxId::from_string(id.clone()),
            what: what.into(),
            running,
            made_at: Some(Timestamp::now() - SignedDuration::from_mins(5)),
        };
        let mut ids = self.room.there.lock().unwrap().clone();
        ids.retain(|id| sandbox.is_none_or(|s| s.as_str() == id));
        let mut all: Vec<_> = ids.iter().map(|id| found(id, "thing", !stopped.contains(id))).collect();
        if *self.room.cables.lock().unwrap() {
            all.extend(ids.iter().map(|id| found(id, "cable", false)));
        }
        let meanwhile = self.room.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|happen| happen());
        Ok(all)
    }

    fn health(&self) -> Health {
        if *self.room.absent.lock().unwrap() {
            return Health::Undetected("it is not installed".into());
        }
        self.room.sick.lock().unwrap().clone().map_or(Health::Healthy, Health::Unhealthy)
    }

    fn hold_still(&self, _: &Handle) -> Result<Option<Quiet>> {
        self.room.held.lock().unwrap().push("held");
        Ok(Some(Box::new(())))
    }
}

pub(super) fn definition(id: &str, provider: Provider) -> ExtensionDefinition {
    ExtensionDefinition {
        id: id.into(),
        summary: String::new(),
        provider,
        capabilities: ExtensionCapabilities {
            isolation: vec![IsolationLevel::Container],
            network: vec!["none".into()],
            workspaces: WorkspaceAccess::HostPath,
            exec: true,
            ports: true,
            limits: true,
            mounts: true,
        },
        self_hosted: true,
        pricing: Pricing { model: PricingModel::Free, amount: 0.0, currency: None },
        regions: Vec::new(),
        options: BTreeMap::new(),
        origin: "test".into(),
        invalid: None,
    }
}

pub(super) fn profile() -> Profile {
    Profile {
        id: "profile.fake".into(),
        summary: String::new(),
        extension: Binding::default(),
        isolation: IsolationLevel::Container,
        network: NetworkNeed::None,
        workspace: WorkspaceMode::default(),
        inputs: BTreeMap::new(),
        scope: Scope::Consumer,
        ttl: None,
        resources: ResourceNeeds::default(),
        setup: Setup { commands: vec!["make".into()], secret_refs: vec!["env:TOKEN".into()] },
        placement: Placement::default(),
        reachability: Reachability { ports: vec![80] },
        cost_class: None,
        options: BTreeMap::new(),
        origin: "test".into(),
    }
}

/// A world whose managers know one extension.
pub(super) struct Hosted {
    pub world: World,
    pub room: Arc<Room>,
    /// As what the extension is registered.
    pub provider: Provider,
}

impl Hosted {
    pub fn new() -> Self {
        Self { world: World::new(), room: Arc::default(), provider: Provider::Container }
    }

    /// The same with an extension that is somebody else's program.
    pub fn by_plugin() -> Self {
        let provider = Provider::Plugin { module: "exec:x".into(), class: None, python: None, timeout: None };
        Self { provider, ..Self::new() }
    }

    pub fn manager(&self) -> SandboxManager {
        self.manager_knowing(&["ext.fake", "ext.local"])
    }

    pub fn manager_knowing(&self, ids: &[&str]) -> SandboxManager {
        let (room, script) = (self.room.clone(), self.world.script.clone());
        let context = ExtensionContext::quiet(self.world.home());
        let mut registry = ExtensionRegistry::new(context);
        registry.provide(
            self.provider.word(),
            Arc::new(move |_, _| Ok(Arc::new(FakeExtension { room: room.clone(), script: script.clone() }))),
        );
        let definitions =
            [definition("ext.fake", self.provider.clone()), definition("ext.local", Provider::Local)];
        let known = definitions.into_iter().filter(|d| ids.contains(&d.id.as_str()));
        let known = Known { extensions: known.map(|d| (d.id.clone(), d)).collect(), hosts: BTreeMap::new() };
        let environments = Environments::new(registry, Box::new(move || Ok(known.clone())));
        // As long as it takes: whoever waits for somebody else's environment is not to be told that it is busy.
        let settings = Settings { lock_wait: Duration::from_secs(60), ..Settings::default() };
        SandboxManager::open(ManagerParts { environments, settings, ..self.world.parts() }).unwrap()
    }

    pub fn request(&self, key: Option<&str>) -> CreateRequest {
        self.request_of(profile(), key)
    }

    pub fn request_of(&self, profile: Profile, key: Option<&str>) -> CreateRequest {
        let route = Route {
            profile_id: profile.id.clone(),
            policy: Policy::Explicit,
            extension_id: "ext.fake".into(),
            host: "local".into(),
            reason: "told".into(),
            cost: None,
            considered: Vec::new(),
        };
        let environment = EnvironmentRequest {
            profile,
            route,
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            idempotency_key: key.map(str::to_owned),
            request_digest: None,
        };
        let resource = self.world.resource("proj");
        CreateRequest { environment: Some(Box::new(environment)), ..request(&[&resource]) }
    }

    pub fn made(&self) -> (SandboxManager, Target) {
        let manager = self.manager();
        let sandbox = manager.get_or_create_sandbox(&self.request(None)).unwrap().sandbox;
        let target = manager.find(sandbox.id.as_str()).unwrap();
        (manager, target)
    }

    pub fn there(&self) -> usize {
        self.room.there.lock().unwrap().len()
    }

    pub fn assert_nothing_left(&self, when: &str) {
        assert_eq!(self.there(), 0, "{when}");
        assert_eq!(self.world.leftovers(), Vec::<String>::new(), "{when}");
    }
}

pub(super) fn kinds(manager: &SandboxManager, sandbox: &Sandbox) -> Vec<String> {
    let events = manager.events_after(0, Some(sandbox), 100).unwrap();
    events.into_iter().map(|event| event.kind).collect()
}

const STEPS: [&str; 3] = ["provision", "provisioned", "wait_ready"];

#[test]
fn a_profile_becomes_an_environment_around_the_workspaces() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    let environment = target.sandbox.environment.as_deref().unwrap();
    assert_eq!((environment.step.as_str(), hosted.there()), ("ready", 1));
    assert_eq!(environment.endpoints[0].port, 8080);
    assert_eq!(environment.handle.as_ref().unwrap().data["mounts"], 1);
    assert_eq!(environment.setup.secret_refs, ["env:TOKEN"], "handed over as it is");
    assert_eq!((target.sandbox.profile_id(), target.sandbox.extension_id()), ("profile.fake", "ext.fake"));
    manager.mark_active(&target).unwrap();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    let told = ["requested", "provisioning", "ready", "active", "destroying", "destroyed"];
    assert_eq!(kinds(&manager, &target.sandbox), told);
    let events = manager.events_after(0, None, 100).unwrap();
    assert!(events.iter().all(|e| e.profile_id == "profile.fake" && e.extension_id == "ext.fake"));
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    hosted.assert_nothing_left("destroyed");
}

#[test]
fn a_step_that_fails_is_undone_and_named() {
    for step in STEPS {
        let hosted = Hosted::new();
        let manager = hosted.manager();
        hosted.world.script.at(step, Fault::Fail);
        manager.get_or_create_sandbox(&hosted.request(None)).unwrap_err();
        hosted.assert_nothing_left(step);
        let failed = manager.list(true).unwrap().remove(0);
        assert_eq!(failed.state, SandboxState::Failed);
        let failure = failed.environment.as_ref().unwrap().failure.clone().unwrap();
        assert!(step.starts_with(&failure.step), "{step}: {failure:?}");
        let last = manager.events_after(0, Some(&failed), 100).unwrap().pop().unwrap();
        assert_eq!(last.kind, "failed");
        assert!(last.reason.unwrap().starts_with(&failure.step));
        // The next one is not disturbed.
        manager.get_or_create_sandbox(&hosted.request(None)).unwrap();
    }
}

#[test]
fn a_create_that_died_in_a_step_is_undone_by_whoever_comes_next_even_if_that_dies_too() {
    for step in STEPS {
        for second in ["teardown", "torn_down", "none"] {
            let hosted = Hosted::new();
            let manager = hosted.manager();
            hosted.world.script.at(step, Fault::Die);
            dies(|| manager.get_or_create_sandbox(&hosted.request(None)));
            drop(manager);
            if second != "none" {
                hosted.world.script.at(second, Fault::Die);
                dies(|| hosted.manager().recover());
            }
            let manager = hosted.manager();
            manager.recover().unwrap();
            hosted.assert_nothing_left(&format!("{step}, {second}"));
            assert!(manager.recover().unwrap().is_empty());
            assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Failed);
        }
    }
}

#[test]
fn an_undo_that_fails_is_tried_again_by_the_next_command() {
    let hosted = Hosted::new();
    let manager = hosted.manager();
    hosted.world.script.at("wait_ready", Fault::Fail);
    hosted.world.script.at("teardown", Fault::AlwaysFail);
    manager.get_or_create_sandbox(&hosted.request(None)).unwrap_err();
    assert_eq!(hosted.world.under_way.0.lock().unwrap().take(), None, "nothing goes on any more");
    assert_eq!(hosted.there(), 1, "it could not be removed");
    assert!(manager.recover().unwrap()[0].failed);
    assert_eq!(
        manager.list(true).unwrap()[0].state,
        SandboxState::Provisioning,
        "never called gone without proof"
    );
    hosted.world.script.calm();
    manager.recover().unwrap();
    hosted.assert_nothing_left("at last");
}

#[test]
fn a_destroy_that_failed_or_died_is_finished() {
    for (step, fault) in [("teardown", Fault::Fail), ("teardown", Fault::Die), ("torn_down", Fault::Die)] {
        let hosted = Hosted::new();
        let (manager, target) = hosted.made();
        hosted.world.script.at(step, fault);
        match fault {
            Fault::Die => dies(|| manager.destroy(&target, Uncommitted::Discard)),
            _ => drop(manager.destroy(&target, Uncommitted::Discard).unwrap_err()),
        }
        assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Destroying);
        drop(manager);
        let manager = hosted.manager();
        manager.recover().unwrap();
        hosted.assert_nothing_left(step);
        assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Destroyed);
        let target = manager.find_any(target.sandbox.id.as_str()).unwrap();
        assert!(matches!(manager.destroy(&target, Uncommitted::Discard).unwrap(), Ended::Already(_)));
    }
}

#[test]
fn a_key_is_answered_with_the_same_sandbox_while_that_lives() {
    let hosted = Hosted::new();
    let manager = hosted.manager();
    let first = manager.get_or_create_sandbox(&hosted.request(Some("k"))).unwrap();
    let second = manager.get_or_create_sandbox(&hosted.request(Some("k"))).unwrap();
    assert_eq!((second.created, &second.sandbox.id), (false, &first.sandbox.id));
    assert_ne!(
        manager.get_or_create_sandbox(&hosted.request(Some("l"))).unwrap().sandbox.id,
        first.sandbox.id
    );
    let target = manager.find(first.sandbox.id.as_str()).unwrap();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert!(manager.get_or_create_sandbox(&hosted.request(Some("k"))).unwrap().created);
}

#[test]
fn one_key_at_once_makes_one_sandbox() {
    let hosted = Hosted::new();
    let ids = std::thread::scope(|scope| {
        let create =
            || hosted.manager().get_or_create_sandbox(&hosted.request(Some("k"))).unwrap().sandbox.id;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<BTreeSet<_>>()
    });
    assert_eq!((ids.len(), hosted.there()), (1, 1));
}

#[test]
fn inputs_are_those_that_the_profile_declares() {
    let hosted = Hosted::new();
    let input = |type_name: &str, required| InputSpec {
        type_name: Some(type_name.into()),
        required,
        mount: Some("/work".into()),
    };
    let with = |inputs: &[(&str, InputSpec)]| Profile {
        inputs: inputs.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect(),
        ..profile()
    };
    let manager = hosted.manager();
    let one = with(&[("repo", input("fs-directory", true)), ("data", input("sqlite", false))]);
    let sandbox = manager.get_or_create_sandbox(&hosted.request_of(one, None)).unwrap().sandbox;
    assert_eq!(sandbox.workspaces[0].name, "repo", "the only one that has to be given");
    assert_eq!(sandbox.environment.unwrap().mounts["repo"], Path::new("/work"));
    let refused = |profile: Profile| {
        manager.get_or_create_sandbox(&hosted.request_of(profile, None)).unwrap_err().to_string()
    };
    assert!(refused(with(&[("repo", input("sqlite", true))])).contains("is a sqlite"));
    let two = with(&[("repo", input("fs-directory", true)), ("more", input("fs-directory", true))]);
    assert!(refused(two.clone()).contains("which input"));
    let mut named = hosted.request_of(two, None);
    named.inputs[0].name = Some("rep".into());
    let error = manager.get_or_create_sandbox(&named).unwrap_err();
    assert!(
        matches!(&error, Error::Usage { hint: Some(hint), .. } if hint.contains("\"repo\"")),
        "{error:?}"
    );
    named.inputs[0].name = Some("repo".into());
    assert!(
        manager.get_or_create_sandbox(&named).unwrap_err().to_string().contains("needs the input \"more\"")
    );
}

#[test]
fn a_commit_holds_the_environment_still() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    change_all(&manager, &target);
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert!(!hosted.room.held.lock().unwrap().is_empty());
}

#[test]
fn recreate_keeps_the_work_and_makes_the_environment_anew() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    change_all(&manager, &target);
    manager.recreate(&target, None).unwrap();
    let target = manager.find(target.sandbox.id.as_str()).unwrap();
    assert_eq!((hosted.there(), manager.read(&target, &path("a")).unwrap()), (1, b"new".to_vec()));
    assert_eq!(kinds(&manager, &target.sandbox).last().unwrap(), "recreated");
    let world = World::new();
    let (plain_manager, plain) = world.one();
    assert!(plain_manager.recreate(&plain, None).unwrap_err().to_string().contains("without a profile"));
}

#[test]
fn a_recreate_that_fails_or_dies_loses_no_work() {
    for (step, fault) in [("provisioned", Fault::Fail), ("wait_ready", Fault::Die), ("provision", Fault::Die)]
    {
        let hosted = Hosted::new();
        let (manager, target) = hosted.made();
        change_all(&manager, &target);
        hosted.world.script.at(step, fault);
        match fault {
            Fault::Die => dies(|| manager.recreate(&target, None)),
            _ => drop(manager.recreate(&target, None).unwrap_err()),
        }
        drop(manager);
        let manager = hosted.manager();
        manager.recover().unwrap();
        let target = manager.find(target.sandbox.id.as_str()).unwrap();
        assert_eq!(hosted.there(), 0, "{step}");
        assert!(target.sandbox.environment.as_ref().unwrap().failure.is_some(), "{step}");
        assert_eq!(manager.read(&target, &path("a")).unwrap(), b"new", "{step}");
        manager.recreate(&target, None).unwrap();
        let target = manager.find(target.sandbox.id.as_str()).unwrap();
        assert!(target.sandbox.environment.as_ref().unwrap().failure.is_none());
        assert_eq!(hosted.there(), 1);
    }
}

#[test]
fn work_is_parked_without_its_environment() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    change_all(&manager, &target);
    assert!(matches!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Parked { .. }));
    assert_eq!(hosted.there(), 0);
    let parked = manager.find_parked(target.sandbox.id.as_str()).unwrap();
    assert!(parked.environment.unwrap().handle.is_none());
}

#[test]
fn events_tell_what_a_sandbox_is_known_by() {
    let hosted = Hosted::new();
    let (manager, target) = hosted.made();
    let told = manager.latest_events(Some(&target.sandbox), 1).unwrap();
    let identity = &told[0].identity;
    assert_eq!(
        (identity.endpoints[0].port, &identity.credentials[..]),
        (8080, &["env:TOKEN".to_owned()][..])
    );
    let first = manager.events_after(0, Some(&target.sandbox), 1).unwrap();
    assert!(first[0].identity.endpoints.is_empty(), "it was reached nowhere then");
}

#[test]
fn a_time_to_live_is_extended_from_now() {
    let hosted = Hosted::new();
    let manager = hosted.manager();
    let profile = Profile { ttl: Some("1h".into()), ..profile() };
    let sandbox = manager.get_or_create_sandbox(&hosted.request_of(profile, None)).unwrap().sandbox;
    let first = sandbox.expires_at.unwrap();
    let target = manager.find(sandbox.id.as_str()).unwrap();
    let extended = manager.extend(&target, SignedDuration::from_hours(5)).unwrap();
    assert!(extended.expires_at.unwrap() > first);
    assert_eq!(manager.find(sandbox.id.as_str()).unwrap().sandbox.expires_at, extended.expires_at);
    assert_eq!(kinds(&manager, &sandbox).last().unwrap(), "extended");
    manager.extend(&target, SignedDuration::from_micros(1)).unwrap();
    assert_eq!(manager.enforce_ttl().unwrap().expired, [sandbox.id]);
    hosted.assert_nothing_left("its time was up");
}

#[test]
fn a_key_is_free_once_its_sandbox_is_parked() {
    let hosted = Hosted::new();
    let manager = hosted.manager();
    let first = manager.get_or_create_sandbox(&hosted.request(Some("k"))).unwrap().sandbox;
    let target = manager.find(first.id.as_str()).unwrap();
    change_all(&manager, &target);
    manager.destroy(&target, Uncommitted::Park).unwrap();
    assert!(manager.answered("k").unwrap().is_none());
    let second = manager.get_or_create_sandbox(&hosted.request(Some("k"))).unwrap();
    assert!(second.created && manager.answered("k").unwrap().unwrap().sandbox.id == second.sandbox.id);
    let parked = manager.find_parked(first.id.as_str()).unwrap();
    manager.unpark(&parked, None).unwrap();
    assert_eq!(manager.find(first.id.as_str()).unwrap().sandbox.id, first.id);
}

#[test]
fn a_plan_is_not_answered_with_another_environment() {
    let hosted = Hosted::new();
    let manager = hosted.manager();
    let plan = Some(PlanId::from_string("pln_1"));
    let plain = CreateRequest { plan: plan.clone(), environment: None, ..hosted.request(None) };
    manager.get_or_create_sandbox(&plain).unwrap();
    let asked = CreateRequest { plan: plan.clone(), ..hosted.request(None) };
    let refused = manager.get_or_create_sandbox(&asked).unwrap_err();
    assert!(refused.to_string().contains("with no profile"), "{refused}");
    assert_eq!(hosted.there(), 0);
}
