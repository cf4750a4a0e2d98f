//! The Rust SDK: serves a strategy on standard input and output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{CheckpointId, CommitRequest, PlanId, RelPath, Resource, SandboxRef};
use sandboxer_core::registry::StrategyOptions;
use sandboxer_core::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::STRATEGY;
use super::failure::to_wire;
use crate::envelope::frame::{Frame, MAX_ATTACHMENT, MAX_MESSAGE, read_frame, write_frame};
use crate::envelope::message::{INITIALIZE, Incoming, PROTOCOL, RpcError, code, response};
use crate::envelope::plugin::Welcome;
use crate::envelope::shape::Shape;

/// What a plugin is told when it starts.
#[derive(Clone, Debug, Deserialize)]
pub struct Start {
    /// The name that the strategy is registered under.
    pub name: String,
    /// What to make, where the configuration says it.
    #[serde(default)]
    pub class: Option<String>,
    /// The options of the configuration.
    #[serde(default)]
    pub options: StrategyOptions,
    /// A directory of the plugin's own, which outlasts it.
    pub state: PathBuf,
    /// How long a call may take.
    #[serde(default)]
    pub timeout_ms: u64,
    #[serde(default)]
    protocol: u64,
    #[serde(default)]
    role: String,
}

/// A strategy, ready to be served.
pub struct Served {
    /// The nine methods.
    pub strategy: Arc<dyn SandboxStrategy>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// One line for `sandbox strategies`.
    pub summary: String,
    /// How many calls it takes at once: each on a thread of its own.
    pub concurrency: usize,
    /// Whether its commits lock the resource themselves. Otherwise the host does, from before they look until they are done.
    pub locks: bool,
}

impl Served {
    /// A strategy that takes one call at a time.
    pub fn new(strategy: impl SandboxStrategy + 'static, capabilities: Capabilities) -> Self {
        Self {
            strategy: Arc::new(strategy),
            capabilities,
            summary: String::new(),
            concurrency: 1,
            locks: false,
        }
    }
}

/// Serves `strategy` until the host is gone. What the program prints to standard output goes to standard error from here on.
pub fn serve(strategy: impl SandboxStrategy + 'static, capabilities: Capabilities) -> ExitCode {
    serve_with(move |_| Ok(Served::new(strategy, capabilities)))
}

/// The same, with a strategy that is made of what the configuration says.
pub fn serve_with(make: impl FnOnce(&Start) -> Result<Served>) -> ExitCode {
    match take_streams().and_then(|(input, output)| converse(input, output, make)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The two streams, out of reach of everybody else in the process.
fn take_streams() -> std::io::Result<(File, File)> {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let taken: (OwnedFd, OwnedFd) =
        (rustix::io::fcntl_dupfd_cloexec(input, 3)?, rustix::io::fcntl_dupfd_cloexec(output, 3)?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok((taken.0.into(), taken.1.into()))
}

fn converse(input: File, output: File, make: impl FnOnce(&Start) -> Result<Served>) -> std::io::Result<()> {
    let busy = Arc::new(AtomicUsize::new(0));
    let watched = input.try_clone()?;
    let mut input = BufReader::with_capacity(64 << 10, input);
    let output = Mutex::new(output);
    let Some((served, start)) = introduce(&mut input, &output, make)? else { return Ok(()) };
    end_with_host(watched, busy.clone(), Duration::from_millis(start.timeout_ms));
    let worker = Worker { served, output, busy };
    if worker.served.concurrency <= 1 {
        while let Some(frame) = next(&mut input)? {
            worker.answer(frame)?;
        }
        return Ok(());
    }
    let input = Mutex::new(input);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..worker.served.concurrency).map(|_| scope.spawn(|| worker.take_turns(&input))).collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn next(input: &mut BufReader<File>) -> std::io::Result<Option<Frame>> {
    read_frame(input).map_err(|error| std::io::Error::other(error.to_string()))
}

/// The first request has to be `initialize`.
fn introduce(
    input: &mut BufReader<File>,
    output: &Mutex<File>,
    make: impl FnOnce(&Start) -> Result<Served>,
) -> std::io::Result<Option<(Served, Start)>> {
    let Some(frame) = next(input)? else { return Ok(None) };
    let incoming: Incoming = serde_json::from_slice(&frame.message)?;
    let made = if incoming.method == INITIALIZE {
        started(incoming.params, make)
    } else {
        Err(RpcError::new(code::INVALID_REQUEST, "the first request is `initialize`"))
    };
    match made {
        Ok((served, start)) => {
            send(output, &response(&incoming.id, Ok(welcome(&served))), &[])?;
            Ok(Some((served, start)))
        }
        Err(error) => {
            send(output, &response(&incoming.id, Err(error)), &[])?;
            Ok(None)
        }
    }
}

fn started(params: Value, make: impl FnOnce(&Start) -> Result<Served>) -> Result<(Served, Start), RpcError> {
    let start: Start = parse(params)?;
    if start.protocol != PROTOCOL || start.role != STRATEGY.name {
        let message = format!(
            "this is a strategy of protocol {PROTOCOL}, asked for {:?} of {}",
            start.role, start.protocol
        );
        return Err(RpcError::new(code::INVALID_PARAMS, message));
    }
    let served = make(&start).map_err(|error| to_wire(&error))?;
    Ok((served, start))
}

fn welcome(served: &Served) -> Value {
    let methods: BTreeMap<String, Shape> =
        STRATEGY.methods.iter().map(|m| (m.name.to_owned(), Shape::exactly(m.arguments))).collect();
    json!(Welcome {
        protocol: PROTOCOL,
        role: STRATEGY.name.to_owned(),
        methods,
        concurrency: served.concurrency.max(1) as u64,
        locks: served.locks,
        summary: served.summary.clone(),
        capabilities: json!(served.capabilities),
    })
}

/// Ends the process once the host is gone: at once where nothing is under way, else after the time that a call may take. It
/// wakes for nothing else.
fn end_with_host(input: File, busy: Arc<AtomicUsize>, grace: Duration) {
    use rustix::event::{PollFd, PollFlags, poll};
    let watch = move || {
        while poll(&mut [PollFd::new(&input, PollFlags::empty())], None).is_err() {}
        std::thread::sleep(grace);
        if busy.load(Ordering::Relaxed) > 0 {
            std::process::exit(1);
        }
    };
    // Without it, a call that hangs when the host dies stays.
    let _ = std::thread::Builder::new().name("host-watch".to_owned()).spawn(watch);
}

fn send(output: &Mutex<File>, message: &[u8], attachment: &[u8]) -> std::io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    write_frame(&mut *output, message, attachment)?;
    output.flush()
}

/// What a thread that answers needs.
struct Worker {
    served: Served,
    output: Mutex<File>,
    busy: Arc<AtomicUsize>,
}

impl Worker {
    fn take_turns(&self, input: &Mutex<BufReader<File>>) -> std::io::Result<()> {
        loop {
            let frame = next(&mut input.lock().unwrap_or_else(PoisonError::into_inner))?;
            match frame {
                Some(frame) => self.answer(frame)?,
                None => return Ok(()),
            }
        }
    }

    fn answer(&self, frame: Frame) -> std::io::Result<()> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let (id, outcome) = match serde_json::from_slice::<Incoming>(&frame.message) {
            Ok(incoming) if incoming.id.is_null() => return self.done(Ok(())),
            Ok(incoming) => (incoming.id, self.survive(&incoming.method, incoming.params, &frame.attachment)),
            Err(error) => (Value::Null, Err(RpcError::new(code::PARSE, error.to_string()))),
        };
        let (outcome, attachment) = match outcome {
            Ok((_, attachment)) if attachment.len() as u64 > MAX_ATTACHMENT => {
                (Err(too_large(attachment.len(), MAX_ATTACHMENT)), Vec::new())
            }
            Ok((value, attachment)) => (Ok(value), attachment),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut message = response(&id, outcome);
        if message.len() as u64 > MAX_MESSAGE {
            message = response(&id, Err(too_large(message.len(), MAX_MESSAGE)));
        }
        self.done(send(&self.output, &message, &attachment))
    }

    fn done(&self, outcome: std::io::Result<()>) -> std::io::Result<()> {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    /// A panic is a failure of one call: on one of several threads it would leave its caller waiting.
    fn survive(&self, method: &str, params: Value, content: &[u8]) -> Result<(Value, Vec<u8>), RpcError> {
        let call = std::panic::AssertUnwindSafe(|| self.dispatch(method, params, content));
        std::panic::catch_unwind(call).unwrap_or_else(|panic| {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(RpcError::new(code::FAILED, format!("panicked: {words}")))
        })
    }

    fn dispatch(&self, method: &str, params: Value, content: &[u8]) -> Result<(Value, Vec<u8>), RpcError> {
        let call: Call = parse(params)?;
        let strategy = &*self.served.strategy;
        let plain = |value: Value| Ok((value, Vec::new()));
        let told = |error: Error| to_wire(&error);
        match method {
            "create" => {
                plain(json!(strategy.create(need(&call.plan_id)?, need(&call.resource)?).map_err(told)?))
            }
            "read" => Ok((json!({}), strategy.read(call.sandbox()?, need(&call.path)?).map_err(told)?)),
            "write" => {
                plain(json!(strategy.write(call.sandbox()?, need(&call.path)?, content).map_err(told)?))
            }
            "diff" => plain(json!(strategy.diff(call.sandbox()?).map_err(told)?)),
            "commit" => plain(json!(strategy.commit(call.sandbox()?, &call.request).map_err(told)?)),
            "rollback" => plain(json!(strategy.rollback(call.sandbox()?).map_err(told)?)),
            "checkpoint" => {
                plain(json!(strategy.checkpoint(call.sandbox()?, need(&call.checkpoint_id)?).map_err(told)?))
            }
            "restore_checkpoint" => plain(json!(
                strategy.restore_checkpoint(call.sandbox()?, need(&call.checkpoint_id)?).map_err(told)?
            )),
            "cleanup" => plain(json!(strategy.cleanup(call.sandbox()?).map_err(told)?)),
            other => Err(RpcError::new(code::NO_METHOD, format!("no method {other:?}"))),
        }
    }
}

/// The parameters of all nine methods.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Call {
    plan_id: Option<PlanId>,
    resource: Option<Resource>,
    r#ref: Option<SandboxRef>,
    path: Option<RelPath>,
    request: CommitRequest,
    checkpoint_id: Option<CheckpointId>,
}

impl Call {
    fn sandbox(&self) -> Result<&SandboxRef, RpcError> {
        need(&self.r#ref)
    }
}

/// What is too large is not sent: the host would take it for a plugin gone mad.
fn too_large(bytes: usize, limit: u64) -> RpcError {
    RpcError::new(code::FAILED, format!("the answer has {bytes} bytes, {limit} is the limit of one message"))
}

fn need<T>(parameter: &Option<T>) -> Result<&T, RpcError> {
    parameter.as_ref().ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "a parameter is missing"))
}

fn parse<T: DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params).map_err(|error| RpcError::new(code::INVALID_PARAMS, error.to_string()))
}
