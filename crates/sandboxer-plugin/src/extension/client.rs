//! An extension that is somebody else's process.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{Cost, Found, Handle, Health, Provision, Ready};
use sandboxer_core::model::SandboxId;
use sandboxer_core::verification::{PluginProblem, join_problems};
use sandboxer_core::{Error, Result};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answers::{self, Read};
use super::{ESTIMATE_COST, HEALTH, INSPECT, NOT_READY, PROVISION, TEARDOWN, WAIT_READY};
use crate::check_record::CheckRecord;
use crate::envelope::message::{INITIALIZE, RpcError};
use crate::envelope::plugin::{Failure, Plugin};
use crate::strategy::failure::from_wire;

/// How long it is asked to wait at a time: one that takes one call at a time serves others in between.
const PIECE: Duration = Duration::from_secs(2);
/// How long after it has said that it is not ready it is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the answer may take that has to be cheap.
const HEALTH_LIMIT: Duration = Duration::from_secs(10);

/// The methods of a plugin. Nothing is started before the first of them is called; then it is verified.
pub struct PluginExtension {
    pub(super) plugin: Plugin,
    pub(super) cancel: CancelFlag,
    pub(super) record: CheckRecord,
    /// Set by the first verification that succeeded: a plugin may be repaired while this process runs.
    pub(super) verified: OnceLock<()>,
}

impl PluginExtension {
    /// What was answered, in words of the contract where it is an error.
    fn ask(&self, method: &str, params: &Value, cancel: Option<&CancelFlag>) -> Result<Box<RawValue>> {
        self.verify()?;
        let answer = self.plugin.call(method, params, &[], cancel);
        answer.map(|(said, _)| said).map_err(|failure| self.error(method, failure))
    }

    fn error(&self, method: &str, failure: Failure) -> Error {
        match failure {
            Failure::Invalid(problems) => self.plugin.invalid(problems),
            Failure::Cancelled => Error::Cancelled,
            Failure::Broken { reason, .. } => self.broken(reason),
            Failure::Told(error) => match self.told(method, error) {
                // These two speak of strategies.
                Error::Unsupported { reason, .. } | Error::Unavailable { reason, .. } => {
                    self.broken(format!("`{method}` cannot be done: {reason}"))
                }
                other => other,
            },
        }
    }

    fn told(&self, method: &str, error: RpcError) -> Error {
        from_wire(self.plugin.name(), method, error, self.plugin.log().to_path_buf())
    }

    fn broken(&self, reason: impl Into<String>) -> Error {
        let log = Some(self.plugin.log().to_path_buf());
        Error::Plugin { plugin: self.plugin.name().to_owned(), reason: reason.into(), log }
    }

    fn read_as<T>(&self, method: &str, read: Read<T>) -> Result<T> {
        read.map_err(|why| self.broken(format!("its answer to `{method}` cannot be used: {why}")))
    }

    /// Whether it has a method that it need not have.
    fn offers(&self, method: &str) -> Result<bool, Failure> {
        Ok(self.plugin.welcome()?.methods.contains_key(method))
    }

    /// Waits for a while; why it is not ready, where it is not.
    fn wait_once(
        &self,
        handle: &Handle,
        time: Duration,
        cancel: &CancelFlag,
    ) -> Result<Result<Ready, String>> {
        self.verify()?;
        let params = json!({"handle": handle, "deadline_ms": time.as_millis() as u64});
        let limit = PIECE + self.plugin.timeout();
        match self.plugin.call_within(limit, WAIT_READY, &params, &[], Some(cancel)) {
            Ok((said, _)) => self.read_as(WAIT_READY, answers::ready(&said)).map(Ok),
            Err(Failure::Told(error)) if error.data["kind"] == NOT_READY => Ok(Err(error.message)),
            Err(failure) => Err(self.error(WAIT_READY, failure)),
        }
    }

    fn healthy(&self) -> Result<Health, Failure> {
        if !self.offers(HEALTH)? {
            return Ok(Health::Healthy);
        }
        let limit = HEALTH_LIMIT.min(self.plugin.timeout());
        let answer = self.plugin.call_within(limit, HEALTH, &json!({}), &[], Some(&self.cancel));
        let read = answer.map(|(said, _)| answers::health(&said, self.plugin.secrets()));
        Ok(match read {
            Ok(Ok(health)) => health,
            Ok(Err(why)) => Health::Unhealthy(format!("its answer to `health` cannot be used: {why}")),
            Err(failure) => Health::Unhealthy(words(failure)),
        })
    }
}

impl EnvironmentExtension for PluginExtension {
    fn verify(&self) -> Result<()> {
        if self.verified.get().is_some() {
            return Ok(());
        }
        let welcome = self.plugin.welcome().map_err(|failure| self.error(INITIALIZE, failure));
        self.record.save_verification(&welcome);
        welcome.map(|_| *self.verified.get_or_init(|| ()))
    }

    fn provision(&self, request: &Provision) -> Result<Handle> {
        let said = self.ask(PROVISION, &json!({"request": request}), Some(&self.cancel))?;
        self.read_as(PROVISION, answers::handle(&said, &request.sandbox_id))
    }

    fn wait_ready(&self, handle: &Handle, deadline: Duration, cancel: &CancelFlag) -> Result<Ready> {
        let began = Instant::now();
        loop {
            let left = deadline.saturating_sub(began.elapsed());
            let missing = match self.wait_once(handle, left.min(PIECE), cancel)? {
                Ok(ready) => return Ok(ready),
                Err(missing) => missing,
            };
            let left = deadline.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(self.broken(format!("it was not ready within {deadline:?}: {missing}")));
            }
            cancel.check()?;
            std::thread::sleep(PAUSE.min(left));
        }
    }

    /// What it says is looked at: its own `inspect` must not find anything any more.
    fn teardown(&self, sandbox: &SandboxId, handle: Option<&Handle>) -> Result<()> {
        self.ask(TEARDOWN, &json!({"sandbox_id": sandbox, "handle": handle}), None)?;
        let left = self.inspect(Some(sandbox))?;
        match left.first() {
            None => Ok(()),
            Some(first) => Err(self.broken(format!(
                "it says that it has torn {sandbox} down, and still finds {} of it: {}",
                left.len(),
                first.what
            ))),
        }
    }

    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
        let said = self.ask(INSPECT, &json!({"sandbox_id": sandbox}), None)?;
        self.read_as(INSPECT, answers::found(&said, sandbox, self.plugin.secrets()))
    }

    fn estimate_cost(&self, request: &Provision) -> Result<Option<Cost>> {
        self.verify()?;
        if !self.offers(ESTIMATE_COST).map_err(|failure| self.error(ESTIMATE_COST, failure))? {
            return Ok(None);
        }
        let said = self.ask(ESTIMATE_COST, &json!({"request": request}), Some(&self.cancel))?;
        self.read_as(ESTIMATE_COST, answers::cost(&said))
    }

    /// One that cannot be started may have made something before: it is not well, and not absent.
    fn health(&self) -> Health {
        if let Err(error) = self.verify() {
            return Health::Unhealthy(reason(error));
        }
        self.healthy().unwrap_or_else(|failure| Health::Unhealthy(words(failure)))
    }
}

/// Why a plugin is unhealthy; its name is shown beside it.
fn reason(error: Error) -> String {
    match error {
        Error::Plugin { reason, .. } => reason,
        Error::InvalidPlugin { problems, .. } => reason_invalid(&problems),
        other => other.in_full(),
    }
}

fn reason_invalid(problems: &[PluginProblem]) -> String {
    format!("it is not a valid extension: {}", join_problems(problems))
}

/// A failure that is told as a state.
fn words(failure: Failure) -> String {
    match failure {
        Failure::Told(error) => error.message,
        Failure::Broken { reason, .. } => reason,
        Failure::Invalid(problems) => reason_invalid(&problems),
        Failure::Cancelled => "interrupted".to_owned(),
    }
}
