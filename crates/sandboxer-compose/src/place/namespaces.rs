//! What a service shares with others, and with the host.

use sandboxer_core::Result;
use serde_json::{Map, Value};

use super::Placer;
use crate::at::{At, shown};
use crate::model::Definition;
use crate::policy::Allowance;
use crate::read;

/// A namespace, the word for the host's, what sharing it means, and which values are everybody's to choose.
const SHARED: [(&str, Allowance, &str, &[&str]); 5] = [
    ("pid", Allowance::HostPid, "the host's processes are seen", &[]),
    ("ipc", Allowance::HostIpc, "the host's shared memory is used", &["private", "shareable", "none"]),
    ("uts", Allowance::HostUts, "the host's name is shared", &[]),
    ("userns_mode", Allowance::HostUserns, "the engine's user namespace is left", &[]),
    ("cgroup", Allowance::HostCgroup, "the host's cgroups are seen", &["private"]),
];

impl Placer<'_> {
    /// All namespaces but that of the network.
    pub(super) fn namespaces(
        &self,
        name: &str,
        definition: &Definition,
        out: &mut Map<String, Value>,
    ) -> Result<()> {
        for (key, word, what, usual) in SHARED {
            let Some(value) = definition.keys.get(key) else { continue };
            let at = definition.at(name, key);
            let value = read::text(value, &at)?;
            match value.as_str() {
                "" => continue,
                "host" => self.demand(word, &at, what)?,
                other if usual.contains(&other) => {}
                other => self.shared_with(key, other, &at)?,
            }
            // Not every compose program knows the key, and this is what engines do anyway.
            if key != "cgroup" || value != "private" {
                out.insert(key.to_owned(), value.into());
            }
        }
        Ok(())
    }

    /// Namespaces of a service of the same stack may be shared.
    fn shared_with(&self, key: &str, value: &str, at: &At) -> Result<()> {
        match value.strip_prefix("service:") {
            Some(other) if matches!(key, "pid" | "ipc") => self.expect_service(other, at).map(|_| ()),
            _ => Err(at
                .refuse(format!("{:?} is not among what a service may share", shown(value)), "leave it out")),
        }
    }
}
