//! Flags on the environment of a new sandbox, and how a command gets into one that is not of this machine's namespaces.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use sandboxer_core::config::{Isolation, NetworkAccess, RunSettings, parse_size};
use sandboxer_core::environment::{
    Catalogue, Environment, IsolationLevel, NetworkNeed, RouteQuestion, StatusEnvironment, Way, route,
};
use sandboxer_core::service::{Created, EnvironmentRequest, Sandbox};

use super::catalogue::Nearby;
use super::contain::{Asked, Work};
use super::error::{CliError, Kind};
use super::output;
use super::session::{App, Session};

/// Where the flags stand in a command's help.
const HEADING: &str = "Environment";

/// What is made around the workspaces.
#[derive(clap::Args)]
pub struct EnvironmentArgs {
    /// Make the environment that this profile describes; see `sandbox profiles`
    #[arg(long, value_name = "ID", help_heading = HEADING)]
    pub profile: Option<String>,
    /// By this extension only
    #[arg(long, value_name = "ID", help_heading = HEADING, requires = "profile")]
    pub extension: Option<String>,
    /// On this host only
    #[arg(long, value_name = "ID", help_heading = HEADING, requires = "profile")]
    pub host: Option<String>,
    /// A word of yours on it; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", help_heading = HEADING, requires = "profile")]
    pub labels: Vec<String>,
    /// Answer a second request with this key with the sandbox of the first, while that lives
    #[arg(long, value_name = "KEY", help_heading = HEADING, requires = "profile")]
    pub idempotency_key: Option<String>,
}

impl EnvironmentArgs {
    /// What a request with the same key was answered with, whatever has become of the route.
    pub fn answered(&self, session: &Session) -> Result<Option<Created>, CliError> {
        self.idempotency_key.as_deref().map_or(Ok(None), |key| Ok(session.manager.answered(key)?))
    }

    /// The environment that is asked for, routed. Nothing is made yet.
    pub fn request(&self, app: &App) -> Result<Option<Box<EnvironmentRequest>>, CliError> {
        let Some(profile) = &self.profile else { return Ok(None) };
        let catalogue = app.catalogue()?;
        let profile = catalogue.profile(profile)?;
        let question =
            RouteQuestion { profile, extension: self.extension.as_deref(), host: self.host.as_deref() };
        let labels: BTreeMap<_, _> = self.labels.iter().map(|text| label(text)).collect::<Result<_, _>>()?;
        if labels.len() > MOST_LABELS {
            return Err(CliError::usage(format!("more than {MOST_LABELS} labels")));
        }
        let request = routed(&question, &catalogue, &app.nearby()?, labels)?;
        Ok(Some(Box::new(EnvironmentRequest { idempotency_key: self.idempotency_key.clone(), ..request })))
    }
}

/// What a question is answered with, as a request.
pub fn routed(
    question: &RouteQuestion<'_>,
    catalogue: &Catalogue,
    nearby: &Nearby,
    labels: BTreeMap<String, String>,
) -> Result<EnvironmentRequest, CliError> {
    let route = route(question, catalogue, nearby)?;
    Ok(EnvironmentRequest {
        profile: question.profile.clone(),
        route,
        labels,
        idempotency_key: None,
        request_digest: None,
    })
}

/// How many words somebody may put on a sandbox: they are in every event of it.
const MOST_LABELS: usize = 32;

/// Whether these can be words on a sandbox.
#[cfg(feature = "server")]
pub fn are_labels(labels: &BTreeMap<String, String>) -> bool {
    labels.len() <= MOST_LABELS && labels.iter().all(|(name, value)| is_label(name, value))
}

fn is_label(name: &str, value: &str) -> bool {
    let plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',' && byte != b'"');
    (1..=64).contains(&name.len()) && !name.contains('=') && plain(name) && value.len() <= 256 && plain(value)
}

/// A word of the caller's: `NAME=VALUE`.
pub fn label(text: &str) -> Result<(String, String), CliError> {
    match text.split_once('=') {
        Some((name, value)) if is_label(name, value) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::usage(format!("--label {:?} is not NAME=VALUE", output::sentence(text)))
            .hint("such as --label team=blue; no spaces, commas or quotes")),
    }
}

/// Goes to the directory that is its first argument, and runs the others.
const CHANGE_DIRECTORY: &str = r#"cd "$0" && exec "$@""#;

/// Whether commands run in an environment of an extension's own.
pub fn is_elsewhere(sandbox: &Sandbox) -> bool {
    let handle = sandbox.environment.as_deref().and_then(|environment| environment.handle.as_ref());
    handle.is_some() && sandbox.extension_id() != "ext.local"
}

/// What to run so that `command` runs in the sandbox's environment; `None` where commands run in namespaces of this machine.
pub fn entering(work: &Work<'_>) -> Result<Option<Vec<OsString>>, CliError> {
    let sandbox = &work.target.sandbox;
    let Some(environment) = sandbox.environment.as_deref() else { return without_services(work) };
    let handle = environment.handle.as_ref().filter(|_| environment.failure.is_none());
    let Some(handle) = handle else { return without_handle(sandbox, environment) };
    let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let way = Way::Exec {
        part: work.service,
        directory: work.directory,
        terminal: on_terminal,
        command: work.command,
    };
    if let Some(line) = work.session.manager.line(sandbox, &way)? {
        return refuse_flags(work).map(|()| Some(line));
    }
    without_services(work)?;
    let prefix = match on_terminal && !handle.exec_on_terminal.is_empty() {
        true => &handle.exec_on_terminal,
        false => &handle.exec,
    };
    if prefix.is_empty() {
        return if work.session.manager.runs_here(sandbox)? { Ok(None) } else { Err(runs_nothing(sandbox)) };
    }
    refuse_flags(work)?;
    let mut whole: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    if let Some(place) = place(work, environment) {
        whole.extend(["sh", "-c", CHANGE_DIRECTORY].map(OsString::from));
        whole.push(place.into());
    }
    whole.extend(work.command.iter().cloned());
    Ok(Some(whole))
}

/// A command that was meant for a service does not run elsewhere.
fn without_services(work: &Work<'_>) -> Result<Option<Vec<OsString>>, CliError> {
    match work.service {
        None => Ok(None),
        Some(_) => Err(CliError::usage(format!(
            "sandbox {} has no services",
            output::name(&work.target.sandbox.name)
        ))
        .hint("--service is for stacks: `sandbox create --profile profile.compose-e2e`")),
    }
}

/// A command that was meant for an environment does not run beside it.
fn runs_nothing(sandbox: &Sandbox) -> CliError {
    let message = format!("{} runs no commands in its environments", output::name(sandbox.extension_id()));
    CliError::new(Kind::Unavailable, message)
        .hint(format!("work in its files: `sandbox path {}`; or ask for another profile", sandbox.name))
}

/// What holds a command in there was settled when it was made, by its profile.
fn refuse_flags(work: &Work<'_>) -> Result<(), CliError> {
    if *work.asked == Asked::default() && work.run.timeout.is_none() {
        return Ok(());
    }
    let sandbox = &work.target.sandbox;
    let message = format!(
        "commands in {} are held by {}: isolation, network, limits, times (`run.timeout`) and variables do not reach there",
        output::name(&sandbox.name),
        output::name(sandbox.extension_id())
    );
    Err(CliError::usage(message)
        .hint("the profile says what holds; variables: `sandbox exec ID -- env NAME=VALUE CMD`"))
}

/// Where to go first, if it is not where the environment begins: in its first workspace.
fn place(work: &Work<'_>, environment: &Environment) -> Option<PathBuf> {
    let is_first =
        work.target.sandbox.workspaces.first().is_some_and(|first| first.name == work.workspace.name);
    if work.directory.is_none() && is_first {
        return None;
    }
    let at = environment.mounts.get(&work.workspace.name).cloned();
    let at = at.or_else(|| work.workspace.resource.path().map(Path::to_path_buf))?;
    Some(work.directory.map_or_else(|| at.clone(), |below| at.join(below)))
}

fn without_handle<T>(sandbox: &Sandbox, environment: &Environment) -> Result<Option<T>, CliError> {
    if sandbox.extension_id() == "ext.local" {
        return Ok(None);
    }
    let why = environment
        .failure
        .as_ref()
        .map(|f| format!(": {}", output::sentence(&f.reason)))
        .unwrap_or_default();
    let message = format!("the environment of {} is not there{why}", output::name(&sandbox.name));
    Err(CliError::new(Kind::Unavailable, message)
        .hint(format!("make it again: `sandbox recreate {}`", sandbox.name)))
}

/// The labels and endpoints of an environment, for the screen.
pub fn lines(environment: &StatusEnvironment) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("profile", output::sentence(&environment.route.profile_id)),
        ("made by", output::sentence(&environment.route.reason)),
    ];
    for endpoint in &environment.endpoints {
        lines.push((
            "reach",
            format!(
                "{} at {}:{}",
                output::sentence(&endpoint.name),
                output::sentence(&endpoint.host),
                endpoint.port
            ),
        ));
        if let Some(forward) = &endpoint.forward {
            lines.push(("", output::sentence(forward)));
        }
    }
    for note in &environment.notes {
        lines.push(("note", output::sentence(note)));
    }
    let labels: &BTreeMap<String, String> = &environment.labels;
    if !labels.is_empty() {
        let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(("labels", output::sentence(&pairs.join(", "))));
    }
    if let Some(failure) = &environment.failure {
        lines.push((
            "lost",
            format!("{}: {}", output::sentence(&failure.step), output::sentence(&failure.reason)),
        ));
    }
    lines
}

/// What a sandbox's profile says goes before the settings; what is typed goes before both.
pub fn over(settings: RunSettings, sandbox: &Sandbox) -> Result<RunSettings, CliError> {
    let Some(environment) = sandbox.environment.as_deref() else { return Ok(settings) };
    let needs = &environment.resources;
    let memory = needs.memory.as_deref().map(parse_size).transpose()?;
    let (network, allow_hosts) = match &environment.network {
        NetworkNeed::None => (NetworkAccess::None, Vec::new()),
        NetworkNeed::Host => (NetworkAccess::Host, Vec::new()),
        NetworkNeed::Allow(hosts) => (NetworkAccess::None, hosts.clone()),
    };
    Ok(RunSettings {
        isolation: match environment.isolation {
            IsolationLevel::Files => Isolation::Files,
            IsolationLevel::Standard | IsolationLevel::Container => Isolation::Standard,
            IsolationLevel::Strict => Isolation::Strict,
        },
        network,
        allow_hosts,
        memory: memory.or(settings.memory),
        pids: needs.pids.or(settings.pids),
        cpus: needs.cpus.or(settings.cpus),
        ..settings
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn labels_are_words() {
        assert_eq!(label("team=blue").unwrap(), ("team".to_owned(), "blue".to_owned()));
        assert_eq!(label("team=").unwrap().1, "");
        for bad in ["team", "=blue", "a b=c", "a=b,c", "a=\"b\"", "a=b\n"] {
            assert_eq!(label(bad).unwrap_err().exit, 2, "{bad:?}");
        }
    }
}
