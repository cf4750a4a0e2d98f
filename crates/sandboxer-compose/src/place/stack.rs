//! What comes out: one file, and what whoever runs it has to know of it.

use std::collections::BTreeMap;

use sandboxer_core::Result;
use sandboxer_core::model::RelPath;
use serde_json::{Map, Value, json};

use super::{Placer, limits, write};
use crate::at::At;

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number inside of the container.
    pub container: u16,
    /// `tcp` or `udp`.
    pub protocol: String,
}

/// What is known of a service that will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The image that it runs; one of ours where it is built.
    pub image: String,
    /// The directory of the workspace that it is built from; empty for the root.
    pub built_from: Option<String>,
    /// Whether the file says how its health is asked for. The image can say so too.
    pub has_healthcheck: bool,
    /// The ports that the file publishes. Where there is no network, they are reached at the container's address.
    pub ports: Vec<Port>,
    /// Where it has the workspace's root, if it has.
    pub mounts_workspace_at: Option<String>,
    /// The services that have to be there before it, and how far: `service_started`, `service_healthy`,
    /// `service_completed_successfully`.
    pub depends_on: BTreeMap<String, String>,
    /// How many containers of it there are.
    pub replicas: u32,
}

/// A copy that is mounted read-only in place of what services could replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// What is copied, below the workspace's root.
    pub from: RelPath,
    /// What the copy is called in the directory for them.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The permission bits that the copy has.
    pub mode: u32,
}

/// A place of the workspace that the engine will be told of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expected {
    /// Which, below the workspace's root.
    pub path: RelPath,
    /// Whether it is a directory, and not a file.
    pub is_dir: bool,
}

/// A stack that can be handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Services, networks and volumes as they are in the compose file, for callers that start containers themselves.
    pub definition: Value,
    /// The compose file. It refers to nothing, and the same model gives the same bytes.
    pub yaml: String,
    /// The same without the order in which services start, for whoever makes them and starts none: docker-compose 1.29 would wait all the same for what
    /// a service depends on, which never comes.
    pub unordered: String,
    /// The services that run. One of which the file wants no container (`scale: 0`) is in the file that is handed over, and not among them.
    pub services: Vec<Service>,
    /// The volumes by the names that the engine knows them by.
    pub volumes: Vec<String>,
    /// The networks by the names that the engine knows them by.
    pub networks: Vec<String>,
    /// What has to be copied before the stack starts.
    pub sealed: Vec<Sealed>,
    /// What has to be where the stack starts, of this kind and not by way of a link: the engine would follow one.
    pub expected: Vec<Expected>,
    /// The images that are built.
    pub images_built: Vec<String>,
    /// The images that those are built from, where there is no network and the host does not allow `build-fetch`; else none. One of them that holds
    /// instructions for whoever builds from it (`.Config.OnBuild`) could make the engine fetch: whoever builds looks at each on the host beforehand,
    /// refuses those, and sees to it that none is fetched anew meanwhile. It may be more than the engine will use: stages that the target leaves
    /// out, what only looks like an instruction.
    pub bases: Vec<String>,
    /// Services of profiles that nobody asked for.
    pub left_out: Vec<String>,
    /// What was dropped or changed, for people.
    pub notes: Vec<String>,
}

impl Placer<'_> {
    /// All services, and the networks and volumes that they use.
    pub(super) fn stack(mut self) -> Result<Stack> {
        self.shares = limits::shared(&self)?;
        let (mut written, mut services) = (Map::new(), Vec::new());
        for (name, definition) in &self.model.services {
            let (value, service) = self.service(name, definition)?;
            written.insert(name.clone(), value);
            services.push(service);
        }
        let networks = self.networks(&written)?;
        let volumes = self.volumes(&written)?;
        let write = |services: Map<String, Value>| {
            write::file(services, &networks, &volumes)
                .map_err(|what| At::file(&self.model.file.to_string()).refuse(what, "make the stack smaller"))
        };
        let definition = json!({"services": &written, "networks": &networks, "volumes": &volumes});
        let (unordered, yaml) = (write(without_order(&written))?, write(written)?);
        let images_built = services
            .iter()
            .filter(|service| service.built_from.is_some())
            .map(|service| service.image.clone());
        let images_built = images_built.collect();
        services.retain(|service| service.replicas > 0);
        Ok(Stack {
            definition,
            yaml,
            unordered,
            images_built,
            bases: self.bases.take().into_iter().collect(),
            services,
            volumes: names(&volumes),
            networks: names(&networks),
            sealed: self.sealed.take(),
            expected: self.expected.take().into_iter().collect(),
            left_out: self.model.left_out.clone(),
            notes: self.notes.take(),
        })
    }
}

fn without_order(services: &Map<String, Value>) -> Map<String, Value> {
    let mut services = services.clone();
    for service in services.values_mut().filter_map(Value::as_object_mut) {
        service.remove("depends_on");
    }
    services
}

/// The names of what is the stack's own.
fn names(declared: &Map<String, Value>) -> Vec<String> {
    let own = declared.values().filter(|value| value.get("external").is_none());
    own.filter_map(|value| value["name"].as_str()).map(str::to_owned).collect()
}
