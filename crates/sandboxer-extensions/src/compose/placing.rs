//! A request, in the words of a stack.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sandboxer_compose::{Limits, Network, Placing, Policy};
use sandboxer_core::config::parse_size;
use sandboxer_core::environment::{NetworkNeed, Provision, ResourceNeeds};
use sandboxer_core::{Error, Result};

use super::Made;
use crate::container::labels::labels_of;

/// Processes and threads of all services together, where the profile does not say.
const PIDS: u64 = 16_384;
/// What the bridges of stacks without a network are called; the firewall knows them by it.
const BRIDGES: &str = "sbx";
/// An address that nobody has: older engines ask the host's own servers for names even where a network leads nowhere.
const NOBODY: &str = "192.0.2.1";

/// What a stack is placed with, owned.
pub(super) struct Words {
    workspace: String,
    sealed: String,
    labels: BTreeMap<String, String>,
    network: Network,
    limits: Limits,
    policy: Policy,
    kept_volumes: BTreeSet<String>,
}

impl Words {
    pub fn new(request: &Provision, made: &Made, workspace: &str, policy: Policy) -> Result<Self> {
        Ok(Self {
            workspace: format!("{}/workspaces/{workspace}", made.directory),
            sealed: format!("{}/sealed", made.directory),
            labels: labels(request, made)?,
            network: network(&request.network)?,
            limits: limits(&request.resources)?,
            policy,
            kept_volumes: request.kept.as_deref().map_or(Ok(BTreeSet::new()), kept_volumes)?,
        })
    }

    pub fn placing<'a>(&'a self, made: &'a Made) -> Placing<'a> {
        Placing {
            project: &made.project,
            workspace: &self.workspace,
            sealed: &self.sealed,
            labels: &self.labels,
            network: self.network,
            limits: self.limits,
            bridges: BRIDGES,
            nobody: NOBODY,
            policy: &self.policy,
            kept_volumes: &self.kept_volumes,
        }
    }
}

/// The labels of everything in a stack. One names controller and sandbox together, because some engines cannot select by two.
fn labels(request: &Provision, made: &Made) -> Result<BTreeMap<String, String>> {
    let mut labels: BTreeMap<_, _> = labels_of(request, &made.controller)?.into_iter().collect();
    labels.insert("sandboxer.stack".to_owned(), format!("{}/{}", made.controller, request.sandbox_id));
    Ok(labels)
}

/// The volumes that a checkpoint has, as the stack calls them: each is a file.
fn kept_volumes(kept: &Path) -> Result<BTreeSet<String>> {
    let told = |error| Error::io("list", kept, error);
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    std::fs::read_dir(kept).map_err(told)?.map(|entry| name(entry).map_err(told)).collect()
}

fn network(need: &NetworkNeed) -> Result<Network> {
    match need {
        NetworkNeed::None => Ok(Network::Deny),
        NetworkNeed::Host => Ok(Network::Open),
        NetworkNeed::Allow(_) => Err(Error::Refused {
            reason: "a stack reaches the whole network or nothing of it; it cannot be held to a few hosts"
                .to_owned(),
            hint: Some("set the profile's network to none or host, or use ext.local".to_owned()),
        }),
    }
}

fn limits(needs: &ResourceNeeds) -> Result<Limits> {
    if let Some(disk) = &needs.disk {
        return Err(Error::Refused {
            reason: format!("a stack's disk cannot be held to {disk}"),
            hint: Some("leave resources.disk out of the profile, or use another extension".to_owned()),
        });
    }
    let memory = needs.memory.as_deref().map(parse_size).transpose()?;
    Ok(Limits { memory, cpus: needs.cpus, pids: Some(needs.pids.unwrap_or(PIDS)) })
}
