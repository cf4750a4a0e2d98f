//! One docker or podman container for each sandbox.
//!
//! The engine is its program ([`engine`], one [`call`] at a time; why, is in `docs/adr/0001-container-by-command.md`). A request and the
//! [`options`] become the arguments of one `run` ([`arguments`], [`mounts`]), which takes away everything that was not asked for. Whatever is
//! made carries [`labels`], by which it is [`found`] again without a handle: after a crash, by another process.
//!
//! The way into a container is [`Handle::exec`](sandboxer_core::environment::Handle): `docker exec -i NAME`, and the command after it.

mod arguments;
pub(crate) mod call;
mod engine;
mod found;
pub(crate) mod labels;
mod making;
mod mounts;
mod options;
mod state;
mod still;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension, Quiet};
use sandboxer_core::environment::{
    ExtensionContext, ExtensionDefinition, ExtensionFactory, Found, Handle, Health, Provision, Ready,
};
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use engine::{Engine, looking};
use found::{Labelled, Thing};
use options::Defined;
use state::{Container, Stage};
use still::{Paused, release};

use crate::compose::PauseMethod;
use crate::compose::making::health_despite;

/// The version of what a handle holds.
const VERSION: u32 = 1;
const POLL: Duration = Duration::from_millis(50);
/// How often what is being removed is looked for once more.
const LOOKS: usize = 5;

/// Makes containers.
pub struct ContainerExtension {
    defined: Defined,
    engine: OnceLock<Engine>,
    /// Stands for the state directory.
    home: String,
    cancel: CancelFlag,
}

/// What a handle holds.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    engine: Engine,
    /// The container's id.
    container: String,
    home: String,
    #[serde(default)]
    ports: Vec<u16>,
    /// Whether it is on the host's own network.
    #[serde(default)]
    on_host: bool,
    #[serde(default)]
    pause: PauseMethod,
    /// What the engine cannot do here.
    #[serde(default)]
    notes: Vec<String>,
}

/// What makes the extensions of the provider `container`.
pub fn factory() -> ExtensionFactory {
    Arc::new(|definition, context| Ok(Arc::new(ContainerExtension::new(definition, context)?)))
}

impl ContainerExtension {
    /// The extension of a definition. Asks no engine for anything yet.
    pub fn new(definition: &ExtensionDefinition, context: &ExtensionContext) -> Result<Self> {
        let defined = Defined::of(definition)?;
        let home = labels::digest_of_home(&context.home);
        Ok(Self { defined, engine: OnceLock::new(), home, cancel: context.cancel.clone() })
    }

    fn engine(&self) -> &Engine {
        self.engine.get_or_init(|| {
            let host = self.defined.host.as_deref();
            match &self.defined.engine {
                Some(program) => Engine::named(program, host),
                None => Engine::installed(host),
            }
        })
    }

    /// Every engine that something may have been made with: where none is named, it was the one that answered then.
    fn engines(&self) -> Vec<Engine> {
        match self.defined.engine {
            Some(_) => vec![self.engine().clone()],
            None => Engine::that_answer(self.defined.host.as_deref(), self.engine()),
        }
    }

    fn labelled<'a>(&'a self, sandbox: Option<&'a SandboxId>) -> Labelled<'a> {
        Labelled { home: &self.home, sandbox }
    }
}

impl EnvironmentExtension for ContainerExtension {
    fn provision(&self, request: &Provision) -> Result<Handle> {
        making::make(self, request)
    }

    fn wait_ready(&self, handle: &Handle, deadline: Duration, cancel: &CancelFlag) -> Result<Ready> {
        let made = made(handle)?;
        let until = Instant::now() + deadline;
        loop {
            cancel.check()?;
            let missing = match look(&made)? {
                Look::Ready(ready) => return Ok(ready),
                Look::NotYet(missing) => missing,
            };
            if Instant::now() >= until {
                return Err(not_ready(&made, &format!("not in {} s: {missing}", deadline.as_secs_f64())));
            }
            std::thread::sleep(POLL);
        }
    }

    fn teardown(&self, sandbox: &SandboxId, handle: Option<&Handle>) -> Result<()> {
        let made = handle.map(made).transpose()?;
        match &made {
            Some(made) => remove(&made.engine, &Labelled { home: &made.home, sandbox: Some(sandbox) }),
            None => {
                let labelled = self.labelled(Some(sandbox));
                self.engines().iter().try_for_each(|engine| remove(engine, &labelled))
            }
        }
    }

    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
        let labelled = self.labelled(sandbox);
        let mut things = Vec::new();
        for engine in self.engines() {
            things.extend(labelled.containers(&engine)?);
            things.extend(labelled.networks(&engine)?);
        }
        Ok(things.into_iter().map(Found::from).collect())
    }

    fn health(&self) -> Health {
        let engine = self.engine();
        match (engine.health(), making::facilities(engine)) {
            (Health::Healthy, Ok((_, notes))) => health_despite(&notes),
            (Health::Healthy, Err(error)) => Health::Unhealthy(error.in_full()),
            (health, _) => health,
        }
    }

    fn hold_still(&self, handle: &Handle) -> Result<Option<Quiet>> {
        let made = made(handle)?;
        Ok(Paused::hold(&made.engine, &made.container, made.pause)?.map(|paused| Box::new(paused) as Quiet))
    }
}

fn made(handle: &Handle) -> Result<Made> {
    let sandbox = handle.sandbox_id.as_str();
    if handle.version != VERSION {
        let found = handle.version;
        return Err(Error::refused(format!(
            "the container of {sandbox} was made by another version (handle {found}, this one reads {VERSION})"
        )));
    }
    Made::deserialize(&handle.data).map_err(|e| Error::io("read the container's handle of", sandbox, e))
}

enum Look {
    Ready(Ready),
    NotYet(String),
}

/// Looks once how far a container is. One that was left standing still goes on.
fn look(made: &Made) -> Result<Look> {
    let Some(container) = Container::find(&made.engine, &made.container)? else {
        return Err(not_ready(made, "it is gone"));
    };
    let stage = container.stage();
    if stage == Stage::Ready && made.pause == PauseMethod::Signals {
        // The engine does not know of those that somebody who died has stopped.
        release(&made.engine, &made.container, made.pause)?;
    }
    match stage {
        Stage::Ready => Ok(Look::Ready(Ready {
            endpoints: container.endpoints(&made.ports, made.on_host)?,
            notes: made.notes.clone(),
        })),
        Stage::NotYet(missing) => Ok(Look::NotYet(missing)),
        Stage::Paused => {
            release(&made.engine, &made.container, PauseMethod::Engine)?;
            Ok(Look::NotYet("it was paused".to_owned()))
        }
        Stage::Down => Err(not_ready(made, &container.last_words(&made.engine))),
    }
}

fn not_ready(made: &Made, why: &str) -> Error {
    let id: String = made.container.chars().take(12).collect();
    Error::io("wait for container", id, std::io::Error::other(why))
}

/// Removes everything that is labelled so, and looks that nothing is left.
fn remove(engine: &Engine, labelled: &Labelled<'_>) -> Result<()> {
    let mut complaint = None;
    for look in 0..LOOKS {
        let (containers, networks) = (labelled.containers(engine)?, labelled.networks(engine)?);
        if containers.is_empty() && networks.is_empty() {
            return Ok(());
        }
        if look > 0 {
            std::thread::sleep(POLL);
        }
        let removed = remove_things(engine, engine.kind().removal(), &containers)
            .and_then(|()| remove_things(engine, &["network", "rm"], &networks));
        complaint = removed.err().or(complaint);
    }
    Err(complaint.unwrap_or_else(|| {
        let sandbox = labelled.sandbox.map_or("sandboxes", SandboxId::as_str);
        Error::io("remove the container of", sandbox, std::io::Error::other("it is still there"))
    }))
}

fn remove_things(engine: &Engine, command: &[&str], things: &[Thing]) -> Result<()> {
    if things.is_empty() {
        return Ok(());
    }
    let ids = things.iter().map(|thing| thing.id.as_str());
    let arguments: Vec<&str> = command.iter().copied().chain(ids).collect();
    engine.must(&arguments, &call::Bounds { deadline: REMOVING, ..looking() }).map(drop)
}

const REMOVING: Duration = Duration::from_secs(60);
