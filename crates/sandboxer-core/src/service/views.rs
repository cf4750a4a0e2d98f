//! What the use cases take and give back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment::{DEFAULT_PROFILE, Environment, LOCAL_HOST, Profile, Route};
use crate::model::{
    CheckpointId, CheckpointResult, CommitResult, Conflict, DiffEntry, OpId, PlanId, Resource,
    RollbackResult, SandboxId, SandboxRef,
};
use crate::{Error, Result};

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    /// Asked for, nothing made yet.
    Requested,
    /// Being made.
    Provisioning,
    /// Made, not used yet.
    Ready,
    /// Used by its consumer.
    Active,
    /// Being removed.
    Destroying,
    /// Put away: its uncommitted work is kept, and can be brought back.
    Parked,
    /// Gone.
    Destroyed,
    /// Could not be made.
    Failed,
}

impl SandboxState {
    /// Whether it can be worked in.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Ready | Self::Active)
    }

    /// Whether it holds its name and its plan's place.
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Parked | Self::Destroyed | Self::Failed)
    }

    /// Whether nothing is left of it.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Destroyed | Self::Failed)
    }

    /// The word for it, in JSON and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Provisioning => "provisioning",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Destroying => "destroying",
            Self::Parked => "parked",
            Self::Destroyed => "destroyed",
            Self::Failed => "failed",
        }
    }
}

/// Who asked for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Consumer {
    /// `adm` (a person), `agt` (an agent) or `atm` (automation).
    pub actor_type: String,
    /// The calling project's id.
    pub project: String,
}

/// One sandbox, as the store knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// Its name, unique among live sandboxes.
    pub name: String,
    /// The plan it belongs to.
    pub plan_id: PlanId,
    /// Where it is in its life.
    pub state: SandboxState,
    /// Who asked for it.
    pub consumer: Consumer,
    /// Who that was by name, where a server knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// One or more.
    pub workspaces: Vec<Workspace>,
    /// Where it runs, if a profile said so; without one, commands run in namespaces of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Box<Environment>>,
}

impl Sandbox {
    /// The profile that it was made from.
    pub fn profile_id(&self) -> &str {
        self.environment.as_ref().map_or(DEFAULT_PROFILE, |e| &e.route.profile_id)
    }

    /// The extension that made its environment.
    pub fn extension_id(&self) -> &str {
        self.environment.as_ref().map_or("ext.local", |e| &e.route.extension_id)
    }

    /// The host that it is on.
    pub fn host(&self) -> &str {
        self.environment.as_ref().map_or(LOCAL_HOST, |e| &e.route.host)
    }

    /// The workspace of that name.
    pub fn workspace(&self, name: &str) -> Option<&Workspace> {
        self.workspaces.iter().find(|w| w.name == name)
    }
}

impl Workspace {
    /// Where to work: the directory (or file) that stands for the resource.
    pub fn require_path(&self) -> Result<PathBuf> {
        let path = self.sandbox_ref.sandbox_path().ok_or_else(|| self.without_path())?;
        self.sandbox_ref.check_path()?;
        Ok(path)
    }

    /// Why there is nowhere to work.
    pub(super) fn without_path(&self) -> Error {
        Error::Unsupported {
            strategy: self.sandbox_ref.strategy_name.clone(),
            what: "give a path to work in",
            reason: format!("what it isolates is not files here: {}", self.resource.location),
        }
    }
}

/// One resource isolated by one strategy, within a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workspace {
    /// Unique within its sandbox.
    pub name: String,
    /// What is isolated.
    pub resource: Resource,
    /// The strategy asked for.
    pub requested_strategy: String,
    /// Which rule chose the strategy, and why another was used, if one was.
    pub reason: String,
    /// The strategy's handle; its `strategy_name` is the one in use.
    pub sandbox_ref: SandboxRef,
}

/// One resource of a create request.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The workspace's name; derived from the resource where `None`.
    pub name: Option<String>,
    /// Path or URL as it was typed.
    pub location: String,
    /// `include`, `exclude` and the like.
    pub properties: BTreeMap<String, Value>,
}

/// What a sandbox is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateRequest {
    /// At least one.
    pub inputs: Vec<Input>,
    /// `--strategy`.
    pub strategy: Option<String>,
    /// Refuse instead of falling back to another strategy.
    pub no_fallback: bool,
    /// `--plan`; a new one where `None`.
    pub plan: Option<PlanId>,
    /// `--name`; made up where `None`.
    pub name: Option<String>,
    /// `--ttl`.
    pub ttl: Option<SignedDuration>,
    /// Who asks.
    pub consumer: Consumer,
    /// It is thrown away whatever becomes of it: nothing of it is flushed, and a power cut takes it as if it had never been.
    pub disposable: bool,
    /// `--profile`: what is made around the workspaces.
    pub environment: Option<Box<EnvironmentRequest>>,
}

/// The environment that a sandbox is to have: a profile, and where it was routed to.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentRequest {
    /// The profile.
    pub profile: Profile,
    /// The extension and the host.
    pub route: Route,
    /// Words of the caller's.
    pub labels: BTreeMap<String, String>,
    /// A second request with this key is answered with the sandbox of the first, as long as that lives.
    pub idempotency_key: Option<String>,
    /// The digest of the request, to tell another one with the same key.
    pub request_digest: Option<String>,
}

/// What comparing the store with what extensions find came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReconcileReport {
    /// What killed commands had left half done, of which sandbox: finished or undone.
    pub recovered: Vec<String>,
    /// What carried our label and belonged to no sandbox that is there: removed.
    pub removed: Vec<String>,
    /// The same, but made so recently that somebody may be about to write it down: left alone.
    pub young: Vec<String>,
    /// Sandboxes whose environment is not there any more.
    pub lost: Vec<SandboxId>,
    /// How many are as they should be.
    pub sound: usize,
    /// Extensions that cannot be asked now, and that never made anything for this state directory.
    pub unasked: Vec<String>,
    /// What could not be looked at or removed, and why.
    pub failed: Vec<String>,
}

impl ReconcileReport {
    /// The same with what was found elsewhere.
    pub fn add(&mut self, other: Self) {
        self.recovered.extend(other.recovered);
        self.removed.extend(other.removed);
        self.young.extend(other.young);
        self.lost.extend(other.lost);
        self.sound += other.sound;
        self.unasked.extend(other.unasked);
        self.failed.extend(other.failed);
    }
}

/// What `get_or_create_sandbox` answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// False where it existed already.
    pub created: bool,
    /// One sentence for a person.
    pub message: String,
}

/// A sandbox, or one workspace of it: what `ID` and `ID:WORKSPACE` name.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The workspaces that are meant: one where one was named, all otherwise.
    pub workspaces: Vec<Workspace>,
}

/// The difference of one workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkspaceDiff {
    /// Which.
    pub workspace: Workspace,
    /// Digest of that.
    pub digest: String,
    /// What differs.
    pub entries: Vec<DiffEntry>,
    /// Why it cannot be prepared: in a commit together with others, its own is the decision.
    pub at_decision: Option<String>,
    /// What a careful person has to know of it.
    pub notices: Vec<String>,
}

/// The difference of a target: one digest over all its workspaces.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetDiff {
    /// With one workspace, that workspace's own digest; with several, a digest over theirs.
    pub digest: String,
    /// Workspace by workspace.
    pub workspaces: Vec<WorkspaceDiff>,
}

/// What a commit of a target did.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetCommit {
    /// The operation, for `log` and `undo`.
    pub op_id: OpId,
    /// The digest that was committed.
    pub digest: String,
    /// Workspace by workspace, by name.
    pub workspaces: Vec<(String, CommitResult)>,
    /// Why copies of the workspaces elsewhere have not heard of it yet.
    pub unsent: Option<String>,
}

/// The difference of all open sandboxes of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanDiff {
    /// One digest over all workspaces, each called `SANDBOX:WORKSPACE`; with one workspace, its own.
    pub digest: String,
    /// Sandbox by sandbox, in the order of their ids.
    pub sandboxes: Vec<(Sandbox, TargetDiff)>,
}

/// What a commit of a whole plan did.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanCommit {
    /// The digest that was committed: over all workspaces, as in [`PlanDiff`].
    pub digest: String,
    /// Sandbox by sandbox, in the order of their ids; each has an operation and a digest of its own.
    pub sandboxes: Vec<(Sandbox, TargetCommit)>,
}

/// What taking a commit back did.
#[derive(Clone, Debug, PartialEq)]
pub struct Undone {
    /// In which sandbox.
    pub sandbox: Sandbox,
    /// What was taken back.
    pub operation: Operation,
    /// What that changed in the original, under an operation of its own.
    pub commit: TargetCommit,
}

/// What became of an interrupted commit that was aborted.
#[derive(Clone, Debug, PartialEq)]
pub struct AbortedCommit {
    /// The interrupted commit or undo.
    pub operation: Operation,
    /// What took back the part that was written; `None` if nothing was.
    pub undone: Option<Undone>,
    /// What could not be written, and why.
    pub left_out: Vec<Conflict>,
}

/// Results of several workspaces, by name.
pub type PerWorkspace<T> = Vec<(String, T)>;

/// A checkpoint as the service keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Its name.
    pub id: CheckpointId,
    /// Order within the sandbox, from 1.
    pub sequence: u64,
    /// When it was taken.
    pub created_at: Timestamp,
    /// The workspaces it covers.
    pub workspaces: Vec<String>,
    /// Whether pruning leaves it alone.
    #[serde(default)]
    pub pinned: bool,
    /// Where the strategies keep it, by workspace, where that is a path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub snapshots: BTreeMap<String, PathBuf>,
}

/// One line of the operation log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// Its id.
    pub id: OpId,
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// `create`, `commit`, `undo`, `rollback`, `checkpoint`, `restore`, `write`, `park`, `unpark`, `destroy`, `drop`.
    pub kind: String,
    /// `running`, `decided`, `done`, `failed`, `aborted`, `recovered`, `undone`.
    pub state: String,
    /// When it began.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: Timestamp,
    /// When it ended.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub finished_at: Option<Timestamp>,
    /// One sentence for a person: `3 files committed`.
    pub summary: String,
    /// Particulars: message, digest, counts, paths.
    pub details: Value,
}

/// What becomes of uncommitted work when a sandbox ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncommitted {
    /// It is put away and can be brought back.
    Park,
    /// It is thrown away.
    Discard,
}

/// How a sandbox ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left of it.
    Destroyed,
    /// It held work, which is parked.
    Parked {
        /// How many paths differ.
        changes: usize,
    },
    /// It had ended before.
    Already(SandboxState),
}

/// A parked sandbox.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParkedSandbox {
    /// The sandbox.
    #[serde(flatten)]
    pub sandbox: Sandbox,
    /// Since when.
    pub parked_at: Timestamp,
    /// What it takes on disk.
    pub bytes: u64,
    /// How many paths differed, and why it was parked.
    pub summary: String,
    /// Whether budgets leave it alone.
    pub pinned: bool,
}

/// What is kept of what was: something that budgets may remove.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeptItem {
    /// Whose.
    pub sandbox_id: SandboxId,
    /// `undo`, `checkpoint`, `parked`, or `history`: a parked sandbox without work, kept for its undo data.
    pub kind: String,
    /// The operation, the checkpoint or the sandbox.
    pub item: String,
    /// What it takes on disk.
    pub bytes: u64,
    /// Since when.
    pub created_at: Timestamp,
    /// Whether budgets leave it alone.
    pub pinned: bool,
}

/// What a clean-up found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Sandboxes ended because their time was up.
    pub expired: Vec<SandboxId>,
    /// Sandboxes whose time is up and whose uncommitted work was parked.
    pub parked: Vec<SandboxId>,
    /// Sandboxes whose time is up but which somebody is at work in: kept.
    pub kept: Vec<SandboxId>,
    /// Directories that no sandbox owned.
    pub removed: Vec<PathBuf>,
    /// What extensions had made that nobody owned, and environments that were gone.
    pub environments: ReconcileReport,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

/// What recovery did on the way to the next command.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recovered {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// One sentence: `finished commit op_…`, `removed a half-made sandbox`; or why it could not be recovered.
    pub message: String,
    /// Whether it could not be recovered now; the next command tries again.
    pub failed: bool,
    /// Conflicts left for a person, if any.
    pub conflicts: Vec<crate::model::Conflict>,
}

/// Checkpoint results by workspace.
pub type CheckpointResults = PerWorkspace<CheckpointResult>;
/// Rollback results by workspace.
pub type RollbackResults = PerWorkspace<RollbackResult>;
