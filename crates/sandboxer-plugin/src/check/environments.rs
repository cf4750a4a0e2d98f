//! Tries an extension on a sandbox that nobody has: does it make, find and remove what it says?
//!
//! The steps are those of a sandbox's life and of recovery: made, waited for, found by its label, made again by somebody who does not
//! know that it is there, removed, looked for in vain, removed again. What an extension says it removed is looked for with its own
//! `inspect`; whatever was made is torn down in any case.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::Result;
use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{
    ExtensionDefinition, Handle, Health, LOCAL_HOST, NetworkNeed, Provision, Reachability, ResourceNeeds,
};
use sandboxer_core::model::SandboxId;
use sandboxer_core::service::Consumer;

use super::report::{Report, Sheet, Verdict};
use super::{told, words};

/// The names of the steps.
mod name {
    pub const HEALTH: &str = "health";
    pub const ESTIMATE_COST: &str = "estimate_cost";
    pub const PROVISION: &str = "provision";
    pub const WAIT_READY: &str = "wait_ready";
    pub const INSPECT: &str = "inspect";
    pub const ANOTHER_PROCESS: &str = "another_process";
    pub const PROVISION_AGAIN: &str = "provision_again";
    pub const TEARDOWN: &str = "teardown";
    pub const GONE: &str = "gone";
    pub const TEARDOWN_AGAIN: &str = "teardown_again";
}

/// How long an environment may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Makes the extension once more, as another process would.
#[derive(Clone)]
pub struct AnotherExtension(pub Arc<dyn Fn() -> Result<Arc<dyn EnvironmentExtension>> + Send + Sync>);

impl fmt::Debug for AnotherExtension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnotherExtension")
    }
}

/// What an extension is tried with.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What it is asked to make, for a sandbox that is nobody's.
    pub request: Provision,
    /// How long that may take to be ready.
    pub ready_within: Duration,
    /// How the extension is made a second time; `None` where that cannot be done.
    pub another: Option<AnotherExtension>,
    /// Set when the user wants to stop: what has been made is torn down, and nothing else is tried.
    pub cancel: CancelFlag,
}

impl Trial {
    /// The least that an extension of that definition can be asked for.
    pub fn of(definition: &ExtensionDefinition, cancel: CancelFlag) -> Self {
        let can = &definition.capabilities;
        let needs_network = !can.network.iter().any(|word| word == "none");
        let request = Provision {
            sandbox_id: SandboxId::generate(),
            name: "sandboxer-check".to_owned(),
            profile_id: "profile.check".to_owned(),
            consumer: Consumer { actor_type: "agt".to_owned(), project: "sandboxer-check".to_owned() },
            host: LOCAL_HOST.to_owned(),
            address: LOCAL_HOST.to_owned(),
            isolation: can.isolation.first().copied().unwrap_or_default(),
            network: if needs_network { NetworkNeed::Host } else { NetworkNeed::None },
            resources: ResourceNeeds::default(),
            reachability: Reachability::default(),
            mounts: Vec::new(),
            options: definition.options.clone(),
            labels: [("sandboxer-check".to_owned(), "true".to_owned())].into(),
            records: std::path::PathBuf::new(),
            kept: None,
        };
        Self { request, ready_within: READY_WITHIN, another: None, cancel }
    }
}

/// Tries everything that an extension promises.
pub fn check_extension(extension: &dyn EnvironmentExtension, trial: &Trial) -> Report {
    let sheet = Sheet::new(&trial.cancel);
    let mut check = Check { extension, trial, sheet, asked: false, handle: None };
    check.live();
    check.end();
    check.sheet.end()
}

struct Check<'a> {
    extension: &'a dyn EnvironmentExtension,
    trial: &'a Trial,
    sheet: Sheet,
    /// Whether it was asked to make something: then there may be something to remove.
    asked: bool,
    handle: Option<Handle>,
}

impl Check<'_> {
    fn step(&mut self, name: &'static str, needs: &[&'static str], body: impl FnOnce(&mut Self) -> Verdict) {
        if let Some(why) = self.sheet.obstacle(needs) {
            return self.sheet.not_tried(name, why);
        }
        let began = Instant::now();
        let verdict = body(self);
        self.sheet.add(name, began, verdict);
    }

    /// From the first question to what a crash would leave.
    fn live(&mut self) {
        self.step(name::HEALTH, &[], |check| match check.extension.health() {
            Health::Healthy => Ok("healthy".to_owned()),
            Health::Limited(what) => Ok(format!("healthy; {what}")),
            Health::Unhealthy(why) => Err(format!("unhealthy: {why}")),
            Health::Undetected(why) => Err(format!("not there: {why}")),
        });
        self.step(name::ESTIMATE_COST, &[name::HEALTH], Self::estimate);
        self.step(name::PROVISION, &[name::HEALTH], |check| {
            check.asked = true;
            let handle = told("provision", check.extension.provision(&check.trial.request))?;
            check.keep(handle)?;
            Ok("made; its handle survives JSON".to_owned())
        });
        self.step(name::WAIT_READY, &[name::PROVISION], Self::wait);
        self.step(name::INSPECT, &[name::PROVISION], |check| check.find_itself(check.extension));
        match self.trial.another.clone() {
            Some(another) => self.step(name::ANOTHER_PROCESS, &[name::INSPECT], |check| {
                let other = (another.0)();
                let other = other.map_err(|error| format!("it cannot be made again: {}", words(&error)))?;
                check.find_itself(&*other)
            }),
            None => {
                self.sheet.not_offered(name::ANOTHER_PROCESS, "there is nothing to make another one from")
            }
        }
        self.step(name::PROVISION_AGAIN, &[name::INSPECT], Self::make_again);
    }

    fn estimate(&mut self) -> Verdict {
        let cost = told("estimate_cost", self.extension.estimate_cost(&self.trial.request))?;
        Ok(cost.map_or("left to its definition".to_owned(), |cost| {
            format!("{} {} an hour", cost.per_hour, cost.currency.unwrap_or_default())
        }))
    }

    /// What follows is done with what came out of the JSON.
    fn keep(&mut self, handle: Handle) -> std::result::Result<(), String> {
        if handle.sandbox_id != self.trial.request.sandbox_id {
            return Err(format!("its handle is about {}, which nobody asked for", handle.sandbox_id));
        }
        let text = serde_json::to_string(&handle).map_err(|error| error.to_string())?;
        let read: Handle = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let same = read == handle;
        self.handle = Some(read);
        if same { Ok(()) } else { Err("its handle is another one after it was stored and read".to_owned()) }
    }

    fn wait(&mut self) -> Verdict {
        let handle = self.handle.clone().ok_or("there is no handle to wait for")?;
        let Trial { ready_within, cancel, .. } = self.trial;
        let ready = told("wait_ready", self.extension.wait_ready(&handle, *ready_within, cancel))?;
        told("wait_ready", self.extension.wait_ready(&handle, *ready_within, cancel))
            .map_err(|wrong| format!("asked once more, {wrong}"))?;
        Ok(format!("ready, {} endpoints", ready.endpoints.len()))
    }

    /// By its own id, and among all that carry the label.
    fn find_itself(&self, extension: &dyn EnvironmentExtension) -> Verdict {
        let id = &self.trial.request.sandbox_id;
        let found = told("inspect", extension.inspect(Some(id)))?;
        let first = found.first().ok_or("`inspect` finds nothing of what was made")?;
        if let Some(other) = found.iter().find(|found| found.sandbox_id != *id) {
            return Err(format!("`inspect` of one sandbox finds something of {}", other.sandbox_id));
        }
        let all = told("inspect", extension.inspect(None))?;
        if !all.iter().any(|found| found.sandbox_id == *id) {
            return Err("`inspect` of everything does not find what `inspect` of the sandbox does".to_owned());
        }
        Ok(format!("found by its label: {}", first.what))
    }

    fn make_again(&mut self) -> Verdict {
        let id = &self.trial.request.sandbox_id;
        let before = told("inspect", self.extension.inspect(Some(id)))?.len();
        let handle = told("provision", self.extension.provision(&self.trial.request))?;
        self.keep(handle)?;
        let after = told("inspect", self.extension.inspect(Some(&self.trial.request.sandbox_id)))?.len();
        if after != before {
            return Err(format!("there were {before} things of it, and are {after} since it was made again"));
        }
        Ok("what was there was found, and nothing made twice".to_owned())
    }

    /// In any case, whoever interrupts: what was made is removed, and looked for.
    fn end(&mut self) {
        if !self.asked {
            for name in [name::TEARDOWN, name::GONE, name::TEARDOWN_AGAIN] {
                self.sheet.not_tried(name, format!("`{}` was not tried", name::PROVISION));
            }
            return;
        }
        let id = self.trial.request.sandbox_id.clone();
        let handle = self.handle.take();
        self.always(name::TEARDOWN, |extension| {
            told("teardown", extension.teardown(&id, handle.as_ref()))?;
            Ok("done".to_owned())
        });
        self.always(name::GONE, |extension| match told("inspect", extension.inspect(Some(&id)))?.first() {
            None => Ok("nothing is found any more".to_owned()),
            Some(left) => Err(format!("still there: {}", left.what)),
        });
        self.always(name::TEARDOWN_AGAIN, |extension| {
            told("teardown", extension.teardown(&id, None))?;
            Ok("without a handle, and with nothing there: fine".to_owned())
        });
    }

    fn always(&mut self, name: &'static str, body: impl FnOnce(&dyn EnvironmentExtension) -> Verdict) {
        let began = Instant::now();
        let verdict = body(self.extension);
        self.sheet.add_always(name, began, verdict);
    }
}
