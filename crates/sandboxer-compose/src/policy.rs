//! The words by which a host lets through what a stack may not do otherwise.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use sandboxer_core::Error;
use sandboxer_core::resolve::nearest;

/// One thing that a host may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allowance {
    /// `build-fetch`
    BuildFetch,
    /// `cap-add`
    CapAdd,
    /// `cgroup-parent`
    CgroupParent,
    /// `devices`
    Devices,
    /// `engine-socket`
    EngineSocket,
    /// `external`
    External,
    /// `host-cgroup`
    HostCgroup,
    /// `host-ipc`
    HostIpc,
    /// `host-mounts`
    HostMounts,
    /// `host-network`
    HostNetwork,
    /// `host-pid`
    HostPid,
    /// `host-userns`
    HostUserns,
    /// `host-uts`
    HostUts,
    /// `labels`
    Labels,
    /// `nested-mounts`
    NestedMounts,
    /// `network-drivers`
    NetworkDrivers,
    /// `privileged`
    Privileged,
    /// `runtime`
    Runtime,
    /// `sysctls`
    Sysctls,
    /// `unconfined`
    Unconfined,
    /// `volume-drivers`
    VolumeDrivers,
}

impl Allowance {
    /// All of them, by name.
    pub const ALL: [Self; 21] = [
        Self::BuildFetch,
        Self::CapAdd,
        Self::CgroupParent,
        Self::Devices,
        Self::EngineSocket,
        Self::External,
        Self::HostCgroup,
        Self::HostIpc,
        Self::HostMounts,
        Self::HostNetwork,
        Self::HostPid,
        Self::HostUserns,
        Self::HostUts,
        Self::Labels,
        Self::NestedMounts,
        Self::NetworkDrivers,
        Self::Privileged,
        Self::Runtime,
        Self::Sysctls,
        Self::Unconfined,
        Self::VolumeDrivers,
    ];

    /// The word in a host's file.
    pub fn word(self) -> &'static str {
        self.told().0
    }

    /// What a host that allows it gives away, in one line.
    pub fn description(self) -> &'static str {
        self.told().1
    }

    fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::BuildFetch => ("build-fetch", "builds may make the engine fetch from the network"),
            Self::CapAdd => ("cap-add", "services may have capabilities beyond the engine's default"),
            Self::CgroupParent => ("cgroup-parent", "services may choose the cgroup that they run in"),
            Self::Devices => ("devices", "services may use the host's devices"),
            Self::EngineSocket => ("engine-socket", "services may reach the engine, and so the whole host"),
            Self::External => ("external", "services may use networks and volumes of others"),
            Self::HostCgroup => ("host-cgroup", "services may share the host's cgroup namespace"),
            Self::HostIpc => ("host-ipc", "services may share the host's shared memory"),
            Self::HostMounts => ("host-mounts", "services may mount any directory of the host"),
            Self::HostNetwork => ("host-network", "services may share the host's network"),
            Self::HostPid => ("host-pid", "services may see the host's processes"),
            Self::HostUserns => ("host-userns", "services may leave the engine's user namespace"),
            Self::HostUts => ("host-uts", "services may share the host's name"),
            Self::Labels => ("labels", "services may carry labels, which programs of the host may obey"),
            Self::NestedMounts => {
                ("nested-mounts", "services may mount, writable, what another could replace by a link")
            }
            Self::NetworkDrivers => ("network-drivers", "networks may have any driver, with any options"),
            Self::Privileged => ("privileged", "services may be privileged, and so own the host"),
            Self::Runtime => ("runtime", "services may choose the runtime that starts them"),
            Self::Sysctls => ("sysctls", "services may set parameters of the kernel"),
            Self::Unconfined => ("unconfined", "services may run without seccomp, AppArmor or SELinux"),
            Self::VolumeDrivers => ("volume-drivers", "volumes may have any driver, with any options"),
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Allowance {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        if let Some(found) = Self::ALL.into_iter().find(|allowance| allowance.word() == word) {
            return Ok(found);
        }
        let words: Vec<String> = Self::ALL.iter().map(ToString::to_string).collect();
        let hint = match nearest(word, words.iter()).first() {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("a policy can allow {}", words.join(", ")),
        };
        Err(Error::Usage { message: format!("a policy cannot allow {word:?}"), hint: Some(hint) })
    }
}

/// What a host allows beyond what every stack may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The words of the host's file.
    pub allow: BTreeSet<Allowance>,
}

impl Policy {
    /// Whether the host allows it.
    pub fn allows(&self, allowance: Allowance) -> bool {
        self.allow.contains(&allowance)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_word_is_its_own_name_and_is_told_in_one_line() {
        for allowance in Allowance::ALL {
            assert_eq!(allowance.word().parse::<Allowance>().unwrap(), allowance);
            assert!(!allowance.description().contains('\n') && allowance.description().len() < 100);
        }
        let mut sorted = Allowance::ALL;
        sorted.sort_by_key(|allowance| allowance.word());
        assert_eq!(sorted, Allowance::ALL);
    }

    #[test]
    fn a_word_with_a_slip_comes_with_the_nearest() {
        let error = "privilged".parse::<Allowance>().unwrap_err();
        assert!(matches!(&error, Error::Usage { hint: Some(hint), .. } if hint.contains("\"privileged\"")));
        let error = "everything".parse::<Allowance>().unwrap_err();
        assert!(matches!(&error, Error::Usage { hint: Some(hint), .. } if hint.contains("host-mounts")));
    }
}
