//! What holds each limit, for programs and for people.

use serde::{Deserialize, Serialize};

use super::text;
use crate::local::Limits;

/// What holds one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A cgroup of version 2, for everything inside together.
    CgroupV2,
    /// A cgroup of version 1, for everything inside together.
    CgroupV1,
    /// A resource limit: memory for each process, processes for each user.
    Rlimit,
    /// The set of processors that a command may run on, which it can set anew.
    Affinity,
    /// The supervisor, which kills.
    Supervisor,
    /// There is no such limit.
    #[default]
    NotAsked,
    /// It was asked for and is not held, for this reason.
    Nothing(String),
}

impl By {
    /// Whether it holds for everything inside, whatever that does.
    pub fn is_firm(&self) -> bool {
        !matches!(self, Self::Rlimit | Self::Affinity | Self::Nothing(_))
    }
}

/// What holds the limits of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Enforcement {
    /// `Limits::memory`.
    pub memory: By,
    /// `Limits::pids`.
    pub pids: By,
    /// `Limits::cpus`.
    pub cpus: By,
    /// `Limits::timeout`.
    pub timeout: By,
    /// Why a cgroup does not hold them all, where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Enforcement {
    /// One sentence for each limit that was asked for.
    pub fn sentences(&self, limits: &Limits) -> Vec<String> {
        let rows = [
            (
                limits.memory.map(|bytes| format!("memory {}", text::size(bytes))),
                &self.memory,
                ", for each process",
            ),
            (limits.pids.map(|count| format!("pids {count}")), &self.pids, ", counted for each user"),
            (limits.cpus.map(|cpus| format!("cpus {cpus}")), &self.cpus, ""),
            (limits.timeout.map(|time| format!("timeout {}", text::time(time))), &self.timeout, ""),
        ];
        let told = rows
            .into_iter()
            .filter_map(|(limit, by, scope)| Some(format!("{}: {}", limit?, words(by, scope))));
        told.collect()
    }

    /// The sentences in one line.
    pub fn describe(&self, limits: &Limits) -> String {
        self.sentences(limits).join("; ")
    }

    /// The names of the limits that were asked for and that something inside can get round.
    pub fn weak(&self) -> Vec<&'static str> {
        let all = [
            ("memory", &self.memory),
            ("pids", &self.pids),
            ("cpus", &self.cpus),
            ("timeout", &self.timeout),
        ];
        all.into_iter().filter(|(_, by)| !by.is_firm()).map(|(name, _)| name).collect()
    }
}

fn words(by: &By, scope: &str) -> String {
    match by {
        By::CgroupV2 => "by cgroup v2".to_owned(),
        By::CgroupV1 => "by cgroup v1".to_owned(),
        By::Rlimit => format!("by rlimit{scope}"),
        By::Affinity => "by processor affinity, which a command can change".to_owned(),
        By::Supervisor => "by the supervisor".to_owned(),
        By::NotAsked => "not asked for".to_owned(),
        By::Nothing(reason) => format!("not enforced: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn limits() -> Limits {
        Limits {
            memory: Some(2 << 30),
            pids: Some(512),
            cpus: Some(1.5),
            timeout: Some(Duration::from_secs(600)),
        }
    }

    #[test]
    fn people_are_told_what_holds_each_limit() {
        let enforcement = Enforcement {
            memory: By::CgroupV1,
            pids: By::Rlimit,
            cpus: By::Nothing("no".to_owned()),
            timeout: By::Supervisor,
            reason: None,
        };
        assert_eq!(
            enforcement.describe(&limits()),
            "memory 2 GiB: by cgroup v1; pids 512: by rlimit, counted for each user; cpus 1.5: not enforced: no; \
             timeout 10m: by the supervisor"
        );
        assert_eq!(enforcement.weak(), ["pids", "cpus"]);
        assert_eq!(Enforcement::default().describe(&Limits::default()), "");
        assert!(Enforcement::default().weak().is_empty());
    }

    #[test]
    fn programs_are_told_the_same() {
        let enforcement = Enforcement { cpus: By::Nothing("why".to_owned()), ..Enforcement::default() };
        let json = serde_json::to_value(&enforcement).unwrap();
        let expected =
            r#"{"memory":"not_asked","pids":"not_asked","cpus":{"nothing":"why"},"timeout":"not_asked"}"#;
        assert_eq!(json, serde_json::from_str::<serde_json::Value>(expected).unwrap());
        assert_eq!(serde_json::from_value::<Enforcement>(json).unwrap(), enforcement);
    }
}
