//! What every request shares.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::access::{Caller, ProjectAccess, TokenScope};
use sandboxer_core::service::SandboxManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::backend::Backend;
use crate::feed::Feed;
use crate::metrics::Metrics;
use crate::problem::Problem;

/// For how long what was asked about a token holds for those who follow with it.
const FRESH: Duration = Duration::from_millis(900);

/// How much a client may send, and how long it may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Of a JSON document.
    pub document: usize,
    /// Of a file.
    pub file: usize,
    /// How many files are taken in at once, each in memory as a whole; others wait.
    pub files_at_once: usize,
    /// How many commands run at once; one more is refused.
    pub commands_at_once: usize,
    /// For taking a file as a whole.
    pub answer_time: Duration,
    /// For sending a body.
    pub body_time: Duration,
    /// How long a create is waited for before the answer is 202.
    pub patience: Duration,
    /// How many long operations run at once, and how many files are read; others wait.
    pub at_once: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            document: 1 << 20,
            file: 64 << 20,
            files_at_once: 8,
            commands_at_once: 256,
            answer_time: Duration::from_secs(15 * 60),
            body_time: Duration::from_secs(30),
            patience: Duration::from_secs(20),
            at_once: 32,
        }
    }
}

/// What every request shares.
pub struct App {
    pub backend: Arc<dyn Backend>,
    pub feed: Feed,
    pub metrics: Metrics,
    pub limits: Limits,
    /// Names that a `Host` header may have on TCP.
    pub hosts: Vec<String>,
    /// How far the server is.
    pub stage: watch::Receiver<Stage>,
    /// Whether the tokens of followers are still good, and when that was asked.
    good: Mutex<HashMap<String, (Instant, bool)>>,
    heavy: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    runners: Arc<Semaphore>,
}

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It serves.
    Serving,
    /// No new work; what runs may finish.
    Stopping,
    /// What still runs has to end.
    Over,
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum Who {
    /// The owner of the state directory, or root, over the Unix socket.
    Local,
    /// Whoever has the token.
    Caller(Arc<Caller>),
    /// Somebody without one, who asks whether the server is well.
    Nobody,
}

impl Who {
    /// By what name the log knows them.
    pub fn name(&self) -> &str {
        match self {
            Self::Local => "local",
            Self::Caller(caller) => &caller.principal,
            Self::Nobody => "nobody",
        }
    }

    /// Whether a scope is theirs.
    pub fn has(&self, scope: TokenScope) -> bool {
        match self {
            Self::Local => true,
            Self::Caller(caller) => caller.has(scope),
            Self::Nobody => false,
        }
    }

    /// The key of a request, so that nobody is answered with what another's request with the same key was.
    pub fn key(&self, key: &str) -> String {
        match self {
            Self::Local | Self::Nobody => key.to_owned(),
            Self::Caller(caller) => {
                let consumer = &caller.consumer;
                let (actor, project) = (&consumer.actor_type, &consumer.project);
                // A project may have any name: its length tells where it ends and the key begins.
                format!("{}/{actor}:{}:{project}/{key}", caller.principal, project.len())
            }
        }
    }

    /// The use cases as far as they are theirs.
    pub fn manager(&self, manager: &SandboxManager) -> SandboxManager {
        match self {
            Self::Local => manager.clone(),
            Self::Caller(caller) => manager.permitted_by(Arc::new(ProjectAccess::new(caller.clone()))),
            Self::Nobody => manager.permitted_by(Arc::new(ProjectAccess::new(Arc::new(Caller::nobody())))),
        }
    }

    /// Refuses whoever lacks a scope, in words.
    pub fn require(&self, scope: TokenScope, action: &str) -> Result<(), Problem> {
        if self.has(scope) {
            return Ok(());
        }
        Err(Problem::refused(format!(
            "{} may not {action}: that takes a token with the scope {scope}",
            self.name()
        )))
    }
}

impl App {
    /// Over what the program around supplies.
    pub fn new(
        backend: Arc<dyn Backend>,
        limits: Limits,
        hosts: Vec<String>,
        stage: watch::Receiver<Stage>,
    ) -> Self {
        let heavy = Arc::new(Semaphore::new(limits.at_once));
        let readers = Arc::new(Semaphore::new(limits.at_once));
        let writers = Arc::new(Semaphore::new(limits.files_at_once));
        let runners = Arc::new(Semaphore::new(limits.commands_at_once));
        let (feed, metrics, good) = (Feed::new(), Metrics::default(), Mutex::default());
        Self { feed, metrics, good, backend, limits, hosts, stage, heavy, readers, writers, runners }
    }

    /// Returns when the server is about to end.
    pub async fn stopped(&self) {
        self.reached(Stage::Stopping).await;
    }

    /// Returns when whatever runs has to end.
    pub async fn over(&self) {
        self.reached(Stage::Over).await;
    }

    async fn reached(&self, wanted: Stage) {
        // A sender that is gone is an end, too.
        let _ = self.stage.clone().wait_for(|stage| *stage >= wanted).await;
    }

    /// Whether a token that was taken is still good: asked once a second, however many follow with it.
    pub async fn is_good(self: &Arc<Self>, token: &str) -> bool {
        let before = self.tokens().get(token).copied();
        match before {
            Some((asked, good)) if asked.elapsed() < FRESH => return good,
            // Who comes while the store is asked takes the answer of before.
            _ => {
                self.tokens().insert(token.to_owned(), (Instant::now(), before.is_none_or(|(_, good)| good)))
            }
        };
        let asked = token.to_owned();
        let found = self.look(&Who::Nobody, move |manager| Ok(manager.is_good(&asked)?)).await;
        let good = found.unwrap_or(false);
        self.tokens().insert(token.to_owned(), (Instant::now(), good));
        good
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<String, (Instant, bool)>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among those whom files are read for: their clients may be slow, and a thread waits for each.
    pub async fn reading(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.place_among(&self.readers).await
    }

    /// A place among those whose files are taken in.
    pub async fn taking_in(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.place_among(&self.writers).await
    }

    /// A place among those whose commands run, if there is one.
    pub fn running(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.runners.clone().try_acquire_owned().map_err(|_| crowded())
    }

    async fn place_among(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
        let waited = tokio::time::timeout(self.limits.body_time, places.clone().acquire_owned()).await;
        waited.ok().and_then(Result::ok).ok_or_else(crowded)
    }

    /// Returns when no long operation runs any more.
    pub async fn idle(&self) {
        let all = u32::try_from(self.limits.at_once).unwrap_or(u32::MAX);
        drop(self.heavy.clone().acquire_many_owned(all).await);
    }

    /// Reads a row or two, here and now: less than another thread would take to wake up.
    pub fn glance<T>(
        &self,
        who: &Who,
        work: impl FnOnce(&SandboxManager) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        work(&who.manager(self.backend.manager()))
    }

    /// Runs something short that may wait for the disk, as far as `who` may.
    pub async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        who: &Who,
        work: impl FnOnce(&SandboxManager) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (app, who) = (self.clone(), who.clone());
        finished(tokio::task::spawn_blocking(move || work(&who.manager(app.backend.manager()))).await)
    }

    /// Runs something that may take long: so many at once, and to its end, whether or not anybody still waits for the answer.
    pub async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        who: &Who,
        work: impl FnOnce(&SandboxManager) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (app, who) = (self.clone(), who.clone());
        self.undertake(move || work(&who.manager(app.backend.manager()))).await
    }

    /// The same for work that has its own way to the use cases.
    pub async fn undertake<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        // Closed is what it never is.
        let permit = self.heavy.clone().acquire_owned().await.ok();
        finished(
            tokio::task::spawn_blocking(move || {
                let _permit = permit;
                work()
            })
            .await,
        )
    }
}

/// Too many do the same at once.
fn crowded() -> Problem {
    Problem::new(
        axum::http::StatusCode::SERVICE_UNAVAILABLE,
        sandboxer_documents::Kind::Busy,
        "too many clients ask for the same at once; try again",
    )
}

/// What came of work on another thread; work that panicked is the server's fault, not the request's.
pub fn finished<T>(joined: Result<Result<T, Problem>, tokio::task::JoinError>) -> Result<T, Problem> {
    joined.unwrap_or_else(|_| {
        Err(Problem::new(
            axum::http::StatusCode::INTERNAL_SERVER_ERROR,
            sandboxer_documents::Kind::Error,
            "the server failed at this request; its log says more",
        ))
    })
}
