//! What the store says compared with what extensions find, and either put right.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::steps::failure;
use crate::Result;
use crate::contract::EnvironmentExtension;
use crate::environment::{Environment, ExtensionDefinition, Found, Health, Host, Provider, Ready};
use crate::model::SandboxId;
use crate::service::descriptor::Descriptor;
use crate::service::manager::{SandboxManager, explain};
use crate::service::{ReconcileReport, Sandbox, SandboxState};
use crate::store::now;

/// What is younger than this may be about to be written down.
const GRACE: Duration = Duration::from_secs(600);
/// How long what has come back may take to be ready.
const SOON: Duration = Duration::from_secs(10);
/// The step of a failure that is none of the making.
const LOST: &str = "ready";
const GONE: &str = "it is not there any more";
const STOPPED: &str = "it is there and does not run";

impl SandboxManager {
    /// Looks at every extension that makes something that could be left behind. What carries our label and belongs to no sandbox, or to one that has no
    /// environment, is removed once it is older than `grace`: whoever makes it may be about to write it down. A sandbox whose environment is gone is told so. What killed processes left is
    /// put right first, by plugins as well: they are asked here anyway. A dry run only says.
    pub fn reconcile(&self, grace: Duration, dry_run: bool) -> Result<ReconcileReport> {
        self.reconcile_among(&self.used()?, grace, dry_run, |_| true)
    }

    /// The same on one host, whether anything was ever made there or not.
    pub fn reconcile_host(&self, host: &str, grace: Duration, dry_run: bool) -> Result<ReconcileReport> {
        let host = self.parts.environments.host(host)?.into_owned();
        let used = host.extensions.iter().map(|extension| (extension.clone(), host.id.clone())).collect();
        self.reconcile_among(&used, grace, dry_run, |definition| {
            definition.provider == Provider::ComposeSsh && host.extensions.contains(&definition.id)
        })
    }

    /// The same with those extensions that ever made something for this state directory, after the usual grace: others may well be out of
    /// order here, and nobody's concern.
    pub(in crate::service) fn reconcile_used(&self, dry_run: bool) -> Result<ReconcileReport> {
        let used = self.used()?;
        // Most have none, and a wrong file of the catalogue is nothing to them.
        if used.is_empty() {
            return Ok(ReconcileReport::default());
        }
        self.reconcile_among(&used, GRACE, dry_run, |definition| is_used(&used, definition))
    }

    fn used(&self) -> Result<Used> {
        Ok(self.store.used_extensions()?.into_iter().collect())
    }

    fn reconcile_among(
        &self,
        used: &Used,
        grace: Duration,
        dry_run: bool,
        wanted: impl Fn(&ExtensionDefinition) -> bool,
    ) -> Result<ReconcileReport> {
        let mut report = ReconcileReport::default();
        if !dry_run {
            self.finish_what_was_left(&mut report)?;
        }
        // What is found is listed before the store is read: whatever is found had its row by then.
        let found = self.find_all(used, wanted, &mut report)?;
        let known: HashMap<String, Sandbox> =
            self.store.present()?.into_iter().map(|s| (s.id.as_str().to_owned(), s)).collect();
        for place in &found {
            for item in place.found.iter().filter(|item| !known.contains_key(item.sandbox_id.as_str())) {
                remove_unknown(self, place, item, grace, dry_run, &mut report);
            }
            for sandbox in known.values().filter(|s| place.is_of(s) && has_none(s) && place.has_found(s)) {
                self.remove_survivors(place, &sandbox.id, grace, dry_run, &mut report)?;
            }
            self.look_for_lost(place, &known, dry_run, &mut report)?;
        }
        Ok(report)
    }

    /// Other commands leave alone what only a plugin can put right; here is where somebody asks for exactly that.
    fn finish_what_was_left(&self, report: &mut ReconcileReport) -> Result<()> {
        for recovered in self.recover_whatever(|sandbox| sandbox.environment.is_some())? {
            let told = format!("{}: {}", recovered.sandbox_id, recovered.message);
            if recovered.failed { report.failed.push(told) } else { report.recovered.push(told) }
        }
        Ok(())
    }

    /// What each extension finds; one that cannot be asked is told of, and nothing is concluded from its silence.
    fn find_all(
        &self,
        used: &Used,
        wanted: impl Fn(&ExtensionDefinition) -> bool,
        report: &mut ReconcileReport,
    ) -> Result<Vec<Place<'_>>> {
        let mut all = Vec::new();
        let environments = &self.parts.environments;
        let wanted =
            |definition: &&ExtensionDefinition| definition.provider != Provider::Local && wanted(definition);
        let extensions = &environments.known()?.extensions;
        let missing: BTreeSet<&String> = used.iter().map(|(extension, _)| extension).collect();
        for missing in missing.into_iter().filter(|id| !extensions.contains_key(*id) && *id != "ext.local") {
            report.failed.push(format!("{missing}: it is not in the catalogue any more"));
        }
        for definition in extensions.values().filter(wanted) {
            let hosts = environments.hosts_apart(definition)?;
            let hosts =
                hosts.into_iter().filter(|host| used.contains(&(definition.id.clone(), host.id.clone())));
            let apart = definition.provider == Provider::ComposeSsh;
            let places = hosts.map(Some).chain((!apart).then_some(None));
            all.extend(
                places.filter_map(|host| self.find_at(definition, host, is_used(used, definition), report)),
            );
        }
        Ok(all)
    }

    /// What an extension finds on a host, or wherever it is.
    fn find_at<'a>(
        &'a self,
        definition: &'a ExtensionDefinition,
        host: Option<&'a Host>,
        is_used: bool,
        report: &mut ReconcileReport,
    ) -> Option<Place<'a>> {
        let environments = &self.parts.environments;
        let extension = match host {
            Some(host) => environments.extension_on(&definition.id, &host.id),
            None => environments.extension(&definition.id),
        };
        let named = host.map_or(definition.id.clone(), |host| format!("{} on {}", definition.id, host.id));
        let asked = extension.and_then(|extension| Ok((found_by(&*extension)?, extension)));
        match asked {
            Ok((Answer::Things(found), extension)) => {
                return Some(Place { definition, host, extension, found });
            }
            // Nothing is concluded where it has made something; else it is not here, and that is all.
            Ok((Answer::NotHere(reason), _)) if is_used => report.failed.push(format!("{named}: {reason}")),
            Ok((Answer::NotHere(_), _)) => {}
            Err(error) => {
                let told = format!("{named}: {}", explain(&error));
                if is_used { &mut report.failed } else { &mut report.unasked }.push(told);
            }
        }
        None
    }

    fn look_for_lost(
        &self,
        place: &Place<'_>,
        known: &HashMap<String, Sandbox>,
        dry_run: bool,
        report: &mut ReconcileReport,
    ) -> Result<()> {
        let mut things: HashMap<&str, Vec<&Found>> = HashMap::new();
        place.found.iter().for_each(|item| things.entry(item.sandbox_id.as_str()).or_default().push(item));
        for sandbox in known.values().filter(|s| place.is_of(s) && made_in(s).is_some()) {
            match why_lost(things.get(sandbox.id.as_str()).into_iter().flatten().copied()) {
                None if !was_lost(sandbox) => report.sound += 1,
                _ => self.look_closer(place, &sandbox.id, dry_run, report)?,
            }
        }
        report.lost.sort();
        Ok(())
    }

    /// Whoever was cut off there may have gone on, and made things when everything had been removed. As below, they are looked for once more.
    fn remove_survivors(
        &self,
        place: &Place<'_>,
        id: &SandboxId,
        grace: Duration,
        dry_run: bool,
        report: &mut ReconcileReport,
    ) -> Result<()> {
        let lock = self.try_lock(id)?;
        let has_none = self.store.sandbox(id)?.is_some_and(|sandbox| has_none(&sandbox));
        let Some(_lock) = lock.filter(|_| has_none) else { return Ok(()) };
        match place.extension.inspect(Some(id)) {
            Err(error) => report.failed.push(format!("{}: {}", place.definition.id, explain(&error))),
            Ok(things) if things.iter().all(|thing| is_young(thing, grace)) => {
                report.young.extend(things.iter().map(|thing| place.told(thing)));
            }
            Ok(things) => remove(place, id, &things, dry_run, report),
        }
        Ok(())
    }

    /// The list is older than the row: what was made, or made again, in between is in the one and not in the other. So it is looked for once
    /// more, with nobody at work in it, and the row is read then.
    fn look_closer(
        &self,
        place: &Place<'_>,
        id: &SandboxId,
        dry_run: bool,
        report: &mut ReconcileReport,
    ) -> Result<()> {
        // Somebody at work in it knows better.
        let Some(_lock) = self.try_lock(id)? else { return Ok(()) };
        let Some(sandbox) = self.store.sandbox(id)? else { return Ok(()) };
        let Some(environment) = made_in(&sandbox) else {
            self.drop_dir_of_closed(id);
            return Ok(());
        };
        match place.extension.inspect(Some(id)) {
            Err(error) => report.failed.push(format!("{}: {}", place.definition.id, explain(&error))),
            Ok(things) => match why_lost(things.iter()) {
                None if !was_lost(&sandbox) || dry_run => report.sound += 1,
                None => match self.found_again(place, id, environment) {
                    Some(found) => {
                        report.sound += 1;
                        let why = Some("it was found again");
                        self.store.tell_of_environment(id, &found, "recreated", why)?;
                    }
                    None => report.lost.push(id.clone()),
                },
                Some(why) => {
                    report.lost.push(id.clone());
                    if !dry_run {
                        self.tell_lost(&sandbox, environment, why)?;
                    }
                }
            },
        }
        Ok(())
    }

    /// Told once. The handle stays: whoever was asked may be another than the one who made it, and a destroy looks again, by the handle. The
    /// caller holds the lock.
    fn tell_lost(&self, sandbox: &Sandbox, environment: &Environment, why: &str) -> Result<()> {
        if environment.failure.is_some() {
            return Ok(());
        }
        let lost = Environment { failure: Some(failure(LOST, why.to_owned())), ..environment.clone() };
        self.store.tell_of_environment(&sandbox.id, &lost, "lost", Some(why))
    }

    /// The environment that somebody has started again, if it is ready: its addresses and ports are others by now. What is not ready yet is looked at
    /// again the next time. Waiting lets services go on, so what is to be sent first is not waited for.
    fn found_again(&self, place: &Place<'_>, id: &SandboxId, lost: &Environment) -> Option<Environment> {
        let handle = lost.handle.as_ref().filter(|_| !self.is_unsent(id))?;
        self.parts.progress.begin("waiting for an environment that has come back", None);
        let ready = place.extension.wait_ready(handle, SOON, &self.parts.cancel);
        self.parts.progress.end();
        let Ready { endpoints, notes } = ready.ok()?;
        Some(Environment { failure: None, endpoints, notes, ..lost.clone() })
    }
}

/// Extensions that were asked for something, each with the host.
type Used = HashSet<(String, String)>;

fn is_used(used: &Used, definition: &ExtensionDefinition) -> bool {
    used.iter().any(|(extension, _)| *extension == definition.id)
}

/// An extension, on a host where that makes a difference, and what it has found there.
struct Place<'a> {
    definition: &'a ExtensionDefinition,
    host: Option<&'a Host>,
    extension: Arc<dyn EnvironmentExtension>,
    found: Vec<Found>,
}

impl Place<'_> {
    /// Whether the environment of a sandbox is made here, if one is.
    fn is_of(&self, sandbox: &Sandbox) -> bool {
        sandbox.extension_id() == self.definition.id && self.host.is_none_or(|host| host.id == sandbox.host())
    }

    fn has_found(&self, sandbox: &Sandbox) -> bool {
        self.found.iter().any(|item| item.sandbox_id == sandbox.id)
    }

    fn told(&self, item: &Found) -> String {
        format!("{} of {} ({})", item.what, item.sandbox_id, self.definition.id)
    }
}

fn remove_unknown(
    manager: &SandboxManager,
    place: &Place<'_>,
    item: &Found,
    grace: Duration,
    dry_run: bool,
    report: &mut ReconcileReport,
) {
    // What is on disk and in no row waits for `adopt`.
    let is_on_disk = matches!(Descriptor::read(&manager.sandbox_dir(&item.sandbox_id)), Ok(Some(_)) | Err(_));
    match is_young(item, grace) || is_on_disk {
        true => report.young.push(place.told(item)),
        false => remove(place, &item.sandbox_id, std::slice::from_ref(item), dry_run, report),
    }
}

/// Removes everything of a sandbox that is there, and tells of these things.
fn remove(place: &Place<'_>, id: &SandboxId, things: &[Found], dry_run: bool, report: &mut ReconcileReport) {
    let removed = if dry_run { Ok(()) } else { place.extension.teardown(id, None) };
    let told = things.iter().map(|thing| place.told(thing));
    match removed {
        Ok(()) => report.removed.extend(told),
        Err(error) => report.failed.extend(told.map(|told| format!("{told}: {}", explain(&error)))),
    }
}

/// Whether it was told to be lost, and may have come back.
fn was_lost(sandbox: &Sandbox) -> bool {
    let failure = sandbox.environment.as_deref().and_then(|environment| environment.failure.as_ref());
    failure.is_some_and(|failure| failure.step == LOST)
}

/// Whether a sandbox that nobody works in has no environment: it was not made, or was taken down.
fn has_none(sandbox: &Sandbox) -> bool {
    let unmade = sandbox.environment.as_deref().is_some_and(|environment| environment.handle.is_none());
    sandbox.state == SandboxState::Parked || (sandbox.state.is_open() && unmade)
}

/// The environment of an open sandbox, where one was made.
fn made_in(sandbox: &Sandbox) -> Option<&Environment> {
    let environment = sandbox.environment.as_deref().filter(|e| e.handle.is_some());
    environment.filter(|_| sandbox.state.is_open())
}

/// Why an environment that consists of these things is none to work in. Of several, not all run: a network never does.
fn why_lost<'a>(things: impl Iterator<Item = &'a Found>) -> Option<&'static str> {
    let running: Vec<bool> = things.map(|thing| thing.running).collect();
    match running[..] {
        [] => Some(GONE),
        _ => (!running.contains(&true)).then_some(STOPPED),
    }
}

/// What an extension says when it is asked what there is.
enum Answer {
    Things(Vec<Found>),
    /// Nobody is there to be asked, and why.
    NotHere(String),
}

fn found_by(extension: &dyn EnvironmentExtension) -> Result<Answer> {
    match extension.health() {
        Health::Undetected(reason) => Ok(Answer::NotHere(reason)),
        Health::Unhealthy(reason) => Err(crate::Error::refused(reason)),
        Health::Healthy | Health::Limited(_) => extension.inspect(None).map(Answer::Things),
    }
}

fn is_young(item: &Found, grace: Duration) -> bool {
    let Some(made_at) = item.made_at else { return false };
    let age = now().duration_since(made_at);
    // A clock that is ahead of ours says nothing of how old it is.
    if age.is_negative() { !grace.is_zero() } else { age.unsigned_abs() < grace }
}
