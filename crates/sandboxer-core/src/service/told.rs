//! What was told of sandboxes' lives.

use jiff::SignedDuration;

use super::{Sandbox, SandboxManager};
use crate::Result;
use crate::environment::{HUB, LifecycleEvent};
use crate::store::now;

/// Those who follow a server, as a subscriber.
const FOLLOWERS: &str = "followers";

/// For how long events are kept; what a hub has not heard is kept until it has.
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

impl SandboxManager {
    /// The newest `limit` events of one sandbox or of all, oldest of them first.
    pub fn latest_events(&self, of: Option<&Sandbox>, limit: usize) -> Result<Vec<LifecycleEvent>> {
        self.store.latest_events(of.map(|sandbox| &sandbox.id), limit)
    }

    /// Events after the place `seq`, oldest first.
    pub fn events_after(&self, seq: u64, of: Option<&Sandbox>, limit: usize) -> Result<Vec<LifecycleEvent>> {
        self.store.events_after(seq, of.map(|sandbox| &sandbox.id), limit)
    }

    /// Removes events that are old and that nobody waits for.
    pub(super) fn forget_old_events(&self) -> Result<()> {
        let hub = self.parts.settings.events.hub.as_ref().map(|_| HUB);
        self.store.forget_events(now() - KEPT, hub).map(drop)
    }

    /// Makes everything durable up to this event: what somebody is told of may not come to be something else by a power cut.
    pub fn make_durable(&self, seq: u64) -> Result<()> {
        self.store.set_heard(FOLLOWERS, seq)
    }

    /// The place of the newest event; 0 where there is none.
    pub fn last_event(&self) -> Result<u64> {
        self.store.last_event()
    }
}
