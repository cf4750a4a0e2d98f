pub mod told;

use std::time::Duration;

use sandboxer::wiring;
use sandboxer_core::environment::LifecycleEvent;
use sandboxer_core::service::Sandbox;
use sandboxer_documents::events::{EventDocument, EventsDocument, merged};
use sandboxer_documents::reached;

use crate::cli::contain::runtimes;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session::{App, Session};
use crate::cli::{Outcome, exit, hub};

/// Without `--since`, so many of the newest are shown.
pub const NEWEST: usize = 100;

/// So many are read at once.
const BATCH: usize = 1000;

/// How often `--follow` looks.
const LOOK: Duration = Duration::from_millis(200);

/// Show what became of sandboxes, and what commands in them reached for
///
/// Each transition of a sandbox's life, with who asked for it, oldest first. With an ID also each connection that was allowed or
/// refused where hosts are allowed by name, and each path outside that something tried to write, once. Without one the events of all
/// sandboxes, the last 100 of them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox events
  sandbox events try
  sandbox events --follow --json      One JSON document a line, as it happens
  sandbox events --since 42           What came after event 42
  sandbox events --deliver            Tell the hub now what it has not heard")]
pub struct Args {
    /// Only this sandbox: its name, its id, a unique prefix of the id, or @last
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Go on until interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// Only what came after the event of this number
    #[arg(long, value_name = "SEQ")]
    pub since: Option<u64>,
    /// Tell the configured hub what it has not heard, and wait for it; exit 1 if it cannot be reached
    #[arg(long, conflicts_with_all = ["id", "follow", "since"])]
    pub deliver: bool,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if args.deliver {
        return hub::deliver(app);
    }
    if args.id.is_none() && !args.follow && !wiring::has_state(&app.places.home) {
        return show(app, None, &[]);
    }
    let session = app.open()?;
    let sandbox = args.id.as_deref().map(|id| session.find_any(id)).transpose()?.map(|target| target.sandbox);
    let mut watch = Watch::new(&session, sandbox.as_ref());
    let first = watch.first(args.since)?;
    if args.follow {
        return follow(app, &mut watch, first);
    }
    show(app, sandbox.as_ref(), &first)
}

fn show(app: &mut App, sandbox: Option<&Sandbox>, events: &[EventDocument]) -> Outcome {
    if app.ui.json {
        app.ui.document(&EventsDocument::new(sandbox, events))?;
    } else if events.is_empty() {
        match sandbox {
            Some(sandbox) => app.ui.note(format_args!("nothing to tell of {}", output::name(&sandbox.name))),
            None => app.ui.note("nothing has happened yet"),
        }
    } else {
        events.iter().try_for_each(|event| app.ui.line(told::line(event, sandbox.is_none())))?;
    }
    Ok(exit::OK)
}

/// Shows what there is and what comes, until somebody wants it to end.
fn follow(app: &mut App, watch: &mut Watch<'_>, first: Vec<EventDocument>) -> Outcome {
    let stop = watch.session.signals.cancel_flag();
    let mut events = first;
    loop {
        for event in &events {
            match app.ui.json {
                true => app.ui.line(event.json())?,
                false => app.ui.line(told::line(event, watch.sandbox.is_none()))?,
            }
        }
        app.ui.flush()?;
        if stop.is_cancelled() {
            return Ok(exit::OK);
        }
        std::thread::sleep(LOOK);
        events = watch.next()?;
    }
}

/// How far somebody who looks has seen.
struct Watch<'a> {
    session: &'a Session,
    sandbox: Option<&'a Sandbox>,
    seen: u64,
    runtime_seen: usize,
    runtime_length: u64,
}

impl<'a> Watch<'a> {
    fn new(session: &'a Session, sandbox: Option<&'a Sandbox>) -> Self {
        Self { session, sandbox, seen: 0, runtime_seen: 0, runtime_length: 0 }
    }

    /// What there is: after `since`, or the newest.
    fn first(&mut self, since: Option<u64>) -> Result<Vec<EventDocument>, CliError> {
        let (lives, after) = match since {
            Some(seq) => {
                self.seen = seq;
                (self.lives()?, self.time_of(seq)?)
            }
            None => {
                let newest = self.session.manager.latest_events(self.sandbox, NEWEST)?;
                self.seen = newest.last().map_or(0, |event| event.seq);
                (newest, None)
            }
        };
        let mut reached = self.reached()?;
        reached.retain(|event| after.is_none_or(|after| event.at_ms() >= after));
        Ok(merged(lives, reached))
    }

    /// What has come since.
    fn next(&mut self) -> Result<Vec<EventDocument>, CliError> {
        let lives = match self.session.manager.last_event()? > self.seen {
            true => self.lives()?,
            false => Vec::new(),
        };
        Ok(merged(lives, self.reached()?))
    }

    /// All events of lives that were not seen yet.
    fn lives(&mut self) -> Result<Vec<LifecycleEvent>, CliError> {
        let mut all = Vec::new();
        loop {
            let more = self.session.manager.events_after(self.seen, self.sandbox, BATCH)?;
            let Some(last) = more.last() else { return Ok(all) };
            self.seen = last.seq;
            all.extend(more);
        }
    }

    /// What commands reached for and was not seen yet.
    fn reached(&mut self) -> Result<Vec<EventDocument>, CliError> {
        let Some(sandbox) = self.sandbox else { return Ok(Vec::new()) };
        let directory = runtimes(self.session)?.directory(sandbox.id.as_str());
        let length = reached::length(&directory);
        if length == self.runtime_length {
            return Ok(Vec::new());
        }
        let events = reached::read(&directory)?;
        // A log that got shorter is another one.
        let seen = if length < self.runtime_length { 0 } else { self.runtime_seen };
        (self.runtime_seen, self.runtime_length) = (events.len(), length);
        Ok(events.into_iter().skip(seen).map(|event| EventDocument::reached(event, sandbox)).collect())
    }

    /// When an event was, in milliseconds since 1970; nothing where it is not kept.
    fn time_of(&self, seq: u64) -> Result<Option<i64>, CliError> {
        let found = self.session.manager.events_after(seq.saturating_sub(1), None, 1)?;
        Ok(found.first().filter(|event| event.seq == seq).map(|event| event.at.as_millisecond()))
    }
}
