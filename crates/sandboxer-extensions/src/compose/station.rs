//! A host: the shell there, and what it says of itself.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::environment::{Compression, ExtensionContext, Host, LOCAL_HOST};
use sandboxer_core::{Error, Result};
use sandboxer_remote::{Address, Answer, Call, Hears, Here, Running, Settings, Shell, Ssh, quote};

use super::podman::PodmanHost;
use super::{Engine, PauseMethod, scripts};

/// How long a host may take to answer at all.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long a look may take.
pub(super) const LOOKING: Duration = Duration::from_secs(60);
/// As much as an answer may be.
const ANSWER: usize = 16 << 20;
/// For how long what a host said of itself is believed.
const BELIEVED: Duration = Duration::from_secs(20);
/// A call over a shorter way takes less; over a longer one, compressing is worth while.
const LONG_WAY: Duration = Duration::from_millis(40);
/// The variable that names the compose command.
pub(super) const COMPOSE_COMMAND: &str = "SANDBOXER_COMPOSE_CMD";
/// The directory of ours in a home directory there.
const DIRECTORY: &str = ".sandboxer";

/// A host, and the way there.
#[derive(Clone)]
pub(super) struct Station {
    pub host: Host,
    way: Arc<Way>,
    /// Where sockets of connections are.
    control: PathBuf,
    cancel: CancelFlag,
}

/// How commands get there.
enum Way {
    /// It is this machine.
    Here(Here),
    /// Over SSH.
    Ssh(Ssh),
}

/// What a host says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Greeting {
    pub home: String,
    pub is_root: bool,
    /// Programs that we need, and that are not there.
    pub missing: Vec<String>,
    /// The compose command, by words.
    pub compose: Vec<String>,
    pub engine: Option<Engine>,
    /// What the engine says of itself.
    pub version: String,
    pub trouble: Option<String>,
    /// Whether the way is long.
    pub far: bool,
}

impl Station {
    pub fn new(host: &Host, context: &ExtensionContext) -> Result<Self> {
        let control = context.home.join("ssh");
        let way = match host.address.as_str() {
            LOCAL_HOST => Way::Here(Here),
            address => Way::Ssh(Ssh::new(
                Address::parse(address)?,
                Settings {
                    config: host.ssh.config.clone(),
                    control: control.clone(),
                    connect_timeout: CONNECTING,
                },
            )?),
        };
        Ok(Self { host: host.clone(), way: Arc::new(way), control, cancel: context.cancel.clone() })
    }

    /// The shell there.
    pub fn shell(&self) -> &dyn Shell {
        match &*self.way {
            Way::Here(here) => here,
            Way::Ssh(ssh) => ssh,
        }
    }

    /// Whether it is another machine.
    pub fn is_elsewhere(&self) -> bool {
        matches!(*self.way, Way::Ssh(_))
    }

    /// The arguments of a program here that runs these words there.
    pub fn line(&self, words: Vec<OsString>, terminal: bool) -> Vec<OsString> {
        match &*self.way {
            Way::Here(_) => words,
            Way::Ssh(ssh) => {
                let run = format!("{}exec \"$@\"", scripts::PLACES);
                let shell = ["sh".into(), "-c".into(), run.into(), "sh".into()];
                ssh.line(&shell.into_iter().chain(words).collect::<Vec<_>>(), terminal)
            }
        }
    }

    /// The arguments of a program that leads a port of this machine there; `None` where it is reached anyway.
    pub fn tunnel(&self, local: u16, host: &str, port: u16) -> Option<Vec<OsString>> {
        match &*self.way {
            Way::Here(_) => None,
            Way::Ssh(ssh) => Some(ssh.tunnel(local, host, port)),
        }
    }

    /// What to type for such a tunnel, by hand.
    pub fn tunnel_by_hand(&self, local: u16, host: &str, port: u16) -> Option<String> {
        let Way::Ssh(ssh) = &*self.way else { return None };
        let config = self.host.ssh.config.as_ref().and_then(|file| quote(file).ok());
        let config = config.map(|file| format!("-F {} ", file.to_string_lossy())).unwrap_or_default();
        let at = ssh.address().port.map(|port| format!("-p {port} ")).unwrap_or_default();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Some(format!("ssh {config}{at}-N -L {local}:{host}:{port} {}", ssh.address().destination()))
    }

    /// The same station for what is done in any case: taking away, letting go. Who wants to stop does not stop that.
    pub fn undisturbed(&self) -> Self {
        Self { cancel: CancelFlag::default(), ..self.clone() }
    }

    /// Runs a script there, whatever it answers.
    pub fn ask(&self, script: &str, arguments: &[&str], input: &[u8], deadline: Duration) -> Result<Answer> {
        self.hear(script, arguments, input, deadline, None)
    }

    /// The same for whoever wants to hear what it says of itself meanwhile.
    pub fn hear(
        &self,
        script: &str,
        arguments: &[&str],
        input: &[u8],
        deadline: Duration,
        heard: Option<Hears<'_>>,
    ) -> Result<Answer> {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let (script, cancel) = (format!("{}{script}", scripts::PLACES), Some(&self.cancel));
        let call =
            Call { script: &script, arguments: &arguments, input, deadline, output: ANSWER, cancel, heard };
        self.shell().run(&call)
    }

    /// Starts a script there, for whoever streams to it or from it.
    pub fn start(&self, script: &str, arguments: &[&str]) -> Result<Running> {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        self.shell().start(&format!("{}{script}", scripts::PLACES), &arguments)
    }

    /// Runs a script that has to succeed; what it said.
    pub fn must(&self, doing: &'static str, script: &str, arguments: &[&str]) -> Result<Vec<u8>> {
        let answer = self.ask(script, arguments, &[], LOOKING)?;
        if answer.code == 0 { Ok(answer.stdout) } else { Err(self.failed(doing, &answer)) }
    }

    /// The same, as text.
    pub fn text(&self, doing: &'static str, script: &str, arguments: &[&str]) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.must(doing, script, arguments)?).into_owned())
    }

    /// What a script that failed complained of.
    pub fn failed(&self, doing: &'static str, answer: &Answer) -> Error {
        Error::io(doing, &self.host.id, std::io::Error::other(answer.complaint()))
    }

    /// What the host says of itself. For a little while, what it has said is believed.
    pub fn greet(&self) -> Result<Greeting> {
        let key =
            (self.host.address.clone(), self.host.ssh.config.clone(), self.control.clone(), self.compose());
        let heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
        let known = heard.as_ref().and_then(|all| all.get(&key));
        if let Some((_, greeting)) = known.filter(|(at, _)| at.elapsed() < BELIEVED) {
            return Ok(greeting.clone());
        }
        drop(heard);
        let greeting = self.greet_now()?;
        let mut heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get_or_insert_default().insert(key, (Instant::now(), greeting.clone()));
        Ok(greeting)
    }

    /// The compose command that was set, if one was.
    fn compose(&self) -> String {
        let by_user = std::env::var(COMPOSE_COMMAND).ok().filter(|command| !command.is_empty());
        by_user.or_else(|| self.host.ssh.compose.clone()).unwrap_or_default()
    }

    /// The same, asked now.
    pub fn greet_now(&self) -> Result<Greeting> {
        let answer = self.ask(scripts::GREET, &[&self.compose()], &[], LOOKING)?;
        if answer.code != 0 {
            return Err(self.failed("look around on", &answer));
        }
        let far = match self.host.ssh.compress.unwrap_or_default() {
            Compression::Always => true,
            Compression::Never => false,
            // Its first word is said at once: what it takes is the way.
            Compression::Auto => self.is_elsewhere() && answer.first_word > LONG_WAY,
        };
        Ok(Greeting { far, ..Greeting::read(&String::from_utf8_lossy(&answer.stdout)) })
    }

    /// What the host says, where it can be used at all.
    pub fn usable(&self) -> Result<Greeting> {
        let greeting = self.greet()?;
        match greeting.obstacle() {
            None => Ok(greeting),
            Some(reason) => Err(Error::Refused {
                reason: format!("host {} cannot be used: {reason}", self.host.id),
                hint: Some(format!("look closer: `sandbox hosts check {}`", self.host.id)),
            }),
        }
    }

    /// The directory there that all of ours is in.
    pub fn base(&self, greeting: &Greeting) -> Result<String> {
        let base = match &self.host.ssh.directory {
            Some(directory) => directory.clone(),
            None => format!("{}/{DIRECTORY}", greeting.home.trim_end_matches('/')),
        };
        if base.starts_with('/') && !base.chars().any(char::is_control) && !base.contains("/../") {
            return Ok(base);
        }
        Err(Error::Refused {
            reason: format!("{base:?} on host {} is no absolute path", self.host.id),
            hint: Some("set ssh.directory in the host's file".to_owned()),
        })
    }
}

/// By address, configuration, where connections are, and the compose command that was set.
type Heard = HashMap<(String, Option<PathBuf>, PathBuf, String), (Instant, Greeting)>;

/// What hosts have said of themselves: a route and what follows it ask for the same.
static HEARD: Mutex<Option<Heard>> = Mutex::new(None);

impl Greeting {
    fn read(said: &str) -> Self {
        let mut greeting = Self::default();
        for (key, value) in said.lines().filter_map(|line| line.split_once('=')) {
            let value = value.trim().to_owned();
            match key {
                "home" => greeting.home = value,
                "user" => greeting.is_root = value == "0",
                "missing" => greeting.missing.push(value),
                "compose" => greeting.compose = value.split_whitespace().map(str::to_owned).collect(),
                "engine" if value == "podman" => greeting.engine = Some(Engine::Podman),
                "engine" => greeting.engine = Some(Engine::Docker),
                "version" => greeting.version = value,
                "trouble" if greeting.trouble.is_none() => greeting.trouble = Some(value),
                _ => {}
            }
        }
        greeting
    }

    fn has(&self, fact: &str) -> bool {
        self.version.split([' ', '[', ']', ',']).any(|word| word == fact)
    }

    /// What podman can do there.
    pub fn podman(&self) -> PodmanHost {
        let rootless = self.has("rootless=true");
        let limits = !rootless || ["memory", "cpu", "pids"].iter().all(|controller| self.has(controller));
        PodmanHost { rootless, limits }
    }

    /// Without version 2 of control groups, only root can freeze them.
    pub fn pause(&self) -> PauseMethod {
        let is_podman = self.engine == Some(Engine::Podman);
        let signals = is_podman && self.has("rootless=true") && !self.has("cgroups=v2");
        if signals { PauseMethod::Signals } else { PauseMethod::Engine }
    }

    /// Why it cannot be used, if it cannot.
    pub fn obstacle(&self) -> Option<String> {
        let rootless_docker = self.version.contains("name=rootless");
        let other_networks = self.engine == Some(Engine::Podman) && !self.has("network=netavark");
        match () {
            () if !self.missing.is_empty() => Some(format!("{} is not there", self.missing.join(", "))),
            () if self.compose.is_empty() => {
                Some(self.trouble.clone().unwrap_or_else(|| "no engine answers".to_owned()))
            }
            () if rootless_docker => Some("its docker is rootless, which is not supported".to_owned()),
            () if other_networks => {
                Some("podman there makes its networks by CNI plugins: install netavark".to_owned())
            }
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_line_by_line() {
        let said = "home=/root\nuser=0\ntrouble=docker: no\ncompose=docker compose\nengine=docker\nversion=28.2 [name=seccomp]\n";
        let greeting = Greeting::read(said);
        assert_eq!(greeting.compose, ["docker", "compose"]);
        assert!(greeting.is_root && greeting.obstacle().is_none());
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let of = |said: &str| Greeting::read(said).obstacle().unwrap_or_default();
        assert_eq!(of("missing=comm\nmissing=GNU tar\n"), "comm, GNU tar is not there");
        assert_eq!(of("trouble=docker: permission denied\n"), "docker: permission denied");
        assert_eq!(of(""), "no engine answers");
        assert!(of("compose=docker\nengine=docker\nversion=28 [name=rootless]\n").contains("rootless"));
        let podman = "compose=podman\nengine=podman\nversion=4.3 rootless=true cgroups=v1";
        assert!(of(&format!("{podman} network=cni controllers=[]")).contains("netavark"));
        assert_eq!(of(&format!("{podman} network=netavark controllers=[]")), "");
    }

    #[test]
    fn rootless_podman_limits_and_pauses_by_control_groups_if_it_has_them() {
        let greeting = |facts: &str| Greeting::read(&format!("engine=podman\nversion=4.3 {facts}\n"));
        let without = greeting("rootless=true cgroups=v1 network=netavark controllers=[]");
        assert_eq!(without.podman(), PodmanHost { rootless: true, limits: false });
        assert_eq!(without.pause(), PauseMethod::Signals);
        let with = greeting("rootless=true cgroups=v2 network=netavark controllers=[cpu memory pids]");
        assert_eq!(with.podman(), PodmanHost { rootless: true, limits: true });
        assert_eq!(with.pause(), PauseMethod::Engine);
        let root = greeting("rootless=false cgroups=v1 network=netavark controllers=[]");
        assert_eq!((root.podman().limits, root.pause()), (true, PauseMethod::Engine));
    }
}
