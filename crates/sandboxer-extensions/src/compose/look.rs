//! How far the containers of a stack are, and where they are reached.

use std::collections::BTreeMap;

use sandboxer_core::environment::Endpoint;
use sandboxer_core::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::Made;
use super::scripts;
use super::station::Station;

/// One container, as the engine has it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Container {
    pub id: String,
    #[serde(default)]
    pub service: Option<String>,
    pub state: State,
    #[serde(default)]
    ports: Option<BTreeMap<String, Option<Vec<Binding>>>>,
    #[serde(default)]
    networks: Option<BTreeMap<String, Attached>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct State {
    #[serde(rename = "Status")]
    pub status: String,
    #[serde(rename = "ExitCode", default)]
    code: i64,
    #[serde(rename = "Health", default)]
    health: Option<HealthOf>,
}

#[derive(Clone, Debug, Deserialize)]
struct HealthOf {
    #[serde(rename = "Status", default)]
    status: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Binding {
    #[serde(rename = "HostPort", default)]
    port: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Attached {
    #[serde(rename = "IPAddress", default)]
    address: String,
}

/// How far a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Ready,
    /// It has done what it was for.
    Done,
    NotYet(&'static str),
    Paused,
    Down(i64),
}

impl Container {
    pub fn name(&self) -> &str {
        self.service.as_deref().filter(|name| !name.is_empty()).unwrap_or("a service")
    }

    pub fn stage(&self) -> Stage {
        let health = self.state.health.as_ref().map_or("", |health| health.status.as_str());
        match (self.state.status.as_str(), health) {
            ("running", "" | "none" | "healthy") => Stage::Ready,
            ("running", "unhealthy") => Stage::NotYet("unhealthy"),
            ("running", _) => Stage::NotYet("not healthy yet"),
            ("paused", _) => Stage::Paused,
            ("exited", _) if self.state.code == 0 => Stage::Done,
            ("exited" | "dead" | "stopped", _) => Stage::Down(self.state.code),
            _ => Stage::NotYet("starting"),
        }
    }

    /// The address that the host reaches it at.
    fn address(&self) -> Option<&str> {
        let mut networks = self.networks.iter().flat_map(BTreeMap::values);
        networks.find(|network| !network.address.is_empty()).map(|network| network.address.as_str())
    }

    /// The port of the host's loopback that a port of its is published on.
    fn published(&self, port: &str) -> Option<u16> {
        let bindings = self.ports.as_ref()?.get(port)?.as_ref()?;
        bindings.iter().find_map(|binding| binding.port.parse().ok())
    }
}

/// Every container of a sandbox.
pub(super) fn containers(station: &Station, made: &Made, sandbox: &str) -> Result<Vec<Container>> {
    let said = station.text(
        "look at the containers on",
        &scripts::look(),
        &[made.engine.program(), &made.controller, sandbox],
    )?;
    read(station, &said)
}

/// Containers as [`scripts::look`] lists them. What is no service is ours, and was left by a lost connection.
pub(super) fn read(station: &Station, said: &str) -> Result<Vec<Container>> {
    let read = |line: &str| serde_json::from_str(line).map_err(|error| odd(station, line, &error));
    let mut found: Vec<Container> =
        said.lines().filter(|line| !line.trim().is_empty()).map(read).collect::<Result<_>>()?;
    found.retain(|container| container.service.as_ref().is_some_and(|name| !name.is_empty()));
    Ok(found)
}

fn odd(station: &Station, line: &str, error: &serde_json::Error) -> Error {
    let line: String = line.chars().take(80).collect();
    let reason = format!("{error}: {line:?}");
    Error::io("understand the engine on", &station.host.id, std::io::Error::other(reason))
}

/// Where the ports of a stack are reached: from the host, and by a tunnel from here.
pub(super) fn endpoints(station: &Station, made: &Made, containers: &[Container]) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for port in &made.ports {
        let mut of = containers.iter().filter(|container| container.name() == port.service);
        let Some(container) = of.next() else { continue };
        let name = format!("{}:{}/{}", port.service, port.port, port.protocol);
        let at = match container.published(&format!("{}/{}", port.port, port.protocol)) {
            Some(published) => Some(("127.0.0.1".to_owned(), published)),
            None => container.address().map(|address| (address.to_owned(), port.port)),
        };
        let Some((host, number)) = at else { continue };
        let forward =
            (port.protocol == "tcp").then(|| station.tunnel_by_hand(port.port, &host, number)).flatten();
        endpoints.push(Endpoint { name, host, port: number, forward });
    }
    endpoints
}

/// Reads a value that another version may have written otherwise.
pub(super) fn lenient<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(value)
        .map_err(|error| Error::refused(format!("the handle of the stack cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn container(text: &str) -> Container {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn stages_are_told_apart() {
        let stage = |status: &str, health: &str, code: i64| {
            let health =
                if health.is_empty() { "null".to_owned() } else { format!(r#"{{"Status":"{health}"}}"#) };
            container(&format!(
                r#"{{"id":"1","state":{{"Status":"{status}","Health":{health},"ExitCode":{code}}}}}"#
            ))
            .stage()
        };
        assert_eq!(stage("running", "", 0), Stage::Ready);
        assert_eq!(stage("running", "healthy", 0), Stage::Ready);
        assert_eq!(stage("running", "starting", 0), Stage::NotYet("not healthy yet"));
        assert_eq!(stage("running", "unhealthy", 0), Stage::NotYet("unhealthy"));
        assert_eq!(stage("exited", "", 0), Stage::Done);
        assert_eq!(stage("exited", "", 3), Stage::Down(3));
        assert_eq!(stage("created", "", 0), Stage::NotYet("starting"));
        assert_eq!(stage("paused", "healthy", 0), Stage::Paused);
    }

    #[test]
    fn a_container_without_networks_has_no_address() {
        let said = r#"{"id":"1","service":"web","state":{"Status":"running"},"ports":{"80/tcp":[{"HostIp":"127.0.0.1","HostPort":"49153"}],"81/tcp":null},"networks":null,"mounts":null}"#;
        let container = container(said);
        assert_eq!((container.address(), container.published("80/tcp")), (None, Some(49153)));
        assert_eq!(container.published("81/tcp"), None);
    }
}
