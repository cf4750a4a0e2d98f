//! What happened on a server, and what happens, as it does.
//!
//! A stream is read by a thread of its own, so that Ctrl-C is heard while nothing happens. One that breaks off goes on after the last
//! event that was seen, whichever server answers then: numbers are never given twice.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::Duration;

use sandboxer_core::environment::LifecycleEvent;
use sandboxer_documents::events::EventDocument;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Failure, Question, query, sandbox};
use super::server::Server;
use super::{Remote, done, refuse};
use crate::cli::Outcome;
use crate::cli::commands::events::{self, NEWEST, told};
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::signals::Signals;

/// The longest page that a server gives.
const PAGE: usize = 1000;
/// How often is looked whether somebody wants it to end.
const LOOK: Duration = Duration::from_millis(100);
/// A server shows every 15 seconds that it is there.
const SILENCE: Duration = Duration::from_secs(60);
/// How long is waited before a server is asked again: at first, and at the most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

pub fn events(remote: &mut Remote<'_>, args: &events::Args) -> Outcome {
    refuse("events", &[("--deliver", args.deliver)])?;
    let place = match &args.id {
        Some(id) => sandbox(id, "/events"),
        None => "/v1/events".to_owned(),
    };
    let (found, seen) = first(remote, &place, args.since)?;
    if args.follow {
        return follow(remote, args, &place, found, seen);
    }
    let document = remote.client.joined(&Page { events: found })?;
    if remote.shown(&document)? {
        return done();
    }
    let Page { events: found } = remote.client.shaped(&document)?;
    if found.is_empty() {
        match &args.id {
            Some(id) => remote.app.ui.note(format_args!("nothing to tell of {}", output::name(id))),
            None => remote.app.ui.note("nothing has happened yet"),
        }
    }
    found.iter().try_for_each(|event| show(remote, args, event.get()))?;
    done()
}

/// A page of events.
#[derive(Deserialize, Serialize)]
struct Page {
    events: Vec<Box<RawValue>>,
}

/// What there is: after `since`, or the newest; and how far that goes.
fn first(
    remote: &Remote<'_>,
    place: &str,
    since: Option<u64>,
) -> Result<(Vec<Box<RawValue>>, u64), CliError> {
    let mut found: Vec<Box<RawValue>> = Vec::new();
    let mut seen = since.unwrap_or(0);
    loop {
        let (limit, after) = (PAGE.to_string(), seen.to_string());
        let query = query(&[("limit", Some(&limit)), ("after", Some(&after))]);
        let page = remote.client.document(Question::get(format!("{place}{query}")))?;
        let Page { events } = remote.client.shaped(&page)?;
        let count = events.len();
        let last = events.last().and_then(|event| seq(event.get())).unwrap_or(seen);
        found.extend(events);
        if since.is_none() {
            found.drain(..found.len().saturating_sub(NEWEST));
        }
        // Numbers that do not grow would be read for ever.
        if count < PAGE || last <= seen {
            seen = seen.max(last);
            break;
        }
        seen = last;
    }
    Ok((found, seen))
}

/// The number of an event.
fn seq(event: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Numbered {
        seq: u64,
    }
    serde_json::from_str::<Numbered>(event).ok().map(|event| event.seq)
}

/// One event, as a line.
fn show(remote: &mut Remote<'_>, args: &events::Args, event: &str) -> Result<(), CliError> {
    let life: LifecycleEvent = remote.client.parsed(event)?;
    let ui = &mut remote.app.ui;
    match ui.json {
        true => ui.line(event),
        false => ui.line(told::line(&EventDocument::Life(Box::new(life)), args.id.is_none())),
    }
}

/// Shows what there is and what comes, until somebody wants it to end.
fn follow(
    remote: &mut Remote<'_>,
    args: &events::Args,
    place: &str,
    found: Vec<Box<RawValue>>,
    seen: u64,
) -> Outcome {
    let failed = |error| sandboxer_core::Error::io("watch signals for", "/", error);
    let stop = Signals::install().map_err(failed)?.cancel_flag();
    found.iter().try_for_each(|event| show(remote, args, event.get()))?;
    remote.app.ui.flush()?;
    let (sender, coming) = mpsc::sync_channel(PAGE);
    let stream = Stream { server: remote.server.clone(), place: place.to_owned(), seen, sender };
    // Nobody waits for it: it ends with the program.
    std::thread::spawn(move || stream.run());
    while !stop.is_cancelled() {
        match coming.recv_timeout(LOOK) {
            Ok(Coming::Event(event)) => {
                show(remote, args, &event)?;
                remote.app.ui.flush()?;
            }
            Ok(Coming::Waiting) => {
                remote.app.ui.note("the server has gone away; waiting for it to come back")
            }
            Ok(Coming::Failed(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    done()
}

/// What a stream tells.
enum Coming {
    Event(String),
    Waiting,
    Failed(CliError),
}

/// A stream of events that begins anew where it breaks off.
struct Stream {
    server: Server,
    place: String,
    seen: u64,
    sender: SyncSender<Coming>,
}

impl Stream {
    fn run(mut self) {
        let server = self.server.clone();
        let client = Client::patient(&server, Some(SILENCE));
        let mut wait = AGAIN.0;
        loop {
            let told = match self.connect(&client) {
                Ok(true) => {
                    wait = AGAIN.0;
                    Ok(())
                }
                Ok(false) => Ok(()),
                Err(failure) if failure.may_pass && wait == AGAIN.0 => self.sender.send(Coming::Waiting),
                Err(failure) if failure.may_pass => Ok(()),
                Err(failure) => {
                    let _ = self.sender.send(Coming::Failed(failure.error));
                    return;
                }
            };
            if told.is_err() {
                return;
            }
            std::thread::sleep(wait);
            wait = (wait * 2).min(AGAIN.1);
        }
    }

    /// Reads until it breaks off; whether anything came.
    fn connect(&mut self, client: &Client<'_>) -> Result<bool, Failure> {
        let question = Question::get(self.place.as_str())
            .header("accept", "text/event-stream")
            .header("last-event-id", self.seen.to_string());
        let mut lines = BufReader::new(client.bytes(client.ask(question)?));
        let (mut data, mut line, mut came) = (String::new(), String::new(), false);
        loop {
            line.clear();
            // However it ends, it goes on with the next connection.
            if !matches!(lines.read_line(&mut line), Ok(1..)) {
                return Ok(came);
            }
            match line.trim_end_matches(['\r', '\n']) {
                "" if !data.is_empty() => {
                    came = true;
                    if !self.hand_on(std::mem::take(&mut data)) {
                        return Ok(came);
                    }
                }
                text => data.push_str(text.strip_prefix("data:").unwrap_or_default().trim_start()),
            }
        }
    }

    /// Whether somebody still wants events. One that was seen is not told again.
    fn hand_on(&mut self, data: String) -> bool {
        match seq(&data) {
            Some(seq) if seq > self.seen => {
                self.seen = seq;
                self.sender.send(Coming::Event(data)).is_ok()
            }
            _ => true,
        }
    }
}
