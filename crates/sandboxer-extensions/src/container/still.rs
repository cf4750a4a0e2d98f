//! Holding a container still. Who dies meanwhile leaves it paused: providing it again, waiting for it and the next hold release it.

use sandboxer_core::Result;

use super::engine::{Engine, looking};
use super::state::{Container, Stage};
use crate::compose::PauseMethod;
use crate::compose::scripts::SIGNAL_PROCESSES;

/// `$1` podman, `$2` signal, `$3` container. One that does not run has no processes.
const SIGNAL: &str = r#"
pid=$("$1" container inspect --format '{{.State.Pid}}' "$3") || exit 1
[ "$pid" = 0 ] || signal_processes "$1" "$2" "$pid"
"#;

/// A container that stands still until this is dropped.
#[must_use]
#[derive(Debug)]
pub(super) struct Paused {
    engine: Engine,
    container: String,
    method: PauseMethod,
}

impl Paused {
    /// Pauses a container; `None` where it does not run. One that stands still already is held, and released with us.
    pub fn hold(engine: &Engine, container: &str, method: PauseMethod) -> Result<Option<Self>> {
        // Made before the call: if that fails half-way, dropping it releases what may be held.
        let held = Self { engine: engine.clone(), container: container.to_owned(), method };
        let Err(failure) = change(engine, container, method, "pause") else { return Ok(Some(held)) };
        match Container::find(engine, container)?.map(|found| found.stage()) {
            Some(Stage::Paused) => Ok(Some(held)),
            None | Some(Stage::Down) => {
                std::mem::forget(held);
                Ok(None)
            }
            Some(_) => Err(failure),
        }
    }
}

/// Lets a container go on.
pub(super) fn release(engine: &Engine, container: &str, method: PauseMethod) -> Result<()> {
    change(engine, container, method, "unpause")
}

/// By `pause` or `unpause`, or what stands for it.
fn change(engine: &Engine, container: &str, method: PauseMethod, command: &str) -> Result<()> {
    match method {
        PauseMethod::Engine => engine.look(&[command, container]).map(drop),
        PauseMethod::Signals => {
            let signal = if command == "pause" { "STOP" } else { "CONT" };
            let script = [SIGNAL_PROCESSES, SIGNAL].concat();
            engine.script(command, &script, &[&engine.program, signal, container], &looking())
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // A drop cannot fail. One more try, for a daemon that was busy.
        if release(&self.engine, &self.container, self.method).is_err() {
            let _ = release(&self.engine, &self.container, self.method);
        }
    }
}
