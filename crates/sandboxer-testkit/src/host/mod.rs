//! Another machine, for tests, made of real parts: a network that is connected to nothing, an engine with its bridges and its firewall, an sshd,
//! homes of its own, and a configuration with which `ssh -F CONFIG NAME` gets there.
//!
//! Nothing of it has an address outside of its own network, so any number of them run side by side. Where a path on it differs from ours
//! ([`RemoteHost::home`] is `/root` there), it differs on purpose: who takes one for the other is found out.

mod inventory;
mod machine;
mod names;
mod plugin;
mod proxy;
mod sshd;
#[cfg(test)]
mod tests;
mod users;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use machine::Machine;
use sshd::Sshd;

pub use names::NameServer;
pub use plugin::compose_plugin;
pub use proxy::{CuttingProxy, Way};
pub use users::GUEST;

use crate::docker::{Client, DRIVERS, IMAGE, Network, archive, options, program};
use crate::run::{Lifetime, once_per_run};

/// Nobody but the machine's own processes is seen there.
const KILL_SESSIONS: &str = r#"
for process in /proc/[0-9]*; do
    read -r name <"$process/comm" || continue
    case $name in sshd*) kill -KILL "${process#/proc/}" ;; esac
done 2>/dev/null
true
"#;

/// What containers are run with there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Debian's docker, with `docker-compose`.
    #[default]
    Docker,
    /// Podman, as root.
    Podman,
    /// Podman, as [`GUEST`].
    RootlessPodman,
    /// Nothing: a machine to log in to, which starts at once.
    None,
}

impl Engine {
    /// Podman has no setting for the control group above its containers: its machine has a root of its own.
    fn keeps_to_the_root_of_control_groups(self) -> bool {
        matches!(self, Self::Podman | Self::RootlessPodman)
    }
}

/// Without netavark podman has bridges that cannot be named; catatonit is the init process of containers; slirp4netns and newuidmap are
/// what a user who is not root needs.
const PODMAN_PROGRAMS: [(&str, &str); 6] = [
    ("iptables", "iptables"),
    ("podman", "podman"),
    ("catatonit", "catatonit"),
    ("/usr/lib/podman/netavark", "netavark"),
    ("slirp4netns", "slirp4netns"),
    ("newuidmap", "uidmap"),
];

/// What a machine is to be like.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// What containers are run with there.
    pub engine: Engine,
    /// The size of root's home, where that is to be small: a tmpfs of so many bytes.
    pub home_bytes: Option<u64>,
    /// No network of its own: sshd listens on a port of this machine's loopback. For a machine without an engine.
    pub main_network: bool,
    /// Whether root has `docker compose` besides `docker-compose`.
    pub compose_plugin: bool,
}

impl Setup {
    /// A machine with docker and each compose program that is available here.
    fn with_docker() -> Self {
        Self { compose_plugin: compose_plugin().is_ok(), ..Self::default() }
    }
}

/// A running machine; dropped, it is gone with everything on it.
#[derive(Debug)]
#[must_use = "the machine is gone when this is dropped"]
pub struct RemoteHost {
    machine: Machine,
    sshd: Sshd,
    docker: Option<Client>,
    engine: Engine,
    name: String,
    config: PathBuf,
    home: PathBuf,
}

impl RemoteHost {
    /// A machine with docker, or why there is none here.
    pub fn start() -> Result<Self, String> {
        Self::with(&Setup::with_docker())
    }

    /// A machine with podman and no docker, or why there is none here.
    pub fn start_podman() -> Result<Self, String> {
        Self::with(&Setup { engine: Engine::Podman, ..Setup::default() })
    }

    /// A machine with podman for [`GUEST`] alone, or why there is none here.
    pub fn start_rootless_podman() -> Result<Self, String> {
        Self::with(&Setup { engine: Engine::RootlessPodman, ..Setup::default() })
    }

    /// A machine without an engine, whose sshd listens on a port of this machine's loopback: no `ProxyCommand`, and ssh's own words for what fails.
    pub fn plain() -> Result<Self, String> {
        Self::with(&Setup { engine: Engine::None, main_network: true, ..Setup::default() })
    }

    /// A machine with docker, where root's home has room for so many bytes.
    pub fn with_small_home(bytes: u64) -> Result<Self, String> {
        Self::with(&Setup { home_bytes: Some(bytes), ..Setup::default() })
    }

    /// The machine with docker of this run. Other tests use it at the same time: a test that stops its sshd, changes its
    /// firewall or counts everything on it starts a machine of its own.
    pub fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceLock<Result<RemoteHost, String>> = OnceLock::new();
        SHARED.get_or_init(Self::connect_to_shared).as_ref().map_err(Clone::clone)
    }

    fn connect_to_shared() -> Result<Self, String> {
        let dir = once_per_run("host", || {
            let mut host = Self::with_lifetime(&Setup::with_docker(), Lifetime::Run)?;
            host.machine.janitor = None;
            Ok(host.machine.dir().display().to_string())
        })?;
        Self::attach(dir.into())
    }

    fn attach(dir: PathBuf) -> Result<Self, String> {
        let client = program("docker", "docker.io")?;
        Ok(Self {
            sshd: Sshd::attach(&dir)?,
            docker: Some(Client::new(dir.clone(), client)),
            engine: Engine::Docker,
            name: name_of(&dir),
            config: dir.join("ssh_config"),
            home: dir.join("root"),
            machine: Machine::attach(dir),
        })
    }

    /// A machine as it is asked for, or why there is none here.
    pub fn with(setup: &Setup) -> Result<Self, String> {
        Self::with_lifetime(setup, Lifetime::Value)
    }

    fn with_lifetime(setup: &Setup, lifetime: Lifetime) -> Result<Self, String> {
        let busybox = requirements(setup)?;
        let plugin = setup.compose_plugin.then(compose_plugin).transpose()?;
        let host = match setup.engine {
            Engine::Docker => Self::launch_docker(setup, lifetime)?,
            Engine::Podman | Engine::RootlessPodman | Engine::None => {
                Self::launch(new_dir(), setup, &[], lifetime)?
            }
        };
        host.sshd.start(&host.machine);
        host.trust_host_key();
        if let Some(plugin) = plugin {
            plugin::install(&host.home, &plugin);
        }
        if setup.engine != Engine::None {
            let image = archive(host.machine.dir(), &busybox);
            host.run(&["import", image.to_str().unwrap(), IMAGE]);
        }
        Ok(host)
    }

    fn launch_docker(setup: &Setup, lifetime: Lifetime) -> Result<Self, String> {
        let (client, daemon) = (program("docker", "docker.io")?, program("dockerd", "docker.io")?);
        let mut refused = String::new();
        for driver in DRIVERS {
            let dir = new_dir();
            let mut host =
                Self::launch(dir.clone(), setup, &docker_command(&daemon, &dir, driver), lifetime)?;
            let docker = Client::new(dir, client.clone());
            match docker.wait() {
                Ok(()) => {
                    host.docker = Some(docker);
                    return Ok(host);
                }
                Err(reason) => refused = reason,
            }
        }
        Err(format!("dockerd does not start here: {refused}"))
    }

    fn launch(dir: PathBuf, setup: &Setup, command: &[String], lifetime: Lifetime) -> Result<Self, String> {
        let sshd = Sshd::prepare(&dir, setup.main_network)?;
        let machine = Machine::start(dir.clone(), setup, command, lifetime)?;
        let name = name_of(&dir);
        let config = dir.join("ssh_config");
        let route = sshd::direct_route(&machine.address(sshd.port()));
        fs::write(&config, sshd::client_configuration(&dir, &name, &route)).unwrap();
        let home = dir.join("root");
        Ok(Self { machine, sshd, docker: None, engine: setup.engine, name, config, home })
    }

    /// What `ssh -F` takes to know the machine. It has no settings for anything else, and can be joined with those of others.
    pub fn ssh_config(&self) -> &Path {
        &self.config
    }

    /// The same through a proxy, which has to lead here.
    pub fn ssh_config_through(&self, proxy: &CuttingProxy) -> PathBuf {
        let port = proxy.port();
        let config = self.machine.dir().join(format!("ssh_config.{port}"));
        let route = format!("HostName 127.0.0.1\n  Port {port}");
        fs::write(&config, sshd::client_configuration(self.machine.dir(), &self.name, &route)).unwrap();
        config
    }

    /// The name by which ssh knows it, as root.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name by which ssh knows it as [`GUEST`], who is not root and may talk to the engine.
    pub fn guest_name(&self) -> String {
        format!("{}-{GUEST}", self.name)
    }

    /// The daemon there. Panics where there is none.
    pub fn docker(&self) -> &Client {
        self.docker.as_ref().expect("a machine without docker")
    }

    /// Root's home, which is `/root` there.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The guest's home, which is `/home/guest` there.
    pub fn guest_home(&self) -> PathBuf {
        self.machine.dir().join("home").join(GUEST)
    }

    /// A command that runs there as root, without ssh.
    pub fn in_namespace(&self, program: &str) -> Command {
        self.machine.command(program)
    }

    /// The same as [`GUEST`].
    pub fn as_guest(&self, program: &str) -> Command {
        let mut command = self.in_namespace("setpriv");
        command.args(users::AS_GUEST).args(["env", "HOME=/home/guest", program]).current_dir("/");
        command
    }

    /// Gives a tree of this machine to the guest.
    pub fn give_to_guest(&self, tree: &Path) {
        let ran = Command::new("chown").args(["-R", users::GUEST_OWNER]).arg(tree).status();
        assert!(ran.unwrap().success(), "chown {}", tree.display());
    }

    /// Runs such a command; what it said.
    pub fn there(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.in_namespace(program).args(arguments).output().unwrap();
        said(&output, program, arguments)
    }

    /// Runs the engine's client there; what it said.
    pub fn run(&self, arguments: &[&str]) -> String {
        said(&self.try_run(arguments), "the engine", arguments)
    }

    /// The same where it may fail.
    pub fn try_run(&self, arguments: &[&str]) -> Output {
        self.client().args(arguments).output().unwrap()
    }

    fn client(&self) -> Command {
        match self.engine {
            Engine::Docker => self.in_namespace("docker"),
            Engine::Podman => self.in_namespace("podman"),
            Engine::RootlessPodman => self.as_guest("podman"),
            Engine::None => panic!("a machine without an engine"),
        }
    }

    /// A call of ssh to it as root; a command and its input are the caller's.
    pub fn ssh(&self) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(&self.config).args(["-o", "BatchMode=yes", "--", &self.name]);
        ssh
    }

    /// Stops listening for connections; those that there are live on.
    pub fn stop_sshd(&self) {
        self.sshd.stop(&self.machine);
    }

    /// Listens again.
    pub fn start_sshd(&self) {
        self.sshd.start(&self.machine);
    }

    /// Ends every connection and what was run over it, as if the machine had lost its power for a moment; it goes on listening.
    pub fn cut_connections(&self) {
        self.stop_sshd();
        self.there("sh", &["-c", KILL_SESSIONS]);
        self.start_sshd();
    }

    /// Another key, as if the machine had been made anew or somebody else answered in its place: clients that trust the old one are warned.
    pub fn new_host_key(&self) {
        self.stop_sshd();
        self.sshd.new_key("host_key");
        self.start_sshd();
    }

    /// Makes the key that it has now the one that clients trust.
    pub fn trust_host_key(&self) {
        let known = format!("{} {}", self.name, self.sshd.host_key());
        fs::write(self.known_hosts(), known).unwrap();
    }

    /// Makes clients that have never seen it.
    pub fn forget_host_key(&self) {
        fs::write(self.known_hosts(), "").unwrap();
    }

    fn known_hosts(&self) -> PathBuf {
        self.machine.dir().join("known_hosts")
    }

    /// Lets no more logins in.
    pub fn refuse_logins(&self) {
        fs::write(self.machine.dir().join("authorized"), "").unwrap();
    }

    /// Nothing passes between ssh and sshd from now on, and nobody is told. Needs a network of its own.
    pub fn pause_network(&self) {
        self.network_rules("--insert");
    }

    /// It passes again.
    pub fn resume_network(&self) {
        self.network_rules("--delete");
    }

    fn network_rules(&self, change: &str) {
        for (chain, side) in [("INPUT", "--dport"), ("OUTPUT", "--sport")] {
            self.there("iptables", &["--wait", change, chain, "-p", "tcp", side, "22", "-j", "DROP"]);
        }
    }
}

fn said(output: &Output, program: &str, arguments: &[&str]) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn requirements(setup: &Setup) -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("a machine of its own needs root".to_owned());
    }
    let engine: &[(&str, &str)] = match setup.engine {
        Engine::Docker => &[("iptables", "iptables"), ("docker-compose", "docker-compose")],
        Engine::Podman | Engine::RootlessPodman => &PODMAN_PROGRAMS,
        Engine::None => &[],
    };
    let always = [
        ("ssh", "openssh-client"),
        ("sshd", "openssh-server"),
        ("nsenter", "util-linux"),
        ("ip", "iproute2"),
        ("socat", "socat"),
    ];
    for (name, package) in always.iter().chain(engine) {
        program(name, package)?;
    }
    program("busybox", "busybox-static")
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap().to_str().unwrap().trim_start_matches("sbx-").to_lowercase()
}

fn new_dir() -> PathBuf {
    // A socket's path has to be short.
    tempfile::Builder::new().prefix("sbx-host-").tempdir_in("/tmp").unwrap().keep()
}

fn docker_command(daemon: &Path, dir: &Path, driver: &str) -> Vec<String> {
    let group = dir.file_name().unwrap().to_str().unwrap();
    let mut command = vec![daemon.display().to_string()];
    command.extend(options(dir, group, driver, Network::Own));
    // Where it is looked for by whoever logs in.
    command.extend(["--host=unix:///run/docker.sock".to_owned(), format!("--group={}", users::ENGINE_GROUP)]);
    command
}
