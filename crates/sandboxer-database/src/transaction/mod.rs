//! The strategy `transaction_rollback`: the resource is worked on in one transaction, which a keeper holds open.

mod commits;
mod place;

use std::path::PathBuf;
use std::sync::Arc;

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, PlanId, RelPath, Resource, RollbackResult,
    SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry, StrategyOptions};
use sandboxer_core::{Error, Result};
use sandboxer_fs::scratch::{self, NewWorkspace};
use serde_json::json;

use crate::credentials::Environment;
use crate::engine::{Options, Status};
use crate::engines::KINDS;
use crate::keeper::{Answer, Keeper, Request};
use place::{GONE, Place};

/// The name it is registered under.
pub const NAME: &str = "transaction_rollback";

/// The path at which a workspace says whether its transaction is still held.
pub const STATUS: &str = "status";

/// The registration. Passwords are looked up in `around`.
pub fn entry(around: Environment) -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "one transaction, held open; programs of PostgreSQL connect to it".to_owned(),
        origin: "built-in".to_owned(),
        capabilities: Capabilities {
            isolates: true,
            two_phase: true,
            prepare_ends: true,
            checkpoints: true,
            resource_types: KINDS.map(str::to_owned).to_vec(),
            ..Capabilities::default()
        },
        options: StrategyOptions::default(),
        factory: Arc::new(move |name, options, context| {
            Ok(Arc::new(Transactions::new(name, options, context, around.clone())?))
        }),
    }
}

/// The strategy.
struct Transactions {
    name: String,
    options: Options,
    context: StrategyContext,
    around: Environment,
}

impl Transactions {
    fn new(
        name: &str,
        options: &StrategyOptions,
        context: &StrategyContext,
        around: Environment,
    ) -> Result<Self> {
        let options = serde_json::from_value(json!(options)).map_err(|e| Error::Usage {
            message: format!("the options of {name}: {e}"),
            hint: Some(
                "there are lock_timeout_ms, block_limit_ms, turn_timeout_ms, allow_ddl, max_rows".to_owned(),
            ),
        })?;
        Ok(Self { name: name.to_owned(), options, context: context.clone(), around })
    }

    fn program(&self, location: &str) -> Result<&PathBuf> {
        self.context.program.as_ref().ok_or_else(|| Error::Unavailable {
            strategy: self.name.clone(),
            path: location.into(),
            reason: "there is no program to start a keeper from".to_owned(),
        })
    }

    fn keeper(&self, place: &Place) -> Keeper {
        Keeper::at(&place.keeper(), &self.name)
    }

    fn start(&self, place: &Place) -> Result<()> {
        let program = self.program(&place.location)?;
        self.keeper(place).start(program, &place.setup(&self.around)?)
    }

    /// Asks the keeper of a workspace. One that is gone has taken the transaction with it.
    fn ask(&self, sandbox: &SandboxRef, request: &Request, content: &[u8]) -> Result<(Answer, Vec<u8>)> {
        let place = Place::of(sandbox)?;
        let answered = self.keeper(&place).ask(request, content)?;
        answered.ok_or_else(|| place.lost(GONE))
    }

    fn status(&self, place: &Place) -> Result<Status> {
        match self.keeper(place).ask(&Request::Status, &[])? {
            Some((Answer::Status(status), _)) => Ok(status),
            Some((other, _)) => Err(unexpected(&other)),
            None => Ok(Status::Lost { reason: GONE.to_owned() }),
        }
    }

    /// A place of its own, for a new transaction.
    fn place(&self, resource: &Resource, dir: PathBuf) -> Result<Place> {
        let text = |key: &str| resource.properties.get(key).and_then(|v| v.as_str()).map(str::to_owned);
        let mut options = self.options.clone();
        options.allow_ddl.extend(resource.string_list("allow_ddl"));
        Ok(Place {
            dir,
            kind: resource.type_name.clone(),
            location: resource.location.clone(),
            credentials: text("credentials"),
            options,
        })
    }
}

impl SandboxStrategy for Transactions {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        self.program(&resource.location)?;
        let root = scratch::in_state(&self.context.home);
        let new = NewWorkspace::create(&self.context.home, &root, plan_id, resource)?;
        let place = self.place(resource, new.path().to_path_buf())?;
        self.start(&place)?;
        let reference = SandboxRef::new(plan_id.clone(), resource.id.clone(), &self.name);
        let reference = place.written_to(reference);
        new.keep();
        Ok(reference)
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        if path.as_bytes() == STATUS.as_bytes() {
            let status = self.status(&Place::of(sandbox)?)?;
            return Ok(format!("{:#}\n", json!(status)).into_bytes());
        }
        let (_, content) = self.ask(sandbox, &Request::Read(path.clone()), &[])?;
        Ok(content)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        match self.ask(sandbox, &Request::Write(path.clone()), content)? {
            (Answer::Change(change), _) => Ok(change),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        match self.ask(sandbox, &Request::Diff, &[])? {
            (Answer::Diff(view), _) => Ok(view),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        self.commit_phase(sandbox, request)
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let place = Place::of(sandbox)?;
        if self.keeper(&place).ask(&Request::Rollback, &[])?.is_none() {
            self.forget_undecided(&place)?;
            self.start(&place)?;
        }
        Ok(rolled_back(None, "rolled back; a new transaction has begun".to_owned()))
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        self.ask(sandbox, &Request::Checkpoint(checkpoint_id.to_string()), &[]).map(|_| None)
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        self.ask(sandbox, &Request::Restore(checkpoint_id.to_string()), &[])?;
        Ok(rolled_back(Some(checkpoint_id.clone()), format!("restored checkpoint {checkpoint_id}")))
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        if sandbox.part()?.is_some() {
            return Ok(());
        }
        let place = Place::of(sandbox)?;
        if !place.dir.exists() {
            return Ok(());
        }
        // While the keeper is there: it has the password, should something have to be undone on the server.
        self.forget_undecided(&place)?;
        self.keeper(&place).end()?;
        sandboxer_fs::remove_tree(&place.dir)
    }
}

fn rolled_back(checkpoint_id: Option<CheckpointId>, message: String) -> RollbackResult {
    RollbackResult { success: true, checkpoint_id, restored_files: 0, message }
}

fn unexpected(answer: &Answer) -> Error {
    Error::refused(format!("the keeper gave an answer that does not fit: {answer:?}"))
}
