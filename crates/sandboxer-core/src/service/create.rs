//! Get or create a sandbox.
//!
//! Written first, made second: the row `provisioning` is there before the first directory is made, the sandbox's lock
//! is held until everything is, and each workspace is remembered as soon as its strategy has made it, or found by what it says of
//! itself. So a killed create is a row whose lock is free, and recovery knows what to remove. A failed one is undone here, in reverse.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::apart::{SKIP, refuse_nested};
use super::cleaning::UNMADE;
use super::descriptor::{Descriptor, flush_new};
use super::environment::{designed, match_inputs, time_to_live};
use super::lock::SandboxLock;
use super::manager::{SandboxManager, failure, in_workspace, new_operation};
use super::park::BRING_BACK;
use super::refresh::REFRESH;
use super::{CreateRequest, Created, Input, Limit, Operation, Sandbox, SandboxState, Workspace, names};
use crate::environment::Environment;
use crate::model::{PlanId, Resource, SandboxId, SandboxRef};
use crate::resolve::choose_strategy;
use crate::store::{Naming, OperationEnd, Reservation, now};
use crate::types::ResourceType;
use crate::{Error, Result};

/// How often a create starts over because a sandbox of its plan was just being made or removed by somebody else.
const ATTEMPTS: usize = 20;

/// How long the maker of a sandbox has from writing its row to taking its lock, before a second maker steps in.
const MAKER_POLLS: usize = 20;
const MAKER_POLL: Duration = Duration::from_millis(10);

/// The property that tells a strategy not to fall back to another.
const NO_FALLBACK: &str = "no_fallback";

/// The property that tells a strategy for which sandbox it makes a workspace: what they share, they share by that.
const MADE_FOR: &str = "sandbox";
/// The property that tells a strategy what that sandbox is called.
const CALLED: &str = "sandbox_name";

/// The properties that only mean something where there are branches, with the flags that set them.
const BRANCH_OPTIONS: [(&str, &str); 3] =
    [("from", "--from"), ("clean", "--clean"), ("ignored", "--no-ignored")];

impl SandboxManager {
    /// Makes a sandbox of the request's inputs. With a plan that has a live sandbox over the same resources, that one is
    /// returned with `created: false`; one that overlaps in part, or uses another strategy than the one asked for, is
    /// refused by name.
    pub fn get_or_create_sandbox(&self, request: &CreateRequest) -> Result<Created> {
        let detected = request.inputs.iter().map(|input| self.detect(input)).collect::<Result<Vec<_>>>()?;
        self.get_or_create_over(request, detected)
    }

    /// The same, over resources that are known already; each has a workspace name if one was given.
    pub(super) fn get_or_create_over(
        &self,
        request: &CreateRequest,
        mut resources: Vec<(Option<String>, Resource)>,
    ) -> Result<Created> {
        if let Some(existing) = self.made_by_key(request)? {
            return Ok(existing);
        }
        match_inputs(request, &mut resources)?;
        self.set_databases_apart(&mut resources)?;
        let naming = check_request(request, &resources)?;
        refuse_bringing_back(&resources)?;
        refuse_own_state(&self.parts.home, &resources)?;
        let wanted = self.design(request, resources)?;
        for workspace in &wanted.workspaces {
            self.permit(&request.consumer, "create", workspace.resource.id.as_str())?;
            self.require_isolation(workspace)?;
        }
        let limits = self.limits_now(&request.consumer)?;
        for _ in 0..ATTEMPTS {
            if let Some(created) = self.try_create(request, &wanted, &naming, &limits)? {
                return Ok(created);
            }
        }
        Err(Error::Busy { path: self.parts.home.clone(), holder: None })
    }

    /// Whoever asks a server works apart from the original, or not at all: what a token may do to it is to commit.
    fn require_isolation(&self, workspace: &Workspace) -> Result<()> {
        match self.permissions.caller() {
            Some(caller) if !self.capabilities_of(workspace)?.isolates => Err(Error::refused(format!(
                "{caller} may not work by {}, which changes {} itself",
                workspace.requested_strategy, workspace.resource.location
            ))),
            _ => Ok(()),
        }
    }

    fn detect(&self, input: &Input) -> Result<(Option<String>, Resource)> {
        let mut resource = self.parts.types.detect(&input.location)?;
        resource.properties.extend(input.properties.clone());
        Ok((input.name.clone(), resource))
    }

    /// The sandbox as it is to be, with refs that name nothing yet.
    fn design(&self, request: &CreateRequest, resources: Vec<(Option<String>, Resource)>) -> Result<Sandbox> {
        let plan_id = request.plan.clone().unwrap_or_else(PlanId::generate);
        let created_at = now();
        let mut workspaces = Vec::with_capacity(resources.len());
        let mut taken: HashSet<String> = resources.iter().filter_map(|(name, _)| name.clone()).collect();
        for (name, resource) in resources {
            let name = name.unwrap_or_else(|| names::free(&names::from_resource(&resource), &taken));
            taken.insert(name.clone());
            workspaces.push(self.design_workspace(request, &plan_id, name, resource)?);
        }
        self.settle_branch_options(&mut workspaces)?;
        Ok(Sandbox {
            id: SandboxId::generate(),
            name: String::new(),
            plan_id,
            state: SandboxState::Provisioning,
            consumer: request.consumer.clone(),
            principal: self.permissions.caller().map(str::to_owned),
            created_at,
            expires_at: expiry(created_at, time_to_live(request, self.parts.settings.default_ttl)?)?,
            environment: request.environment.as_ref().map(|e| Box::new(designed(e, &workspaces))),
            workspaces,
        })
    }

    fn design_workspace(
        &self,
        request: &CreateRequest,
        plan_id: &PlanId,
        name: String,
        mut resource: Resource,
    ) -> Result<Workspace> {
        let resource_type = self.parts.types.get(&resource.type_name)?;
        let (settings, registry) = (&self.parts.settings, &self.parts.registry);
        let flag = request.strategy.as_deref();
        let mode = request.environment.as_ref().and_then(|e| e.profile.workspace.mode.as_deref());
        let choice = choose_strategy(flag, mode, &resource, resource_type, settings, registry);
        let asked = flag.is_some() || resource.properties.contains_key("strategy");
        let choice =
            choice.map_err(|error| if asked { error } else { named_by_type(error, resource_type) })?;
        self.refuse_patterns(&resource, &choice.strategy)?;
        if request.no_fallback
            || request.environment.as_ref().is_some_and(|e| e.profile.workspace.no_fallback)
        {
            resource.properties.insert(NO_FALLBACK.to_owned(), Value::Bool(true));
        }
        let sandbox_ref = SandboxRef::new(plan_id.clone(), resource.id.clone(), choice.strategy.as_str());
        let sandbox_ref = sandbox_ref.with(UNMADE, true);
        Ok(Workspace {
            name,
            resource,
            requested_strategy: choice.strategy,
            reason: choice.reason,
            sandbox_ref,
        })
    }

    /// A strategy that does not know patterns would isolate, and commit, what was to be left out.
    fn refuse_patterns(&self, resource: &Resource, strategy: &str) -> Result<()> {
        let settings = &self.parts.settings;
        let by_settings =
            resource.path().is_some() && !(settings.include.is_empty() && settings.exclude.is_empty());
        let by_caller = ["include", "exclude", SKIP].iter().any(|key| !resource.string_list(key).is_empty());
        if !(by_settings || by_caller) || self.parts.registry.get(strategy)?.capabilities.faithful {
            return Ok(());
        }
        let (strategy, reason) = (strategy.to_owned(), "it isolates everything or nothing".to_owned());
        Err(Error::Unsupported { strategy, what: "leave paths out", reason })
    }

    /// Refuses a request whose workspaces would have no path to work in, before anything is made. Databases are connected to.
    pub fn require_paths(&self, request: &CreateRequest) -> Result<()> {
        let mut detected =
            request.inputs.iter().map(|input| self.detect(input)).collect::<Result<Vec<_>>>()?;
        self.set_databases_apart(&mut detected)?;
        for workspace in self.design(request, detected)?.workspaces {
            let can = self.capabilities_of(&workspace)?;
            if self.parts.types.get(&workspace.resource.type_name)?.is_database() {
                continue;
            }
            // What does not isolate is worked on where it is.
            if !can.file_tree && (can.isolates || workspace.resource.path().is_none()) {
                return Err(workspace.without_path());
            }
        }
        Ok(())
    }

    /// Options on branches are for those workspaces that have any, and somebody has to have one.
    fn settle_branch_options(&self, workspaces: &mut [Workspace]) -> Result<()> {
        let (mut given, mut of_use) = (None, false);
        for workspace in workspaces {
            let strategy = workspace.requested_strategy.as_str();
            let branches = self.parts.registry.get(strategy)?.capabilities.branches;
            for (key, flag) in BRANCH_OPTIONS {
                if workspace.resource.properties.contains_key(key) {
                    of_use |= branches;
                    given.get_or_insert((flag, strategy.to_owned()));
                    if !branches {
                        workspace.resource.properties.remove(key);
                    }
                }
            }
        }
        match given {
            Some((flag, strategy)) if !of_use => Err(no_branches(flag, &strategy)),
            _ => Ok(()),
        }
    }

    /// One attempt. `None` where another process was in the middle of something with the same plan: look again.
    fn try_create(
        &self,
        request: &CreateRequest,
        wanted: &Sandbox,
        naming: &Naming,
        limits: &[Limit],
    ) -> Result<Option<Created>> {
        let mut sandbox = Sandbox { id: SandboxId::generate(), ..wanted.clone() };
        let operation = new_operation(&sandbox.id, "create", json!({}));
        // Whoever works on a plan commits it as one: nobody gets into a plan that they do not see all of.
        let in_the_way = |other: &Sandbox| !self.sees(other) || overlaps(other, wanted);
        match self.store.reserve_within(limits, &sandbox, naming, &operation, &in_the_way)? {
            Reservation::Made(name) => sandbox.name = name,
            Reservation::KeyTaken(holder) => {
                self.wait_for_maker(&holder.id)?;
                return self.made_by_key(request);
            }
            Reservation::Overlaps(existing) => return self.settle(request, wanted, existing),
            Reservation::NameTaken(holder) if self.sees(&holder) => return Err(name_taken(&holder)),
            Reservation::NameTaken(holder) => return Err(name_taken_unseen(&holder.name)),
            Reservation::OverQuota(standing) => return Err(self.over_quota(&standing, &request.consumer)),
        }
        let lock = self.lock(&sandbox.id)?;
        // Between the row and the lock, another process's recovery may have taken it for a dead one.
        let row = self.store.sandbox(&sandbox.id)?;
        if row.is_none_or(|row| row.state != SandboxState::Provisioning) {
            self.drop_dir_of_closed(&sandbox.id);
            return Ok(None);
        }
        self.provision(sandbox, &operation, request.disposable, &lock).map(Some)
    }

    /// What to do about live sandboxes of the plan that are in the way.
    fn settle(
        &self,
        request: &CreateRequest,
        wanted: &Sandbox,
        existing: Vec<Sandbox>,
    ) -> Result<Option<Created>> {
        if let Some(busy) = existing.iter().find(|sandbox| !sandbox.state.is_open()) {
            self.wait_until_settled(&busy.id)?;
            return Ok(None);
        }
        if !existing.iter().all(|sandbox| self.sees(sandbox)) {
            return Err(Error::refused(format!("plan {} is somebody else's", wanted.plan_id)));
        }
        let [only] = &existing[..] else { return Err(overlap_refused(wanted, &existing)) };
        if !is_same_set(only, wanted) {
            return Err(overlap_refused(wanted, &existing));
        }
        check_same_way(request, only, wanted)?;
        let message = format!("plan {} has sandbox {} over this already", only.plan_id, only.name);
        Ok(Some(Created { sandbox: only.clone(), created: false, message }))
    }

    /// Waits for whoever makes that sandbox as long as they are at it: an environment may take minutes, and it is the answer to this request, too.
    fn wait_for_maker(&self, id: &SandboxId) -> Result<()> {
        loop {
            match self.wait_until_settled(id) {
                Err(Error::Busy { .. }) if SandboxLock::is_held(&self.sandbox_dir(id)) => {
                    self.parts.cancel.check()?
                }
                settled => return settled,
            }
            std::thread::sleep(MAKER_POLL);
        }
    }

    /// Waits for whoever makes or removes that sandbox; if they are dead, finishes for them.
    fn wait_until_settled(&self, id: &SandboxId) -> Result<()> {
        self.give_maker_time(id)?;
        let _lock = self.lock(id)?;
        self.recover_locked(id)?;
        self.drop_dir_of_closed(id);
        Ok(())
    }

    /// The row comes before the lock, so a maker without a lock may be one that is about to take it.
    fn give_maker_time(&self, id: &SandboxId) -> Result<()> {
        for _ in 0..MAKER_POLLS {
            let in_the_making =
                self.store.sandbox(id)?.is_some_and(|s| s.state == SandboxState::Provisioning);
            if !in_the_making || SandboxLock::is_held(&self.sandbox_dir(id)) {
                break;
            }
            std::thread::sleep(MAKER_POLL);
        }
        Ok(())
    }

    /// Makes everything, under the lock.
    fn provision(
        &self,
        sandbox: Sandbox,
        operation: &Operation,
        disposable: bool,
        _held: &SandboxLock,
    ) -> Result<Created> {
        let mut made = sandbox;
        let steps = self.make_workspaces(&mut made).and_then(|()| self.make_environment(&mut made));
        match steps.and_then(|()| self.publish(&mut made, operation, disposable)) {
            Ok(()) => Ok(Created { message: created_message(&made), sandbox: made, created: true }),
            Err(error) => Err(self.undo_create(&made, operation, error)),
        }
    }

    fn make_workspaces(&self, sandbox: &mut Sandbox) -> Result<()> {
        for position in 0..sandbox.workspaces.len() {
            self.parts.cancel.check()?;
            let mut workspace = sandbox.workspaces[position].clone();
            self.make_workspace(sandbox, &mut workspace).map_err(in_workspace(sandbox, &workspace))?;
            sandbox.workspaces[position] = workspace;
            let made = &sandbox.workspaces[position];
            // The last one is remembered when the sandbox is published; until then it is what a killed create left.
            if position + 1 < sandbox.workspaces.len() {
                self.store.set_ref(&sandbox.id, position, &made.sandbox_ref, &made.reason)?;
            }
        }
        Ok(())
    }

    fn make_workspace(&self, sandbox: &Sandbox, workspace: &mut Workspace) -> Result<()> {
        let requested = workspace.requested_strategy.as_str();
        let mut resource = workspace.resource.clone();
        resource.properties.insert(MADE_FOR.to_owned(), Value::String(sandbox.id.to_string()));
        resource.properties.insert(CALLED.to_owned(), Value::String(sandbox.name.clone()));
        let made = self.strategy(requested)?.create(&sandbox.plan_id, &resource)?;
        if made.strategy_name != requested {
            let why = made.text("fallback_reason").unwrap_or("no reason given").to_owned();
            if workspace.resource.properties.contains_key(NO_FALLBACK) {
                self.strategy(&made.strategy_name)?.cleanup(&made)?;
                let (strategy, path) = (requested.to_owned(), (&workspace.resource.location).into());
                return Err(Error::Unavailable { strategy, path, reason: why });
            }
            workspace.reason = format!("{}; fell back to {}: {why}", workspace.reason, made.strategy_name);
        } else if let Some(why) = made.text("fallback_reason") {
            // A strategy that stands on another one, and that has fallen back.
            workspace.reason = format!("{}; files are copied: {why}", workspace.reason);
        }
        workspace.sandbox_ref = made;
        Ok(())
    }

    /// The descriptor first, the row second: a `ready` sandbox can always be adopted.
    fn publish(&self, sandbox: &mut Sandbox, operation: &Operation, disposable: bool) -> Result<()> {
        sandbox.state = SandboxState::Ready;
        let descriptor = Descriptor { sandbox: sandbox.clone(), checkpoints: Vec::new() };
        let directory = self.sandbox_dir(&sandbox.id);
        descriptor.write_unflushed(&directory)?;
        let end = OperationEnd {
            id: operation.id.clone(),
            state: "done",
            summary: created_message(sandbox),
            details: create_details(sandbox),
        };
        if disposable {
            return self.store.publish_unflushed(sandbox, &end);
        }
        // Both wait for the disk: at the same time.
        std::thread::scope(|scope| {
            let flushing = scope.spawn(|| flush_new(&directory));
            let published = self.store.publish(sandbox, &end);
            let flushed = flushing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            published.and(flushed)
        })
    }

    /// Removes what was made, last first. Where that fails too, the row stays `provisioning`, and the next command's
    /// recovery tries again.
    fn undo_create(&self, sandbox: &Sandbox, operation: &Operation, error: Error) -> Error {
        self.note_failure(sandbox, &error);
        if self.take_down(sandbox).is_ok() {
            let _ = self.close(&sandbox.id, SandboxState::Failed, &[failure(operation, &error)]);
        }
        error
    }
}

fn check_request(request: &CreateRequest, resources: &[(Option<String>, Resource)]) -> Result<Naming> {
    let Some((_, first)) = resources.first() else {
        return Err(Error::usage("a sandbox needs at least one resource"));
    };
    let mut seen = HashSet::new();
    for name in resources.iter().filter_map(|(name, _)| name.as_deref()) {
        names::check("workspace", name)?;
        if !seen.insert(name) {
            return Err(Error::usage(format!("two inputs are named {name:?}")));
        }
    }
    if let Some(plan) = &request.plan {
        names::check_plan(plan)?;
    }
    refuse_nested(resources)?;
    match &request.name {
        Some(name) => names::check("sandbox", name).map(|()| Naming::Exact(name.clone())),
        None => Ok(Naming::Derived(names::from_resource(first))),
    }
}

/// A strategy that nobody typed: the error says which file names it, where that is the user's own.
fn named_by_type(error: Error, resource_type: &ResourceType) -> Error {
    match error {
        Error::NotFound { what: "strategy", name, similar } if !resource_type.is_shipped() => {
            let near = similar.first().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            Error::Config {
                file: (&resource_type.origin).into(),
                line: None,
                column: None,
                message: format!(
                    "resource type {:?} names the strategy {name:?}, which is not there",
                    resource_type.name
                ),
                hint: Some(format!("register it: `sandbox.custom_strategies`{near}")),
            }
        }
        other => other,
    }
}

fn no_branches(flag: &str, strategy: &str) -> Error {
    Error::Usage {
        message: format!("{flag} is for git checkouts, and strategy {strategy} knows nothing of git"),
        hint: Some("name a checkout, and no other strategy than git_worktree; or leave it out".to_owned()),
    }
}

/// Only taking up what is parked, and refreshing, name the workspace that is meant: from a caller, it would be anybody's.
fn refuse_bringing_back(resources: &[(Option<String>, Resource)]) -> Result<()> {
    let ways = [
        (BRING_BACK, "take up a parked sandbox with `sandbox unpark`"),
        (REFRESH, "move a sandbox onto its original with `sandbox refresh`"),
    ];
    for (_, resource) in resources {
        if let Some((key, hint)) = ways.iter().find(|(key, _)| resource.properties.contains_key(*key)) {
            return Err(Error::Usage {
                message: format!("the option {key:?} of {} cannot be given", resource.location),
                hint: Some((*hint).to_owned()),
            });
        }
    }
    Ok(())
}

/// A sandbox of the state directory would hold itself, and its commit would write over the state of all others.
fn refuse_own_state(home: &Path, resources: &[(Option<String>, Resource)]) -> Result<()> {
    // A state directory that is not there yet has nothing in it.
    let Ok(home) = home.canonicalize() else { return Ok(()) };
    let is_ours = |resource: &Resource| {
        let path = resource.path().and_then(|path| path.canonicalize().ok());
        path.is_some_and(|path| path.starts_with(&home))
    };
    match resources.iter().find(|(_, resource)| is_ours(resource)) {
        None => Ok(()),
        Some((_, resource)) => Err(Error::Refused {
            reason: format!("{} lies in the state directory {}", resource.location, home.display()),
            hint: Some("name the original instead, or use another state directory: --home DIR".to_owned()),
        }),
    }
}

pub(super) fn expiry(created_at: Timestamp, ttl: Option<SignedDuration>) -> Result<Option<Timestamp>> {
    let Some(ttl) = ttl else { return Ok(None) };
    if !ttl.is_positive() {
        return Err(Error::usage("the time to live is not positive"));
    }
    let at = created_at.checked_add(ttl).map_err(|_| Error::usage("the time to live is too long"))?;
    Ok(Timestamp::from_microsecond(at.as_microsecond()).ok())
}

fn overlaps(existing: &Sandbox, wanted: &Sandbox) -> bool {
    existing.workspaces.iter().any(|w| wanted.workspaces.iter().any(|n| w.resource.overlaps(&n.resource)))
}

fn is_same_set(existing: &Sandbox, wanted: &Sandbox) -> bool {
    let ids =
        |sandbox: &Sandbox| sandbox.workspaces.iter().map(|w| w.resource.id.clone()).collect::<HashSet<_>>();
    ids(existing) == ids(wanted)
}

/// What was asked for explicitly has to be what the existing sandbox is.
fn check_same_way(request: &CreateRequest, existing: &Sandbox, wanted: &Sandbox) -> Result<()> {
    check_same_environment(existing, wanted)?;
    for new in &wanted.workspaces {
        let Some(old) = existing.workspaces.iter().find(|w| w.resource.id == new.resource.id) else {
            continue;
        };
        let (in_use, requested) = (&old.sandbox_ref.strategy_name, &old.requested_strategy);
        let asked = request.strategy.is_some() || new.resource.properties.contains_key("strategy");
        let suits = |s: &String| s == in_use || (s == requested && !request.no_fallback);
        if (asked || request.no_fallback) && !suits(&new.requested_strategy) {
            let reason = format!(
                "plan {} has sandbox {} ({}) over {} with strategy {in_use}",
                existing.plan_id, existing.name, existing.id, new.resource.location
            );
            return Err(Error::Refused { reason, hint: Some(other_plan_hint(existing)) });
        }
        check_same_properties(existing, old, new)?;
    }
    Ok(())
}

/// Whoever asks for an environment does not get a sandbox with another one, or with none.
fn check_same_environment(existing: &Sandbox, wanted: &Sandbox) -> Result<()> {
    let Some(asked) = wanted.environment.as_deref() else { return Ok(()) };
    let of =
        |e: &Environment| (e.route.profile_id.clone(), e.route.extension_id.clone(), e.route.host.clone());
    if existing.environment.as_deref().map(of) == Some(of(asked)) {
        return Ok(());
    }
    let has = existing.environment.as_ref().map_or("no profile", |e| &e.route.profile_id);
    let reason = format!(
        "plan {} has sandbox {} ({}) over this, with {has}",
        existing.plan_id, existing.name, existing.id
    );
    Err(Error::Refused { reason, hint: Some(other_plan_hint(existing)) })
}

fn check_same_properties(existing: &Sandbox, old: &Workspace, new: &Workspace) -> Result<()> {
    let ours = |key: &str| matches!(key, NO_FALLBACK | "strategy");
    let differs =
        |(key, value): (&String, &Value)| !ours(key) && old.resource.properties.get(key) != Some(value);
    if !new.resource.properties.iter().any(differs) {
        return Ok(());
    }
    let reason = format!(
        "plan {} has sandbox {} ({}) over {} with other options",
        existing.plan_id, existing.name, existing.id, new.resource.location
    );
    Err(Error::Refused { reason, hint: Some(other_plan_hint(existing)) })
}

fn overlap_refused(wanted: &Sandbox, existing: &[Sandbox]) -> Error {
    let holders: Vec<String> = existing.iter().map(|s| format!("{} ({})", s.name, s.id)).collect();
    let reason = format!("plan {} has {} over part of this", wanted.plan_id, holders.join(" and "));
    Error::Refused { reason, hint: existing.first().map(other_plan_hint) }
}

fn other_plan_hint(existing: &Sandbox) -> String {
    format!("destroy it first (`sandbox destroy {}`), or use another plan", existing.name)
}

fn name_taken(holder: &Sandbox) -> Error {
    Error::Usage {
        message: format!(
            "the name {:?} is taken by sandbox {} (plan {})",
            holder.name, holder.id, holder.plan_id
        ),
        hint: Some("choose another name, or leave it out to have one made up".to_owned()),
    }
}

/// What somebody else calls theirs is their affair.
fn name_taken_unseen(name: &str) -> Error {
    Error::Usage {
        message: format!("the name {name:?} is taken"),
        hint: Some("choose another name, or leave it out to have one made up".to_owned()),
    }
}

fn created_message(sandbox: &Sandbox) -> String {
    let over: Vec<&str> = sandbox.workspaces.iter().map(|w| w.resource.location.as_str()).collect();
    format!("sandbox {} over {}", sandbox.name, over.join(", "))
}

fn create_details(sandbox: &Sandbox) -> Value {
    let of = |w: &Workspace| json!({"name": w.name, "location": w.resource.location, "strategy": w.sandbox_ref.strategy_name});
    json!({"plan_id": sandbox.plan_id, "workspaces": sandbox.workspaces.iter().map(of).collect::<Vec<_>>()})
}
