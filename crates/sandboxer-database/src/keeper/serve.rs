//! The keeper itself: the process that an engine lives in.
//!
//! It hears through a pipe what to open, opens it, and says through another one that it is ready. From then on it answers one request
//! after the other. It ends when it is told to, and when its directory is gone; what it held is rolled back by then.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use sandboxer_core::model::{CommitResult, DiffView, Notice};
use sandboxer_core::{Error, Result};
use sandboxer_keeper::process::{Seat, settle_in, tell};
use sandboxer_keeper::socket::{PROMPT, peer};

use super::record::Record;
use super::wire::{Answer, Failure, PROTOCOL, Request, Startup, receive, send};
use crate::engine::{Engine, Prepared, Setup};
use crate::{engines, paths, view};

/// The name that a keeper is started under.
pub(crate) const NAME: &str = "sandbox-database";

/// More connections than this at once are not answered.
const MAX_CLIENTS: usize = 32;

/// How long a request waits for the one before it.
const TURN: Duration = Duration::from_secs(120);

/// First thing in `main`: serves and exits if this process was started as a keeper of a database. Returns at once in every
/// other process. There must be no second thread yet.
pub fn serve_if_asked() {
    let mut arguments = std::env::args_os();
    if arguments.next().as_deref() != Some(OsStr::new(NAME)) {
        return;
    }
    let dir = PathBuf::from(arguments.next().unwrap_or_default());
    match open(&dir) {
        Ok((seat, server)) => {
            tell(&Startup::Ready);
            seat.serve(|client| server.clone().answer_apart(client));
            server.engine().close();
            exit(0)
        }
        Err(why) => {
            tell(&why);
            exit(1)
        }
    }
}

fn open(dir: &Path) -> Result<(Seat, Arc<Server>), Startup> {
    settle_in(c"sandbox-db");
    let failed = |message: String| Startup::Failed(Failure::refusal(message));
    let mut said = String::new();
    let heard = std::io::stdin().lock().read_to_string(&mut said);
    let setup: Setup = heard
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_str(&said).map_err(|e| e.to_string()))
        .map_err(|why| failed(format!("the keeper was not told what to open: {why}")))?;
    let seat = Seat::take(dir).map_err(failed)?.ok_or(Startup::Taken)?;
    // A password is in its memory from here on.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let engine = engines::open(&setup).map_err(|error| Startup::Failed(error.into()))?;
    Ok((seat, Arc::new(Server::new(dir, engine))))
}

/// What the threads share.
pub(crate) struct Server {
    dir: PathBuf,
    engine: Mutex<Box<dyn Engine>>,
    /// Operations that were aborted before they were heard of.
    aborted: Mutex<Vec<String>>,
    /// The last operation that was made real, whether or not that could be written down.
    made_real: Mutex<Option<String>>,
    clients: AtomicUsize,
}

impl Server {
    pub(crate) fn new(dir: &Path, engine: Box<dyn Engine>) -> Self {
        let (engine, aborted, made_real) = (Mutex::new(engine), Mutex::default(), Mutex::default());
        Self { dir: dir.to_path_buf(), engine, aborted, made_real, clients: AtomicUsize::new(0) }
    }

    fn engine(&self) -> MutexGuard<'_, Box<dyn Engine>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, when the requests before are done.
    fn engine_in_turn(&self) -> Result<MutexGuard<'_, Box<dyn Engine>>> {
        let deadline = Instant::now() + TURN;
        loop {
            match self.engine.try_lock() {
                Ok(engine) => return Ok(engine),
                Err(TryLockError::Poisoned(engine)) => return Ok(engine.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::refused(
                        "the database's keeper is busy with another request".to_owned(),
                    ));
                }
            }
        }
    }

    fn aborted(&self) -> MutexGuard<'_, Vec<String>> {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made_real(&self) -> MutexGuard<'_, Option<String>> {
        self.made_real.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_apart(self: Arc<Self>, client: UnixStream) {
        if self.clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let server = self.clone();
        let answer = move || {
            server.answer(client);
            server.clients.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().spawn(answer).is_err() {
            self.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Hears one request, says one answer. Whoever cannot be heard or told has gone, or is nobody to care for.
    fn answer(&self, mut client: UnixStream) {
        let _ = client.set_read_timeout(Some(PROMPT));
        let _ = client.set_write_timeout(Some(TURN));
        let heard = admitted(&client)
            .and_then(|()| receive::<Request>(&mut client).map_err(|e| Failure::refusal(e.to_string())));
        let quits = matches!(heard, Ok((Request::Quit, _)));
        let answered =
            heard.and_then(|(request, content)| self.reply(request, &content).map_err(Failure::from));
        let (answer, content) = answered.unwrap_or_else(|failure| (Answer::Failed(failure), Vec::new()));
        let _ = send(&mut client, &answer, &content);
        if quits {
            exit(0);
        }
    }

    pub(crate) fn reply(&self, request: Request, content: &[u8]) -> Result<(Answer, Vec<u8>)> {
        if request == Request::Hello {
            return Ok(plain(Answer::Hello { protocol: PROTOCOL, pid: std::process::id() }));
        }
        let mut engine = self.engine_in_turn()?;
        let engine = &mut **engine;
        Ok(plain(match request {
            Request::Hello => Answer::Done,
            Request::Status => Answer::Status(engine.status()),
            Request::Connection => Answer::Connection(engine.connection()),
            Request::Read(path) => return Ok((Answer::Content, paths::read(engine, &path)?)),
            Request::Write(path) => Answer::Change(paths::write(engine, &path, content)?),
            Request::Diff => Answer::Diff(diff(engine)?),
            Request::Checkpoint(name) => done(engine.checkpoint(&name))?,
            Request::Restore(name) => done(engine.restore(&name))?,
            Request::Rollback => done(engine.rollback().and_then(|()| Record::forget(&self.dir)))?,
            Request::Commit { operation, digest } => {
                Answer::Committed(self.alone(engine, |engine| self.commit(engine, operation, digest))?)
            }
            Request::Prepare { operation, digest } => {
                let (result, prepared) =
                    self.alone(engine, |engine| self.prepare(engine, operation, digest))?;
                Answer::Prepared(result, prepared)
            }
            Request::Finish { operation } => Answer::Committed(self.finish(engine, &operation)?),
            Request::Abort { operation } => self.abort(engine, operation)?,
            Request::Quit => {
                engine.close();
                Answer::Done
            }
        }))
    }

    /// Does `work` while nobody else gets to the transaction: what was compared is what is committed.
    fn alone<T>(
        &self,
        engine: &mut dyn Engine,
        work: impl FnOnce(&mut dyn Engine) -> Result<T>,
    ) -> Result<T> {
        engine.hold()?;
        let done = work(engine);
        engine.release();
        done
    }

    fn commit(
        &self,
        engine: &mut dyn Engine,
        operation: String,
        digest: Option<String>,
    ) -> Result<CommitResult> {
        let record = self.begin(engine, operation, digest)?;
        // Nothing that anybody was shown: whatever else the transaction holds stays in it.
        if !record.result.entries.is_empty() {
            let committed = engine.commit(&record.operation);
            self.unless_it_failed(engine, &record, committed)?;
        }
        Ok(self.now_real(record))
    }

    /// What is real stays real: that it cannot be written down is told, and no failure of the commit.
    fn now_real(&self, record: Record) -> CommitResult {
        *self.made_real() = Some(record.operation.clone());
        let mut record = Record { committed: true, ..record };
        let written = record.write(&self.dir);
        let path = record.result.entries.first().map(|entry| entry.path.clone());
        if let (Err(error), Some(path)) = (written, path) {
            let message = format!("was committed, but that could not be written down: {error}");
            record.result.notices.push(Notice { path, message });
        }
        record.result
    }

    /// What was begun under that name.
    fn record(&self, operation: &str) -> Result<Option<Record>> {
        let is_real = self.made_real().as_deref() == Some(operation);
        Ok(Record::of(&self.dir, operation)?
            .map(|record| Record { committed: record.committed || is_real, ..record }))
    }

    fn prepare(
        &self,
        engine: &mut dyn Engine,
        operation: String,
        digest: Option<String>,
    ) -> Result<(CommitResult, Prepared)> {
        let mut record = self.begin(engine, operation, digest)?;
        let prepared = engine.prepare(&record.operation);
        record.prepared = self.unless_it_failed(engine, &record, prepared)?;
        record.write(&self.dir)?;
        Ok((record.result, record.prepared))
    }

    /// What failed and left the transaction as it was, was never begun. A new one is held where the old one has ended: of that it can still be asked
    /// what became of it.
    fn unless_it_failed<T>(&self, engine: &mut dyn Engine, record: &Record, done: Result<T>) -> Result<T> {
        if done.is_err() && engine.intent(&record.operation).is_ok_and(|now| now == record.prepared) {
            Record::forget(&self.dir)?;
        }
        done
    }

    /// Compares, and writes down what is about to be done: from here on it can be told what became of it.
    fn begin(&self, engine: &mut dyn Engine, operation: String, digest: Option<String>) -> Result<Record> {
        if self.aborted().contains(&operation) {
            return Err(Error::refused(format!("{operation} was aborted before it began")));
        }
        let DiffView { digest: found, entries, .. } = view::view(&engine.changes()?)?;
        if let Some(expected) = digest.filter(|expected| *expected != found) {
            return Err(Error::DigestMismatch { expected, found });
        }
        let result = CommitResult { digest: found, entries, ..CommitResult::default() };
        let prepared = engine.intent(&operation)?;
        let record = Record { operation, prepared, result, committed: false, vain: false };
        record.write(&self.dir)?;
        // The same name may be used again.
        *self.made_real() = None;
        Ok(record)
    }

    fn finish(&self, engine: &mut dyn Engine, operation: &str) -> Result<CommitResult> {
        let Some(record) = self.record(operation)? else { return Ok(CommitResult::default()) };
        if record.committed {
            return Ok(record.result);
        }
        engine.finish(&record.prepared)?;
        Ok(self.now_real(record))
    }

    fn abort(&self, engine: &mut dyn Engine, operation: String) -> Result<Answer> {
        let Some(record) = self.record(&operation)? else {
            self.aborted().push(operation);
            return Ok(Answer::Aborted(true));
        };
        if record.committed {
            return Ok(Answer::Committed(record.result));
        }
        let is_there = engine.abort(&record.prepared)?;
        Record::forget(&self.dir)?;
        Ok(Answer::Aborted(is_there))
    }
}

/// What differs, and whether it could be prepared.
fn diff(engine: &mut dyn Engine) -> Result<DiffView> {
    let view = view::view(&engine.changes()?)?;
    let at_decision = match engine.intent("asked")? {
        Prepared::AtDecision { reason, .. } => Some(reason),
        Prepared::Durable(_) => None,
    };
    Ok(DiffView { at_decision, ..view })
}

fn plain(answer: Answer) -> (Answer, Vec<u8>) {
    (answer, Vec::new())
}

fn done(result: Result<()>) -> Result<Answer> {
    result.map(|()| Answer::Done)
}

/// Only our own user is answered. Others cannot come through the directory, except for root.
fn admitted(client: &UnixStream) -> Result<(), Failure> {
    match peer(client) {
        Ok((_, uid)) if uid == geteuid().as_raw() => Ok(()),
        Ok(_) => Err(Failure::refusal("this keeper belongs to another user")),
        Err(e) => Err(Failure::refusal(format!("it cannot be known who asks: {e}"))),
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
