//! Events: a page of them, or all that come, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use sandboxer_core::access::TokenScope;
use sandboxer_core::environment::LifecycleEvent;
use sandboxer_documents::events::{EventDocument, EventsDocument};
use serde::Deserialize;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::fine;
use super::input::{Asked, Named};
use crate::app::{App, Who};
use crate::feed::{self, Fed, Filter, News};
use crate::metrics::Gauge;
use crate::problem::Problem;

/// How many events are in a page, unless somebody says otherwise.
const PAGE: usize = 100;
const LONGEST_PAGE: usize = 1000;
/// How often a silent stream shows that it is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How many events a follower holds that its client has not taken.
const AT_ONCE: usize = 50;
/// How often is looked whether the token of a follower is still good.
const LOOK: Duration = Duration::from_secs(1);

/// Which events.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    after: Option<u64>,
    limit: Option<usize>,
}

pub async fn of_all(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
    Asked(query): Asked<EventsQuery>,
) -> Result<Response, Problem> {
    tell(app, who, &headers, query, None).await
}

pub async fn of_sandbox(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
    named: Named,
    Asked(query): Asked<EventsQuery>,
) -> Result<Response, Problem> {
    tell(app, who, &headers, query, Some(named)).await
}

async fn tell(
    app: Arc<App>,
    who: Who,
    headers: &HeaderMap,
    query: EventsQuery,
    of: Option<Named>,
) -> Result<Response, Problem> {
    who.require(TokenScope::Read, "read events")?;
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=LONGEST_PAGE).contains(&limit) {
        return Err(Problem::usage(format!("limit={limit} is not from 1 to {LONGEST_PAGE}")));
    }
    let after = query.after.map_or_else(|| last_seen(headers), |after| Ok(Some(after)))?;
    let filter = app
        .look(&who, move |manager| {
            let sandbox =
                of.map(|named| manager.find_any(&named.id)).transpose()?.map(|target| target.sandbox.id);
            Ok(Filter { visibility: manager.visibility(), sandbox })
        })
        .await?;
    match wants_stream(headers) {
        true => follow(app, who, filter, after).await,
        false => page(app, filter, after.unwrap_or(0), limit).await,
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/event-stream"))
}

fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("Last-Event-ID").filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| Problem::usage("Last-Event-ID is not the number of an event"))
}

async fn page(app: Arc<App>, filter: Filter, after: u64, limit: usize) -> Result<Response, Problem> {
    let mut events: Vec<EventDocument> = Vec::new();
    let mut seen = after;
    while events.len() < limit {
        let batch = feed::after(&app, seen, &filter, feed::BATCH).await?;
        let Some(last) = batch.last else { break };
        seen = last;
        events.extend(batch.passing.into_iter().map(|fed| EventDocument::Life(Box::new(fed.event))));
    }
    events.truncate(limit);
    fine(&EventsDocument::new(None, &events))
}

/// A follower of the events.
struct Follower {
    app: Arc<App>,
    who: Who,
    /// Until when the token counts as good.
    good_until: Instant,
    filter: Filter,
    coming: Receiver<News>,
    /// The last event that was told or passed over.
    seen: u64,
    /// What was read from the store and is not told yet.
    waiting: std::vec::IntoIter<Fed>,
    /// Whether there may be more in the store than was read.
    behind: bool,
}

async fn follow(app: Arc<App>, who: Who, filter: Filter, after: Option<u64>) -> Result<Response, Problem> {
    // Followed before the store is read: what comes in between is then in both, and told once.
    let coming = app.feed.follow();
    let newest = app.look(&Who::Local, |manager| Ok(manager.last_event()?)).await?;
    // A number that was never given would wait for events that come with it.
    let seen = after.unwrap_or(newest).min(newest);
    let follower = Follower {
        coming,
        filter,
        seen,
        behind: true,
        waiting: Vec::new().into_iter(),
        app: app.clone(),
        who,
        good_until: Instant::now() + LOOK,
    };
    let events = counted(
        app.clone(),
        stream::unfold(follower, |mut follower| async move {
            let event = follower.next().await?;
            Some((Ok::<_, Infallible>(written(&event)), follower))
        }),
    );
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)).into_response())
}

/// A stream that is on the meter as long as it is there.
fn counted<T>(app: Arc<App>, stream: impl Stream<Item = T> + Send + 'static) -> impl Stream<Item = T> + Send {
    struct Counted(Arc<App>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.metrics.followers.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    std::mem::forget(Gauge::up(&app.metrics.followers));
    let counted = Counted(app);
    let mut stream = Box::pin(stream);
    stream::poll_fn(move |context| {
        let _on_the_meter = &counted;
        stream.as_mut().poll_next(context)
    })
}

impl Follower {
    /// The next event that passes; `None` when the server ends, or the token does.
    async fn next(&mut self) -> Option<LifecycleEvent> {
        loop {
            if self.good_until <= Instant::now() && !self.is_welcome().await {
                return None;
            }
            if let Some(fed) = self.waiting.next() {
                return Some(fed.event);
            }
            if self.behind {
                let batch = feed::after(&self.app, self.seen, &self.filter, AT_ONCE).await.ok()?;
                self.behind = batch.last.is_some();
                self.seen = batch.last.unwrap_or(self.seen);
                self.waiting = batch.passing.into_iter();
                continue;
            }
            let fed = self.fed().await?;
            if let Some(fed) = fed.filter(|fed| fed.event.seq > self.seen) {
                self.seen = fed.event.seq;
                if self.filter.passes(&fed) {
                    return Some(fed.event.clone());
                }
            }
        }
    }

    /// Whether it may still follow: a token that was taken back ends what it began.
    async fn is_welcome(&mut self) -> bool {
        self.good_until = Instant::now() + LOOK;
        let Who::Caller(caller) = &self.who else { return true };
        self.app.is_good(&caller.token).await
    }

    /// The next that comes; nothing where some were missed; the end where the server ends.
    async fn fed(&mut self) -> Option<News> {
        let received = tokio::select! {
            received = self.coming.recv() => received,
            () = tokio::time::sleep_until(self.good_until.into()) => return Some(None),
            () = self.app.stopped() => return None,
        };
        match received {
            Ok(Some(fed)) => Some(Some(fed)),
            Ok(None) | Err(RecvError::Lagged(_)) => {
                self.behind = true;
                Some(None)
            }
            Err(RecvError::Closed) => None,
        }
    }
}

fn written(event: &LifecycleEvent) -> Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(event.seq.to_string()).event(&event.kind).data(data)
}
