//! The Rust SDK: serves a strategy on standard input and output.

use std::process::ExitCode;
use std::sync::Arc;

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{CheckpointId, CommitRequest, PlanId, RelPath, Resource, SandboxRef};
use sandboxer_core::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::STRATEGY;
use super::failure::to_wire;
use crate::envelope::message::{RpcError, code};
use crate::envelope::plugin::Welcome;
use crate::envelope::serve::{self, Served as Answered, Service, Start, need, parse};

/// A strategy, ready to be served.
pub struct Served {
    /// The nine methods.
    pub strategy: Arc<dyn SandboxStrategy>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// One line for `sandbox strategies`.
    pub summary: String,
    /// How many calls it takes at once: each on a thread of its own.
    pub concurrency: usize,
    /// Whether its commits lock the resource themselves. Otherwise the host does, from before they look until they are done.
    pub locks: bool,
}

impl Served {
    /// A strategy that takes one call at a time.
    pub fn new(strategy: impl SandboxStrategy + 'static, capabilities: Capabilities) -> Self {
        Self {
            strategy: Arc::new(strategy),
            capabilities,
            summary: String::new(),
            concurrency: 1,
            locks: false,
        }
    }
}

/// Serves `strategy` until the host is gone. What the program prints to standard output goes to standard error from here on.
pub fn serve(strategy: impl SandboxStrategy + 'static, capabilities: Capabilities) -> ExitCode {
    serve_with(move |_| Ok(Served::new(strategy, capabilities)))
}

/// The same, with a strategy that is made of what the configuration says.
pub fn serve_with(make: impl FnOnce(&Start) -> Result<Served>) -> ExitCode {
    serve::run(&STRATEGY, |start| make(start).map_err(|error| to_wire(&error)))
}

impl Service for Served {
    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn introduce(&self, welcome: &mut Welcome) {
        welcome.locks = self.locks;
        welcome.summary.clone_from(&self.summary);
        welcome.capabilities = json!(self.capabilities);
    }

    fn call(&self, method: &str, params: Value, content: &[u8]) -> Answered {
        let call: Call = parse(params)?;
        let strategy = &*self.strategy;
        let plain = |value: Value| Ok((value, Vec::new()));
        let told = |error: Error| to_wire(&error);
        match method {
            "create" => {
                plain(json!(strategy.create(need(&call.plan_id)?, need(&call.resource)?).map_err(told)?))
            }
            "read" => Ok((json!({}), strategy.read(call.sandbox()?, need(&call.path)?).map_err(told)?)),
            "write" => {
                plain(json!(strategy.write(call.sandbox()?, need(&call.path)?, content).map_err(told)?))
            }
            "diff" => plain(json!(strategy.diff(call.sandbox()?).map_err(told)?)),
            "commit" => plain(json!(strategy.commit(call.sandbox()?, &call.request).map_err(told)?)),
            "rollback" => plain(json!(strategy.rollback(call.sandbox()?).map_err(told)?)),
            "checkpoint" => {
                plain(json!(strategy.checkpoint(call.sandbox()?, need(&call.checkpoint_id)?).map_err(told)?))
            }
            "restore_checkpoint" => plain(json!(
                strategy.restore_checkpoint(call.sandbox()?, need(&call.checkpoint_id)?).map_err(told)?
            )),
            "cleanup" => plain(json!(strategy.cleanup(call.sandbox()?).map_err(told)?)),
            other => Err(RpcError::new(code::NO_METHOD, format!("no method {other:?}"))),
        }
    }
}

/// The parameters of all nine methods.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Call {
    plan_id: Option<PlanId>,
    resource: Option<Resource>,
    r#ref: Option<SandboxRef>,
    path: Option<RelPath>,
    request: CommitRequest,
    checkpoint_id: Option<CheckpointId>,
}

impl Call {
    fn sandbox(&self) -> Result<&SandboxRef, RpcError> {
        need(&self.r#ref)
    }
}
