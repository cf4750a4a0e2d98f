//! A host to reach by SSH: a server on loopback that is private to a test, with keys of its own. How many may come at once is as it is by default.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PROGRAM: &str = "/usr/sbin/sshd";
/// Ends the server when whoever started it is gone, however that came.
const KEEPER: &str = r#""$@" & p=$!; read -r x; kill "$p""#;

/// A server, ended with this guard.
pub struct Sshd {
    home: TempDir,
    port: u16,
    keeper: Child,
}

impl Sshd {
    /// Starts one; where there is none to start, says why the test is skipped.
    pub fn start() -> Option<Self> {
        if !Path::new(PROGRAM).exists() || !has("ssh-keygen") {
            crate::skip("there is no OpenSSH server here");
            return None;
        }
        let home = tempfile::Builder::new().prefix("sshd").tempdir().unwrap();
        for key in ["host", "user", "stranger"] {
            make_key(&home.path().join(key));
        }
        fs::copy(home.path().join("user.pub"), home.path().join("authorized")).unwrap();
        let port = crate::reserve_port();
        fs::write(home.path().join("sshd_config"), server_config(home.path(), port)).unwrap();
        let sshd = Self { keeper: start(home.path()), home, port };
        sshd.write_client_config("config", "user", "host");
        sshd.write_client_config("config-stranger", "stranger", "host");
        fs::write(sshd.path("known-none"), "").unwrap();
        sshd.write_known("known-host", "host");
        sshd.write_known("known-stranger", "stranger");
        fs::write(sshd.path("config-unknown"), sshd.client_config("user", "none")).unwrap();
        sshd.write_client_config("config-changed", "user", "stranger");
        (sshd.answers() && sshd.lets_in()).then_some(sshd)
    }

    /// A client's configuration that gets in: user, keys and known hosts. Others beside it do not: `config-stranger` (a key that is not let
    /// in), `config-unknown` (no known host), `config-changed` (another key than the host's is known).
    pub fn config(&self) -> PathBuf {
        self.path("config")
    }

    /// A file of the server's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `ssh://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("ssh://127.0.0.1:{}", self.port)
    }

    /// Cuts every connection, from the server's side.
    pub fn cut(&self) {
        let listener: Option<u32> = children(self.keeper.id()).first().copied();
        let sessions: Vec<u32> = listener.into_iter().flat_map(descendants).collect();
        // Stopped first: one that is still there would tell the client what became of the others.
        for signal in [Signal::STOP, Signal::KILL] {
            for session in &sessions {
                let _ = kill_process(Pid::from_raw(*session as i32).unwrap(), signal);
            }
        }
    }

    fn write_client_config(&self, name: &str, key: &str, known: &str) {
        fs::write(self.path(name), self.client_config(key, known)).unwrap();
    }

    fn client_config(&self, key: &str, known: &str) -> String {
        let home = self.home.path().display();
        format!(
            "Host *\n IdentityFile {home}/{key}\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {home}/known-{known}\n GlobalKnownHostsFile /dev/null\n"
        )
    }

    fn write_known(&self, name: &str, key: &str) {
        let key = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
        fs::write(self.path(name), format!("[127.0.0.1]:{} {key}", self.port)).unwrap();
    }

    /// Accounts without a shell are not let in, whatever their key.
    fn lets_in(&self) -> bool {
        let mut probe = Command::new("ssh");
        probe.arg("-F").arg(self.config()).args(["-o", "BatchMode=yes", "-p", &self.port.to_string()]);
        let probe = probe.args(["127.0.0.1", "true"]).stdin(Stdio::null()).output().unwrap();
        if !probe.status.success() {
            crate::skip(&format!(
                "sshd does not let us in: {}",
                String::from_utf8_lossy(&probe.stderr).trim()
            ));
        }
        probe.status.success()
    }

    fn answers(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        crate::skip(&format!(
            "sshd does not start: {}",
            fs::read_to_string(self.path("log")).unwrap_or_default()
        ));
        false
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.cut();
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn start(home: &Path) -> Child {
    if rustix::process::geteuid().is_root() {
        // Where it separates privileges, which has to be there.
        let _ = fs::create_dir_all("/run/sshd");
    }
    let log = fs::File::create(home.join("log")).unwrap();
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, "sh", PROGRAM, "-D", "-e", "-f"]).arg(home.join("sshd_config"));
    keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

fn server_config(home: &Path, port: u16) -> String {
    let home = home.display();
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nAuthorizedKeysFile {home}/authorized\nPidFile none\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nUsePAM no\n"
    )
}

fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(made.unwrap().success());
}

fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", program])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success()
}

fn descendants(pid: u32) -> Vec<u32> {
    let below = children(pid);
    below.iter().flat_map(|child| descendants(*child)).chain(below.iter().copied()).collect()
}

fn children(pid: u32) -> Vec<u32> {
    let told = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    told.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}
