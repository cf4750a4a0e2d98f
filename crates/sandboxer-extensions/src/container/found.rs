//! What there is of ours: containers and networks, by label and name.
//!
//! docker is given a template that prints one JSON object a line. Its own `{{json .}}` joins all labels with commas, so that one value could
//! pass for another label. podman prints an array in which labels are a map.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::environment::Found;
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::call::{Bounds, LISTING};
use super::engine::{Engine, Kind, looking};
use super::labels::{HOME, SANDBOX, name_of};

const CONTAINERS: &str = r#"--format={"id":{{json .ID}},"name":{{json .Names}},"sandbox":{{json (.Label "sandboxer.sandbox")}},"state":{{json .State}},"created":{{json .CreatedAt}}}"#;
const NETWORKS: &str = r#"--format={"id":{{json .ID}},"name":{{json .Name}},"sandbox":{{json (.Label "sandboxer.sandbox")}},"state":"network","created":{{json .CreatedAt}}}"#;

/// A container or a network of ours.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Thing {
    pub id: String,
    name: String,
    sandbox: String,
    state: String,
    created: String,
}

/// What carries the label of a state directory, and of one sandbox if one is given.
pub(super) struct Labelled<'a> {
    pub home: &'a str,
    pub sandbox: Option<&'a SandboxId>,
}

impl Labelled<'_> {
    fn filters(&self) -> Vec<String> {
        let home = format!("--filter=label={HOME}={}", self.home);
        let sandbox = self.sandbox.map(|id| format!("--filter=label={SANDBOX}={}", id.as_str()));
        std::iter::once(home).chain(sandbox).collect()
    }

    pub fn containers(&self, engine: &Engine) -> Result<Vec<Thing>> {
        self.list(engine, &["ps", "--all", "--no-trunc"], CONTAINERS)
    }

    pub fn networks(&self, engine: &Engine) -> Result<Vec<Thing>> {
        self.list(engine, &["network", "ls", "--no-trunc"], NETWORKS)
    }

    fn list(&self, engine: &Engine, command: &[&str], template: &'static str) -> Result<Vec<Thing>> {
        let filters = self.filters();
        let mut arguments = command.to_vec();
        arguments.extend(filters.iter().map(String::as_str));
        arguments.push(if engine.kind() == Kind::Docker { template } else { "--format=json" });
        let said = engine.must(&arguments, &Bounds { output: LISTING, ..looking() })?;
        let parsed = match engine.kind() {
            Kind::Docker => lines(&said),
            Kind::Podman => array(&said),
        };
        let odd =
            |e: serde_json::Error| Error::io("understand", format!("{} {}", engine.program, command[0]), e);
        Ok(parsed.map_err(odd)?.into_iter().filter(|thing| self.is_ours(thing)).collect())
    }

    /// What somebody made of ours has our labels, and another name.
    fn is_ours(&self, thing: &Thing) -> bool {
        let sandbox = SandboxId::from_string(&thing.sandbox);
        name_of(&sandbox).is_ok_and(|name| name == thing.name)
            && self.sandbox.is_none_or(|wanted| *wanted == sandbox)
    }
}

fn lines(said: &[u8]) -> serde_json::Result<Vec<Thing>> {
    said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(serde_json::from_slice).collect()
}

/// One entry of podman's, of a container or of a network.
#[derive(Deserialize)]
struct Entry {
    #[serde(alias = "Id", alias = "ID")]
    id: String,
    #[serde(alias = "Name", default)]
    name: Option<String>,
    #[serde(alias = "Names", default)]
    names: Vec<String>,
    #[serde(alias = "Labels", default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(alias = "State", default)]
    state: Option<String>,
    #[serde(alias = "Created", default)]
    created: Value,
}

fn array(said: &[u8]) -> serde_json::Result<Vec<Thing>> {
    let entries: Option<Vec<Entry>> =
        if said.trim_ascii().is_empty() { None } else { serde_json::from_slice(said)? };
    Ok(entries.unwrap_or_default().into_iter().map(Thing::from).collect())
}

impl From<Entry> for Thing {
    fn from(entry: Entry) -> Self {
        let created = entry.created.as_str().map_or_else(|| entry.created.to_string(), str::to_owned);
        Self {
            id: entry.id,
            name: entry.name.or_else(|| entry.names.into_iter().next()).unwrap_or_default(),
            sandbox: entry.labels.and_then(|mut labels| labels.remove(SANDBOX)).unwrap_or_default(),
            state: entry.state.unwrap_or_else(|| "network".to_owned()),
            created,
        }
    }
}

impl Thing {
    fn what(&self) -> String {
        let id: String = self.id.chars().take(12).collect();
        match self.state.as_str() {
            "network" => format!("network {id}"),
            "running" => format!("container {id}"),
            state => format!("container {id} ({state})"),
        }
    }
}

impl From<Thing> for Found {
    fn from(thing: Thing) -> Self {
        Self {
            what: thing.what(),
            // One that is held still goes on when whoever holds it lets go.
            running: matches!(thing.state.as_str(), "running" | "paused"),
            made_at: instant(&thing.created),
            sandbox_id: SandboxId::from_string(thing.sandbox),
        }
    }
}

/// docker's `2026-11-16 21:37:48 +0000 UTC` (of networks, with fractions), podman's seconds, or RFC 3339.
fn instant(text: &str) -> Option<Timestamp> {
    if let Ok(seconds) = text.parse() {
        return Timestamp::from_second(seconds).ok();
    }
    let words: Vec<&str> = text.split(' ').take(3).collect();
    text.parse().ok().or_else(|| Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", words.join(" ")).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_of_docker_are_read() {
        let line = r#"{"id":"abcdef0123456789","name":"sandboxer-sbx_1","sandbox":"sbx_1","state":"paused","created":"2026-11-16 21:37:48 +0100 CET"}"#;
        let things = lines(format!("{line}\n{line}\n").as_bytes()).unwrap();
        assert_eq!(things.len(), 2);
        let found = Found::from(things[0].clone());
        assert_eq!((found.what.as_str(), found.running), ("container abcdef012345 (paused)", true));
        assert_eq!(found.made_at.unwrap().to_string(), "2026-11-16T20:37:48Z");
        assert!(lines(b"").unwrap().is_empty() && lines(b"no").is_err());
    }

    #[test]
    fn the_array_of_podman_is_read() {
        let said = br#"[{"Id":"abc","Names":["sandboxer-sbx_1"],"Labels":{"sandboxer.sandbox":"sbx_1"},"State":"running","Created":1700000000},
            {"name":"sandboxer-sbx_1","id":"def","labels":{"sandboxer.sandbox":"sbx_1"},"created":"2023-11-14T22:13:20Z"},
            {"Id":"ghi","Names":["other"],"Labels":null,"State":"exited","Created":1}]"#;
        let labelled = Labelled { home: "h", sandbox: None };
        let things: Vec<Thing> =
            array(said).unwrap().into_iter().filter(|thing| labelled.is_ours(thing)).collect();
        let found: Vec<Found> = things.into_iter().map(Found::from).collect();
        let words: Vec<(&str, bool)> = found.iter().map(|f| (f.what.as_str(), f.running)).collect();
        assert_eq!(words, [("container abc", true), ("network def", false)]);
        assert_eq!(found[0].made_at, found[1].made_at);
        assert!(array(b"null").unwrap().is_empty() && array(b"\n").unwrap().is_empty());
    }

    #[test]
    fn what_has_another_name_is_not_ours() {
        let thing = |name: &str, sandbox: &str| Thing {
            id: "1".into(),
            name: name.into(),
            sandbox: sandbox.into(),
            state: "running".into(),
            created: String::new(),
        };
        let (one, all) = (SandboxId::from_string("sbx_1"), Labelled { home: "h", sandbox: None });
        assert!(all.is_ours(&thing("sandboxer-sbx_1", "sbx_1")));
        assert!(!all.is_ours(&thing("mine", "sbx_1")) && !all.is_ours(&thing("sandboxer-", "")));
        let of_one = Labelled { home: "h", sandbox: Some(&one) };
        assert!(!of_one.is_ours(&thing("sandboxer-sbx_2", "sbx_2")));
    }

    #[test]
    fn times_come_in_several_forms() {
        for text in ["2023-11-14 22:13:20.5 +0000 UTC", "2023-11-14 22:13:20.500000001 +0000 UTC m=+1"] {
            assert_eq!(instant(text).unwrap().as_second(), 1_700_000_000);
        }
        assert!(instant("yesterday").is_none() && instant("").is_none());
    }
}
