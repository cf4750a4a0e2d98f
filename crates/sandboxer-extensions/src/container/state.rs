//! One container, as its engine sees it.

use std::collections::BTreeMap;

use sandboxer_core::environment::Endpoint;
use sandboxer_core::{Error, Result};
use serde::Deserialize;

use super::call::tame;
use super::engine::{Engine, looking};

/// How much of what an ended container said is quoted.
const LAST_LINES: &str = "--tail=20";
const QUOTED: usize = 2_000;

/// What we ask of a container. The fields' names are the engines'.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    pub id: String,
    pub state: State,
    pub config: Config,
    #[serde(default)]
    network_settings: Network,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    pub status: String,
    #[serde(default)]
    pub exit_code: i64,
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    health: Option<Health>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Health {
    #[serde(default)]
    status: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Config {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Network {
    #[serde(default)]
    ports: Option<BTreeMap<String, Option<Vec<Binding>>>>,
    #[serde(default)]
    networks: Option<BTreeMap<String, Address>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Binding {
    #[serde(default)]
    host_port: String,
}

#[derive(Debug, Deserialize)]
struct Address {
    #[serde(rename = "IPAddress", default)]
    address: String,
}

/// How far a container is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It runs, and is healthy where its image says what that is.
    Ready,
    /// Not yet, and why.
    NotYet(String),
    /// It stands still.
    Paused,
    /// It has ended, or was never started.
    Down,
}

impl Container {
    /// The container of that name or id, if there is one.
    pub fn find(engine: &Engine, name: &str) -> Result<Option<Self>> {
        let arguments = ["container", "inspect", name];
        let answer = engine.ask(&arguments, &looking())?;
        if !answer.status.success() {
            let complaint = answer.complaint().to_lowercase();
            let is_absent = complaint.contains("no such container") || complaint.contains("no such object");
            return if is_absent { Ok(None) } else { Err(engine.failed(&arguments, &answer)) };
        }
        let parsed: serde_json::Result<Vec<Self>> = serde_json::from_slice(&answer.stdout);
        let odd = |e| Error::io("understand", format!("{} container inspect", engine.program), e);
        Ok(parsed.map_err(odd)?.into_iter().next())
    }

    pub fn label(&self, key: &str) -> &str {
        self.config.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
    }

    pub fn stage(&self) -> Stage {
        let health = self.state.health.as_ref().map_or("", |health| health.status.as_str());
        match (self.state.status.as_str(), health) {
            ("running", "" | "none" | "healthy") => Stage::Ready,
            ("running", health) => Stage::NotYet(format!("its health is {health:?}")),
            ("paused", _) => Stage::Paused,
            ("created" | "configured" | "exited" | "stopped" | "dead" | "removing", _) => Stage::Down,
            (state, _) => Stage::NotYet(format!("it is {state:?}")),
        }
    }

    /// Where the ports of it are reached: as published, or at its own address where its network leads nowhere and nothing can be
    /// published.
    pub fn endpoints(&self, ports: &[u16], on_host: bool) -> Result<Vec<Endpoint>> {
        ports.iter().map(|port| self.endpoint(*port, on_host)).collect()
    }

    fn endpoint(&self, port: u16, on_host: bool) -> Result<Endpoint> {
        let name = format!("{port}/tcp");
        let loopback = "127.0.0.1".to_owned();
        if on_host {
            return Ok(Endpoint { name, host: loopback, port, forward: None });
        }
        if let Some(published) = self.published(&name) {
            return Ok(Endpoint { name, host: loopback, port: published, forward: None });
        }
        let host = self.address().ok_or_else(|| {
            Error::refused(format!(
                "port {port} of container {} is reached nowhere: it has no address",
                self.id
            ))
        })?;
        Ok(Endpoint { name, host, port, forward: None })
    }

    fn published(&self, name: &str) -> Option<u16> {
        let bindings = self.network_settings.ports.as_ref()?.get(name)?.as_ref()?;
        bindings.iter().find_map(|binding| binding.host_port.parse().ok())
    }

    fn address(&self) -> Option<String> {
        let mut networks = self.network_settings.networks.as_ref()?.values();
        networks.find(|network| !network.address.is_empty()).map(|network| network.address.clone())
    }

    /// How it ended, and the last that it said.
    pub fn last_words(&self, engine: &Engine) -> String {
        let State { status, exit_code, error, .. } = &self.state;
        let mut words = format!("it is {status}, with exit code {exit_code}");
        if !error.is_empty() {
            words += &format!(" ({})", tame(error, QUOTED));
        }
        let said = engine.ask(&["logs", LAST_LINES, &self.id], &looking());
        let said = said.map(|answer| [answer.stdout, answer.stderr].concat()).unwrap_or_default();
        let said = tame(&String::from_utf8_lossy(&said), QUOTED);
        match said.trim() {
            "" => words,
            said => format!("{words}; it said: {said}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn container(state: Value, network: Value) -> Container {
        let all = json!({"Id": "abc", "State": state, "Config": {"Labels": {"a": "b"}}, "NetworkSettings": network});
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_stage_is_of_state_and_health() {
        let of = |state: Value| container(state, json!({})).stage();
        assert_eq!(of(json!({"Status": "running"})), Stage::Ready);
        assert_eq!(of(json!({"Status": "running", "Health": {"Status": ""}})), Stage::Ready);
        assert_eq!(of(json!({"Status": "running", "Health": {"Status": "healthy"}})), Stage::Ready);
        let starting = of(json!({"Status": "running", "Health": {"Status": "starting"}}));
        assert_eq!(starting, Stage::NotYet("its health is \"starting\"".into()));
        assert_eq!(of(json!({"Status": "paused"})), Stage::Paused);
        assert_eq!(of(json!({"Status": "exited", "ExitCode": 3})), Stage::Down);
        assert_eq!(of(json!({"Status": "restarting"})), Stage::NotYet("it is \"restarting\"".into()));
    }

    #[test]
    fn a_port_is_reached_where_it_was_published_or_at_the_containers_address() {
        let network = json!({
            "Ports": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}], "81/tcp": null},
            "Networks": {"n": {"IPAddress": "172.18.0.2"}},
        });
        let container = container(json!({"Status": "running"}), network);
        let reached = |on_host| {
            let ends = container.endpoints(&[80, 81], on_host).unwrap();
            ends.into_iter().map(|end| format!("{}:{}", end.host, end.port)).collect::<Vec<_>>()
        };
        assert_eq!(reached(false), ["127.0.0.1:32768", "172.18.0.2:81"]);
        assert_eq!(reached(true), ["127.0.0.1:80", "127.0.0.1:81"]);
        assert_eq!((container.label("a"), container.label("x")), ("b", ""));
    }

    #[test]
    fn a_port_without_an_address_is_an_error() {
        let container = container(json!({"Status": "running"}), json!({"Ports": null, "Networks": null}));
        container.endpoints(&[80], false).unwrap_err();
        assert!(container.endpoints(&[], false).unwrap().is_empty());
    }
}
