//! A docker daemon of a test's own, with an image of busybox and nothing else.
//!
//! Everything that it keeps is in one directory, it has no bridge and makes no firewall rules, and nobody else talks to it. It is the child of a
//! janitor (a shell that reads a pipe of ours), which ends it and removes what it made when its value is dropped, and also when the test
//! process dies. A daemon with bridges and a firewall is on a machine of its own: see [`crate::host`].

mod client;
mod image;

use std::fs;
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::run::{Lifetime, once_per_run};
pub use client::Client;
pub(crate) use image::archive;

/// The one image that there is.
pub const IMAGE: &str = "busybox:test";

/// What layers are kept with, best first.
pub(crate) const DRIVERS: [&str; 2] = ["overlay2", "vfs"];

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

/// Debian's own programs come first: what stands before them on the PATH may belong to another daemon.
pub(crate) const PATHS: [&str; 5] = ["/usr/bin", "/usr/sbin", "/sbin", "/bin", "/usr/local/bin"];

/// A running daemon; dropped, it goes with everything that it made.
#[derive(Debug)]
#[must_use = "the daemon is stopped when this is dropped"]
pub struct Docker {
    client: Client,
    /// `None` for the daemon of the run, which outlives this value.
    janitor: Option<Child>,
}

/// What a daemon may do to the network that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Nothing: it is everybody's.
    Untouched,
    /// Bridges, addresses, rules: it is the daemon's own.
    Own,
}

impl Docker {
    /// A daemon with one image, or why there is none here.
    pub fn start() -> Result<Self, String> {
        Self::start_for(Lifetime::Value)
    }

    fn start_for(lifetime: Lifetime) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("dockerd needs root".to_owned());
        }
        let (client, daemon) = (program("docker", "docker.io")?, program("dockerd", "docker.io")?);
        let busybox = program("busybox", "busybox-static")?;
        let launch = |driver| Self::launch(&client, &daemon, driver, lifetime).ok();
        let started = DRIVERS.into_iter().find_map(launch);
        let docker = started.ok_or("dockerd does not start here")?;
        docker.import(&archive(docker.client.dir(), &busybox));
        Ok(docker)
    }

    /// The daemon of this run. Other tests use it at the same time: a test looks only at what it made itself.
    pub fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceLock<Result<Docker, String>> = OnceLock::new();
        SHARED.get_or_init(Self::connect_to_shared).as_ref().map_err(Clone::clone)
    }

    fn connect_to_shared() -> Result<Self, String> {
        let dir = once_per_run("docker", || {
            let mut docker = Self::start_for(Lifetime::Run)?;
            docker.janitor = None;
            Ok(docker.client.dir().display().to_string())
        })?;
        Ok(Self { client: Client::new(dir.into(), program("docker", "docker.io")?), janitor: None })
    }

    fn launch(client: &Path, daemon: &Path, driver: &str, lifetime: Lifetime) -> Result<Self, String> {
        // A socket's path has to be short.
        let dir = tempfile::Builder::new().prefix("sbx-docker-").tempdir_in("/tmp").unwrap().keep();
        let group = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let mut janitor = Command::new("sh");
        janitor.args(["-c", JANITOR, "janitor"]).arg(client).arg(&dir).arg(&group).arg(daemon);
        janitor.args(options(&dir, &group, driver, Network::Untouched)).env("PATH", PATHS.join(":"));
        // In a group of its own: who interrupts the test does not interrupt the cleaning.
        janitor.process_group(0).stdin(lifetime.janitor_input()).stdout(Stdio::null()).stderr(Stdio::null());
        let janitor = Some(janitor.spawn().map_err(|e| e.to_string())?);
        let docker = Self { client: Client::new(dir, client.to_path_buf()), janitor };
        docker.wait().map(|()| docker)
    }
}

impl Deref for Docker {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The daemon's arguments; its configuration is written to `dir`, so that the machine's own is not read.
pub(crate) fn options(dir: &Path, group: &str, driver: &str, network: Network) -> Vec<String> {
    fs::write(dir.join("daemon.json"), "{}").unwrap();
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
    let untouched =
        ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"];
    let network = untouched.into_iter().filter(|_| network == Network::Untouched);
    own.into_iter().chain(network.map(str::to_owned)).collect()
}

pub(crate) fn program(name: &str, package: &str) -> Result<PathBuf, String> {
    let found = PATHS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    found.ok_or_else(|| format!("{name} is not installed (Debian package {package})"))
}

impl Drop for Docker {
    fn drop(&mut self) {
        if let Some(mut janitor) = self.janitor.take() {
            drop(janitor.stdin.take());
            let _ = janitor.wait();
        }
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
        let dir = docker.dir().to_path_buf();
        drop(docker);
        assert!(!dir.exists() && crate::mounts::mounts_below(&dir).is_empty());
    }
}
