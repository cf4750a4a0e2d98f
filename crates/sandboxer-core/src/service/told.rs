//! What was told of sandboxes' lives.

use super::{Sandbox, SandboxManager};
use crate::Result;
use crate::environment::LifecycleEvent;

impl SandboxManager {
    /// The newest `limit` events of one sandbox or of all, oldest of them first.
    pub fn latest_events(&self, of: Option<&Sandbox>, limit: usize) -> Result<Vec<LifecycleEvent>> {
        self.store.latest_events(of.map(|sandbox| &sandbox.id), limit)
    }

    /// Events after the place `seq`, oldest first.
    pub fn events_after(&self, seq: u64, of: Option<&Sandbox>, limit: usize) -> Result<Vec<LifecycleEvent>> {
        self.store.events_after(seq, of.map(|sandbox| &sandbox.id), limit)
    }

    /// The place of the newest event; 0 where there is none.
    pub fn last_event(&self) -> Result<u64> {
        self.store.last_event()
    }
}
