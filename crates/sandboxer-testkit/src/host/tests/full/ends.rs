//! Whatever way a machine ends, nothing of it is left.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use super::super::*;

const PATIENCE: Duration = Duration::from_secs(60);
/// Asks a copy of this test program for a machine to be killed with.
const VICTIM: &str = "SANDBOXER_HOST_VICTIM";

/// What there is of a machine outside of its value.
struct Traces {
    dir: PathBuf,
    namespaces: Vec<PathBuf>,
    /// Keeps the numbers of the namespaces from being given to those of another test.
    _pinned: Vec<fs::File>,
}

impl Traces {
    fn of(host: &RemoteHost) -> Self {
        Self::at(host.machine.dir().to_path_buf(), &host.machine.first)
    }

    fn at(dir: PathBuf, first: &str) -> Self {
        let kinds = ["pid", "net", "mnt"];
        let links = kinds.map(|kind| format!("/proc/{first}/ns/{kind}"));
        let pinned = links.iter().map(|link| fs::File::open(link).unwrap()).collect();
        let namespaces = links.iter().map(|link| fs::read_link(link).unwrap()).collect();
        Self { dir, namespaces, _pinned: pinned }
    }

    fn left(&self) -> Vec<String> {
        let mounts = crate::mounts::mounts_below(&self.dir).into_iter().map(|at| at.display().to_string());
        let dir = self.dir.exists().then(|| self.dir.display().to_string());
        self.processes().into_iter().chain(self.groups()).chain(mounts).chain(dir).collect()
    }

    /// Processes in any of its namespaces; a namespace without a process and without a mount is none.
    fn processes(&self) -> Vec<String> {
        let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let inside = |process: &PathBuf| {
            let joined = |kind| fs::read_link(process.join("ns").join(kind)).ok();
            ["pid", "net", "mnt"].into_iter().filter_map(joined).any(|one| self.namespaces.contains(&one))
        };
        all.filter(inside).map(|process| process.display().to_string()).collect()
    }

    fn groups(&self) -> Vec<String> {
        let name = self.dir.file_name().unwrap();
        let find = Command::new("find").args(["/sys/fs/cgroup", "-name"]).arg(name).output().unwrap();
        String::from_utf8(find.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

fn busy(host: &RemoteHost) {
    host.run(&["run", "--detach", "--volume=/data", IMAGE, "sleep", "infinity"]);
    let mut ssh = host.ssh();
    ssh.arg("sleep 1000 >/dev/null 2>&1 & echo started");
    told(&feed(&mut ssh, ""));
    assert!(!Traces::of(host).left().is_empty());
}

#[test]
fn two_hosts_at_once_leave_nothing() {
    let (first, second) = std::thread::scope(|scope| {
        let threads = [scope.spawn(RemoteHost::start), scope.spawn(RemoteHost::start)];
        let [first, second] = threads.map(|thread| thread.join().unwrap());
        (first, second)
    });
    let (first, second) = (host!(first), host!(second));
    assert_ne!(first.name(), second.name());
    let traces = [&first, &second].map(|host| {
        busy(host);
        assert_eq!(host.run(&["ps", "--quiet"]).lines().count(), 1);
        Traces::of(host)
    });
    drop((first, second));
    for left in traces.map(|traces| traces.left()) {
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_host_with_podman_leaves_nothing() {
    let host = host!(RemoteHost::start_podman());
    busy(&host);
    let traces = Traces::of(&host);
    drop(host);
    assert!(traces.left().is_empty(), "{:?}", traces.left());
}

#[test]
fn a_small_home_leaves_nothing() {
    let host = host!(RemoteHost::with_small_home(4 << 20));
    busy(&host);
    let traces = Traces::of(&host);
    drop(host);
    assert!(traces.left().is_empty(), "{:?}", traces.left());
}

#[test]
fn a_host_goes_with_a_test_that_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        return victim();
    }
    host!(requirements(&Setup::default()));
    let name = "host::tests::full::ends::a_host_goes_with_a_test_that_is_killed";
    let mut copy = Command::new(std::env::current_exe().unwrap());
    let copy = copy.args(["--exact", name, "--nocapture"]).env(VICTIM, "yes").stdout(Stdio::piped());
    let mut copy = copy.spawn().unwrap();
    let mut lines = BufReader::new(copy.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("machine:")).unwrap();
    let words: Vec<&str> = line.split("machine:").nth(1).unwrap().split_whitespace().collect();
    let traces = Traces::at(PathBuf::from(words[0]), words[1]);
    copy.kill().unwrap();
    copy.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !traces.left().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", traces.left());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn victim() {
    let host = RemoteHost::start().unwrap();
    busy(&host);
    println!("machine: {} {}", host.machine.dir().display(), host.machine.first);
    std::thread::sleep(PATIENCE);
}
