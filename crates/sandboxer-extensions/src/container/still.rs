//! Holding a container still. Who dies meanwhile leaves it paused: providing it again, waiting for it and the next hold release it.

use sandboxer_core::Result;

use super::engine::{Engine, looking};
use super::state::{Container, Stage};

/// A container that stands still until this is dropped.
#[must_use]
#[derive(Debug)]
pub(super) struct Paused {
    engine: Engine,
    container: String,
}

impl Paused {
    /// Pauses a container; `None` where it does not run. One that stands still already is held, and released with us.
    pub fn hold(engine: &Engine, container: &str) -> Result<Option<Self>> {
        let held = Self { engine: engine.clone(), container: container.to_owned() };
        let arguments = ["pause", container];
        // Made before the call: if that fails half-way, dropping it releases what may be held.
        let answer = engine.ask(&arguments, &looking())?;
        if answer.status.success() {
            return Ok(Some(held));
        }
        match Container::find(engine, container)?.map(|found| found.stage()) {
            Some(Stage::Paused) => Ok(Some(held)),
            None | Some(Stage::Down) => {
                std::mem::forget(held);
                Ok(None)
            }
            Some(_) => Err(engine.failed(&arguments, &answer)),
        }
    }
}

/// Lets a container go on.
pub(super) fn release(engine: &Engine, container: &str) -> Result<()> {
    engine.look(&["unpause", container]).map(drop)
}

impl Drop for Paused {
    fn drop(&mut self) {
        // A drop cannot fail. One more try, for a daemon that was busy.
        if release(&self.engine, &self.container).is_err() {
            let _ = release(&self.engine, &self.container);
        }
    }
}
