//! What a container is made with: everything is taken away that was not asked for.

use std::path::Path;

use sandboxer_compose::PROXIES;
use sandboxer_core::config::parse_size;
use sandboxer_core::environment::{LOCAL_HOST, NetworkNeed, Provision, ResourceNeeds};
use sandboxer_core::{Error, Result};

use super::engine::Kind;
use super::labels::{CONFIGURATION, digest_of, labels_of, name_of};
use super::mounts;
use super::options::Wanted;

/// Processes and threads, where the profile does not say.
const PIDS: u64 = 4_096;

/// The arguments of the calls that make an environment.
#[derive(Debug)]
pub(super) struct Plan {
    /// What the container, and the network if there is one, is called.
    pub name: String,
    /// Stands for everything that is in `run`.
    pub configuration: String,
    /// Of `network create`, where ports are to be reached.
    pub network: Option<Vec<String>>,
    /// Of `run`.
    pub run: Vec<String>,
}

/// What a request comes to. `user` is who we are.
pub(super) fn plan(
    request: &Provision,
    wanted: &Wanted,
    kind: Kind,
    home: &str,
    user: (u32, u32),
) -> Result<Plan> {
    refuse_elsewhere(request)?;
    let name = name_of(&request.sandbox_id)?;
    let labels = labels_of(request, home)?.into_iter().map(|(key, value)| format!("--label={key}={value}"));
    let labels: Vec<String> = labels.collect();
    let network = has_network(request).then(|| {
        let mut network = vec!["--internal".to_owned()];
        // Podman's name server asks the host's for whatever it is asked. As root it is turned off otherwise: see `making`.
        network.extend((kind == Kind::Podman && user.0 != 0).then(|| "--disable-dns".to_owned()));
        network.extend(labels.iter().cloned().chain([name.clone()]));
        network
    });
    let mut flags = vec!["--detach".to_owned(), "--init".to_owned(), format!("--name={name}")];
    flags.extend(hardening());
    flags.extend(without_proxies(kind));
    flags.extend(limits(&request.resources)?);
    flags.extend(networking(request, &name, kind == Kind::Podman && user.0 == 0)?);
    flags.extend(identity(request, wanted, kind, user));
    flags.extend(mounts::flags(&request.mounts)?);
    flags.extend(request.mounts.first().map(|mount| format!("--workdir={}", mount.at.display())));
    flags.extend(labels);
    let tail = tail(wanted);
    let configuration = digest_of(&flags.iter().chain(&tail).cloned().collect::<Vec<_>>());
    flags.push(format!("--label={CONFIGURATION}={configuration}"));
    flags.push(format!("--pull={}", if wanted.pull { "missing" } else { "never" }));
    flags.extend(tail);
    Ok(Plan { name, configuration, network, run: flags })
}

/// Workspaces are mounted by their paths, which mean nothing on another machine.
fn refuse_elsewhere(request: &Provision) -> Result<()> {
    if request.address == LOCAL_HOST {
        return Ok(());
    }
    Err(Error::refused(format!(
        "containers are made on this machine only, and host {} is {}",
        request.host, request.address
    )))
}

/// An engine passes on what its own program knows of proxies, passwords included.
fn without_proxies(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Docker => PROXIES.iter().map(|name| format!("--env={name}=")).collect(),
        Kind::Podman => vec!["--http-proxy=false".to_owned()],
    }
}

fn hardening() -> [String; 4] {
    // What a container prints is kept by the engine: a little of it.
    ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--log-driver=json-file", "--log-opt=max-size=1m"]
        .map(str::to_owned)
}

fn limits(needs: &ResourceNeeds) -> Result<Vec<String>> {
    let mut flags = vec![format!("--pids-limit={}", needs.pids.unwrap_or(PIDS))];
    if let Some(memory) = &needs.memory {
        let bytes = parse_size(memory)?;
        // As much with swap as without: none.
        flags.extend([format!("--memory={bytes}"), format!("--memory-swap={bytes}")]);
    }
    if let Some(cpus) = needs.cpus {
        if !cpus.is_finite() || cpus <= 0.0 {
            return Err(Error::usage(format!("{cpus} is not a number of processors")));
        }
        flags.push(format!("--cpus={cpus}"));
    }
    if let Some(disk) = &needs.disk {
        let reason = format!("a container's disk cannot be held to {disk}");
        let hint = Some("leave resources.disk out of the profile, or use another extension".to_owned());
        return Err(Error::Refused { reason, hint });
    }
    Ok(flags)
}

/// Whether there has to be a network for the ports: one of its own that leads nowhere.
fn has_network(request: &Provision) -> bool {
    request.network == NetworkNeed::None && !request.reachability.ports.is_empty()
}

/// The ports of podman's internal networks as root are published and reach nobody: containers are reached at their addresses.
fn networking(request: &Provision, name: &str, by_address: bool) -> Result<Vec<String>> {
    match &request.network {
        NetworkNeed::Host => Ok(vec!["--network=host".to_owned()]),
        NetworkNeed::None if !has_network(request) => Ok(vec!["--network=none".to_owned()]),
        NetworkNeed::None => {
            let ports = request.reachability.ports.iter().filter(|_| !by_address);
            let ports = ports.map(|port| format!("--publish=127.0.0.1::{port}"));
            // An address that nobody has: older engines ask the host's own servers for names even where the network leads nowhere.
            let nobody = "--dns=192.0.2.1".to_owned();
            Ok([format!("--network={name}"), nobody].into_iter().chain(ports).collect())
        }
        NetworkNeed::Allow(_) => Err(Error::Refused {
            reason:
                "a container reaches the whole network or nothing of it; it cannot be held to a few hosts"
                    .to_owned(),
            hint: Some("set the profile's network to none or host, or use ext.local".to_owned()),
        }),
    }
}

/// Who it is inside. Without capabilities root is nobody special, so an ordinary user's files are only theirs who are that user.
fn identity(request: &Provision, wanted: &Wanted, kind: Kind, (user, group): (u32, u32)) -> Vec<String> {
    let mut flags = Vec::new();
    if request.network != NetworkNeed::Host {
        flags.push(format!("--hostname={}", hostname(&request.name)));
    }
    match (&wanted.user, kind) {
        (Some(user), _) => flags.push(format!("--user={user}")),
        (None, _) if user == 0 => {}
        (None, Kind::Docker) => flags.push(format!("--user={user}:{group}")),
        (None, Kind::Podman) => flags.push("--userns=keep-id".to_owned()),
    }
    flags
}

/// A sandbox's name, as far as a host can be called that.
fn hostname(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let host: String = name.chars().take(63).map(fits).collect();
    let host = host.trim_matches('-');
    if host.is_empty() { "sandbox".to_owned() } else { host.to_owned() }
}

/// The image and what runs in it. An image's own entry point would take our words for arguments.
fn tail(wanted: &Wanted) -> Vec<String> {
    let entry = wanted.command.first().map(|program| format!("--entrypoint={program}"));
    let rest = wanted.command.iter().skip(1).cloned();
    entry.into_iter().chain(["--".to_owned(), wanted.image.clone()]).chain(rest).collect()
}

/// What to type where an image is missing.
pub(super) fn how_to_pull(program: &str, image: &str) -> String {
    let name = Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
    format!("type `{name} pull {image}`, or set `pull: true` in the profile's options")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::super::options::Defined;
    use super::super::tests::{definition, request};
    use super::*;

    fn planned(request: &Provision, options: serde_json::Value) -> Result<Plan> {
        let wanted = Defined::of(&definition(options))?.wanted(request)?;
        plan(request, &wanted, Kind::Docker, "home", (0, 0))
    }

    fn run(request: &Provision) -> Vec<String> {
        planned(request, json!({"image": "i"})).unwrap().run
    }

    fn has(run: &[String], flag: &str) -> bool {
        run.iter().any(|word| word == flag)
    }

    #[test]
    fn nothing_is_given_that_was_not_asked_for() {
        let run = run(&request("sbx_1"));
        for flag in [
            "--network=none",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--pids-limit=4096",
            "--pull=never",
            "--init",
            "--name=sandboxer-sbx_1",
            "--hostname=my-sandbox",
        ] {
            assert!(has(&run, flag), "{flag} is not in {run:?}");
        }
        assert_eq!(run[run.len() - 4..], ["--entrypoint=sleep", "--", "i", "infinity"]);
        assert!(!run.iter().any(|word| word.starts_with("--publish") || word.starts_with("--user")));
    }

    #[test]
    fn limits_are_in_bytes_and_fractions() {
        let mut request = request("sbx_1");
        request.resources =
            ResourceNeeds { cpus: Some(1.5), memory: Some("64M".into()), pids: Some(9), disk: None };
        let run = run(&request);
        for flag in ["--cpus=1.5", "--memory=67108864", "--memory-swap=67108864", "--pids-limit=9"] {
            assert!(has(&run, flag), "{flag} is not in {run:?}");
        }
        for odd in [
            ResourceNeeds { cpus: Some(f64::NAN), ..Default::default() },
            ResourceNeeds { cpus: Some(-1.0), ..Default::default() },
            ResourceNeeds { memory: Some("much".into()), ..Default::default() },
            ResourceNeeds { disk: Some("1G".into()), ..Default::default() },
        ] {
            request.resources = odd;
            planned(&request, json!({"image": "i"})).unwrap_err();
        }
    }

    #[test]
    fn ports_get_a_network_that_leads_nowhere() {
        let mut request = request("sbx_1");
        request.reachability.ports = vec![80];
        let plan = planned(&request, json!({"image": "i"})).unwrap();
        let network = plan.network.unwrap();
        assert!(has(&network, "--internal") && has(&network, "--label=sandboxer.sandbox=sbx_1"));
        assert!(has(&plan.run, "--network=sandboxer-sbx_1") && has(&plan.run, "--publish=127.0.0.1::80"));
    }

    #[test]
    fn the_hosts_network_is_the_hosts() {
        let mut request = request("sbx_1");
        request.network = NetworkNeed::Host;
        request.reachability.ports = vec![80];
        let plan = planned(&request, json!({"image": "i"})).unwrap();
        assert!(has(&plan.run, "--network=host") && plan.network.is_none());
        assert!(!plan.run.iter().any(|word| word.starts_with("--publish") || word.starts_with("--hostname")));
        request.network = NetworkNeed::Allow(vec!["example.org".into()]);
        assert!(matches!(planned(&request, json!({"image": "i"})), Err(Error::Refused { .. })));
    }

    #[test]
    fn another_machine_is_refused() {
        let mut request = request("sbx_1");
        request.address = "ssh://other".into();
        assert!(matches!(planned(&request, json!({"image": "i"})), Err(Error::Refused { .. })));
    }

    #[test]
    fn the_configuration_is_of_everything_but_the_pulling() {
        let of = |options: serde_json::Value| planned(&request("sbx_1"), options).unwrap().configuration;
        assert_eq!(of(json!({"image": "i"})), of(json!({"image": "i", "pull": true})));
        assert_ne!(of(json!({"image": "i"})), of(json!({"image": "j"})));
        assert_ne!(of(json!({"image": "i"})), of(json!({"image": "i", "command": ["a"]})));
    }

    #[test]
    fn an_ordinary_user_is_the_same_inside() {
        let request = request("sbx_1");
        let wanted = |options| Defined::of(&definition(options)).unwrap().wanted(&request).unwrap();
        let of = |options, kind| plan(&request, &wanted(options), kind, "h", (7, 8)).unwrap().run;
        assert!(has(&of(json!({"image": "i"}), Kind::Docker), "--user=7:8"));
        assert!(has(&of(json!({"image": "i"}), Kind::Podman), "--userns=keep-id"));
        assert!(has(&of(json!({"image": "i", "user": "0"}), Kind::Docker), "--user=0"));
    }

    #[test]
    fn a_host_can_be_called_that() {
        assert_eq!(hostname("Fix Ünique_1"), "fix--nique-1");
        assert_eq!(hostname("--"), "sandbox");
        assert_eq!(hostname(&"x".repeat(99)).len(), 63);
    }
}
