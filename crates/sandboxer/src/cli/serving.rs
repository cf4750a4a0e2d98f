//! What `sandbox serve` supplies to the server: this user's state, settings and catalogue, and stderr for its log.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use sandboxer::wiring::{self, Setup};
use sandboxer_core::Error;
use sandboxer_core::config::{self, Settings, TrustStore};
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::environment::{Catalogue, Load, RouteQuestion, SandboxCreateRequest};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{EnvironmentRequest, GcReport, SandboxManager, Uncommitted};
use sandboxer_documents::{Kind, Told};
use sandboxer_server::{Backend, Line};

pub use sandboxer_server::HANDED_VARIABLES;

use super::catalogue::Nearby;
use super::environments;
use super::error::CliError;
use super::hub;
use super::places::{Places, SERVER, TOKEN};
use super::rules::RuleArgs;
use super::session::setup;

/// This user's sandboxes, served.
pub struct Serving {
    places: Places,
    settings: Settings,
    manager: SandboxManager,
    cancel: CancelFlag,
    program: PathBuf,
}

impl Serving {
    /// Opens the state. What killed commands left is put in order by the first [`Backend::tend`].
    pub fn new(places: Places, settings: Settings, cancel: CancelFlag) -> Result<Self, CliError> {
        let program = std::env::current_exe()
            .map_err(|error| sandboxer_core::Error::io("find", "the sandbox program", error))?;
        let manager = open(&places, settings.clone(), &cancel)?;
        Ok(Self { places, settings, manager, cancel, program })
    }

    fn tell_ended(&self, report: Result<GcReport, Error>) {
        match report {
            Ok(report) => {
                let ended = report.expired.iter().chain(&report.parked);
                ended.for_each(|id| self.told("ended", format!("{id}: its time was up")));
                report.failed.iter().for_each(|failure| self.told("failed", failure.clone()));
            }
            Err(error) => self.told("failed", Told::from(error).message),
        }
    }

    /// The settings of the project that is at `start`.
    fn settings_at(&self, start: &Path) -> Result<Settings, Told> {
        Ok(config::load(&self.places.layers(start), &TrustStore::new(&self.places.home))?)
    }

    fn told(&self, what: &'static str, message: impl Into<String>) {
        self.log(&Line::new(what, message));
    }
}

/// Writes a line of the log. Nobody there to read it is no reason to end.
pub fn tell(line: &Line) {
    if let Ok(text) = serde_json::to_string(line) {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

fn open(places: &Places, settings: Settings, cancel: &CancelFlag) -> Result<SandboxManager, CliError> {
    Ok(wiring::open(Setup { cancel: cancel.clone(), ..setup(places, settings)? })?)
}

impl Backend for Serving {
    fn manager(&self) -> &SandboxManager {
        &self.manager
    }

    fn manager_at(&self, start: &Path) -> Result<SandboxManager, Told> {
        Ok(open(&self.places, self.settings_at(start)?, &self.cancel)?)
    }

    fn environment(&self, request: &SandboxCreateRequest) -> Result<EnvironmentRequest, Told> {
        let catalogue = self.catalogue()?;
        let profile = catalogue.profile(&request.profile)?;
        let question = RouteQuestion { profile, extension: None, host: None };
        if !environments::are_labels(&request.labels) {
            let message = "labels: up to 32, names of up to 64 and values of up to 256 characters, without spaces, commas, quotes";
            return Err(Told::new(Kind::Usage, message));
        }
        let labels = request.labels.clone();
        let nearby = Nearby::new(&self.places, Load::by_host(&self.manager.list(false)?));
        Ok(environments::routed(&question, &catalogue, &nearby, labels)?)
    }

    fn catalogue(&self) -> Result<Catalogue, Told> {
        Ok(wiring::catalogue(self.places.catalogue())?)
    }

    fn rules(
        &self,
        places: &[PathBuf],
        conditions: &[String],
        accept_flags: bool,
    ) -> Result<CommitRules, Told> {
        let mut settings = self.settings.clone();
        for place in places {
            let of_project = self.settings_at(place)?.policies;
            let new: Vec<_> =
                of_project.into_iter().filter(|file| !settings.policies.contains(file)).collect();
            settings.policies.extend(new);
        }
        Ok(RuleArgs::new(conditions, accept_flags).read(&settings)?)
    }

    fn program(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--home").arg(&self.places.home);
        if let Some(config) =
            self.places.config.as_ref().filter(|file| self.places.config_named || file.exists())
        {
            command.arg("--config").arg(config);
        }
        // Where the server was started is nobody's project, and what was handed to it nobody else's.
        command.current_dir("/");
        for name in [SERVER, TOKEN, "LISTEN_PID", "LISTEN_FDS"] {
            command.env_remove(name);
        }
        command
    }

    fn expire(&self) {
        self.tell_ended(self.manager.enforce_ttl());
    }

    fn tend(&self) {
        match self.manager.recover() {
            Ok(recovered) => recovered
                .iter()
                .for_each(|one| self.told("recovered", format!("{}: {}", one.sandbox_id, one.message))),
            Err(error) => self.told("failed", Told::from(error).message),
        }
        self.tell_ended(self.manager.gc(Uncommitted::Park, false));
        hub::send_courier(&self.places);
    }

    fn log(&self, line: &Line) {
        tell(line);
    }
}
