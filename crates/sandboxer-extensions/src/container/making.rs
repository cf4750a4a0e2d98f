//! Making a container, or finding the one that an earlier try made.
//!
//! One `run` makes and starts it: the usual case is one call. Where that fails, whatever carries the name is looked at: a container of ours,
//! made with the same arguments, is started if it has to be; anything else is an error.

use std::time::Duration;

use sandboxer_core::environment::{Handle, NetworkNeed, Provision};
use sandboxer_core::{Error, Result};
use serde_json::json;

use super::arguments::{Plan, how_to_pull, plan};
use super::call::Answer;
use super::engine::{Engine, Kind, working};
use super::labels::{CONFIGURATION, HOME, SANDBOX, digest_of};
use super::options::Wanted;
use super::state::{Container, Stage};
use super::still::release;
use super::{ContainerExtension, Made, VERSION};
use crate::compose::PauseMethod;
use crate::compose::making::podman_notes;
use crate::compose::podman::NETWORK;
use crate::compose::scripts::FIREWALL;

const MAKING: Duration = Duration::from_secs(120);
/// As many as fit into the name of a device, after `sbx`.
const BRIDGE_DIGITS: usize = 12;
const MAKE_NETWORK: &str = r#"
engine=podman
guard || { echo "iptables cannot be told to drop what the container sends to this machine" >&2; exit 41; }
network "$@"
"#;
/// With the fetching of an image.
const FETCHING: Duration = Duration::from_secs(1_800);

pub(super) fn make(extension: &ContainerExtension, request: &Provision) -> Result<Handle> {
    let wanted = extension.defined.wanted(request)?;
    let engine = extension.engine();
    let user = who_we_are(engine);
    let plan = plan(request, &wanted, engine.kind(), &extension.home, user)?;
    let attempt = Attempt { extension, request, engine, wanted: &wanted, plan: &plan };
    attempt.make_network()?;
    let container = attempt.run()?;
    Ok(handle(extension, request, &plan, container, facilities(engine)?))
}

/// Who we are, as the engine sees it: to one that runs as ourselves we are its root.
fn who_we_are(engine: &Engine) -> (u32, u32) {
    let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_ours = || engine.look(&["info", "--format={{.SecurityOptions}}"]);
    let is_rootless = us.0 != 0
        && engine.kind() == Kind::Docker
        && is_ours().is_ok_and(|said| String::from_utf8_lossy(&said).contains("name=rootless"));
    if is_rootless { (0, 0) } else { us }
}

/// What this engine can do of limits and pauses: rootless podman depends on the machine's control groups.
pub(super) fn facilities(engine: &Engine) -> Result<(PauseMethod, Vec<String>)> {
    if engine.kind() != Kind::Podman || engine.is_podman_of_root() || engine.host.is_some() {
        return Ok((PauseMethod::Engine, Vec::new()));
    }
    let said = engine.look(&["info", "--format={{.Host.CgroupsVersion}} {{.Host.CgroupControllers}}"])?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let has = |fact: &str| said.split([' ', '[', ']', '\n']).any(|word| word == fact);
    let pause = if has("v2") { PauseMethod::Engine } else { PauseMethod::Signals };
    let is_limited = ["memory", "cpu", "pids"].iter().all(|controller| has(controller));
    Ok((pause, podman_notes(is_limited, pause)))
}

fn handle(
    extension: &ContainerExtension,
    request: &Provision,
    plan: &Plan,
    container: String,
    (pause, notes): (PauseMethod, Vec<String>),
) -> Handle {
    let engine = extension.engine();
    let made = Made {
        engine: engine.clone(),
        container,
        home: extension.home.clone(),
        ports: request.reachability.ports.clone(),
        on_host: request.network == NetworkNeed::Host,
        pause,
        notes,
    };
    let inside = |flag: &str| {
        engine.prefix().into_iter().chain(["exec", flag, &plan.name].map(str::to_owned)).collect()
    };
    Handle {
        version: VERSION,
        sandbox_id: request.sandbox_id.clone(),
        data: json!(made),
        exec: inside("-i"),
        exec_on_terminal: inside("-it"),
    }
}

/// Everything that one try needs.
struct Attempt<'a> {
    extension: &'a ContainerExtension,
    request: &'a Provision,
    engine: &'a Engine,
    wanted: &'a Wanted,
    plan: &'a Plan,
}

impl Attempt<'_> {
    /// The network, where ports ask for one; an earlier try's will do.
    fn make_network(&self) -> Result<()> {
        let Some(network) = &self.plan.network else { return Ok(()) };
        if !self.extension.labelled(Some(&self.request.sandbox_id)).networks(self.engine)?.is_empty() {
            return Ok(());
        }
        if self.engine.is_podman_of_root() {
            return self.make_podman_network(network);
        }
        let mut arguments = vec!["network", "create"];
        arguments.extend(network.iter().map(String::as_str));
        self.engine.must(&arguments, &working(MAKING, &self.extension.cancel)).map(drop)
    }

    /// With a bridge that the firewall knows, and no name server: a network of podman's reaches the host, internal or not.
    fn make_podman_network(&self, network: &[String]) -> Result<()> {
        let bridge = format!("sbx{}", &digest_of(std::slice::from_ref(&self.plan.name))[..BRIDGE_DIGITS]);
        let (name, options) =
            network.split_last().map_or((&self.plan.name, network), |(name, rest)| (name, rest));
        let mut arguments = vec![name.as_str(), bridge.as_str()];
        arguments.extend(options.iter().map(String::as_str));
        let script = [FIREWALL, NETWORK, MAKE_NETWORK].concat();
        let bounds = working(MAKING, &self.extension.cancel);
        self.engine.script("network create", &script, &arguments, &bounds)
    }

    /// The id of a container that was started.
    fn run(&self) -> Result<String> {
        let mut arguments = vec!["run"];
        arguments.extend(self.plan.run.iter().map(String::as_str));
        let deadline = if self.wanted.pull { FETCHING } else { MAKING };
        let answer = self.engine.ask(&arguments, &working(deadline, &self.extension.cancel))?;
        match id_of(&answer) {
            Some(id) => Ok(id),
            None => self.complete(self.engine.failed(&arguments, &answer)),
        }
    }

    /// What there is by that name, made to run. Where there is nothing, `failure` is why.
    fn complete(&self, failure: Error) -> Result<String> {
        let Some(container) = Container::find(self.engine, &self.plan.name)? else {
            return Err(self.missing_image().unwrap_or(failure));
        };
        self.refuse_another(&container)?;
        match container.stage() {
            Stage::Ready | Stage::NotYet(_) => {}
            Stage::Paused => release(self.engine, &container.id, PauseMethod::Engine)?,
            Stage::Down => {
                let bounds = working(MAKING, &self.extension.cancel);
                self.engine.must(&["start", &container.id], &bounds)?;
            }
        }
        Ok(container.id)
    }

    /// Nothing that we did not make, and nothing that we made otherwise, is taken for this.
    fn refuse_another(&self, container: &Container) -> Result<()> {
        let wanted = [
            (SANDBOX, self.request.sandbox_id.as_str()),
            (HOME, self.extension.home.as_str()),
            (CONFIGURATION, self.plan.configuration.as_str()),
        ];
        let Some((label, _)) = wanted.iter().find(|(label, value)| container.label(label) != *value) else {
            return Ok(());
        };
        let name = &self.plan.name;
        Err(Error::Refused {
            reason: format!(
                "there is a container {name} already, and it is another one: its label {label} differs"
            ),
            hint: Some(format!("look at it, then type `{} rm --force {name}`", self.engine.program)),
        })
    }

    /// The error to tell where the image is not there.
    fn missing_image(&self) -> Option<Error> {
        let image = &self.wanted.image;
        let arguments = ["image", "inspect", "--format={{.Id}}", image.as_str()];
        let answer = self.engine.ask(&arguments, &super::engine::looking()).ok()?;
        let complaint = answer.complaint().to_lowercase();
        let is_missing = complaint.contains("no such image") || complaint.contains("not known");
        (!self.wanted.pull && !answer.status.success() && is_missing).then(|| Error::Refused {
            reason: format!("the image {image} is not on this machine"),
            hint: Some(how_to_pull(&self.engine.program, image)),
        })
    }
}

/// The id that `run` printed: its last word, after what a pull may say.
fn id_of(answer: &Answer) -> Option<String> {
    let said = String::from_utf8_lossy(&answer.stdout);
    let id = said.split_whitespace().last()?;
    let is_id = id.len() >= 12 && id.chars().all(|c| c.is_ascii_hexdigit());
    (answer.status.success() && is_id).then(|| id.to_owned())
}
