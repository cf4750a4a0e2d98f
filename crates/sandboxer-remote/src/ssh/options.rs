//! The arguments of `ssh`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sandboxer_core::{Error, Result};

use super::Settings;
use super::sockets;
use crate::address::Address;

/// For everything: nobody is there to be asked, nothing of ours is lent to the host, a host is one that is known.
const ALWAYS: &[&str] = &[
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "Tunnel=no",
    "LogLevel=ERROR",
];

/// What begins so in our environment is ours alone.
const PRIVATE: &str = "SANDBOXER_";

/// What is the same for every call of one host.
#[derive(Clone, Debug)]
pub(super) struct Options {
    config: Option<PathBuf>,
    socket: PathBuf,
    pub connect_timeout: Duration,
    port: Option<u16>,
}

impl Options {
    /// Paths are made absolute: the master leaves our directory.
    pub fn new(address: &Address, mut settings: Settings) -> Result<Self> {
        let absolute = |path: PathBuf| std::path::absolute(&path).map_err(|e| Error::io("find", path, e));
        settings.control = absolute(settings.control)?;
        settings.config = settings.config.map(absolute).transpose()?;
        let socket = sockets::place(address, &settings)?;
        let Settings { config, connect_timeout, .. } = settings;
        Ok(Self { config, socket, connect_timeout, port: address.port })
    }

    /// Where the master listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn has_socket(&self) -> bool {
        self.socket.symlink_metadata().is_ok()
    }

    /// For whoever uses the master; `terminal` is `-T` or `-tt`.
    pub fn of_call(&self, terminal: &str) -> Vec<OsString> {
        let mut line = self.common();
        line.push(terminal.into());
        line.extend(options(&["ControlMaster=no", "ControlPersist=no", "ClearAllForwardings=yes"]));
        line.extend(["-S".into(), self.socket.clone().into()]);
        line
    }

    /// For the master itself, which goes to the background when it is connected.
    pub fn of_master(&self) -> Vec<OsString> {
        let mut line = self.common();
        line.extend(["-M", "-N", "-f", "-T"].map(OsString::from));
        line.extend(options(&["ControlPersist=60", "ClearAllForwardings=yes"]));
        line.extend(["-S".into(), self.socket.clone().into()]);
        line
    }

    /// For a word to the master: `check`, `exit`.
    pub fn of_order(&self, order: &str) -> Vec<OsString> {
        let mut line = self.common();
        line.extend(["-S".into(), self.socket.clone().into(), "-O".into(), order.into()]);
        line
    }

    /// For a tunnel, which has a connection of its own. Forwardings cannot be cleared here: its own would go too.
    pub fn of_tunnel(&self) -> Vec<OsString> {
        let mut line = self.common();
        line.extend(["-N", "-T", "-S", "none"].map(OsString::from));
        line.extend(options(&["ControlMaster=no", "ControlPersist=no", "ExitOnForwardFailure=yes"]));
        line
    }

    fn common(&self) -> Vec<OsString> {
        let mut line = vec!["ssh".into()];
        if let Some(config) = &self.config {
            line.extend(["-F".into(), config.clone().into()]);
        }
        line.extend(options(ALWAYS));
        let seconds = self.connect_timeout.as_secs().max(1);
        line.extend(["-o".into(), format!("ConnectTimeout={seconds}").into()]);
        if let Some(port) = self.port {
            line.extend(["-p".into(), port.to_string().into()]);
        }
        line
    }
}

fn options(words: &[&str]) -> impl Iterator<Item = OsString> {
    words.iter().flat_map(|word| [OsString::from("-o"), OsString::from(word)])
}

/// The process of a line, with our environment but for what is ours alone.
pub(super) fn command(line: &[OsString]) -> Command {
    let mut command = Command::new(line.first().cloned().unwrap_or_default());
    command.args(line.iter().skip(1));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(PRIVATE)) {
        command.env_remove(name);
    }
    command
}
