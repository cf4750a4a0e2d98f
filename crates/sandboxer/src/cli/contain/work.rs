//! One command in a sandbox, from where it works to what came of it, whether it is contained or only its files are.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxer_core::config::{Isolation, RunSettings};
use sandboxer_core::environment::NetworkNeed;
use sandboxer_core::service::{Target, Workspace};
use sandboxer_core::types::is_url;
use sandboxer_documents::reached::{self, Event};
use sandboxer_extensions::local::{Attached, Called, Limits, Network, Ready, WaitedFor};

use super::args::Asked;
use super::attach::{attach, runtimes};
use super::command::{self, Ended};
use super::environment::{Surroundings, environment};
use super::spec;
use super::told::now_ms;
use crate::cli::child;
use crate::cli::databases::{self, Way};
use crate::cli::environments;
use crate::cli::error::{CliError, Kind};
use crate::cli::output;
use crate::cli::session::{Session, current_dir};

/// What to run, in which sandbox.
pub struct Work<'a> {
    /// The state.
    pub session: &'a Session,
    /// The sandbox.
    pub target: &'a Target,
    /// The workspace to work in.
    pub workspace: &'a Workspace,
    /// The settings.
    pub run: &'a RunSettings,
    /// The flags.
    pub asked: &'a Asked,
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// Where to work, if that is not the workspace's root.
    pub directory: Option<&'a Path>,
    /// The service of a stack that is meant.
    pub service: Option<&'a str>,
    /// Whether its stdout becomes our stderr, because ours is for a JSON document.
    pub output_to_stderr: bool,
    /// A supervisor that was called early, to hold a runtime that is not there yet.
    pub called: Cell<Option<Called>>,
}

/// What is known when the command is about to start.
pub enum Begun<'a> {
    /// It is contained, without the variables that are named here.
    Contained(&'a Ready, &'a [String]),
    /// Only its files are isolated.
    Files,
}

/// What came of it.
pub struct Done {
    /// How much was kept from it, in a word.
    pub isolation: &'static str,
    /// What it could reach.
    pub network: Network,
    /// What it might use.
    pub limits: Limits,
    /// How it ended.
    pub ended: Ended,
    /// What happened meanwhile, where hosts were refused.
    pub events: Vec<Event>,
}

impl Work<'_> {
    /// Runs the command and waits for its end. `begin` hears what holds it before it starts.
    pub fn run(&self, begin: impl FnOnce(Begun)) -> Result<Done, CliError> {
        if let Some(entering) = environments::entering(self)? {
            return self.entered(&entering);
        }
        let ways = databases::ways(&self.session.manager, self.target)?;
        let sockets = ways.iter().filter_map(Way::bind).collect();
        let called = self.called.take();
        match attach(self.session, &self.target.sandbox, self.run, self.asked, called, sockets)? {
            Some(attached) => self.contained(attached, &ways, begin),
            None => {
                begin(Begun::Files);
                self.files_only(&ways)
            }
        }
    }

    /// Puts what was used on the sandbox's meter. A bill must not fail a command: what cannot be written is not billed.
    fn meter(&self, cpu: Option<Duration>, memory_peak: Option<u64>) {
        if cpu.is_some() || memory_peak.is_some() {
            let cpu = cpu.unwrap_or_default();
            let _ = self.session.manager.add_use(&self.target.sandbox.id, cpu, memory_peak);
        }
    }

    fn contained(
        &self,
        attached: Attached,
        ways: &[Way],
        begin: impl FnOnce(Begun),
    ) -> Result<Done, CliError> {
        let spec = attached.ready().spec.clone();
        let seen_at = spec::seen_at(&self.target.sandbox, self.workspace).unwrap_or(Path::new("/"));
        let root = root(seen_at);
        let directory = self.directory.map_or_else(|| root.clone(), |below| root.join(below));
        let around = Surroundings {
            sandbox: &self.target.sandbox,
            workspace: seen_at,
            directory: &directory,
            network: &spec.network,
        };
        let mut selected = environment(&around, self.run, &self.asked.env);
        for (name, value) in ways.iter().flat_map(|way| way.variables(true)) {
            selected.vars.retain(|(known, _)| known.to_str() != Some(&name));
            selected.vars.push((name.into(), value.into()));
        }
        begin(Begun::Contained(attached.ready(), &selected.dropped_secrets));
        let timeout = self.asked.limits.timeout.or(self.run.timeout);
        let since = now_ms();
        let job = command::Job {
            command: self.command,
            directory: &directory,
            environment: selected.vars,
            output_to_stderr: self.output_to_stderr,
            timeout,
        };
        let ended = command::run(attached, &job)?;
        // Who joined others has no report; whoever is the last has everybody's.
        if let Some(report) = &ended.report {
            self.meter(report.cpu, report.memory_peak);
        }
        let events = self.events_since(since, &ended)?;
        let limits = Limits { timeout: timeout.or(spec.limits.timeout), ..spec.limits };
        Ok(Done { isolation: spec.isolation.as_str(), network: spec.network, limits, ended, events })
    }

    fn events_since(&self, since: u64, ended: &Ended) -> Result<Vec<Event>, CliError> {
        if ended.report.as_ref().is_none_or(|report| report.hosts_refused.count == 0) {
            return Ok(Vec::new());
        }
        let directory = runtimes(self.session)?.directory(self.target.sandbox.id.as_str());
        // What to type is a courtesy; that it cannot be told is no failure of the command.
        let all = reached::read(&directory).unwrap_or_default();
        Ok(all.into_iter().filter(|event| event.at_ms >= since).collect())
    }

    /// In an environment of an extension's own: what holds the command is that environment's affair, and so is what it uses, of which
    /// our own child, who only asks for it to be run, knows nothing.
    fn entered(&self, command: &[OsString]) -> Result<Done, CliError> {
        let ended = child::run(&child::Job {
            command,
            directory: &current_dir()?,
            sandbox_id: self.target.sandbox.id.as_str(),
            variables: Vec::new(),
            output_to_stderr: self.output_to_stderr,
        })?;
        let environment = self.target.sandbox.environment.as_deref();
        Ok(Done {
            isolation: environment.map_or(Isolation::Standard.as_str(), |known| known.isolation.as_str()),
            network: environment.map_or(Network::None, |known| reached(&known.network)),
            limits: Limits::default(),
            ended: ended.into(),
            events: Vec::new(),
        })
    }

    fn files_only(&self, ways: &[Way]) -> Result<Done, CliError> {
        let one = Target { workspaces: vec![self.workspace.clone()], sandbox: self.target.sandbox.clone() };
        let path = match self.workspace.sandbox_ref.sandbox_path() {
            Some(_) => self.session.manager.sandbox_path(&one)?,
            None => current_dir()?,
        };
        let root = root(&path);
        let directory = match self.directory {
            Some(below) => {
                let original = self.workspace.resource.path();
                let within = original.and_then(|original| below.strip_prefix(original).ok());
                root.join(within.unwrap_or(below))
            }
            None => root,
        };
        let before = WaitedFor::now();
        let ended = child::run(&child::Job {
            command: self.command,
            directory: &directory,
            sandbox_id: self.target.sandbox.id.as_str(),
            variables: ways.iter().flat_map(|way| way.variables(false)).collect(),
            output_to_stderr: self.output_to_stderr,
        })?;
        if let Some((before, after)) = before.zip(WaitedFor::now()) {
            let (cpu, memory_peak) = after.since(before);
            self.meter(Some(cpu), memory_peak);
        }
        Ok(Done {
            isolation: Isolation::Files.as_str(),
            network: Network::Host,
            limits: Limits::default(),
            ended: ended.into(),
            events: Vec::new(),
        })
    }
}

/// What a command reaches in an environment that was made so.
fn reached(network: &NetworkNeed) -> Network {
    match network {
        NetworkNeed::None => Network::None,
        NetworkNeed::Host => Network::Host,
        NetworkNeed::Allow(hosts) => Network::Allow(hosts.clone()),
    }
}

/// Refuses what no command can work in, before anything is started for it.
pub fn check(workspace: &Workspace, isolation: Isolation) -> Result<(), CliError> {
    if databases::connects(workspace) {
        return Ok(());
    }
    workspace.require_path()?;
    check_place(&workspace.resource.location, isolation)
}

/// A contained command sees a workspace at the path of its original, and what is at a URL has none.
pub fn check_place(location: &str, isolation: Isolation) -> Result<(), CliError> {
    if isolation == Isolation::Files || !is_url(location) {
        return Ok(());
    }
    let location = output::name(location);
    let message = format!("{location} has no path of its own at which a contained command could see it");
    Err(CliError::new(Kind::Unavailable, message)
        .hint("with only its files isolated, it works in the sandbox's directory: --isolation files"))
}

/// Where one works on it: in it, or beside it where it is a file.
fn root(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if path.is_file() => parent.to_path_buf(),
        _ => path.to_path_buf(),
    }
}
