//! A plugin: started when it is first asked for something, started again after it has ended, verified each time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::Error;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::verification::PluginProblem;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::connection::{Answer, CallError, Connection, Patience};
use super::log::Log;
use super::message::{INITIALIZE, PROTOCOL, RpcError};
use super::process::Launch;
use super::secrets::Secrets;
use super::shape::{Role, Shape};

/// More calls at once than this are not sent to any plugin.
const MOST_AT_ONCE: u64 = 64;

/// More is not needed to say what one is.
const LONGEST_WELCOME: usize = 1 << 20;

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the protocol that it speaks.
    pub protocol: u64,
    /// What it is.
    pub role: String,
    /// What it can be called for.
    #[serde(default)]
    pub methods: BTreeMap<String, Shape>,
    /// How many calls it takes at once.
    #[serde(default)]
    pub concurrency: u64,
    /// Whether it keeps others from committing to the same resource itself, as built-in strategies do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locks: bool,
    /// One line about it.
    #[serde(default)]
    pub summary: String,
    /// What it can do, in the terms of its role.
    #[serde(default)]
    pub capabilities: Value,
}

/// Everything that is known of a plugin before it is started.
pub struct Definition {
    /// Its registered name.
    pub name: String,
    /// What it has to be.
    pub role: &'static Role,
    /// How it is started.
    pub launch: Launch,
    /// What it is told first, beside protocol, role, name and timeout.
    pub greeting: BTreeMap<String, Value>,
    /// How long a call may take.
    pub timeout: Duration,
    /// Where its standard error is kept.
    pub log: Log,
    /// What may not be told of what it says.
    pub secrets: Secrets,
    /// Set when the user wants to stop while it starts.
    pub cancel: CancelFlag,
}

/// How a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The plugin says so itself.
    Told(RpcError),
    /// It could not be asked, or gave no answer that can be used.
    Broken {
        /// Why, in words.
        reason: String,
        /// Whether it may have received the request.
        sent: bool,
    },
    /// It lacks methods of its role, or has them in a form that cannot be called.
    Invalid(Vec<PluginProblem>),
    /// The user wants to stop.
    Cancelled,
}

impl Failure {
    fn unsent(reason: String) -> Self {
        Self::Broken { reason, sent: false }
    }
}

/// The process that takes new calls.
#[derive(Default)]
enum Current {
    #[default]
    None,
    /// Somebody is at it; others wait as long as they have patience.
    Starting,
    Running(Arc<Connection>),
}

/// A plugin. At most one process of it takes new calls.
pub struct Plugin {
    definition: Definition,
    current: Mutex<Current>,
    changed: Condvar,
    welcome: OnceLock<Welcome>,
}

impl Plugin {
    /// A plugin that is not started yet.
    pub fn new(definition: Definition) -> Self {
        Self { definition, current: Mutex::default(), changed: Condvar::new(), welcome: OnceLock::new() }
    }

    /// Its registered name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Where its standard error is kept.
    pub fn log(&self) -> &Path {
        self.definition.log.path()
    }

    /// What may not be told of what it says.
    pub fn secrets(&self) -> &Secrets {
        &self.definition.secrets
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.definition.timeout
    }

    /// The error for problems that its verification found.
    pub fn invalid(&self, problems: Vec<PluginProblem>) -> Error {
        let (plugin, role) = (self.name().to_owned(), self.definition.role.name);
        Error::InvalidPlugin { plugin, role, problems }
    }

    /// What it says of itself; starts it where it is not running.
    pub fn welcome(&self) -> Result<&Welcome, Failure> {
        if let Some(known) = self.welcome.get() {
            return Ok(known);
        }
        self.connection(&self.patience(Some(&self.definition.cancel)))?;
        self.welcome.get().ok_or_else(|| Failure::unsent("it did not introduce itself".to_owned()))
    }

    /// Asks it. What is given as `cancel` ends the wait early.
    pub fn call(
        &self,
        method: &str,
        params: &impl Serialize,
        attachment: &[u8],
        cancel: Option<&CancelFlag>,
    ) -> Result<Answer, Failure> {
        self.call_within(self.definition.timeout, method, params, attachment, cancel)
    }

    /// The same with another deadline than that of most calls.
    pub fn call_within(
        &self,
        limit: Duration,
        method: &str,
        params: &impl Serialize,
        attachment: &[u8],
        cancel: Option<&CancelFlag>,
    ) -> Result<Answer, Failure> {
        let patience = Patience { deadline: Instant::now() + limit, cancel: cancel.cloned() };
        let mut outcome = self.call_once(method, params, attachment, &patience)?;
        // What waited behind a call that was given up was not heard by anybody.
        if outcome.as_ref().is_err_and(CallError::is_unheard) {
            outcome = self.call_once(method, params, attachment, &patience)?;
        }
        outcome.map_err(|error| self.explain(method, error, true, limit))
    }

    /// Asks the process that takes calls now. One that cannot be asked any more takes no others.
    fn call_once(
        &self,
        method: &str,
        params: &impl Serialize,
        attachment: &[u8],
        patience: &Patience,
    ) -> Result<Result<Answer, CallError>, Failure> {
        let connection = self.connection(patience)?;
        let outcome = connection.call(method, params, attachment, patience);
        if let Err(error) = &outcome {
            if matches!(error, CallError::TimedOut | CallError::Cancelled) {
                connection.give_up();
            }
            let is_alive =
                matches!(error, CallError::Rpc(_) | CallError::TooLarge(_) | CallError::NotSent(_));
            if !is_alive || error.is_unheard() {
                self.retire(&connection);
            }
        }
        Ok(outcome)
    }

    fn patience(&self, cancel: Option<&CancelFlag>) -> Patience {
        Patience { deadline: Instant::now() + self.definition.timeout, cancel: cancel.cloned() }
    }

    /// The process that takes new calls.
    fn connection(&self, patience: &Patience) -> Result<Arc<Connection>, Failure> {
        let mut current = self.current();
        loop {
            match &*current {
                Current::Running(connection) if !connection.is_broken() => return Ok(connection.clone()),
                Current::Starting => {
                    let time = patience
                        .next()
                        .map_err(|error| self.explain(INITIALIZE, error, false, self.definition.timeout))?;
                    current =
                        self.changed.wait_timeout(current, time).unwrap_or_else(PoisonError::into_inner).0;
                }
                _ => break,
            }
        }
        // What is left of the last one is gone before the next one starts.
        let last = std::mem::replace(&mut *current, Current::Starting);
        drop(current);
        drop(last);
        let started = self.start(patience).map(Arc::new);
        *self.current() = started.as_ref().map_or(Current::None, |started| Current::Running(started.clone()));
        self.changed.notify_all();
        started
    }

    /// Calls that are under way on it may end; no other gets it.
    fn retire(&self, connection: &Arc<Connection>) {
        let mut current = self.current();
        if matches!(&*current, Current::Running(present) if Arc::ptr_eq(present, connection)) {
            *current = Current::None;
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, patience: &Patience) -> Result<Connection, Failure> {
        let launch = &self.definition.launch;
        let connection = Connection::start(launch, &self.definition.log).map_err(|error| {
            Failure::unsent(format!("`{}` cannot be started: {}", launch.shown(), system_words(&error)))
        })?;
        let answer = connection.call(INITIALIZE, &self.greeting(), &[], patience);
        let (said, _) = answer.map_err(|error| {
            connection.give_up();
            self.explain_start(error)
        })?;
        let welcome = self.verified(said.get()).inspect_err(|_| connection.give_up())?;
        connection.allow(welcome.concurrency.clamp(1, MOST_AT_ONCE));
        self.remember(welcome)?;
        Ok(connection)
    }

    fn greeting(&self) -> Value {
        let definition = &self.definition;
        let mut greeting = json!(definition.greeting);
        greeting["protocol"] = json!(PROTOCOL);
        greeting["role"] = json!(definition.role.name);
        greeting["name"] = json!(definition.name);
        greeting["timeout_ms"] = json!(definition.timeout.as_millis() as u64);
        greeting
    }

    /// Everything that it lacks is named in one error.
    fn verified(&self, said: &str) -> Result<Welcome, Failure> {
        let refuse = |reason: String| Err(Failure::unsent(self.definition.secrets.told(&reason)));
        if said.len() > LONGEST_WELCOME {
            return refuse(format!(
                "its answer to `initialize` has {} bytes, {LONGEST_WELCOME} is the limit",
                said.len()
            ));
        }
        if !said.starts_with('{') {
            return refuse("its answer to `initialize` is no object".to_owned());
        }
        let mut welcome: Welcome = match serde_json::from_str(said) {
            Ok(welcome) => welcome,
            Err(error) => return refuse(format!("its answer to `initialize` cannot be read: {error}")),
        };
        welcome.summary = self.definition.secrets.told(&welcome.summary);
        welcome.methods.values_mut().for_each(|shape| self.redact(shape));
        let role = self.definition.role;
        if welcome.protocol != PROTOCOL {
            return refuse(format!(
                "it speaks version {} of the protocol, this is {PROTOCOL}",
                welcome.protocol
            ));
        }
        if welcome.role != role.name {
            return refuse(format!("it is a {:?}, and a {:?} is needed", welcome.role, role.name));
        }
        let problems = role.problems(&welcome.methods);
        if problems.is_empty() { Ok(welcome) } else { Err(Failure::Invalid(problems)) }
    }

    /// What a plugin says of its methods is shown to people and kept on disk.
    fn redact(&self, shape: &mut Shape) {
        let secrets = &self.definition.secrets;
        let texts = shape.parameters.iter_mut().chain(&mut shape.wrong);
        texts.for_each(|text| *text = secrets.told(text));
    }

    /// Callers have chosen by what it said the first time.
    fn remember(&self, welcome: Welcome) -> Result<(), Failure> {
        let first = self.welcome.get_or_init(|| welcome.clone());
        if first.capabilities == welcome.capabilities && first.methods == welcome.methods {
            return Ok(());
        }
        Err(Failure::unsent(
            "it is another one since it was started again: start this program again too".to_owned(),
        ))
    }

    fn explain_start(&self, error: CallError) -> Failure {
        match error {
            CallError::Rpc(error) => Failure::unsent(self.definition.secrets.told(&error.message)),
            error => match self.explain(INITIALIZE, error, false, self.definition.timeout) {
                Failure::Broken { reason, sent } => {
                    let shown = self.definition.launch.shown();
                    Failure::Broken { reason: format!("{reason} (started as `{shown}`)"), sent }
                }
                other => other,
            },
        }
    }

    fn explain(&self, method: &str, error: CallError, sent: bool, limit: Duration) -> Failure {
        let secrets = &self.definition.secrets;
        let broken = |reason: String| Failure::Broken { reason: secrets.told(&reason), sent };
        match error {
            CallError::Rpc(mut error) => {
                error.message = secrets.told(&error.message);
                secrets.take_out_of(&mut error.data);
                Failure::Told(error)
            }
            CallError::Broken(reason) => broken(format!("`{method}` got no answer: {reason}")),
            CallError::TimedOut => {
                broken(format!("`{method}` got no answer within {limit:?}, so its process was ended"))
            }
            CallError::TooLarge(reason) => Failure::unsent(format!("`{method}` cannot be sent: {reason}")),
            CallError::NotSent(why) if *why == CallError::TimedOut => Failure::unsent(format!(
                "`{method}` was not sent: it was busy with other calls for {limit:?}"
            )),
            CallError::NotSent(why) => self.explain(method, *why, false, limit),
            CallError::Cancelled => Failure::Cancelled,
        }
    }
}

/// The system's words without ` (os error 2)`.
fn system_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
