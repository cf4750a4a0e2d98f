//! Making a stack, or making again what an earlier try has begun.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use sandboxer_compose::{Allowance, Policy, Sealed, Source, Stack, place, resolve};
use sandboxer_core::environment::{Handle, Health, Host, Mount, NetworkNeed, Provision};
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_remote::last_line;
use serde_json::json;

use super::controller::controller;
use super::look::{self, Container};
use super::options::Wanted;
use super::placing::Words;
use super::podman::{self, PodmanHost, stack_script};
use super::removing::checked;
use super::station::Greeting;
use super::{Engine, Made, OnHost, PauseMethod, Port, VERSION, copies, scripts, volumes};

/// With the fetching and building of images.
const STARTING: Duration = Duration::from_secs(1_800);
/// How much is shown of what a compose program says.
const SHOWN: usize = 60;
/// The script's word for a firewall that cannot be set.
const NO_FIREWALL: i32 = 41;
/// The script's word for an image that has instructions for whoever builds from it.
const HAS_INSTRUCTIONS: i32 = 42;
/// The word by which a host says that somebody else sees to its firewall.
const GUARDED_BY_OTHERS: &str = "firewall-by-others";

pub(super) fn make(on: &OnHost, request: &Provision) -> Result<Handle> {
    let wanted = Wanted::of(&on.options, request)?;
    let greeting = on.station.usable()?;
    let mut made = planned(on, request, &greeting)?;
    let (mount, stack) = stack(on, request, &wanted, &made)?;
    made.volumes.clone_from(&stack.volumes);
    made.first = first(&wanted, &stack)?;
    made.ports = ports(&stack);
    made.workspace_at = at(&stack);
    let untranslated =
        if made.engine == Engine::Podman { podman::untranslated_keys(&stack) } else { Vec::new() };
    made.notes = stack.notes.iter().cloned().chain(untranslated).chain(shortcomings(&greeting)).collect();
    let sandbox = request.sandbox_id.as_str();
    on.station.must(
        "make a directory on",
        &scripts::prepare(),
        &[&made.base, &made.controller, sandbox, made.engine.program()],
    )?;
    forget_records(&made)?;
    copies::send(on, &made, &request.mounts)?;
    let podman = (made.engine == Engine::Podman).then(|| greeting.podman());
    let found =
        Start { on, request, made: &made, stack: &stack, workspace: &mount.workspace, podman }.all()?;
    made.services = services(on, &found, &stack)?;
    *on.started.lock().unwrap_or_else(PoisonError::into_inner) = Some((request.sandbox_id.clone(), found));
    Ok(handle(request, &made))
}

/// Everything that is known before anything is there.
fn planned(on: &OnHost, request: &Provision, greeting: &Greeting) -> Result<Made> {
    let sandbox = checked(&request.sandbox_id)?;
    let base = on.station.base(greeting)?;
    let controller = controller(&on.context.home)?;
    Ok(Made {
        directory: format!("{base}/{controller}/{sandbox}"),
        base,
        controller,
        project: format!("sandboxer-{}", sandbox.to_ascii_lowercase()),
        engine: greeting.engine.unwrap_or(Engine::Docker),
        pause: greeting.pause(),
        compose: greeting.compose.clone(),
        services: BTreeMap::new(),
        first: None,
        ports: Vec::new(),
        workspace_at: BTreeMap::new(),
        volumes: Vec::new(),
        records: request.records.clone(),
        compress: greeting.far,
        notes: Vec::new(),
    })
}

/// The stack of the input that has a compose file.
fn stack<'a>(
    on: &OnHost,
    request: &'a Provision,
    wanted: &Wanted,
    made: &Made,
) -> Result<(&'a Mount, Stack)> {
    let is_meant = |mount: &&Mount| {
        !mount.read_only && wanted.input.as_ref().is_none_or(|name| *name == mount.workspace)
    };
    let mount = request.mounts.iter().find(is_meant).ok_or_else(|| Error::Usage {
        message: format!("{} makes a stack of a repository, and none was given", request.profile_id),
        hint: Some("give it: `--input repo=PATH`".to_owned()),
    })?;
    let source =
        Source { root: &mount.from, file: wanted.compose_file.as_deref(), variables: &wanted.variables };
    let model = resolve(&source)?;
    let words = Words::new(request, made, &mount.workspace, policy_of(&on.station.host)?)?;
    Ok((mount, place(&model, &words.placing(made))?))
}

/// What a host's file allows beyond what is harmless.
pub(super) fn policy_of(host: &Host) -> Result<Policy> {
    let words = host.policy.allow.iter().filter(|word| *word != GUARDED_BY_OTHERS);
    let allow = words.map(|word| word.parse::<Allowance>()).collect::<Result<_>>()?;
    Ok(Policy { allow })
}

/// The service that commands run in: the one that is named, else the only one, else the only one that has the workspace.
fn first(wanted: &Wanted, stack: &Stack) -> Result<Option<String>> {
    if let Some(name) = &wanted.service {
        let known = stack.services.iter().any(|service| service.name == *name);
        let hint = stack.services.iter().map(|service| service.name.clone()).collect::<Vec<_>>().join(", ");
        return match known {
            true => Ok(Some(name.clone())),
            false => Err(Error::Usage {
                message: format!("the stack has no service {name:?}"),
                hint: Some(format!("set options.service to one of {hint}")),
            }),
        };
    }
    let only = |services: Vec<&str>| match services[..] {
        [only] => Some(only.to_owned()),
        _ => None,
    };
    let all: Vec<&str> = stack.services.iter().map(|service| service.name.as_str()).collect();
    let working = stack.services.iter().filter(|service| service.mounts_workspace_at.is_some());
    Ok(only(all).or_else(|| only(working.map(|service| service.name.as_str()).collect())))
}

fn ports(stack: &Stack) -> Vec<Port> {
    let of = |service: &sandboxer_compose::Service| {
        let name = service.name.clone();
        let port = move |port: &sandboxer_compose::Port| Port {
            service: name.clone(),
            port: port.container,
            protocol: port.protocol.clone(),
        };
        service.ports.iter().map(port).collect::<Vec<_>>()
    };
    stack.services.iter().flat_map(of).collect()
}

/// Where each service has the workspace.
fn at(stack: &Stack) -> BTreeMap<String, String> {
    let of = |service: &sandboxer_compose::Service| {
        Some((service.name.clone(), service.mounts_workspace_at.clone()?))
    };
    stack.services.iter().filter_map(of).collect()
}

/// A new stack begins with new lists: what an earlier one had may be gone.
fn forget_records(made: &Made) -> Result<()> {
    match std::fs::remove_dir_all(&made.records) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &made.records, error));
        }
        _ => {}
    }
    std::fs::create_dir_all(&made.records).map_err(|error| Error::io("make", &made.records, error))
}

/// A directory is as it was.
fn mode_of(sealed: &Sealed) -> String {
    if sealed.is_dir { String::new() } else { format!("{:o}", sealed.mode & 0o777) }
}

/// What a compose file names is text.
fn shown(path: &RelPath) -> String {
    path.as_path().to_string_lossy().into_owned()
}

/// A stack that is there in files, and is to run.
struct Start<'a> {
    on: &'a OnHost,
    request: &'a Provision,
    made: &'a Made,
    stack: &'a Stack,
    workspace: &'a str,
    /// Whether podman starts the services itself, and what it can do.
    podman: Option<PodmanHost>,
}

impl Start<'_> {
    /// Starts the stack, and says what containers there are then. One that begins with what was kept is made first, filled, and started then.
    ///
    /// With the first command, nothing of the stack runs yet, and nobody changes what is looked at and copied.
    fn all(&self) -> Result<Vec<Container>> {
        let mut sealing = self.sealing();
        let Stack { yaml, unordered, .. } = self.stack;
        if !self.stack.images_built.is_empty() {
            let build = Command {
                doing: "building the images",
                file: yaml,
                words: &["build", "--force-rm"],
                function: "build_images",
            };
            self.begin(build.doing);
            self.check_bases()?;
            self.compose(&build, std::mem::take(&mut sealing))?;
        }
        if let Some(kept) = &self.request.kept {
            let words = &["up", "--no-build", "--no-start"];
            let make = Command { doing: "making the services", file: unordered, words, function: "create" };
            self.compose(&make, std::mem::take(&mut sealing))?;
            self.begin("filling the volumes");
            volumes::fill(self.on, self.made, self.request.sandbox_id.as_str(), kept)?;
        }
        let words = &["up", "--no-build", "--detach", "--remove-orphans"];
        let start = Command { doing: "starting the services", file: yaml, words, function: "up" };
        self.compose(&start, sealing)
    }

    /// A build that is kept from the network has nothing fetched by what it is built from, either.
    fn check_bases(&self) -> Result<()> {
        let (station, bases) = (&self.on.station, &self.stack.bases);
        if bases.is_empty() {
            return Ok(());
        }
        let mut arguments = vec![self.made.engine.program()];
        arguments.extend(bases.iter().map(String::as_str));
        let answer = station.ask(scripts::BASES, &arguments, &[], STARTING)?;
        match answer.code {
            0 => Ok(()),
            HAS_INSTRUCTIONS => Err(Error::Refused {
                reason: format!("{}, and they could have the engine of {} fetch something", answer.complaint(), station.host.id),
                hint: Some("build from another image, or write `policy: {allow: [build-fetch]}` into the host's file, knowing what that gives away".to_owned()),
            }),
            _ => Err(station.failed("look at what is built from, on", &answer)),
        }
    }

    fn begin(&self, doing: &str) {
        self.on.context.progress.begin(doing, None);
    }

    /// Shows what a compose program says of itself: fetching an image, or waiting for a service, may take long.
    fn tell(&self, doing: &str, said: &[u8]) {
        if let Some(line) = last_line(said) {
            let own = [format!("{}_", self.made.project), format!("{}-", self.made.project)];
            let line = own.iter().fold(line, |line, own| line.replace(own, ""));
            let short: String = line.chars().take(SHOWN).collect();
            self.begin(&format!("{doing}: {short}"));
        }
    }

    fn sealing(&self) -> Sealing {
        let copy = |sealed: &Sealed| [shown(&sealed.from), sealed.name.clone(), mode_of(sealed)];
        Sealing {
            expected: self.stack.expected.iter().map(|expected| shown(&expected.path)).collect(),
            copies: self.stack.sealed.iter().map(copy).collect(),
        }
    }

    fn compose(&self, command: &Command<'_>, sealing: Sealing) -> Result<Vec<Container>> {
        self.begin(command.doing);
        let Self { on, request, made, workspace, .. } = self;
        let network = if self.is_guarded() { "guarded" } else { "open" };
        let root = format!("{}/workspaces/{workspace}", made.directory);
        let counts = [sealing.expected.len().to_string(), sealing.copies.len().to_string()];
        let mut arguments = vec![made.directory.as_str(), network, made.engine.program(), &made.controller];
        arguments.extend([request.sandbox_id.as_str(), &root, &counts[0], &counts[1]]);
        arguments.extend(sealing.expected.iter().map(String::as_str));
        arguments.extend(sealing.copies.iter().flatten().map(String::as_str));
        let program = self.program(command);
        arguments.extend(program.iter().map(String::as_str));
        let heard = |said: &[u8]| self.tell(command.doing, said);
        let file = self.file(command)?;
        let answer =
            on.station.hear(&scripts::start(), &arguments, file.as_bytes(), STARTING, Some(&heard))?;
        match answer.code {
            0 => look::read(&on.station, &String::from_utf8_lossy(&answer.stdout)),
            NO_FIREWALL => Err(unguarded(on, made.engine, &answer.complaint())),
            _ => Err(on.station.failed("start the services on", &answer)),
        }
    }

    /// What the host is sent: a compose file, or a script that calls podman.
    fn file(&self, command: &Command<'_>) -> Result<String> {
        match self.podman {
            None => Ok(command.file.to_owned()),
            Some(host) => stack_script(self.stack, &self.made.project, host),
        }
    }

    /// What runs there on that file.
    fn program(&self, command: &Command<'_>) -> Vec<String> {
        let directory = &self.made.directory;
        if self.podman.is_some() {
            return vec!["sh".to_owned(), format!("{directory}/stack.sh"), command.function.to_owned()];
        }
        let file = format!("{directory}/stack.yaml");
        let options = ["-p".to_owned(), self.made.project.clone(), "-f".to_owned(), file];
        let words = command.words.iter().map(|word| (*word).to_owned());
        self.made.compose.iter().cloned().chain(options).chain(words).collect()
    }

    /// Whether a rule of the host's firewall has to keep the stack from the host. The networks of rootless podman have no
    /// gateway.
    fn is_guarded(&self) -> bool {
        let has_gateway = self.podman.is_none_or(|host| !host.rootless);
        has_gateway && self.request.network == NetworkNeed::None && !guarded_by_others(&self.on.station.host)
    }
}

/// What podman cannot do on a host, for the user.
pub(super) fn shortcomings(greeting: &Greeting) -> Vec<String> {
    let is_limited = greeting.engine != Some(Engine::Podman) || greeting.podman().limits;
    podman_notes(is_limited, greeting.pause())
}

/// What podman cannot do, for people.
pub(crate) fn podman_notes(is_limited: bool, pause: PauseMethod) -> Vec<String> {
    let unlimited =
        "memory, processors and processes are not limited: rootless podman has no control groups there";
    let signals = "processes are paused by signals, which they can see";
    let notes = [(!is_limited).then_some(unlimited), (pause == PauseMethod::Signals).then_some(signals)];
    notes.into_iter().flatten().map(str::to_owned).collect()
}

/// The health of an engine that cannot do what the notes say.
pub(crate) fn health_despite(notes: &[String]) -> Health {
    if notes.is_empty() { Health::Healthy } else { Health::Limited(notes.join("; ")) }
}

/// What a compose program is told.
struct Command<'a> {
    /// For people.
    doing: &'a str,
    /// The stack.
    file: &'a str,
    words: &'a [&'a str],
    /// The function of podman's script that does the same.
    function: &'a str,
}

/// What has to be as it was resolved, and what is copied, before anything runs.
#[derive(Default)]
struct Sealing {
    expected: Vec<String>,
    /// The path in the workspace, the name of the copy, its mode.
    copies: Vec<[String; 3]>,
}

/// Whether somebody else sees to a host's firewall.
pub(super) fn guarded_by_others(host: &Host) -> bool {
    host.policy.allow.iter().any(|word| word == GUARDED_BY_OTHERS)
}

fn unguarded(on: &OnHost, engine: Engine, why: &str) -> Error {
    let host = &on.station.host.id;
    Error::Refused {
        reason: format!(
            "a stack without a network would reach host {host} itself, and its firewall cannot be asked: {why}"
        ),
        hint: Some(format!("{}; then `sandbox hosts check {host}`", rules_by_hand(engine, false))),
    }
}

/// The firewall rules that a host needs, for the user to type where sandboxer cannot set them.
pub(super) fn rules_by_hand(engine: Engine, is_root: bool) -> String {
    let input = "`iptables -I INPUT -i sbx+ -m conntrack --ctstate NEW -j DROP`";
    let forward = "`iptables -I FORWARD -i sbx+ ! -o sbx+ -j DROP`";
    let rules = match engine {
        Engine::Podman => format!("{input} and {forward}"),
        _ => input.to_owned(),
    };
    match is_root {
        true => format!("install iptables there, or type what comes to the same as {rules}"),
        false => format!(
            "type there, as root: {rules}; and write `policy: {{allow: [{GUARDED_BY_OTHERS}]}}` into the host's file"
        ),
    }
}

/// The container of each service. Some compose commands say that all is well when there is none.
fn services(on: &OnHost, found: &[Container], stack: &Stack) -> Result<BTreeMap<String, String>> {
    let services: BTreeMap<String, String> =
        found.iter().map(|container| (container.name().to_owned(), container.id.clone())).collect();
    match stack.services.iter().find(|service| !services.contains_key(&service.name)) {
        None => Ok(services),
        Some(missing) => {
            let reason = format!("there is no container of {}", missing.name);
            Err(Error::io("start the services on", &on.station.host.id, std::io::Error::other(reason)))
        }
    }
}

fn handle(request: &Provision, made: &Made) -> Handle {
    Handle {
        version: VERSION,
        sandbox_id: request.sandbox_id.clone(),
        data: json!(made),
        exec: Vec::new(),
        exec_on_terminal: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_every_rule_that_an_engine_needs() {
        for is_root in [true, false] {
            let podman = rules_by_hand(Engine::Podman, is_root);
            assert!(podman.contains("-I INPUT -i sbx+") && podman.contains("-I FORWARD -i sbx+"), "{podman}");
            let docker = rules_by_hand(Engine::Docker, is_root);
            assert!(docker.contains("-I INPUT -i sbx+") && !docker.contains("FORWARD"), "{docker}");
        }
    }
}
