//! What a runtime is to be: said once, by whoever starts it.

use std::path::PathBuf;
use std::time::Duration;

use sandboxer_keeper::paths;
use serde::{Deserialize, Serialize};

pub use sandboxer_core::config::Isolation;

/// What of the network a command can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// A loopback device of its own.
    #[default]
    None,
    /// Whatever the host can.
    Host,
    /// What these rules name, through a proxy.
    Allow(Vec<String>),
}

/// What a command may use. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes of memory, of everything inside together.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Processors, in parts of one: 1.5 is one and a half.
    pub cpus: Option<f64>,
    /// Wall time of each command.
    pub timeout: Option<Duration>,
}

/// A directory or file of the host that is shown somewhere inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Where it is now.
    #[serde(with = "paths::one")]
    pub from: PathBuf,
    /// Where it is to be.
    #[serde(with = "paths::one")]
    pub at: PathBuf,
}

/// A file of the host in whose place a link is seen, to where it really is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Where the link leads.
    #[serde(with = "paths::one")]
    pub to: PathBuf,
    /// Where it is to be.
    #[serde(with = "paths::one")]
    pub at: PathBuf,
}

/// What a runtime is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The sandbox.
    pub sandbox: String,
    /// How much is kept from a command.
    pub isolation: Isolation,
    /// What it can reach.
    pub network: Network,
    /// What it may use.
    pub limits: Limits,
    /// The workspaces, writable.
    pub workspaces: Vec<Bind>,
    /// Files that are seen as links into a workspace: programs that put other files beside them put those there.
    #[serde(default)]
    pub links: Vec<Link>,
    /// What strategies need to show besides, read-only.
    pub exposed: Vec<Bind>,
    /// The user's home directory, to be covered by a layer that is thrown away.
    #[serde(with = "paths::maybe")]
    pub home: Option<PathBuf>,
    /// What is not to be seen.
    #[serde(with = "paths::list")]
    pub hidden: Vec<PathBuf>,
    /// Where sandboxes and their mounts are kept. It is among what is hidden.
    #[serde(with = "paths::list")]
    pub state: Vec<PathBuf>,
    /// Bytes that are left free on the workspaces' filesystems: what runs is ended before it takes them.
    pub disk_reserve: u64,
    /// The process that keeps the workspaces' mounts, if one does.
    pub keeper: Option<u32>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn every_spec_survives_the_way_to_the_supervisor() {
        let odd = PathBuf::from(OsString::from_vec(b"/bad\xff\n".to_vec()));
        let bind = Bind { from: odd.clone(), at: "/plain".into() };
        let spec = Spec {
            sandbox: "sbx_1".into(),
            network: Network::Allow(vec!["a.example:443".into()]),
            limits: Limits { memory: Some(1 << 30), cpus: Some(1.5), ..Limits::default() },
            workspaces: vec![bind.clone()],
            exposed: vec![bind],
            links: vec![Link { to: odd.clone(), at: "/plain".into() }],
            home: Some(odd.clone()),
            hidden: vec![odd.clone()],
            state: vec![odd],
            ..Spec::default()
        };
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
        let homeless = Spec::default();
        let json = serde_json::to_string(&homeless).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), homeless);
    }
}
