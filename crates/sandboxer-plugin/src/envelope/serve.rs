//! The side of a plugin that is written in Rust: reads requests from standard input, answers on standard output, whatever its role is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandboxer_core::registry::StrategyOptions;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::frame::{Frame, MAX_ATTACHMENT, MAX_MESSAGE, read_frame, write_frame};
use super::message::{INITIALIZE, Incoming, PROTOCOL, RpcError, code, response};
use super::plugin::Welcome;
use super::shape::{Role, Shape};

/// What a plugin is told when it starts.
#[derive(Clone, Debug, Deserialize)]
pub struct Start {
    /// The name that it is registered under.
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

/// What is served, as the envelope sees it.
pub(crate) trait Service: Send + Sync {
    /// How many calls it takes at once: each on a thread of its own.
    fn concurrency(&self) -> usize;

    /// What it says of itself beside protocol, role and methods.
    fn introduce(&self, welcome: &mut Welcome);

    /// Does what a request asks for: the result, and the bytes that belong to it.
    fn call(&self, method: &str, params: Value, content: &[u8]) -> Served;
}

/// How a call ended.
pub(crate) type Served = Result<(Value, Vec<u8>), RpcError>;

/// Serves what `make` makes of the configuration until the host is gone. What the program prints to standard output goes to standard
/// error from here on.
pub(crate) fn run<S: Service>(
    role: &'static Role,
    make: impl FnOnce(&Start) -> Result<S, RpcError>,
) -> ExitCode {
    match take_streams().and_then(|(input, output)| converse(input, output, role, make)) {
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

fn converse<S: Service>(
    input: File,
    output: File,
    role: &'static Role,
    make: impl FnOnce(&Start) -> Result<S, RpcError>,
) -> std::io::Result<()> {
    let busy = Arc::new(AtomicUsize::new(0));
    let watched = input.try_clone()?;
    let mut input = BufReader::with_capacity(64 << 10, input);
    let output = Mutex::new(output);
    let Some((served, start)) = introduce(&mut input, &output, role, make)? else { return Ok(()) };
    end_with_host(watched, busy.clone(), Duration::from_millis(start.timeout_ms));
    let worker = Worker { served, output, busy };
    if worker.served.concurrency() <= 1 {
        while let Some(frame) = next(&mut input)? {
            worker.answer(frame)?;
        }
        return Ok(());
    }
    let input = Mutex::new(input);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..worker.served.concurrency()).map(|_| scope.spawn(|| worker.take_turns(&input))).collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn next(input: &mut BufReader<File>) -> std::io::Result<Option<Frame>> {
    read_frame(input).map_err(|error| std::io::Error::other(error.to_string()))
}

/// The first request has to be `initialize`.
fn introduce<S: Service>(
    input: &mut BufReader<File>,
    output: &Mutex<File>,
    role: &'static Role,
    make: impl FnOnce(&Start) -> Result<S, RpcError>,
) -> std::io::Result<Option<(S, Start)>> {
    let Some(frame) = next(input)? else { return Ok(None) };
    let incoming: Incoming = serde_json::from_slice(&frame.message)?;
    let made = if incoming.method == INITIALIZE {
        started(incoming.params, role, make)
    } else {
        Err(RpcError::new(code::INVALID_REQUEST, "the first request is `initialize`"))
    };
    match made {
        Ok((served, start)) => {
            send(output, &response(&incoming.id, Ok(welcome(role, &served))), &[])?;
            Ok(Some((served, start)))
        }
        Err(error) => {
            send(output, &response(&incoming.id, Err(error)), &[])?;
            Ok(None)
        }
    }
}

fn started<S: Service>(
    params: Value,
    role: &'static Role,
    make: impl FnOnce(&Start) -> Result<S, RpcError>,
) -> Result<(S, Start), RpcError> {
    let start: Start = parse(params)?;
    if start.protocol != PROTOCOL || start.role != role.name {
        let (own, asked, version) = (role.name, &start.role, start.protocol);
        let message = format!("this is a {own} of protocol {PROTOCOL}, asked for {asked:?} of {version}");
        return Err(RpcError::new(code::INVALID_PARAMS, message));
    }
    let served = make(&start)?;
    Ok((served, start))
}

fn welcome(role: &'static Role, served: &impl Service) -> Value {
    let methods: BTreeMap<String, Shape> =
        role.methods.iter().map(|m| (m.name.to_owned(), Shape::exactly(m.arguments))).collect();
    let mut welcome = Welcome {
        protocol: PROTOCOL,
        role: role.name.to_owned(),
        methods,
        concurrency: served.concurrency().max(1) as u64,
        locks: false,
        summary: String::new(),
        capabilities: Value::Null,
    };
    served.introduce(&mut welcome);
    json!(welcome)
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
struct Worker<S> {
    served: S,
    output: Mutex<File>,
    busy: Arc<AtomicUsize>,
}

impl<S: Service> Worker<S> {
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
    fn survive(&self, method: &str, params: Value, content: &[u8]) -> Served {
        let call = std::panic::AssertUnwindSafe(|| self.served.call(method, params, content));
        std::panic::catch_unwind(call).unwrap_or_else(|panic| {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(RpcError::new(code::FAILED, format!("panicked: {words}")))
        })
    }
}

/// What is too large is not sent: the host would take it for a plugin gone mad.
fn too_large(bytes: usize, limit: u64) -> RpcError {
    RpcError::new(code::FAILED, format!("the answer has {bytes} bytes, {limit} is the limit of one message"))
}

pub(crate) fn need<T>(parameter: &Option<T>) -> Result<&T, RpcError> {
    parameter.as_ref().ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "a parameter is missing"))
}

pub(crate) fn parse<T: DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params).map_err(|error| RpcError::new(code::INVALID_PARAMS, error.to_string()))
}
