//! Whole stacks: from files to the file that is handed over.
#![allow(clippy::unwrap_used)]

mod allowed;
mod generated;
mod hostile;
mod programs;
mod property;
mod realistic;
mod rules;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sandboxer_core::{Error, Result};
use serde_json::Value;

use crate::{Allowance, Limits, Network, Placing, Policy, Source, Stack, place, resolve};

/// A workspace for one test.
pub(super) struct Workspace {
    temp: tempfile::TempDir,
    pub network: Network,
    pub limits: Limits,
    pub policy: Policy,
    pub variables: BTreeMap<String, String>,
    pub kept_volumes: BTreeSet<String>,
}

impl Workspace {
    /// With a compose file, and a few other things to refer to.
    pub fn new(compose: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let new = Self {
            temp,
            network: Network::Deny,
            limits: Limits::default(),
            policy: Policy::default(),
            variables: BTreeMap::new(),
            kept_volumes: BTreeSet::new(),
        };
        new.write("e2e/docker-compose.yml", compose);
        new.write("e2e/Dockerfile", "FROM alpine\nCOPY . /app\n");
        new.write("e2e/conf/app.conf", "x");
        new.write("data/file", "x");
        new
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.temp.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.temp.path()
    }

    pub fn open(mut self) -> Self {
        self.network = Network::Open;
        self
    }

    pub fn allowing(mut self, words: &[Allowance]) -> Self {
        self.policy.allow = words.iter().copied().collect();
        self
    }

    pub fn stack(&self) -> Result<Stack> {
        self.placed("/remote/ws", "/remote/sealed")
    }

    pub fn placed(&self, workspace: &str, sealed: &str) -> Result<Stack> {
        let source = Source { root: self.path(), file: None, variables: &self.variables };
        let labels = BTreeMap::from([("sandboxer.sandbox".to_owned(), "s1".to_owned())]);
        let placing = Placing {
            project: "sandboxer-s1",
            workspace,
            sealed,
            labels: &labels,
            network: self.network,
            limits: self.limits,
            bridges: "sbx",
            nobody: "192.0.2.1",
            policy: &self.policy,
            kept_volumes: &self.kept_volumes,
        };
        place(&resolve(&source)?, &placing)
    }

    /// The file as it is handed over, read again.
    pub fn written(&self) -> Value {
        crate::yaml::parse(&self.stack().unwrap().yaml, "stack.yaml").unwrap()
    }

    /// The sentence and the hint of what is refused.
    pub fn refusal(&self) -> (String, String) {
        match self.stack() {
            Err(Error::Refused { reason, hint }) => (reason, hint.unwrap_or_default()),
            Err(Error::Config { file, message, hint, .. }) => {
                (format!("{}: {message}", file.display()), hint.unwrap_or_default())
            }
            Err(Error::Usage { message, hint }) => (message, hint.unwrap_or_default()),
            other => panic!("{other:#?}"),
        }
    }
}

/// A workspace whose only service, `web`, has these keys.
pub(super) fn service(keys: &str) -> Workspace {
    Workspace::new(&format!("services:\n  web:\n    image: alpine\n{}", indented(keys, 4)))
}

pub(super) fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}
