//! Telling the hub, event by event.
//!
//! How far it has heard moves after it has said 2xx, never before. Whoever delivers holds `courier/turn` for as long as it does, so
//! that two never tell the same state directory's events across each other.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use sandboxer_core::environment::LifecycleEvent;
use sandboxer_core::store::Store;
use sandboxer_core::{Error, Result};

use crate::client::Hub;
use crate::cloud_event::{CloudEvent, source};
use crate::journal::{Journal, LastFailure};
use crate::{Orders, SUBSCRIBER, office};

/// So many are read at once.
const BATCH: usize = 100;

/// What came of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// How many events the hub has taken.
    pub told: u64,
    /// How many wait now.
    pub waiting: u64,
    /// Why those do.
    pub failure: Option<String>,
}

/// How things stand with the hub of a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many events it has not heard.
    pub waiting: u64,
    /// When the first of them was.
    pub since: Option<Timestamp>,
    /// What went wrong last, if nothing went well since.
    pub failure: Option<LastFailure>,
}

/// How many events wait, and why. Makes nothing.
pub fn standing(home: &Path) -> Result<Standing> {
    let store = Store::open(home)?;
    let (waiting, since) = store.waiting_after(store.heard(SUBSCRIBER)?)?;
    Ok(Standing { waiting, since, failure: Journal::new(&office(home)).last_failure() })
}

/// Tells the hub whatever it has not heard, until that is nothing or something goes wrong. Somebody else who delivers at the same
/// time is waited for, up to `patience`.
pub fn deliver(orders: &Orders, patience: Duration) -> Result<Delivery> {
    let store = Store::open(&orders.home)?;
    let _turn = take_turn(&make_office(&orders.home)?, patience)?;
    deliver_with(&store, orders)
}

/// The same for a courier, which keeps the store open.
pub(crate) fn deliver_with(store: &Store, orders: &Orders) -> Result<Delivery> {
    let journal = Journal::new(&office(&orders.home));
    let mut told = 0;
    let failure = match orders.token.read() {
        Ok(token) => tell_all(store, &Hub::new(&orders.hub, token), &journal, &mut told)?,
        Err(why) => Some(why),
    };
    if told > 0 {
        journal.say(&format!("the hub has taken {told} events"));
        journal.went_well();
    }
    let (waiting, _) = store.waiting_after(store.heard(SUBSCRIBER)?)?;
    match &failure {
        Some(why) => {
            journal.say(&format!("{why}; {waiting} wait"));
            journal.failed(why);
        }
        None => journal.went_well(),
    }
    Ok(Delivery { told, waiting, failure })
}

/// Says why it stopped, if that was not for want of events.
fn tell_all(store: &Store, hub: &Hub<'_>, journal: &Journal, told: &mut u64) -> Result<Option<String>> {
    let source = source();
    let mut heard = store.heard(SUBSCRIBER)?;
    // Events are kept for those who are known to wait for them.
    store.set_heard(SUBSCRIBER, heard)?;
    loop {
        let events = store.events_after(heard, None, BATCH)?;
        if events.is_empty() {
            return Ok(None);
        }
        for event in &events {
            if let Err(not_taken) = hub.post(&CloudEvent::new(event, &source)) {
                if not_taken.refused {
                    journal.say(&refusal(event));
                }
                return Ok(Some(not_taken.reason));
            }
            store.set_heard(SUBSCRIBER, event.seq)?;
            (heard, *told) = (event.seq, *told + 1);
        }
    }
}

fn refusal(event: &LifecycleEvent) -> String {
    format!(
        "refused: event {} of {} ({}, sequence {}); it and all after it are kept and tried again",
        event.id, event.sandbox_id, event.kind, event.seq
    )
}

/// The courier's directory, made where it is not there.
pub(crate) fn make_office(home: &Path) -> Result<std::path::PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let office = office(home);
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&office).map_err(|e| Error::io("create directory", &office, e))?;
    Ok(office)
}

/// Holds `name` in the courier's directory; nothing where somebody else does.
pub(crate) fn try_lock(office: &Path, name: &str) -> Result<Option<File>> {
    let path = office.join(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let file = opened.map_err(|e| Error::io("open", &path, e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file.into())),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(Error::io("lock", &path, e)),
    }
}

/// Waits for its turn to deliver.
pub(crate) fn take_turn(office: &Path, patience: Duration) -> Result<File> {
    let deadline = Instant::now() + patience;
    loop {
        match try_lock(office, "turn")? {
            Some(turn) => return Ok(turn),
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            None => {
                let holder = Some("a courier that waits for the hub".to_owned());
                return Err(Error::Busy { path: office.join("turn"), holder });
            }
        }
    }
}
