//! A docker daemon of a test's own, with an image of busybox and nothing else.
//!
//! Everything that it keeps is in one directory, it has no bridge and makes no firewall rules, and nobody else talks to it. It is the child of a
//! janitor (a shell that reads a pipe of ours), which ends it and removes what it made when its value is dropped, and also when the test
//! process dies.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The one image that there is.
pub const IMAGE: &str = "busybox:test";

/// Starts the daemon and waits for the end of its own input. The order of the end: containers, networks, daemon, mounts, files, cgroups.
const JANITOR: &str = r#"
docker=$1 dir=$2 group=$3; shift 3
"$@" >>"$dir/log" 2>&1 </dev/null &
pid=$!
read _
mine() { timeout 30 "$docker" --host "unix://$dir/sock" "$@"; }
mine ps --all --quiet | xargs -r timeout 30 "$docker" --host "unix://$dir/sock" rm --force --volumes
mine network prune --force
kill -TERM $pid
( sleep 30; kill -KILL $pid ) & last=$!
wait $pid
kill $last
cut -d' ' -f2 /proc/self/mounts | grep "^$dir/" | sort -r | while read -r at; do umount --lazy "$at"; done
find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} ';'
rm -rf "$dir"
"#;

const PATIENCE: Duration = Duration::from_secs(60);
const PATHS: [&str; 5] = ["/usr/bin", "/usr/sbin", "/sbin", "/bin", "/usr/local/bin"];
/// What the image has besides busybox itself.
const NAMES: [&str; 24] = [
    "sh", "sleep", "ls", "cat", "ip", "echo", "touch", "id", "wget", "httpd", "env", "mount", "ps", "nc",
    "true", "false", "rm", "mkdir", "stat", "hostname", "grep", "test", "kill", "ping",
];

/// A running daemon; dropped, it goes with everything that it made.
#[derive(Debug)]
#[must_use = "the daemon is stopped when this is dropped"]
pub struct Docker {
    dir: PathBuf,
    client: PathBuf,
    janitor: Child,
}

impl Docker {
    /// A daemon with one image, or why there is none here.
    pub fn start() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("dockerd needs root".to_owned());
        }
        // Debian's own client comes first: what stands before it on the PATH may belong to another daemon.
        let client = program("docker", "docker.io")?;
        let (daemon, busybox) = (program("dockerd", "docker.io")?, program("busybox", "busybox-static")?);
        let started =
            ["overlay2", "vfs"].into_iter().find_map(|driver| Self::launch(&client, &daemon, driver).ok());
        let docker = started.ok_or("dockerd does not start here")?;
        docker.import(&busybox);
        Ok(docker)
    }

    /// The one daemon of this test process, which stops when the process ends.
    pub fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceLock<Result<Docker, String>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref().map_err(Clone::clone)
    }

    fn launch(client: &Path, daemon: &Path, driver: &str) -> Result<Self, String> {
        // A socket's path has to be short.
        let dir = tempfile::Builder::new().prefix("sbx-docker-").tempdir_in("/tmp").unwrap().keep();
        fs::write(dir.join("daemon.json"), "{}").unwrap();
        let group = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let mut janitor = Command::new("sh");
        janitor.args(["-c", JANITOR, "janitor"]).arg(client).arg(&dir).arg(&group).arg(daemon);
        janitor.args(options(&dir, &group, driver)).env("PATH", PATHS.join(":"));
        // In a group of its own: who interrupts the test does not interrupt the cleaning.
        janitor.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let janitor = janitor.spawn().map_err(|e| e.to_string())?;
        let docker = Self { dir, client: client.to_path_buf(), janitor };
        docker.wait().map(|()| docker)
    }

    fn wait(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !self.try_run(&["version"]).status.success() {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if Instant::now() > deadline || log.contains("failed to start daemon") {
                return Err(log.lines().last().unwrap_or("it said nothing").to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn import(&self, busybox: &Path) {
        let root = self.dir.join("root");
        for dir in ["bin", "tmp", "etc", "srv"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::copy(busybox, root.join("bin/busybox")).unwrap();
        for name in NAMES {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        let archive = self.dir.join("root.tar");
        let tar =
            Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status().unwrap();
        assert!(tar.success());
        self.run(&["import", archive.to_str().unwrap(), IMAGE]);
    }

    /// The client program.
    pub fn client(&self) -> &Path {
        &self.client
    }

    /// The daemon's address.
    pub fn host(&self) -> String {
        format!("unix://{}/sock", self.dir.display())
    }

    /// Runs the client against this daemon; what it said.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.try_run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The same where it may fail.
    pub fn try_run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.client);
        command.arg("--host").arg(self.host()).args(arguments).stdin(Stdio::null()).output().unwrap()
    }
}

fn options(dir: &Path, group: &str, driver: &str) -> Vec<String> {
    let at = dir.display();
    let own = [
        format!("--config-file={at}/daemon.json"),
        format!("--host=unix://{at}/sock"),
        format!("--data-root={at}/data"),
        format!("--exec-root={at}/exec"),
        format!("--pidfile={at}/pid"),
        format!("--cgroup-parent=/{group}"),
        format!("--storage-driver={driver}"),
    ];
    let network =
        ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"];
    own.into_iter().chain(network.map(str::to_owned)).collect()
}

fn program(name: &str, package: &str) -> Result<PathBuf, String> {
    let found = PATHS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    found.ok_or_else(|| format!("{name} is not installed (Debian package {package})"))
}

impl Drop for Docker {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_answers_and_leaves_nothing() {
        let docker = match Docker::start() {
            Ok(docker) => docker,
            Err(reason) => return crate::skip(&reason),
        };
        docker.run(&["run", "--detach", "--network=none", IMAGE, "sleep", "infinity"]);
        assert_eq!(docker.run(&["ps", "--quiet"]).lines().count(), 1);
        let dir = docker.dir.clone();
        drop(docker);
        assert!(!dir.exists() && crate::mounts::mounts_below(&dir).is_empty());
    }
}
