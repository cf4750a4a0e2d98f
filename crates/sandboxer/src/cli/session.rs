//! What a command works with: the streams, the places, and (for most) a manager whose state has been put in order.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer::wiring::{self, Setup};
use sandboxer_core::Error;
use sandboxer_core::config::{self, Settings, TrustStore};
use sandboxer_core::model::Conflict;
use sandboxer_core::service::{GcReport, Recovered, SandboxManager, Target};

use super::error::CliError;
use super::output::{self, Ui, shell_word};
use super::places::{Places, is_served};
use super::progress;
use super::remote::Server;
use super::signals::Signals;

/// What to do about sandboxes that are on disk and not in the state.
pub const ADOPT: &str =
    "there are sandboxes on disk that the state has lost: `sandbox adopt` finds them again";

/// The command line's surroundings.
pub struct App {
    /// The streams.
    pub ui: Ui,
    /// Where things are.
    pub places: Places,
    /// Whether only errors are told.
    pub quiet: bool,
    /// The server that the command is sent to, if it is not for this machine.
    pub server: Option<Server>,
}

/// A manager, ready for one command.
pub struct Session {
    /// The use cases.
    pub manager: SandboxManager,
    /// The resolved configuration.
    pub settings: Settings,
    /// Ctrl-C.
    pub signals: Signals,
}

impl App {
    /// For commands on sandboxes that exist. A project file that may not be used is told of and left out: it must not
    /// keep anybody from looking at their own sandboxes.
    pub fn open(&self) -> Result<Session, CliError> {
        let here = current_dir()?;
        let settings = match self.settings(&here) {
            Ok(settings) => settings,
            Err(refusal) => {
                let settings = self.own_settings().map_err(|_| refusal)?;
                self.ui.warn("the project's sandboxer.yaml is left out; `sandbox doctor` says why");
                settings
            }
        };
        self.open_with(settings)
    }

    /// For commands that make a sandbox of something at `start`: its project's file must be right.
    pub fn open_at(&self, start: &Path) -> Result<Session, CliError> {
        self.open_with(self.settings(start)?)
    }

    /// The settings for work that starts in `start`.
    pub fn settings(&self, start: &Path) -> Result<Settings, CliError> {
        let trust = TrustStore::new(&self.places.home);
        Ok(config::load(&self.places.layers(start), &trust)?)
    }

    /// The user's own, without any project's.
    pub fn own_settings(&self) -> Result<Settings, CliError> {
        Ok(config::load(&self.places.own_layers(), &TrustStore::new(&self.places.home))?)
    }

    fn open_with(&self, settings: Settings) -> Result<Session, CliError> {
        let signals =
            Signals::install().map_err(|e| sandboxer_core::Error::io("watch signals for", "/", e))?;
        let work = progress::for_terminal(self.quiet || self.ui.json);
        let setup = Setup {
            progress: Arc::new(progress::Telling { work, warn: self.ui.warner() }),
            cancel: signals.cancel_flag(),
            on_removal: if is_served() { Arc::new(|_| {}) } else { self.ui.warner() },
            ..setup(&self.places, settings.clone())?
        };
        let manager = wiring::open(setup)?;
        // A server puts its own state in order, and what is told of others' sandboxes is not for whoever runs a command in one.
        if !is_served() {
            self.put_in_order(&manager)?;
        }
        Ok(Session { manager, settings, signals })
    }

    /// Finishes or undoes what a killed command left, ends what has expired, and tells of both.
    fn put_in_order(&self, manager: &SandboxManager) -> Result<(), CliError> {
        for recovered in manager.recover()? {
            self.tell_recovered(&recovered);
        }
        self.tell_expired(&manager.enforce_ttl()?);
        Ok(())
    }

    fn tell_recovered(&self, recovered: &Recovered) {
        let message = output::sentence(&recovered.message);
        match recovered.failed {
            true => self.ui.warn(format_args!("could not recover {}: {message}", recovered.sandbox_id)),
            false => self.ui.note(format_args!("recovered {}: {message}", recovered.sandbox_id)),
        }
        for conflict in &recovered.conflicts {
            self.ui.warn(conflict_sentence(conflict));
        }
    }

    fn tell_expired(&self, report: &GcReport) {
        for id in &report.expired {
            self.ui.note(format_args!("sandbox {id} had expired with nothing pending, and was removed"));
        }
        for id in &report.parked {
            self.ui.note(format_args!("sandbox {id} had expired with uncommitted work, and was parked"));
            self.ui.next("bring it back:", &format!("sandbox unpark {id}"));
        }
        for failure in &report.failed {
            self.ui.warn(output::sentence(failure));
        }
    }
}

impl Session {
    /// What `ID` or `ID:WORKSPACE` names.
    pub fn find(&self, selector: &str) -> Result<Target, CliError> {
        self.manager.find(selector).map_err(|error| self.or_lost(error))
    }

    /// The same, those that are gone included.
    pub fn find_any(&self, selector: &str) -> Result<Target, CliError> {
        self.manager.find_any(selector).map_err(|error| self.or_lost(error))
    }

    /// One line from the terminal, or nothing when there is nobody any more.
    pub fn answer(&self) -> Option<String> {
        let mut line = String::new();
        let read = self.signals.interruptible(|| io::stdin().lock().read_line(&mut line));
        matches!(read, Ok(1..)).then(|| line.trim().to_lowercase())
    }

    /// A sandbox that is not known may be one whose database was lost.
    fn or_lost(&self, error: Error) -> CliError {
        let unknown = matches!(error.root(), Error::NotFound { what: "sandbox", .. });
        let told = CliError::from(error);
        match self.manager.count_adoptable() {
            Ok(1..) if unknown => told.hint(ADOPT),
            _ => told,
        }
    }
}

/// What a manager in these places is made of; whom it tells of its work is left to others.
pub fn setup(places: &Places, settings: Settings) -> Result<Setup, CliError> {
    Ok(Setup {
        settings,
        type_files: places.type_files()?,
        program: std::env::current_exe().ok(),
        modules: places.modules(),
        catalogue: places.catalogue().map(Path::to_path_buf),
        ..Setup::quiet(&places.home)
    })
}

/// What became of a path that somebody edited after a commit's point of no return.
pub fn conflict_sentence(conflict: &Conflict) -> String {
    let (path, reason) = (output::name(conflict.path.as_bytes()), output::sentence(&conflict.reason));
    match &conflict.parked {
        Some(parked) => format!("{path}: {reason}; the new content is in {}", output::name(parked)),
        None => format!("{path}: {reason}"),
    }
}

/// Where the command was typed.
pub fn current_dir() -> Result<PathBuf, CliError> {
    let missing = |e| CliError::from(sandboxer_core::Error::io("find the current directory", ".", e));
    std::env::current_dir().map_err(missing)
}

/// A sandbox's name as it is typed in hints, with the workspace where one was meant.
pub fn typed(target: &Target) -> String {
    let sandbox = &target.sandbox;
    match target.workspaces.as_slice() {
        [only] if sandbox.workspaces.len() > 1 => shell_word(&format!("{}:{}", sandbox.name, only.name)),
        _ => shell_word(&sandbox.name),
    }
}
