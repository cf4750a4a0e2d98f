//! The Rust SDK: serves an extension on standard input and output.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{Handle, Provision};
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ESTIMATE_COST, EXTENSION, HEALTH, INSPECT, NOT_READY, PROVISION, TEARDOWN, WAIT_READY};
use crate::envelope::message::{RpcError, code};
use crate::envelope::plugin::Welcome;
use crate::envelope::serve::{self, Served, Service, Start, need, parse};
use crate::strategy::failure::to_wire;

/// As many calls at once as nobody waits for the making of somebody else's environment.
const AT_ONCE: usize = 8;

/// An extension, ready to be served.
pub struct ServedExtension {
    /// What makes environments.
    pub extension: Arc<dyn EnvironmentExtension>,
    /// One line about it.
    pub summary: String,
    /// How many calls it takes at once: each on a thread of its own.
    pub concurrency: usize,
}

impl ServedExtension {
    /// An extension that takes several calls at a time.
    pub fn new(extension: impl EnvironmentExtension + 'static) -> Self {
        Self { extension: Arc::new(extension), summary: String::new(), concurrency: AT_ONCE }
    }
}

/// Serves `extension` until the host is gone. What the program prints to standard output goes to standard error from here on.
pub fn serve_extension(extension: impl EnvironmentExtension + 'static) -> ExitCode {
    serve_extension_with(move |_| Ok(ServedExtension::new(extension)))
}

/// The same, with an extension that is made of what its definition says.
pub fn serve_extension_with(make: impl FnOnce(&Start) -> Result<ServedExtension>) -> ExitCode {
    serve::run(&EXTENSION, |start| make(start).map_err(|error| to_wire(&error)))
}

impl Service for ServedExtension {
    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn introduce(&self, welcome: &mut Welcome) {
        welcome.summary.clone_from(&self.summary);
    }

    fn call(&self, method: &str, params: Value, _content: &[u8]) -> Served {
        let call: Call = parse(params)?;
        let extension = &*self.extension;
        let told = |error: Error| to_wire(&error);
        let answer = match method {
            PROVISION => json!(extension.provision(need(&call.request)?).map_err(told)?),
            WAIT_READY => self.wait_ready(need(&call.handle)?, Duration::from_millis(call.deadline_ms))?,
            TEARDOWN => {
                let handle = call.handle.as_ref();
                json!(extension.teardown(need(&call.sandbox_id)?, handle).map_err(told)?)
            }
            INSPECT => json!(extension.inspect(call.sandbox_id.as_ref()).map_err(told)?),
            ESTIMATE_COST => json!(extension.estimate_cost(need(&call.request)?).map_err(told)?),
            HEALTH => json!(extension.health()),
            other => return Err(RpcError::new(code::NO_METHOD, format!("no method {other:?}"))),
        };
        Ok((answer, Vec::new()))
    }
}

impl ServedExtension {
    /// An error in time is one; after that it says what is missing still, and the host asks again while it has time itself.
    fn wait_ready(&self, handle: &Handle, deadline: Duration) -> Result<Value, RpcError> {
        let began = Instant::now();
        match self.extension.wait_ready(handle, deadline, &CancelFlag::default()) {
            Ok(ready) => Ok(json!(ready)),
            Err(error) if began.elapsed() >= deadline => {
                Err(RpcError { data: json!({"kind": NOT_READY}), ..to_wire(&error) })
            }
            Err(error) => Err(to_wire(&error)),
        }
    }
}

/// The parameters of all methods.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Call {
    request: Option<Provision>,
    handle: Option<Handle>,
    deadline_ms: u64,
    sandbox_id: Option<SandboxId>,
}
