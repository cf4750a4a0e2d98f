//! Namespaces that look like another machine: processes, mounts, a name, `/etc`, `/root`, `/home`, `/run` of its own, and (unless told otherwise)
//! a network that is connected to nothing.
//!
//! It is the child of a janitor (a shell that reads a pipe of ours), which ends it when its value is dropped, and also when the test process dies.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Setup;
use super::users;
use crate::docker::PATHS;
use crate::run::Lifetime;

const JANITOR: &str = include_str!("janitor.sh");
const INIT: &str = include_str!("init.sh");
/// Puts a command into the machine's own control group, the root of those that it sees.
const ENTER_GROUP: &str = r#"
for at in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts | sort -u); do echo 0 >"$at/cgroup.procs"; done
exec "$@"
"#;
const PATIENCE: Duration = Duration::from_secs(60);

/// A running machine; dropped, it ends with everything on it.
#[derive(Debug)]
pub(super) struct Machine {
    dir: PathBuf,
    /// The number of its first process, as seen from here.
    pub(super) first: String,
    own_network: bool,
    own_control_group: bool,
    /// `None` for the machine of the run, which outlives this value.
    pub(super) janitor: Option<Child>,
}

impl Machine {
    /// A machine on which the given command runs, if there is one.
    pub(super) fn start(
        dir: PathBuf,
        setup: &Setup,
        command: &[String],
        lifetime: Lifetime,
    ) -> Result<Self, String> {
        prepare(&dir);
        let mut janitor = janitor(&dir, setup, command);
        let janitor = Some(janitor.stdin(lifetime.janitor_input()).spawn().map_err(|e| e.to_string())?);
        let mut machine = Self {
            dir,
            first: String::new(),
            own_network: !setup.main_network,
            own_control_group: setup.engine.keeps_to_the_root_of_control_groups(),
            janitor,
        };
        machine.first = machine.wait()?;
        Ok(machine)
    }

    /// The machine that another process has started in this directory, with a network of its own.
    pub(super) fn attach(dir: PathBuf) -> Self {
        let first = fs::read_to_string(dir.join("machine")).unwrap().trim().to_owned();
        Self { dir, first, own_network: true, own_control_group: false, janitor: None }
    }

    fn wait(&mut self) -> Result<String, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(number) = fs::read_to_string(self.dir.join("machine")) {
                return Ok(number.trim().to_owned());
            }
            // Not before its last words are written: the namespaces may be refused, or a mount in them.
            let over = Instant::now() > deadline || self.failed();
            if over {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                return Err(format!("no machine can be made here: {}", log.trim().replace('\n', "; ")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the janitor waits for a machine that has ended.
    fn failed(&self) -> bool {
        let Some(number) = self.janitor.as_ref().map(Child::id) else { return false };
        let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
        let running = |child: &str| {
            let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        let said = fs::metadata(self.dir.join("log")).is_ok_and(|log| log.len() > 0);
        said && children.is_ok_and(|children| !children.split_whitespace().any(running))
    }

    /// Where everything of it is kept.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that runs there, as root.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first, "--mount", "--uts", "--pid", "--net", "--cgroup", "--"]);
        if self.own_control_group {
            command.args(["sh", "-c", ENTER_GROUP, "sh"]);
        }
        command.arg(program).env_clear().env("PATH", path()).env("HOME", "/root").stdin(Stdio::null());
        command
    }

    /// Where a port of its loopback is reached.
    pub(super) fn address(&self, port: u16) -> Address {
        let network = self.own_network.then(|| PathBuf::from(format!("/proc/{}/ns/net", self.first)));
        Address { network, port }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut janitor) = self.janitor.take() {
            drop(janitor.stdin.take());
            let _ = janitor.wait();
        }
    }
}

/// A port of a machine's loopback.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// The network, where it is not this one.
    pub(super) network: Option<PathBuf>,
    pub(super) port: u16,
}

impl Address {
    /// Runs `work` in that network, on a thread of its own: what it opens belongs there, wherever it is used.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce(u16) -> io::Result<T> + Send) -> io::Result<T> {
        let inside = || {
            if let Some(network) = &self.network {
                let network = fs::File::open(network)?;
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
            work(self.port)
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// A connection to it.
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        self.within(|port| TcpStream::connect(("127.0.0.1", port)))
    }
}

/// What commands there are found by.
pub(super) fn path() -> String {
    PATHS.join(":")
}

fn prepare(dir: &Path) {
    // Other users of the machine reach the engine's socket through it.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(dir.join("init"), INIT).unwrap();
    fs::create_dir(dir.join("root")).unwrap();
    fs::set_permissions(dir.join("root"), fs::Permissions::from_mode(0o700)).unwrap();
    users::write(dir);
    let storage = format!(
        "[storage]\ndriver = \"overlay\"\ngraphroot = \"{}/data\"\nrunroot = \"/run/containers\"\n",
        dir.display()
    );
    fs::write(dir.join("storage.conf"), storage).unwrap();
}

fn janitor(dir: &Path, setup: &Setup, command: &[String]) -> Command {
    let group = dir.file_name().unwrap();
    let enclosed = setup.engine.keeps_to_the_root_of_control_groups();
    let mut kinds = vec!["--mount", "--pid", "--uts"];
    kinds.extend((!setup.main_network).then_some("--net"));
    kinds.extend(enclosed.then_some("--cgroup"));
    let mut janitor = Command::new("sh");
    janitor
        .args(["-c", JANITOR, "janitor"])
        .arg(dir)
        .arg(group)
        .arg(setup.home_bytes.unwrap_or(0).to_string());
    janitor.arg(if enclosed { "yes" } else { "no" }).arg(kinds.join(" ")).args(command).env("PATH", path());
    // In a group of its own: who interrupts the test does not interrupt the cleaning.
    janitor.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    janitor
}
