//! The process that delivers while nobody waits.
//!
//! There is one for each state directory: it holds `courier/lock`. It gets its orders through a pipe, so that neither its arguments
//! nor its environment have anything in them, and reads a token where the orders say it is. It ends when all is told, when nothing
//! was for ten minutes, when the configuration has named another hub (the next command starts another courier), and when its
//! directory is gone.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sandboxer_core::store::Store;
use sandboxer_core::{Error, Result};
use sandboxer_keeper::process::settle_in;

use crate::delivery::{deliver_with, make_office, take_turn, try_lock};
use crate::journal::Journal;
use crate::{Orders, SUBSCRIBER, backoff, office};

/// The name that a courier is started under.
const NAME: &str = "sandbox-courier";

/// After this long without an event that was taken, it gives up.
const LONGEST: Duration = Duration::from_secs(600);

/// How long it waits for somebody who delivers by hand.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it looks whether its directory is still there.
const LOOK: Duration = Duration::from_millis(250);

/// What is passed on of the environment: where coverage is counted, and where certificates are that are trusted.
const PASSED_ON: [&str; 3] = ["LLVM_PROFILE_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Orders are no longer than this.
const MOST: u64 = 64 << 10;

/// Starts a courier from `program`, whose `main` begins with [`serve_if_asked`]; false where one is at work already. Waits for nothing.
pub fn start(program: &Path, orders: &Orders) -> Result<bool> {
    let office = make_office(&orders.home)?;
    Journal::new(&office).address(&orders.address());
    if try_lock(&office, "lock")?.is_none() {
        return Ok(false);
    }
    spawn(program, orders).map_err(|e| Error::io("start a courier from", program, e))?;
    Ok(true)
}

fn spawn(program: &Path, orders: &Orders) -> io::Result<()> {
    let mut command = Command::new(program);
    command.arg0(NAME).arg(&orders.home).current_dir("/").env_clear();
    command.envs(std::env::vars_os().filter(|(name, _)| PASSED_ON.iter().any(|passed| name == passed)));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // A pipe holds more than this without anybody reading.
    let mut pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let orders = serde_json::to_vec(orders)?;
    sandboxer_keeper::process::remember(child);
    pipe.write_all(&orders)
}

/// First thing in `main`: delivers and exits if this process was started as a courier (its name is `sandbox-courier`). Returns at once
/// in every other process.
pub fn serve_if_asked() {
    if std::env::args_os().next().as_deref() != Some(OsStr::new(NAME)) {
        return;
    }
    let orders = hear_orders();
    settle_in(c"sandbox-courier");
    let done =
        orders.map_err(|e| Error::io("read orders from", "/dev/stdin", e)).and_then(|orders| work(&orders));
    exit(i32::from(done.is_err()))
}

fn hear_orders() -> io::Result<Orders> {
    let mut text = Vec::new();
    io::stdin().lock().take(MOST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Delivers until nothing is left. What is written after the last look and before the lock is free is found by the look after that:
/// whoever wrote it and saw the lock held relies on it.
fn work(orders: &Orders) -> Result<()> {
    let office = make_office(&orders.home)?;
    let store = Store::open(&orders.home)?;
    while let Some(lock) = try_lock(&office, "lock")? {
        let emptied = empty(&store, orders, &lock);
        if let Err(error) = &emptied {
            Journal::new(&office).say(&format!("it ends: {}", in_words(error)));
        }
        drop(lock);
        if !emptied? || store.last_event()? <= store.heard(SUBSCRIBER)? {
            break;
        }
    }
    Ok(())
}

/// Whether everything was told, as opposed to given up.
fn empty(store: &Store, orders: &Orders, lock: &File) -> Result<bool> {
    let office = office(&orders.home);
    let (mut success, mut failures) = (Instant::now(), 0);
    loop {
        let turn = take_turn(&office, PATIENCE)?;
        let round = deliver_with(store, orders)?;
        drop(turn);
        if round.failure.is_none() {
            return Ok(true);
        }
        (success, failures) = if round.told > 0 { (Instant::now(), 1) } else { (success, failures + 1) };
        let wait = backoff::wait(failures);
        if success.elapsed() + wait > LONGEST {
            Journal::new(&office).say("it ends for now; the next command starts another");
            return Ok(false);
        }
        let is_wanted =
            || is_at(lock, &office.join("lock")) && Journal::new(&office).is_address(&orders.address());
        if !wait_while(wait, is_wanted) {
            return Ok(false);
        }
    }
}

/// Waits; false as soon as it is not wanted any more: its directory is gone, or events go to another hub by now.
fn wait_while(wait: Duration, is_wanted: impl Fn() -> bool) -> bool {
    let end = Instant::now() + wait;
    while Instant::now() < end && is_wanted() {
        sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    is_wanted()
}

fn is_at(lock: &File, path: &Path) -> bool {
    match (lock.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(ours), Ok(now)) => (ours.dev(), ours.ino()) == (now.dev(), now.ino()),
        _ => false,
    }
}

fn in_words(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
