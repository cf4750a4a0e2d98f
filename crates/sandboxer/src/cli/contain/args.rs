//! Flags on how a command is contained, and what they come to together with the settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::config::{self, Isolation, Layers, NetworkAccess, RunSettings, TrustStore};
use sandboxer_extensions::local::network::Rules;
use sandboxer_extensions::local::{Limits, Network};

use crate::cli::error::CliError;
use crate::cli::output;

/// Where the flags stand in a command's help.
const HEADING: &str = "Containment";

/// How a command is contained, and what it may use.
#[derive(clap::Args)]
pub struct ContainArgs {
    /// How much is kept from the command: strict, standard or files (nothing but files) [default: standard]
    #[arg(long, value_name = "LEVEL", help_heading = HEADING)]
    pub isolation: Option<String>,
    /// What it reaches of the network: none, or host for everything [default: none]
    #[arg(long, value_name = "WHAT", help_heading = HEADING, conflicts_with = "allow_host")]
    pub network: Option<String>,
    /// Hosts that it reaches, through a proxy, and no others; separated by commas, can be repeated
    #[arg(long, value_name = "HOST:PORT", help_heading = HEADING, value_delimiter = ',')]
    pub allow_host: Vec<String>,
    /// Memory that everything inside has together, such as 2G
    #[arg(long, value_name = "SIZE", help_heading = HEADING)]
    pub memory: Option<String>,
    /// Processes and threads
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub pids: Option<String>,
    /// Processors, such as 1.5
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub cpus: Option<String>,
    /// End it after this time, such as 90s or 10m
    #[arg(long, value_name = "DURATION", help_heading = HEADING)]
    pub timeout: Option<String>,
    /// Pass this variable on though it is on no list, or set it; can be repeated
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = HEADING)]
    pub env: Vec<OsString>,
}

/// What the flags ask for. What was not typed is not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// `--isolation`.
    pub isolation: Option<Isolation>,
    /// `--network` or `--allow-host`.
    pub network: Option<Network>,
    /// `--memory`, `--pids`, `--cpus` and `--timeout`.
    pub limits: Limits,
    /// `--env`.
    pub env: Vec<OsString>,
}

/// What flags and settings come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// How much is kept from the command.
    pub isolation: Isolation,
    /// What it reaches.
    pub network: Network,
    /// What it may use.
    pub limits: Limits,
}

impl ContainArgs {
    /// Reads the flags, before anything is made. What they ask for goes before the settings.
    pub fn read(&self) -> Result<Asked, CliError> {
        let flags = self.as_settings().map_err(|error| name_flag(CliError::from(error)))?;
        Rules::parse(&self.allow_host)?;
        if let Some(odd) = self.env.iter().find(|named| matches!(named.as_bytes().first(), None | Some(b'=')))
        {
            let shown = output::name(odd.as_bytes());
            return Err(CliError::usage(format!("--env {shown:?} names no variable")));
        }
        let network = match (&self.network, self.allow_host.is_empty()) {
            (_, false) => Some(Network::Allow(self.allow_host.clone())),
            (Some(_), true) => Some(plain(flags.network)),
            (None, true) => None,
        };
        let isolation = self.isolation.as_ref().map(|_| flags.isolation);
        Ok(Asked { isolation, network, limits: limits(&flags), env: self.env.clone() })
    }

    /// The flags as a layer of settings of their own, so that both are read by the same rules.
    fn as_settings(&self) -> Result<RunSettings, Error> {
        let typed = [
            ("run.isolation", &self.isolation),
            ("run.network", &self.network),
            ("run.memory", &self.memory),
            ("run.pids", &self.pids),
            ("run.cpus", &self.cpus),
            ("run.timeout", &self.timeout),
        ];
        let overrides: BTreeMap<String, String> =
            typed.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.clone()?))).collect();
        // There is no project's file among the layers, so nobody asks whether one is trusted.
        let trust = TrustStore::new(Path::new("/"));
        Ok(config::load(&Layers { overrides, ..Layers::default() }, &trust)?.run)
    }
}

/// Errors in settings name the key; this one was typed as a flag.
fn name_flag(mut error: CliError) -> CliError {
    if let Some(rest) = error.message.strip_prefix("run.") {
        error.message = format!("--{rest}");
    }
    error
}

fn plain(access: NetworkAccess) -> Network {
    match access {
        NetworkAccess::None => Network::None,
        NetworkAccess::Host => Network::Host,
    }
}

fn limits(run: &RunSettings) -> Limits {
    Limits { memory: run.memory, pids: run.pids, cpus: run.cpus, timeout: run.timeout }
}

impl Asked {
    /// What is wanted: what was typed, else what the settings say.
    pub fn over(&self, run: &RunSettings) -> Result<Wanted, CliError> {
        let isolation = self.isolation.unwrap_or(run.isolation);
        if isolation == Isolation::Files {
            self.refuse_what_files_cannot()?;
        }
        let network = match (&self.network, run.network) {
            (Some(network), _) => network.clone(),
            (None, NetworkAccess::None) if !run.allow_hosts.is_empty() => {
                Rules::parse(&run.allow_hosts)?;
                Network::Allow(run.allow_hosts.clone())
            }
            (None, access) => plain(access),
        };
        let (typed, set) = (&self.limits, limits(run));
        let limits = Limits {
            memory: typed.memory.or(set.memory),
            pids: typed.pids.or(set.pids),
            cpus: typed.cpus.or(set.cpus),
            timeout: typed.timeout.or(set.timeout),
        };
        Ok(Wanted { isolation, network, limits })
    }

    /// Where only files are isolated there is nothing that could hold these.
    fn refuse_what_files_cannot(&self) -> Result<(), CliError> {
        let flags = [
            ("--network", matches!(self.network, Some(Network::None | Network::Host))),
            ("--allow-host", matches!(self.network, Some(Network::Allow(_)))),
            ("--memory", self.limits.memory.is_some()),
            ("--pids", self.limits.pids.is_some()),
            ("--cpus", self.limits.cpus.is_some()),
            ("--timeout", self.limits.timeout.is_some()),
            ("--env", !self.env.is_empty()),
        ];
        let typed: Vec<&str> = flags.into_iter().filter(|(_, typed)| *typed).map(|(flag, _)| flag).collect();
        if typed.is_empty() {
            return Ok(());
        }
        let message = format!(
            "isolation `files` contains nothing but files: {} cannot be enforced with it",
            typed.join(", ")
        );
        let hint = match self.isolation {
            Some(_) => "leave out one or the other".to_owned(),
            None => "your settings say `run.isolation: files`; to contain this command: --isolation standard"
                .to_owned(),
        };
        Err(CliError::usage(message).hint(hint))
    }
}

impl Wanted {
    /// The names of limits that are set and that nothing enforces where only files are isolated.
    pub fn unenforced(&self) -> Vec<&'static str> {
        let limits = [
            ("run.memory", self.limits.memory.is_some()),
            ("run.pids", self.limits.pids.is_some()),
            ("run.cpus", self.limits.cpus.is_some()),
            ("run.timeout", self.limits.timeout.is_some()),
        ];
        let files = self.isolation == Isolation::Files;
        limits.into_iter().filter(|(_, set)| files && *set).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        contain: ContainArgs,
    }

    fn read(flags: &[&str]) -> Result<Asked, CliError> {
        Line::try_parse_from([&["x"], flags].concat()).unwrap_or_else(|e| panic!("{e}")).contain.read()
    }

    #[test]
    fn nothing_typed_asks_for_nothing() {
        assert_eq!(read(&[]).unwrap(), Asked::default());
        let wanted = Asked::default().over(&RunSettings::default()).unwrap();
        assert_eq!((wanted.isolation, wanted.network), (Isolation::Standard, Network::None));
    }

    #[test]
    fn flags_are_read_as_settings_are() {
        let asked = read(&["--isolation", "strict", "--memory", "2G", "--cpus", "1.5", "--timeout", "1h30m"]);
        let asked = asked.unwrap();
        assert_eq!(asked.isolation, Some(Isolation::Strict));
        assert_eq!((asked.limits.memory, asked.limits.cpus), (Some(2 << 30), Some(1.5)));
        assert_eq!(asked.limits.timeout, Some(Duration::from_secs(5400)));
        assert_eq!(asked.limits.pids, None);
    }

    #[test]
    fn hosts_come_one_by_one_or_in_a_list() {
        let asked = read(&["--allow-host", "a.example,b.example:8443", "--allow-host", "10.0.0.1:5432"]);
        let hosts = ["a.example", "b.example:8443", "10.0.0.1:5432"].map(str::to_owned).to_vec();
        assert_eq!(asked.unwrap().network, Some(Network::Allow(hosts)));
        let both = Line::try_parse_from(["x", "--network", "host", "--allow-host", "a.example"]);
        assert!(both.is_err(), "one says everything, the other almost nothing");
    }

    #[test]
    fn what_makes_no_sense_names_the_flag() {
        for (flag, value) in [
            ("--memory", "2 pounds"),
            ("--memory", "1"),
            ("--pids", "0"),
            ("--cpus", "-1"),
            ("--timeout", "0s"),
            ("--isolation", "some"),
            ("--network", "wifi"),
        ] {
            let error = read(&[&format!("{flag}={value}")]).unwrap_err();
            assert_eq!(error.exit, 2, "{flag} {value}");
            assert!(error.message.starts_with(flag), "{}", error.message);
        }
        assert_eq!(read(&["--allow-host", "*"]).unwrap_err().exit, 2);
        assert_eq!(read(&["--env", "=x"]).unwrap_err().exit, 2);
    }

    #[test]
    fn what_was_typed_goes_before_the_settings() {
        let run = RunSettings {
            isolation: Isolation::Strict,
            allow_hosts: vec!["a.example".into()],
            memory: Some(1 << 30),
            pids: Some(9),
            ..RunSettings::default()
        };
        let wanted = read(&["--memory", "2G"]).unwrap().over(&run).unwrap();
        assert_eq!((wanted.limits.memory, wanted.limits.pids), (Some(2 << 30), Some(9)));
        assert_eq!(wanted.network, Network::Allow(vec!["a.example".into()]));
        let wanted = read(&["--network", "none", "--isolation", "standard"]).unwrap().over(&run).unwrap();
        assert_eq!((wanted.isolation, wanted.network), (Isolation::Standard, Network::None));
    }

    #[test]
    fn nothing_but_files_has_no_limits_and_no_network() {
        let error = read(&["--isolation", "files", "--memory", "2G", "--network", "none"]).unwrap();
        let error = error.over(&RunSettings::default()).unwrap_err();
        assert_eq!(error.exit, 2);
        assert!(error.message.contains("--network, --memory"), "{}", error.message);
        let run = RunSettings { isolation: Isolation::Files, pids: Some(3), ..RunSettings::default() };
        let error = read(&["--env", "A"]).unwrap().over(&run).unwrap_err();
        assert!(error.hints[0].contains("--isolation standard"), "{:?}", error.hints);
        assert_eq!(Asked::default().over(&run).unwrap().unenforced(), ["run.pids"]);
    }
}
