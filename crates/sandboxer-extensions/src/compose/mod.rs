//! A compose project for each sandbox, on a host over SSH, or on this machine.
//!
//! What a repository's compose files say is resolved and checked here (`sandboxer-compose`); the host gets one file that refers to nothing. Workspaces are
//! copied there and back (`sandboxer-remote`, [`copies`]). What is done on the host is in [`scripts`], and in [`podman`] where podman starts the services
//! without a compose program. Everything that is made carries labels of its controller and its sandbox, and one of both for podman; by these it is found
//! ([`removing`]) without a handle: after a crash, by another process. Why all this is so, is in `docs/design/0010-compose-ssh.md`.

mod check;
mod controller;
mod copies;
mod look;
pub(crate) mod making;
mod options;
mod placing;
pub(crate) mod podman;
mod removing;
pub(crate) mod scripts;
mod station;
mod volumes;
mod ways;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension, Quiet};
use sandboxer_core::environment::{
    ExtensionContext, ExtensionDefinition, ExtensionFactory, Found, Handle, Health, Host, Mount, Provision,
    Ready, Way,
};
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use check::{Finding, check};
use look::{Container, Stage, containers, endpoints, lenient};
use station::Station;

/// The version of what a handle holds.
const VERSION: u32 = 1;
/// How often containers that are not ready are looked at.
const POLL: Duration = Duration::from_millis(200);

/// Makes stacks, wherever a host is.
pub struct ComposeExtension {
    options: BTreeMap<String, Value>,
    context: ExtensionContext,
}

/// Makes stacks on one host.
struct OnHost {
    station: Station,
    options: BTreeMap<String, Value>,
    context: ExtensionContext,
    /// What containers there were when a stack had just been started: whoever waits for it looks at these first.
    started: Mutex<Option<(SandboxId, Vec<Container>)>>,
}

/// What a handle holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Made {
    /// The directory there that all of ours is in, and the sandbox's own below it.
    base: String,
    directory: String,
    controller: String,
    project: String,
    engine: Engine,
    /// How its containers are paused.
    #[serde(default)]
    pause: PauseMethod,
    /// The compose command, by words; unused with podman.
    compose: Vec<String>,
    /// The container of each service.
    services: BTreeMap<String, String>,
    /// The service that commands run in.
    first: Option<String>,
    ports: Vec<Port>,
    /// Where services have the workspace that the compose file is in.
    workspace_at: BTreeMap<String, String>,
    /// Named volumes, as the engine calls them.
    volumes: Vec<String>,
    /// Where the lists of what was copied are, on this machine.
    records: PathBuf,
    compress: bool,
    /// What was made otherwise than the compose file says.
    notes: Vec<String>,
}

/// The program that makes containers on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Docker,
    Podman,
    /// A program that never finishes a copy.
    #[cfg(test)]
    #[serde(skip)]
    Stuck,
}

impl Engine {
    fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            #[cfg(test)]
            Self::Stuck => volumes::tests::stuck_engine(),
        }
    }
}

/// How containers are paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PauseMethod {
    /// By the engine's own command, which freezes control groups.
    #[default]
    Engine,
    /// By signals to every process.
    Signals,
}

/// A port of a service.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Port {
    service: String,
    port: u16,
    protocol: String,
}

/// What makes the extensions of the provider `compose-ssh`.
pub fn factory() -> ExtensionFactory {
    Arc::new(|definition: &ExtensionDefinition, context: &ExtensionContext| {
        Ok(Arc::new(ComposeExtension { options: definition.options.clone(), context: context.clone() }))
    })
}

impl ComposeExtension {
    fn nowhere<T>() -> Result<T> {
        Err(Error::refused("a stack is made on a host, and none was named"))
    }
}

impl EnvironmentExtension for ComposeExtension {
    fn on(&self, host: &Host) -> Result<Option<Arc<dyn EnvironmentExtension>>> {
        Ok(Some(Arc::new(OnHost {
            station: Station::new(host, &self.context)?,
            options: self.options.clone(),
            context: self.context.clone(),
            started: Mutex::default(),
        })))
    }

    fn provision(&self, _: &Provision) -> Result<Handle> {
        Self::nowhere()
    }

    fn wait_ready(&self, _: &Handle, _: Duration, _: &CancelFlag) -> Result<Ready> {
        Self::nowhere()
    }

    fn teardown(&self, _: &SandboxId, _: Option<&Handle>) -> Result<()> {
        Self::nowhere()
    }

    fn inspect(&self, _: Option<&SandboxId>) -> Result<Vec<Found>> {
        Self::nowhere()
    }
}

impl EnvironmentExtension for OnHost {
    fn provision(&self, request: &Provision) -> Result<Handle> {
        making::make(self, request)
    }

    fn wait_ready(&self, handle: &Handle, deadline: Duration, cancel: &CancelFlag) -> Result<Ready> {
        let made = made(handle)?;
        let until = Instant::now() + deadline;
        let mut told = String::new();
        loop {
            cancel.check()?;
            let found = match self.just_started(&handle.sandbox_id) {
                Some(found) => found,
                None => containers(&self.station, &made, handle.sandbox_id.as_str())?,
            };
            let missing = match self.missing(&made, &found)? {
                None => {
                    return Ok(Ready {
                        endpoints: endpoints(&self.station, &made, &found),
                        notes: made.notes,
                    });
                }
                Some(missing) => missing,
            };
            if missing != told {
                self.context.progress.begin(&format!("waiting: {missing}"), None);
                told.clone_from(&missing);
            }
            if Instant::now() >= until {
                return Err(not_ready(&format!("not in {} s: {missing}", deadline.as_secs_f64())));
            }
            std::thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn teardown(&self, sandbox: &SandboxId, handle: Option<&Handle>) -> Result<()> {
        removing::remove(self, sandbox, handle.map(made).transpose()?.as_ref())
    }

    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
        removing::inventory(self, sandbox)
    }

    fn health(&self) -> Health {
        let greeting = match self.station.greet() {
            Ok(greeting) => greeting,
            Err(error) => return Health::Unhealthy(error.in_full()),
        };
        match greeting.obstacle() {
            Some(reason) => Health::Unhealthy(reason),
            None => making::health_despite(&making::shortcomings(&greeting)),
        }
    }

    fn hold_still(&self, handle: &Handle) -> Result<Option<Quiet>> {
        ways::hold_still(self, handle)
    }

    fn let_go(&self, handle: &Handle) -> Result<()> {
        ways::let_go(self, handle)
    }

    fn fetch(&self, handle: &Handle, mounts: &[Mount]) -> Result<bool> {
        copies::fetch(self, &made(handle)?, mounts)
    }

    fn send(&self, handle: &Handle, mounts: &[Mount]) -> Result<()> {
        copies::send(self, &made(handle)?, mounts)
    }

    fn keep(&self, handle: &Handle, into: &Path) -> Result<bool> {
        volumes::keep(self, &made(handle)?, handle.sandbox_id.as_str(), into)
    }

    fn line(&self, handle: &Handle, way: &Way<'_>) -> Result<Option<Vec<OsString>>> {
        ways::line(self, &made(handle)?, way)
    }
}

impl OnHost {
    /// What a start has just said, once.
    fn just_started(&self, sandbox: &SandboxId) -> Option<Vec<Container>> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        started.filter(|(of, _)| of == sandbox).map(|(_, found)| found)
    }

    /// What a stack still lacks to be ready, for a person. A service that has ended badly is an error.
    fn missing(&self, made: &Made, found: &[Container]) -> Result<Option<String>> {
        let mut missing = Vec::new();
        for container in found {
            match container.stage() {
                Stage::Ready | Stage::Done => {}
                Stage::NotYet(why) => missing.push(format!("{} is {why}", container.name())),
                Stage::Paused => {
                    ways::release(&self.station, made, container)?;
                    missing.push(format!("{} was paused", container.name()));
                }
                Stage::Down(code) => return Err(self.ended(made, container, code)),
            }
        }
        let gone = made.services.keys().filter(|name| !found.iter().any(|c| c.name() == name.as_str()));
        if let Some(name) = gone.into_iter().next() {
            return Err(not_ready(&format!("the container of {name} is gone")));
        }
        if !found.iter().any(|container| container.state.status == "running") && missing.is_empty() {
            return Err(not_ready("no service runs: all of them have ended"));
        }
        Ok((!missing.is_empty()).then(|| missing.join(", ")))
    }

    fn ended(&self, made: &Made, container: &Container, code: i64) -> Error {
        let said = self.station.text(
            "read the log on",
            scripts::LAST_WORDS,
            &[made.engine.program(), &container.id],
        );
        let said = said.unwrap_or_default();
        let said = crate::container::call::tame(said.trim(), 500);
        let words =
            if said.is_empty() { "it printed nothing".to_owned() } else { format!("it said: {said}") };
        not_ready(&format!("{} has ended with exit code {code}; {words}", container.name()))
    }
}

fn made(handle: &Handle) -> Result<Made> {
    if handle.version != VERSION {
        let (found, sandbox) = (handle.version, &handle.sandbox_id);
        return Err(Error::refused(format!(
            "the stack of {sandbox} was made by another version (handle {found}, this one reads {VERSION})"
        )));
    }
    lenient(&handle.data)
}

fn not_ready(why: &str) -> Error {
    Error::io("wait for", "the stack", std::io::Error::other(why.to_owned()))
}
