//! A conversation with one process: requests go out under a lock, a thread takes answers in, callers wait for theirs.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use sandboxer_core::contract::CancelFlag;
use serde::Serialize;
use serde_json::value::RawValue;

use super::frame::{FrameError, MAX_ATTACHMENT, MAX_MESSAGE, read_frame, write_frame};
use super::log::Log;
use super::message::{Heard, RpcError, hear, request};
use super::process::{Launch, Process};
use super::secrets::Secrets;

/// How often a caller that waits looks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How long after its death what a process said last may take to be heard.
const DEAD: Duration = Duration::from_secs(1);

/// How long the end of a process may take to be known after its output has ended.
const ENDING: Duration = Duration::from_secs(1);

/// How much of its output is taken at once; larger attachments go past this buffer.
const BUFFER: usize = 64 << 10;

/// What came back: a result, as text, and the bytes that belong to it.
pub type Answer = (Box<RawValue>, Vec<u8>);

/// Why there is no answer.
#[derive(Debug, PartialEq)]
pub enum CallError {
    /// The plugin's own.
    Rpc(RpcError),
    /// The conversation is over; how it ended.
    Broken(String),
    /// No answer in time.
    TimedOut,
    /// The user wants to stop.
    Cancelled,
    /// The request cannot be sent: too large.
    TooLarge(String),
    /// It did not come to sending: the plugin was busy with others for too long, the conversation was over by then, or the user wants to
    /// stop.
    NotSent(Box<CallError>),
}

impl CallError {
    fn unsent(self) -> Self {
        match self {
            Self::TimedOut | Self::Cancelled | Self::Broken(_) => Self::NotSent(Box::new(self)),
            other => other,
        }
    }

    /// Whether another conversation may do better: nothing was asked in this one.
    pub(super) fn is_unheard(&self) -> bool {
        matches!(self, Self::NotSent(why) if matches!(**why, Self::Broken(_)))
    }
}

/// Until when, and who may end it before.
#[derive(Clone)]
pub struct Patience {
    /// Until then.
    pub deadline: Instant,
    /// Set when the user wants to stop; `None` for what must not be left half done.
    pub cancel: Option<CancelFlag>,
}

impl Patience {
    /// How long to wait before looking again; an error where there is no time left.
    pub(super) fn next(&self) -> Result<Duration, CallError> {
        if self.cancel.as_ref().is_some_and(CancelFlag::is_cancelled) {
            return Err(CallError::Cancelled);
        }
        match self.deadline.checked_duration_since(Instant::now()) {
            None | Some(Duration::ZERO) => Err(CallError::TimedOut),
            Some(left) => Ok(left.min(LOOK)),
        }
    }
}

/// What the caller and the reading thread share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Option<Result<Answer, RpcError>>>,
    /// Calls that nobody waits for any more; their answers may still come.
    abandoned: HashSet<u64>,
    broken: Option<String>,
    /// Whether a call was given up: what hangs is asked nothing more, and what is under way may end.
    given_up: bool,
    under_way: usize,
    /// Whether somebody is sending.
    is_sending: bool,
}

/// A conversation. Dropped, the process is ended and reaped; each call holds it, so that it lasts as long as they do.
pub struct Connection {
    writer: Mutex<Option<ChildStdin>>,
    shared: Arc<Shared>,
    next_id: AtomicU64,
    concurrency: AtomicU64,
    process: Arc<Process>,
}

impl Connection {
    /// Starts the process and listens to it.
    pub fn start(launch: &Launch, log: &Log) -> io::Result<Self> {
        let (process, pipes) = Process::start(launch, log)?;
        let process = Arc::new(process);
        let flags = fcntl_getfl(&pipes.stdin)?;
        fcntl_setfl(&pipes.stdin, flags | OFlags::NONBLOCK)?;
        let shared = Arc::<Shared>::default();
        let (process_seen, secrets) = (Arc::downgrade(&process), log.secrets().clone());
        let listener = Listener { shared: shared.clone(), process: process_seen, secrets };
        std::thread::Builder::new()
            .name("plugin-answers".to_owned())
            .spawn(move || listener.listen(pipes.stdout))?;
        Ok(Self {
            writer: Mutex::new(Some(pipes.stdin)),
            shared,
            next_id: AtomicU64::new(1),
            concurrency: AtomicU64::new(1),
            process,
        })
    }

    /// So many calls may be under way at once.
    pub fn allow(&self, concurrency: u64) {
        self.concurrency.store(concurrency, Ordering::Relaxed);
    }

    /// Whether no call can succeed on it any more.
    pub fn is_broken(&self) -> bool {
        self.shared.lock().broken.is_some()
    }

    /// No call will be answered in time any more; when the last has ended, the process is killed at once.
    pub fn give_up(&self) {
        self.process.give_up();
    }

    /// Asks, and waits for the answer.
    pub fn call(
        &self,
        method: &str,
        params: &impl Serialize,
        attachment: &[u8],
        patience: &Patience,
    ) -> Result<Answer, CallError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = request(id, method, params).map_err(|error| CallError::TooLarge(error.to_string()))?;
        check_size("request", message.len(), MAX_MESSAGE)?;
        check_size("content", attachment.len(), MAX_ATTACHMENT)?;
        let _slot = self.take_slot(patience).map_err(CallError::unsent)?;
        self.shared.lock().waiting.insert(id, None);
        let outcome = self.send(&message, attachment, patience).and_then(|()| self.wait_for(id, patience));
        if let Err(error) = &outcome {
            let mut state = self.shared.lock();
            // Before the slot is free: whoever waits for it would be sent to a process that hangs.
            state.given_up |= matches!(error, CallError::TimedOut | CallError::Cancelled);
            // What was answered is not waited for; what was not may be answered yet.
            if let Some(None) = state.waiting.remove(&id) {
                state.abandoned.insert(id);
            }
        }
        outcome
    }

    /// Back-pressure: a plugin is asked no more at once than it has said it takes.
    fn take_slot(&self, patience: &Patience) -> Result<Slot<'_>, CallError> {
        let most = self.concurrency.load(Ordering::Relaxed) as usize;
        let mut state = self.shared.lock();
        loop {
            state.check_open()?;
            if state.under_way < most {
                state.under_way += 1;
                return Ok(Slot(&self.shared));
            }
            state = self.shared.wait(state, patience.next()?);
        }
    }

    /// Waits for the turn to send; patience may end while somebody else sends something large.
    fn take_turn(&self, patience: &Patience) -> Result<Turn<'_>, CallError> {
        let mut state = self.shared.lock();
        while state.is_sending {
            state = self.shared.wait(state, patience.next()?);
        }
        state.check_open()?;
        state.is_sending = true;
        Ok(Turn(&self.shared))
    }

    /// A request that was sent in part leaves nothing that could be understood, so the conversation is over then.
    fn send(&self, message: &[u8], attachment: &[u8], patience: &Patience) -> Result<(), CallError> {
        let _turn = self.take_turn(patience).map_err(CallError::unsent)?;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pipe) = writer.as_ref() else { return Err(self.shared.why_broken().unsent()) };
        let mut patient = PatientPipe { pipe, patience, shared: &self.shared, failure: None };
        match write_frame(&mut patient, message, attachment) {
            Ok(()) => Ok(()),
            Err(error) => {
                let failure = patient.failure.take();
                *writer = None;
                // The listener knows better how it ended, if it did.
                if failure.is_none() {
                    self.shared.await_break(ENDING);
                }
                self.shared.break_off(&format!("it does not take requests any more: {error}"));
                Err(failure.unwrap_or_else(|| self.shared.why_broken()))
            }
        }
    }

    fn wait_for(&self, id: u64, patience: &Patience) -> Result<Answer, CallError> {
        let mut state = self.shared.lock();
        let mut seen_dead = None;
        loop {
            if let Some(Some(_)) = state.waiting.get(&id) {
                let answer = state.waiting.remove(&id).flatten();
                return answer.map_or(Err(CallError::TimedOut), |answer| answer.map_err(CallError::Rpc));
            }
            if let Some(reason) = &state.broken {
                return Err(CallError::Broken(reason.clone()));
            }
            state = self.shared.wait(state, patience.next()?);
            let is_waiting = matches!(state.waiting.get(&id), Some(None));
            if is_waiting && self.process.has_ended() {
                let since: &mut Instant = seen_dead.get_or_insert_with(Instant::now);
                if since.elapsed() >= DEAD {
                    drop(state);
                    self.tell_death();
                    state = self.shared.lock();
                }
            }
        }
    }

    /// A child of a plugin that has died may hold its output open: then no end of it is heard.
    fn tell_death(&self) {
        let obituary = self.process.obituary(Duration::ZERO);
        self.shared.break_off(obituary.as_deref().unwrap_or("it has ended"));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The end of its input is what tells a plugin to end; the process waits for that, and for no longer than it should.
        *self.writer.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn check_size(what: &str, bytes: usize, limit: u64) -> Result<(), CallError> {
    if bytes as u64 <= limit {
        return Ok(());
    }
    Err(CallError::TooLarge(format!("the {what} has {bytes} bytes, {limit} is the limit of one message")))
}

impl State {
    /// Refuses what would be asked in vain.
    fn check_open(&self) -> Result<(), CallError> {
        match &self.broken {
            Some(reason) => Err(CallError::Broken(reason.clone())),
            None if self.given_up => {
                Err(CallError::Broken("it is ended, since another call got no answer".to_owned()))
            }
            None => Ok(()),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends the conversation for everybody; the first reason stays.
    fn break_off(&self, reason: &str) {
        self.lock().broken.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    fn await_break(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.lock();
        while state.broken.is_none() && Instant::now() < deadline {
            state = self.wait(state, LOOK);
        }
    }

    fn why_broken(&self) -> CallError {
        CallError::Broken(self.lock().broken.clone().unwrap_or_else(|| "it has ended".to_owned()))
    }
}

/// One call of those that may be under way.
struct Slot<'a>(&'a Shared);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
        self.0.changed.notify_all();
    }
}

/// The turn to send.
struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().is_sending = false;
        self.0.changed.notify_all();
    }
}

/// A pipe that is waited for as long as the patience lasts.
struct PatientPipe<'a> {
    pipe: &'a ChildStdin,
    patience: &'a Patience,
    shared: &'a Shared,
    failure: Option<CallError>,
}

impl PatientPipe<'_> {
    fn wait_for_room(&mut self) -> io::Result<()> {
        let given_up = |failure| {
            self.failure = Some(failure);
            io::Error::from(io::ErrorKind::TimedOut)
        };
        if self.shared.lock().broken.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let time = self.patience.next().map_err(given_up)?;
        let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        poll(&mut [PollFd::new(&self.pipe, PollFlags::OUT)], Some(&timeout))?;
        Ok(())
    }
}

impl Write for PatientPipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match rustix::io::writev(self.pipe, parts) {
                Err(rustix::io::Errno::AGAIN) => self.wait_for_room()?,
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread that takes answers in.
struct Listener {
    shared: Arc<Shared>,
    /// Not held: whoever holds the process last ends it, and that is to be the connection.
    process: Weak<Process>,
    secrets: Secrets,
}

impl Listener {
    fn listen(self, stdout: ChildStdout) {
        let mut input = BufReader::with_capacity(BUFFER, stdout);
        let reason = loop {
            let frame = match read_frame(&mut input).map_err(|e| e.quoting(|text| self.secrets.quoted(text)))
            {
                Ok(Some(frame)) => frame,
                Ok(None) => break self.how_it_ended(),
                Err(cut @ FrameError::CutShort(_)) => break format!("{cut}; {}", self.how_it_ended()),
                Err(error) => break error.to_string(),
            };
            match hear(&frame) {
                Ok(Heard::Answer(id, outcome)) => {
                    if let Err(reason) = self.deliver(id, outcome.map(|result| (result, frame.attachment))) {
                        break reason;
                    }
                }
                Ok(Heard::Notification) => {}
                Err(reason) => break reason,
            }
        };
        self.shared.break_off(&reason);
        // Nobody may ask it anything for long.
        self.process.upgrade().iter().for_each(|process| process.bury());
    }

    fn deliver(&self, id: u64, answer: Result<Answer, RpcError>) -> Result<(), String> {
        let mut state = self.shared.lock();
        if !state.abandoned.remove(&id) {
            match state.waiting.get_mut(&id) {
                Some(place @ None) => *place = Some(answer),
                Some(Some(_)) => return Err(format!("it answered request {id} twice")),
                None => return Err(format!("it answered with the id {id}, which nobody asked with")),
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn how_it_ended(&self) -> String {
        let obituary = self.process.upgrade().and_then(|process| process.obituary(ENDING));
        obituary.unwrap_or_else(|| "it closed its output".to_owned())
    }
}
