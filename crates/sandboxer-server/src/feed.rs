//! The events as they happen, to any number of followers.
//!
//! One task reads the outbox while somebody follows, and hands each event to all. A follower is a position and a filter; one that falls
//! behind reads the store by itself. Numbers are never given twice, so a position means the same to the next server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sandboxer_core::access::{Owner, Visibility};
use sandboxer_core::environment::{LifecycleEvent, Scope};
use sandboxer_core::model::SandboxId;
use sandboxer_core::service::SandboxManager;
use tokio::sync::broadcast;

use crate::app::{App, Who};
use crate::problem::Problem;

/// How many events a follower may be behind before it has to read the store.
const BEHIND: usize = 1024;
/// How many are read at once.
pub const BATCH: usize = 500;
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
    sender: broadcast::Sender<News>,
    /// Up to where events are known to be on disk.
    durable: AtomicU64,
}

/// An event; or nothing, where there may be some in the store that were never handed out.
pub type News = Option<Arc<Fed>>;

impl Feed {
    /// Nobody follows yet.
    pub fn new() -> Self {
        Self { sender: broadcast::channel(BEHIND).0, durable: AtomicU64::new(0) }
    }

    /// What comes from now on.
    pub fn follow(&self) -> broadcast::Receiver<News> {
        self.sender.subscribe()
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
        // A store that cannot be read now is read the next time.
        if let Ok(seen) = look(&app, position).await {
            position = Some(seen);
        }
    }
}

async fn look(app: &Arc<App>, position: Option<u64>) -> Result<u64, Problem> {
    let Some(mut seen) = position else {
        let newest = app.look(&Who::Local, |manager| Ok(manager.last_event()?)).await?;
        // What came between a follower's look at the store and this one is in the store alone.
        let _ = app.feed.sender.send(None);
        return Ok(newest);
    };
    loop {
        let all = Filter { visibility: Visibility::Everything, sandbox: None };
        let batch = after(app, seen, &all, BATCH).await?;
        let Some(last) = batch.last else { return Ok(seen) };
        seen = last;
        app.metrics.events.fetch_add(batch.passing.len() as u64, Ordering::Relaxed);
        for fed in batch.passing {
            // Nobody there is fine.
            let _ = app.feed.sender.send(Some(Arc::new(fed)));
        }
    }
}

/// Some events after a position, with whose they are, oldest first.
pub struct Batch {
    /// Those that pass.
    pub passing: Vec<Fed>,
    /// The last that was looked at; nothing where there was none.
    pub last: Option<u64>,
}

/// Looks at up to `most` events after a position. What is handed out is durable: its number will never be another event's.
pub async fn after(app: &Arc<App>, seq: u64, filter: &Filter, most: usize) -> Result<Batch, Problem> {
    let (shared, filter) = (app.clone(), filter.clone());
    app.look(&Who::Local, move |manager| {
        let of = filter.sandbox.as_ref().map(|id| manager.sandbox_by_id(id)).transpose()?.flatten();
        let events = manager.events_after(seq, of.as_ref(), most)?;
        let last = events.last().map(|event| event.seq);
        if let Some(last) = last.filter(|last| *last > shared.feed.durable.load(Ordering::Acquire)) {
            manager.make_durable(last)?;
            shared.feed.durable.fetch_max(last, Ordering::AcqRel);
        }
        let mut owners = Owners::default();
        let mut passing = Vec::new();
        for event in events {
            let fed = Fed { owner: owners.of(manager, &event)?, event };
            if filter.passes(&fed) {
                passing.push(fed);
            }
        }
        Ok(Batch { passing, last })
    })
    .await
}

/// Whose sandboxes are, each looked up once.
#[derive(Default)]
struct Owners(BTreeMap<SandboxId, Option<Owner>>);

impl Owners {
    fn of(&mut self, manager: &SandboxManager, event: &LifecycleEvent) -> Result<Owner, Problem> {
        let id = &event.sandbox_id;
        if !self.0.contains_key(id) {
            self.0.insert(id.clone(), manager.sandbox_by_id(id)?.map(|sandbox| sandbox.owner()));
        }
        // An event of a sandbox that the store has forgotten is the consumer's of the event.
        Ok(self.0.get(id).cloned().flatten().unwrap_or_else(|| Owner {
            principal: None,
            consumer: event.consumer.clone(),
            scope: Scope::Consumer,
        }))
    }
}
