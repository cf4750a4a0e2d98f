//! What the store says compared with what extensions find, and either put right.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::steps::{failure, unmade};
use crate::Result;
use crate::contract::EnvironmentExtension;
use crate::environment::{Environment, ExtensionDefinition, Found, Provider};
use crate::service::manager::{SandboxManager, explain};
use crate::service::{ReconcileReport, Sandbox};
use crate::store::now;

/// What is younger than this may be about to be written down.
const GRACE: Duration = Duration::from_secs(600);

impl SandboxManager {
    /// Looks at every extension that makes something that could be left behind. What carries our label and belongs to no sandbox is removed once it is
    /// older than `grace`: whoever makes it may be about to write it down. A sandbox whose environment is gone is told so. A dry run only says.
    pub fn reconcile(&self, grace: Duration, dry_run: bool) -> Result<ReconcileReport> {
        self.reconcile_among(&self.used_extensions()?, grace, dry_run, |_| true)
    }

    /// The same with those extensions that ever made something for this state directory, after the usual grace: others may well be out of
    /// order here, and nobody's concern.
    pub(in crate::service) fn reconcile_used(&self, dry_run: bool) -> Result<ReconcileReport> {
        let used = self.used_extensions()?;
        self.reconcile_among(&used, GRACE, dry_run, |definition| used.contains(&definition.id))
    }

    fn used_extensions(&self) -> Result<HashSet<String>> {
        Ok(self.store.used_extensions()?.into_iter().collect())
    }

    fn reconcile_among(
        &self,
        used: &HashSet<String>,
        grace: Duration,
        dry_run: bool,
        wanted: impl Fn(&ExtensionDefinition) -> bool,
    ) -> Result<ReconcileReport> {
        let mut report = ReconcileReport::default();
        // What is found is listed before the store is read: whatever is found had its row by then.
        let found = self.find_all(used, wanted, &mut report)?;
        let known: HashMap<String, Sandbox> =
            self.store.sandboxes(false)?.into_iter().map(|s| (s.id.as_str().to_owned(), s)).collect();
        for (definition, found) in &found {
            for item in found.iter().filter(|item| !known.contains_key(item.sandbox_id.as_str())) {
                self.remove_unknown(definition, item, grace, dry_run, &mut report);
            }
            self.look_for_lost(definition, found, &known, dry_run, &mut report)?;
        }
        Ok(report)
    }

    /// What each extension finds; one that cannot be asked is told of, and nothing is concluded from its silence.
    fn find_all(
        &self,
        used: &HashSet<String>,
        wanted: impl Fn(&ExtensionDefinition) -> bool,
        report: &mut ReconcileReport,
    ) -> Result<Vec<(&ExtensionDefinition, Vec<Found>)>> {
        let mut all = Vec::new();
        let environments = &self.parts.environments;
        let wanted =
            |definition: &&ExtensionDefinition| definition.provider != Provider::Local && wanted(definition);
        for definition in environments.known()?.extensions.values().filter(wanted) {
            match environments.extension(&definition.id).and_then(|extension| found_by(&*extension)) {
                Ok(Some(found)) => all.push((definition, found)),
                Ok(None) => {}
                Err(error) => {
                    let told = format!("{}: {}", definition.id, explain(&error));
                    if used.contains(&definition.id) { &mut report.failed } else { &mut report.unasked }
                        .push(told);
                }
            }
        }
        Ok(all)
    }

    fn remove_unknown(
        &self,
        definition: &ExtensionDefinition,
        item: &Found,
        grace: Duration,
        dry_run: bool,
        report: &mut ReconcileReport,
    ) {
        let told = format!("{} of {} ({})", item.what, item.sandbox_id, definition.id);
        if is_young(item, grace) {
            report.young.push(told);
            return;
        }
        let removed = match dry_run {
            true => Ok(()),
            false => self
                .parts
                .environments
                .extension(&definition.id)
                .and_then(|e| e.teardown(&item.sandbox_id, None)),
        };
        match removed {
            Ok(()) => report.removed.push(told),
            Err(error) => report.failed.push(format!("{told}: {}", explain(&error))),
        }
    }

    fn look_for_lost(
        &self,
        definition: &ExtensionDefinition,
        found: &[Found],
        known: &HashMap<String, Sandbox>,
        dry_run: bool,
        report: &mut ReconcileReport,
    ) -> Result<()> {
        let running: HashMap<&str, bool> = found.iter().map(|f| (f.sandbox_id.as_str(), f.running)).collect();
        let made = |s: &&Sandbox| s.state.is_open() && s.extension_id() == definition.id;
        for sandbox in known.values().filter(made) {
            let Some(environment) = sandbox.environment.as_deref().filter(|e| e.handle.is_some()) else {
                continue;
            };
            let why = match running.get(sandbox.id.as_str()) {
                Some(true) => {
                    report.sound += 1;
                    continue;
                }
                Some(false) => "it is there and does not run",
                None => "it is not there any more",
            };
            report.lost.push(sandbox.id.clone());
            if !dry_run {
                self.tell_lost(sandbox, environment, why)?;
            }
        }
        report.lost.sort();
        Ok(())
    }

    /// Told once: one that is known to be lost has nothing that could be lost again.
    fn tell_lost(&self, sandbox: &Sandbox, environment: &Environment, why: &str) -> Result<()> {
        // Somebody at work in it knows better.
        let Some(_lock) = self.try_lock(&sandbox.id)? else { return Ok(()) };
        let mut environment = environment.clone();
        if why.contains("not there") {
            unmade(&mut environment);
        }
        if environment.failure.is_some() {
            return Ok(());
        }
        environment.failure = Some(failure("ready", why.to_owned()));
        self.store.tell_of_environment(&sandbox.id, &environment, "lost", Some(why))
    }
}

/// `None` where the extension is not there at all, and so has made nothing.
fn found_by(extension: &dyn EnvironmentExtension) -> Result<Option<Vec<Found>>> {
    use crate::environment::Health;
    match extension.health() {
        Health::Undetected(_) => Ok(None),
        Health::Unhealthy(reason) => Err(crate::Error::refused(reason)),
        Health::Healthy => extension.inspect(None).map(Some),
    }
}

fn is_young(item: &Found, grace: Duration) -> bool {
    let Some(made_at) = item.made_at else { return false };
    let age = now().duration_since(made_at);
    age.unsigned_abs() < grace && !age.is_negative()
}
