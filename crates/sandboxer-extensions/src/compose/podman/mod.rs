//! Stacks without a compose program: the resolved stack becomes a shell script that calls `podman` itself.
//!
//! podman-compose drops limits, name servers and aliases without a message, so it is never started. The script holds
//! nothing but quoted words. Names are resolved by `/etc/hosts`, with addresses that the script assigns: podman's own name
//! server would forward every question of a service to the host's.

mod arguments;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sandboxer_compose::{BRIDGE_NAME, Stack};
use sandboxer_core::{Error, Result};
use sandboxer_remote::quote;
use serde_json::{Map, Value};

use arguments::{Names, UNTRANSLATED, command_words, entries, items, service_options, text};

/// The shell function `network`, which also names the bridge.
pub(crate) const NETWORK: &str = include_str!("network.sh");
const FUNCTIONS: &str = include_str!("functions.sh");
/// The first address of a network is its gateway.
const FIRST_ADDRESS: u64 = 2;
const LAST_ADDRESS: u64 = 254;
/// Compose's defaults for a health check.
const INTERVAL: Duration = Duration::from_secs(30);
const RETRIES: u64 = 3;

/// What podman can do on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodmanHost {
    pub rootless: bool,
    /// Whether it can limit memory, processors and processes.
    pub limits: bool,
}

/// The script that makes a stack. Its first argument is `build`, `create` or `up`.
pub(super) fn stack_script(stack: &Stack, project: &str, host: PodmanHost) -> Result<String> {
    let section = |name: &str| stack.definition[name].as_object().cloned().unwrap_or_default();
    let (networks, volumes) = (section("networks"), section("volumes"));
    let services = section("services");
    let names = Names { project, volumes: &volumes };
    let writer = ScriptWriter { stack, services: &services, networks: &networks, names, host };
    writer.script()
}

/// A note for each key of a service that podman has no option for and that confines nothing.
pub(super) fn untranslated_keys(stack: &Stack) -> Vec<String> {
    let notes = |(name, service): (&String, &Value)| -> Vec<String> {
        let is_set = |key: &&&str| service.get(**key).is_some();
        let keys = UNTRANSLATED.iter().filter(is_set);
        keys.map(|key| format!("services.{name}.{key}: dropped: podman has no option for it")).collect()
    };
    entries(&stack.definition["services"]).flat_map(notes).collect()
}

struct ScriptWriter<'a> {
    stack: &'a Stack,
    services: &'a Map<String, Value>,
    networks: &'a Map<String, Value>,
    names: Names<'a>,
    host: PodmanHost,
}

impl ScriptWriter<'_> {
    fn script(&self) -> Result<String> {
        let steps = order::steps(&self.needs())?;
        let build = self.builds()?;
        let create =
            [self.create_networks()?, self.create_volumes()?, self.create_containers(&steps)?].concat();
        let up = self.starts(&steps)?;
        Ok(format!(
            "{NETWORK}{FUNCTIONS}\nbuild_images() {{\n:\n{build}}}\ncreate() {{\n:\n{create}}}\n\
             up() {{\ncreate\n{up}}}\n\"$1\"\n"
        ))
    }

    /// The services that each service refers to.
    fn needs(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        self.services.iter().map(|(name, service)| (name.as_str(), references(service))).collect()
    }

    fn builds(&self) -> Result<String> {
        let mut lines = String::new();
        for service in self.services.values().filter(|service| service.get("build").is_some()) {
            let build = &service["build"];
            let context = text(&build["context"]);
            let file = text(&build["dockerfile"]);
            let file = if file.starts_with('/') { file } else { format!("{context}/{file}") };
            let mut words = vec!["build".to_owned(), text(&service["image"]), format!("--file={file}")];
            words.extend(
                entries(&build["args"]).map(|(key, value)| format!("--build-arg={key}={}", text(value))),
            );
            words.extend(label_options(&build["labels"]));
            for (key, option) in
                [("target", "--target"), ("shm_size", "--shm-size"), ("network", "--network")]
            {
                words.extend(build.get(key).map(|value| format!("{option}={}", text(value))));
            }
            words.push(context);
            lines.push_str(&line(&words)?);
        }
        Ok(lines)
    }

    fn create_networks(&self) -> Result<String> {
        let mut lines = String::new();
        for (index, network) in self.networks.values().enumerate() {
            let name = text(&network["name"]);
            if network["external"] == true {
                continue;
            }
            let bridge = network["driver_opts"][BRIDGE_NAME].as_str().filter(|_| !self.host.rootless);
            let mut words = vec!["network".to_owned(), name.clone(), bridge.unwrap_or_default().to_owned()];
            let internal = network["internal"] == true;
            words.extend(internal.then(|| "--internal".to_owned()));
            // As root a gateway is what makes the host reach a service, and an internal network has one only with DNS.
            words.extend((self.host.rootless || !internal).then(|| "--disable-dns".to_owned()));
            words.push(format!("--driver={}", text(&network["driver"])));
            let settings = entries(&network["driver_opts"]).filter(|(key, _)| *key != BRIDGE_NAME);
            words.extend(settings.map(|(key, value)| format!("--opt={key}={}", text(value))));
            words.extend(label_options(&network["labels"]));
            lines.push_str(&line(&words)?);
            lines.push_str(&format!("net{index}=$(prefix {})\n", quoted(&name)?));
        }
        Ok(lines)
    }

    fn create_volumes(&self) -> Result<String> {
        let mut lines = String::new();
        for volume in self.names.volumes.values().filter(|volume| volume.get("external").is_none()) {
            let mut words = vec!["volume".to_owned(), text(&volume["name"])];
            words.extend(volume.get("driver").map(|driver| format!("--driver={}", text(driver))));
            words.extend(
                entries(&volume["driver_opts"]).map(|(key, value)| format!("--opt={key}={}", text(value))),
            );
            words.extend(label_options(&volume["labels"]));
            lines.push_str(&line(&words)?);
        }
        Ok(lines)
    }

    /// Containers in the order in which they refer to each other.
    fn create_containers(&self, steps: &[Vec<&str>]) -> Result<String> {
        let mut lines = String::new();
        for name in steps.iter().flatten() {
            for number in 1..=self.replicas(name) {
                lines.push_str(&self.create_container(name, number)?);
            }
        }
        Ok(lines)
    }

    fn create_container(&self, name: &str, number: u64) -> Result<String> {
        let Some(service) = self.services[name].as_object() else { return Ok(String::new()) };
        let image = text(&service["image"]);
        let policy = service.get("pull_policy").map(text).unwrap_or_default();
        let container = self.names.container(name, number);
        let mut words = vec!["container".to_owned(), container, image.clone(), qualified(&image), policy];
        words.extend(service_options(service, &self.names, self.host.limits)?);
        // By these `look` finds the services again, as with every compose program.
        words.push(format!("--label=com.docker.compose.service={name}"));
        words.push(format!("--label=com.docker.compose.project={}", self.names.project));
        words.extend(self.loopback_ports(name));
        for other in items(service.get("volumes_from").unwrap_or(&Value::Null)) {
            let other = text(other);
            let (other, mode) = other.split_once(':').unwrap_or((&other, "rw"));
            words.push(format!("--volumes-from={}:{mode}", self.names.container(other, 1)));
        }
        let network = self.network_words(name, service, number)?;
        let command = service.get("command").map(command_words).transpose()?.unwrap_or_default();
        let (words, command) = (line(&words)?, line(&command)?);
        Ok(format!("{} {network} -- {command}", words.trim_end()))
    }

    /// Ports are published on loopback if a service has a network with a way out, and always by rootless podman, whose
    /// networks the host cannot reach. As root the host reaches a container of an internal network at its address.
    fn loopback_ports(&self, name: &str) -> Vec<String> {
        let service = self.stack.services.iter().find(|service| service.name == name);
        let leads_out = |network: &str| self.networks[network]["internal"] != true;
        let is_published = self.networks_of(name).any(|network| self.host.rootless || leads_out(network));
        let ports = service.filter(|_| is_published).map(|service| &service.ports);
        let publish = |port: &sandboxer_compose::Port| {
            format!("--publish=127.0.0.1::{}/{}", port.container, port.protocol)
        };
        ports.into_iter().flatten().map(publish).collect()
    }

    /// Already quoted: the addresses are known only where the script runs.
    fn network_words(&self, name: &str, service: &Map<String, Value>, number: u64) -> Result<String> {
        if let Some(mode) = service.get("network_mode") {
            return quoted(&format!("--network={}", self.names.shared(&text(mode))));
        }
        let mut words = Vec::new();
        for network in self.networks_of(name) {
            let Some(index) = self.assigned(network) else {
                words.push(quoted(&format!("--network={}", self.network_name(network)))?);
                continue;
            };
            let address = self.address(name, number)?;
            words.push(format!(
                "{}\"$net{index}\".{address}",
                quoted(&format!("--network={}:ip=", self.network_name(network)))?
            ));
        }
        words.extend(self.host_entries(name, service)?);
        Ok(words.join(" "))
    }

    /// One entry for every name that the service can reach, its own included.
    fn host_entries(&self, name: &str, service: &Map<String, Value>) -> Result<Vec<String>> {
        let mut entries = Vec::new();
        for (other, definition) in self.services {
            let mut shared =
                self.networks_of(name).filter(|network| definition["networks"].get(network).is_some());
            let Some((network, index)) = shared.find_map(|network| Some((network, self.assigned(network)?)))
            else {
                continue;
            };
            let mut known = vec![other.clone()];
            known.extend(items(&definition["networks"][network]["aliases"]).map(text));
            known.extend(links_to(other, service));
            for number in 1..=self.replicas(other) {
                let address = self.address(other, number)?;
                let own = self.names.container(other, number);
                for known in known.iter().chain([&own]) {
                    entries.push(format!(
                        "{}\"$net{index}\".{address}",
                        quoted(&format!("--add-host={known}:"))?
                    ));
                }
            }
        }
        Ok(entries)
    }

    fn networks_of(&self, service: &str) -> impl Iterator<Item = &str> {
        entries(&self.services[service]["networks"]).map(|(name, _)| name.as_str())
    }

    fn network_name(&self, network: &str) -> String {
        text(&self.networks[network]["name"])
    }

    /// The variable that holds a network's prefix; a network that belongs to others assigns its own addresses.
    fn assigned(&self, network: &str) -> Option<usize> {
        let index = self.networks.keys().position(|key| key == network)?;
        (self.networks[network]["external"] != true).then_some(index)
    }

    fn replicas(&self, service: &str) -> u64 {
        self.services[service].get("scale").and_then(Value::as_u64).unwrap_or(1)
    }

    /// Every container has the same last number in all of its networks.
    fn address(&self, service: &str, number: u64) -> Result<u64> {
        let before = self.services.keys().take_while(|name| *name != service).map(|name| self.replicas(name));
        let address = FIRST_ADDRESS + before.sum::<u64>() + number - 1;
        if address <= LAST_ADDRESS {
            return Ok(address);
        }
        Err(Error::refused(format!(
            "a stack on podman has at most {} containers",
            LAST_ADDRESS - FIRST_ADDRESS + 1
        )))
    }

    fn starts(&self, steps: &[Vec<&str>]) -> Result<String> {
        let mut lines = String::new();
        let mut met = BTreeSet::new();
        for step in steps {
            for (name, condition) in step.iter().flat_map(|name| entries(&self.services[*name]["depends_on"]))
            {
                let condition = text(&condition["condition"]);
                if met.insert((name.clone(), condition.clone())) {
                    lines.push_str(&self.wait(name, &condition)?);
                }
            }
            let containers = step
                .iter()
                .flat_map(|name| (1..=self.replicas(name)).map(|number| self.names.container(name, number)));
            let has_networks = step.iter().any(|name| self.networks_of(name).next().is_some());
            let start = if self.host.rootless && has_networks { "start_on_networks" } else { "start" };
            let words: Vec<String> = std::iter::once(start.to_owned()).chain(containers).collect();
            if words.len() > 1 {
                lines.push_str(&line(&words)?);
            }
        }
        Ok(lines)
    }

    fn wait(&self, service: &str, condition: &str) -> Result<String> {
        let word = match condition {
            "service_healthy" => "healthy",
            "service_completed_successfully" => "completed",
            _ => return Ok(String::new()),
        };
        let seconds = self.services.get(service).map_or(0, health_seconds).to_string();
        let numbers = 1..=self.services.get(service).map_or(0, |_| self.replicas(service));
        numbers
            .map(|number| {
                line(&[
                    word.to_owned(),
                    self.names.container(service, number),
                    service.to_owned(),
                    seconds.clone(),
                ])
            })
            .collect()
    }
}

/// The services that a service refers to.
fn references(service: &Value) -> BTreeSet<&str> {
    let shared = ["network_mode", "pid", "ipc"].into_iter().filter_map(|key| service[key].as_str());
    let shared = shared.filter_map(|mode| mode.strip_prefix("service:"));
    let listed = ["links", "volumes_from"].into_iter().flat_map(|key| items(&service[key]));
    let listed = listed.filter_map(|item| item.as_str()?.split(':').next());
    let waits = entries(&service["depends_on"]).map(|(name, _)| name.as_str());
    shared.chain(listed).chain(waits).collect()
}

/// For how long a health check may fail before compose calls the service unhealthy.
fn health_seconds(service: &Value) -> u64 {
    let check = &service["healthcheck"];
    let time = |key: &str, usual: Duration| {
        let given = check[key].as_str().and_then(|text| text.strip_suffix("ms")?.parse().ok());
        given.map_or(usual, Duration::from_millis)
    };
    let each = time("interval", INTERVAL) + time("timeout", INTERVAL);
    let retries = check["retries"].as_u64().unwrap_or(RETRIES).max(1);
    let whole = time("start_period", Duration::ZERO) + each * u32::try_from(retries).unwrap_or(u32::MAX);
    whole.as_secs() + 1
}

/// The names by which a service links another one.
fn links_to(other: &str, service: &Map<String, Value>) -> Vec<String> {
    let links = items(service.get("links").unwrap_or(&Value::Null)).map(text);
    let alias = |link: String| {
        let (name, alias) = link.split_once(':')?;
        (name == other).then(|| alias.to_owned())
    };
    links.filter_map(alias).collect()
}

/// An image's name in full. docker takes a short one for one of its own registry; podman asks the host's settings.
fn qualified(image: &str) -> String {
    match image.split_once('/') {
        None => format!("docker.io/library/{image}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => image.to_owned(),
        Some(_) => format!("docker.io/{image}"),
    }
}

fn label_options(labels: &Value) -> Vec<String> {
    entries(labels).map(|(key, value)| format!("--label={key}={}", text(value))).collect()
}

/// One command of the script.
fn line(words: &[String]) -> Result<String> {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect::<Result<_>>()?;
    Ok(format!("{}\n", words.join(" ")))
}

fn quoted(word: &str) -> Result<String> {
    Ok(quote(word)?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
