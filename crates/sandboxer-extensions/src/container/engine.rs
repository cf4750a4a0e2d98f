//! docker or podman by their command line. Knows containers and networks, and nothing of sandboxes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::environment::Health;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::call::{ANSWER, Answer, Bounds, run};

/// How long a look may take.
const LOOKING: Duration = Duration::from_secs(30);
/// How long it may take to say whether anybody is there.
const GREETING: Duration = Duration::from_secs(5);

/// What is looked for where no engine is named, the first one first.
const PROGRAMS: [&str; 2] = ["docker", "podman"];

/// One engine, reached by its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Engine {
    /// `docker`, `podman`, or a path.
    pub program: String,
    /// The daemon's address, where the program is not to find it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Whose command line it is: they differ in little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Docker,
    Podman,
}

impl Kind {
    /// Podman waits ten seconds for what does not end by itself.
    pub fn removal(self) -> &'static [&'static str] {
        match self {
            Self::Docker => &["rm", "--force", "--volumes"],
            Self::Podman => &["rm", "--force", "--volumes", "--time=0"],
        }
    }
}

impl Engine {
    pub fn kind(&self) -> Kind {
        let name = Path::new(&self.program).file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b"podman") { Kind::Podman } else { Kind::Docker }
    }

    /// The program and where its daemon is: what stands before every command.
    pub fn prefix(&self) -> Vec<String> {
        let flag = match self.kind() {
            Kind::Docker => "--host",
            Kind::Podman => "--url",
        };
        let host = self.host.iter().flat_map(|host| [flag.to_owned(), host.clone()]);
        std::iter::once(self.program.clone()).chain(host).collect()
    }

    /// Runs a command to its end, whatever that is.
    pub fn ask(&self, arguments: &[&str], bounds: &Bounds<'_>) -> Result<Answer> {
        let prefix = self.prefix();
        let mut command = Command::new(&self.program);
        command.args(&prefix[1..]).args(arguments);
        run(&mut command, &self.words(arguments), bounds)
    }

    /// Runs a script that has to succeed. `doing` is what an error says of it.
    pub fn script(&self, doing: &str, script: &str, arguments: &[&str], bounds: &Bounds<'_>) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(arguments);
        let doing = self.words(&[doing]);
        let answer = run(&mut command, &doing, bounds)?;
        if answer.status.success() {
            return Ok(());
        }
        Err(Error::io("run", doing, std::io::Error::other(answer.complaint())))
    }

    /// Whether it is podman, which makes its networks itself, as root.
    pub fn is_podman_of_root(&self) -> bool {
        self.kind() == Kind::Podman && rustix::process::geteuid().is_root()
    }

    /// Runs a command that has to succeed; what it said.
    pub fn must(&self, arguments: &[&str], bounds: &Bounds<'_>) -> Result<Vec<u8>> {
        let answer = self.ask(arguments, bounds)?;
        if answer.status.success() { Ok(answer.stdout) } else { Err(self.failed(arguments, &answer)) }
    }

    /// A look, which takes no time and is not interrupted.
    pub fn look(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        self.must(arguments, &looking())
    }

    /// What a command that failed said.
    pub fn failed(&self, arguments: &[&str], answer: &Answer) -> Error {
        Error::io("run", self.words(arguments), std::io::Error::other(answer.complaint()))
    }

    /// A command as an error names it: its first words, without the flags.
    fn words(&self, arguments: &[&str]) -> String {
        let words = arguments.iter().take_while(|word| !word.starts_with('-')).take(2);
        std::iter::once(self.program.as_str()).chain(words.copied()).collect::<Vec<_>>().join(" ")
    }

    /// Whether it answers now.
    pub fn health(&self) -> Health {
        let asked: &[&str] = match self.kind() {
            Kind::Docker => &["version", "--format={{.Server.Version}}"],
            // There may be no daemon that could tell its version.
            Kind::Podman => &["info", "--format={{.Version.Version}}"],
        };
        let bounds = Bounds { deadline: GREETING, output: ANSWER, cancel: None };
        match self.must(asked, &bounds) {
            Ok(_) => Health::Healthy,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Health::Undetected(format!("{}: {source}", self.program))
            }
            Err(Error::Io { source, .. }) => Health::Unhealthy(format!("{}: {source}", self.program)),
            Err(other) => Health::Unhealthy(other.to_string()),
        }
    }

    /// Whether its program can be started at all.
    fn is_there(&self) -> bool {
        !matches!(self.health_of_client(), Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound)
    }

    fn health_of_client(&self) -> Result<Answer> {
        self.ask(&["--version"], &Bounds { deadline: GREETING, output: ANSWER, cancel: None })
    }

    /// The one that is installed; of both, docker where it answers, else podman; docker where neither is, so that somebody says so.
    pub fn installed(host: Option<&str>) -> Self {
        let [docker, podman] = PROGRAMS.map(|program| Self::named(program, host));
        Self::the_better(docker, podman)
    }

    /// The daemon that the program would speak to now is the one that it will be asked for later, from another shell.
    pub fn named(program: &str, host: Option<&str>) -> Self {
        let engine = Self { program: program.to_owned(), host: None };
        let variable = match engine.kind() {
            Kind::Docker => "DOCKER_HOST",
            Kind::Podman => "CONTAINER_HOST",
        };
        let now = || std::env::var(variable).ok().filter(|host| !host.is_empty());
        Self { host: host.map(str::to_owned).or_else(now), ..engine }
    }

    /// Every engine that answers; `chosen` where none does, so that somebody says so.
    pub fn that_answer(host: Option<&str>, chosen: &Self) -> Vec<Self> {
        let answers = |engine: &Self| engine.is_there() && engine.health() == Health::Healthy;
        let all: Vec<Self> = PROGRAMS.iter().map(|name| Self::named(name, host)).filter(answers).collect();
        if all.is_empty() { vec![chosen.clone()] } else { all }
    }

    fn the_better(first: Self, second: Self) -> Self {
        match (first.is_there(), second.is_there()) {
            (false, true) => second,
            (true, true) if first.health() != Health::Healthy && second.health() == Health::Healthy => second,
            _ => first,
        }
    }
}

/// The bounds of a look.
pub(super) fn looking() -> Bounds<'static> {
    Bounds { deadline: LOOKING, output: ANSWER, cancel: None }
}

/// The bounds of work that may be stopped.
pub(super) fn working(deadline: Duration, cancel: &CancelFlag) -> Bounds<'_> {
    Bounds { deadline, output: ANSWER, cancel: Some(cancel) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn engine(program: &str) -> Engine {
        Engine { program: program.into(), host: Some("unix:///s".into()) }
    }

    #[test]
    fn the_kind_is_in_the_name() {
        assert_eq!(engine("/usr/bin/podman-remote").kind(), Kind::Podman);
        assert_eq!(engine("/opt/podman/docker").kind(), Kind::Docker);
        assert_eq!(engine("podman").prefix(), ["podman", "--url", "unix:///s"]);
        assert_eq!(engine("docker").prefix(), ["docker", "--host", "unix:///s"]);
    }

    #[test]
    fn one_that_answers_is_better() {
        let better = |first: &str, second: &str| Engine::the_better(engine(first), engine(second)).program;
        assert_eq!(better("/no/docker", "/bin/true"), "/bin/true");
        assert_eq!(better("/bin/true", "/no/podman"), "/bin/true");
        assert_eq!(better("/bin/false", "/bin/true"), "/bin/true");
        assert_eq!(better("/bin/false", "/bin/false"), "/bin/false");
        assert_eq!(better("/no/docker", "/no/podman"), "/no/docker");
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let error = engine("/bin/false").look(&["network", "create", "--internal", "x"]).unwrap_err();
        assert_eq!(error.to_string(), "cannot run /bin/false network create");
        assert!(matches!(engine("/bin/false").health(), Health::Unhealthy(_)));
        assert!(matches!(engine("/no/docker").health(), Health::Undetected(_)));
    }
}
