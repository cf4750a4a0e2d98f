//! The events as they happen, to any number of followers.
//!
//! One task reads the outbox while somebody follows, and hands each event to all. A follower is a position and a filter; one that falls
//! behind reads the store by itself. Numbers are never given twice, so a position means the same to the next server.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandboxer_core::access::{Owner, Visibility};
use sandboxer_core::environment::LifecycleEvent;
use sandboxer_core::model::SandboxId;
use tokio::sync::broadcast;

use crate::app::{App, Who};
use crate::problem::Problem;

/// How many events a follower may be behind before it has to read the store.
const BEHIND: usize = 1024;
/// How many are read at once.
const BATCH: usize = 500;
/// How often the outbox is looked at while somebody follows.
const LOOK: Duration = Duration::from_millis(100);

/// One event, and whose it is.
#[derive(Clone, Debug)]
pub struct Fed {
    /// The event.
    pub event: LifecycleEvent,
    /// Whose sandbox it tells of.
    pub owner: Owner,
}

/// Where followers get events from.
pub struct Feed {
    sender: broadcast::Sender<Arc<Fed>>,
    /// The newest event that the first of those who came since the last look knew of.
    begun: Mutex<Option<u64>>,
}

impl Feed {
    /// Nobody follows yet.
    pub fn new() -> Self {
        Self { sender: broadcast::channel(BEHIND).0, begun: Mutex::default() }
    }

    /// What comes from now on.
    pub fn follow(&self) -> broadcast::Receiver<Arc<Fed>> {
        self.sender.subscribe()
    }

    /// Somebody follows who has read the store up to this event, or will: whatever comes after it is news to them.
    pub fn begin(&self, newest: u64) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        *begun = Some(begun.map_or(newest, |earlier| earlier.min(newest)));
    }

    fn take_begun(&self) -> Option<u64> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Which events somebody wants, and gets.
#[derive(Clone, Debug)]
pub struct Filter {
    /// What they get to see.
    pub visibility: Visibility,
    /// Of this sandbox only.
    pub sandbox: Option<SandboxId>,
}

impl Filter {
    /// Whether an event passes.
    pub fn passes(&self, fed: &Fed) -> bool {
        self.sandbox.as_ref().is_none_or(|id| *id == fed.event.sandbox_id)
            && self.visibility.includes(&fed.owner)
    }
}

/// Reads the outbox as long as the server runs.
pub async fn run(app: Arc<App>) {
    let mut position = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = app.stopped() => return,
        }
        if app.feed.sender.receiver_count() == 0 {
            // Whoever comes next begins with the store; what happens until then is not news to anybody here.
            position = None;
            continue;
        }
        // Not with the newest event as it is now: one that came since they have read the store would be told to nobody.
        let begun = app.feed.take_begun();
        let Some(seen) = position.or(begun) else { continue };
        // A store that cannot be read now is read the next time.
        position = Some(look(&app, seen).await.unwrap_or(seen));
    }
}

async fn look(app: &Arc<App>, mut seen: u64) -> Result<u64, Problem> {
    loop {
        let batch = after(app, seen, None).await?;
        let Some(last) = batch.last() else { return Ok(seen) };
        seen = last.event.seq;
        app.metrics.events.fetch_add(batch.len() as u64, Ordering::Relaxed);
        for fed in batch {
            // Nobody there is fine.
            let _ = app.feed.sender.send(Arc::new(fed));
        }
    }
}

/// Events after a position, with whose they are, oldest first.
pub async fn after(app: &Arc<App>, seq: u64, sandbox: Option<SandboxId>) -> Result<Vec<Fed>, Problem> {
    app.look(&Who::Local, move |manager| {
        let of = sandbox.map(|id| manager.sandbox_by_id(&id)).transpose()?.flatten();
        let mut owners: BTreeMap<SandboxId, Option<Owner>> = BTreeMap::new();
        let mut fed = Vec::new();
        for event in manager.events_after(seq, of.as_ref(), BATCH)? {
            let id = event.sandbox_id.clone();
            if !owners.contains_key(&id) {
                owners.insert(id.clone(), manager.sandbox_by_id(&id)?.map(|sandbox| sandbox.owner()));
            }
            // An event of a sandbox that the store has forgotten is the consumer's of the event.
            let owner = owners.get(&id).cloned().flatten().unwrap_or_else(|| Owner {
                principal: None,
                consumer: event.consumer.clone(),
                scope: sandboxer_core::environment::Scope::Consumer,
            });
            fed.push(Fed { event, owner });
        }
        Ok(fed)
    })
    .await
}
