//! The machine's sshd: keys, configuration, and what a client needs to reach it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::machine::{Address, Machine, path};
use super::users::GUEST;
use crate::docker::program;

const PATIENCE: Duration = Duration::from_secs(30);

/// An sshd of the machine's, running or not.
#[derive(Debug)]
pub(super) struct Sshd {
    daemon: PathBuf,
    dir: PathBuf,
    port: u16,
}

impl Sshd {
    /// Keys and configuration; nothing runs yet.
    pub(super) fn prepare(dir: &Path, main_network: bool) -> Result<Self, String> {
        let daemon = program("sshd", "openssh-server")?;
        let port = if main_network { crate::reserve_port() } else { 22 };
        let sshd = Self { daemon, dir: dir.to_path_buf(), port };
        sshd.new_key("user_key");
        sshd.new_key("host_key");
        fs::copy(dir.join("user_key.pub"), dir.join("authorized")).unwrap();
        fs::write(dir.join("sshd_config"), sshd.configuration(main_network)).unwrap();
        Ok(sshd)
    }

    /// The sshd of a machine with a network of its own that another process has started in this directory.
    pub(super) fn attach(dir: &Path) -> Result<Self, String> {
        Ok(Self { daemon: program("sshd", "openssh-server")?, dir: dir.to_path_buf(), port: 22 })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The public half of the key by which the machine is known.
    pub(super) fn host_key(&self) -> String {
        fs::read_to_string(self.dir.join("host_key.pub")).unwrap()
    }

    pub(super) fn new_key(&self, name: &str) {
        for old in [name.to_owned(), format!("{name}.pub")] {
            let _ = fs::remove_file(self.dir.join(old));
        }
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(self.dir.join(name));
        assert!(keygen.status().unwrap().success());
    }

    /// Starts it and waits until it listens.
    pub(super) fn start(&self, machine: &Machine) {
        let mut command = machine.command(self.daemon.to_str().unwrap());
        command.arg("-f").arg(self.dir.join("sshd_config")).arg("-E").arg(self.dir.join("sshd.log"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "sshd: {}", String::from_utf8_lossy(&output.stderr));
        // Written once it listens.
        self.until(|| self.pid_file().exists());
    }

    /// Ends the one that listens; connections that there are live on.
    pub(super) fn stop(&self, machine: &Machine) {
        let number = fs::read_to_string(self.pid_file()).unwrap();
        assert!(machine.command("kill").arg(number.trim()).status().unwrap().success());
        self.until(|| !self.pid_file().exists());
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join("sshd.pid")
    }

    fn until(&self, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            let log = || fs::read_to_string(self.dir.join("sshd.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "sshd: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn configuration(&self, main_network: bool) -> String {
        // On a network of its own it listens everywhere, as on any machine: containers there must not reach it all the same.
        let addresses: &[&str] = if main_network { &["127.0.0.1"] } else { &["0.0.0.0", "::"] };
        let listen: String = addresses.iter().map(|at| format!("ListenAddress {at}\n")).collect();
        let (at, port, path) = (self.dir.display(), self.port, path());
        format!(
            "Port {port}\n{listen}HostKey {at}/host_key\nPidFile {at}/sshd.pid\nAuthorizedKeysFile {at}/authorized\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             MaxStartups 100\nMaxSessions 100\nSubsystem sftp internal-sftp\nSetEnv PATH={path}\n"
        )
    }
}

/// What ssh is told about the machine; `route` is how it gets there.
pub(super) fn client_configuration(dir: &Path, name: &str, route: &str) -> String {
    let at = dir.display();
    format!(
        "Host {name}\n  User root\nHost {name}-{GUEST}\n  User {GUEST}\nHost {name} {name}-{GUEST}\n  {route}\n  \
         HostKeyAlias {name}\n  IdentityFile {at}/user_key\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
         UserKnownHostsFile {at}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
    )
}

/// Straight to the machine's own port, into its network where that is another one.
pub(super) fn direct_route(address: &Address) -> String {
    match &address.network {
        None => format!("HostName 127.0.0.1\n  Port {}", address.port),
        Some(network) => {
            let (network, port) = (network.display(), address.port);
            // What waits for more to say before it says anything would make every call take as long as that.
            format!("ProxyCommand nsenter --net={network} socat - TCP:127.0.0.1:{port},nodelay")
        }
    }
}
