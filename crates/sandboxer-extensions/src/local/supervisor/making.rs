//! A runtime comes to be: lock, socket, namespaces, cgroup, init.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, geteuid, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};

use super::events::Events;
use super::sockets;
use crate::local::confine::watch::Watcher;
use crate::local::hidden;
use crate::local::init::{self, Given};
use crate::local::limits::{Group, Roots};
use crate::local::network::{Proxy, Rules};
use crate::local::refusal::{Refusal, Refused};
use crate::local::report::{Confined, Ready, Report};
use crate::local::spec::{Isolation, Network, Spec};
use crate::local::system::fork_into;
use crate::local::wire::{Order, Told, receive, send};

/// How long the supervisor before us may take to be gone.
const PATIENCE: Duration = Duration::from_secs(15);
/// The list of cgroups in a runtime's directory.
pub(crate) const CGROUPS: &str = "cgroups";

const POLL: Duration = Duration::from_millis(1);

/// A runtime, as its supervisor has it.
pub(super) struct Runtime {
    pub directory: PathBuf,
    pub ready: Ready,
    pub init: Init,
    pub group: Group,
    pub listener: UnixListener,
    pub started: Instant,
    /// What is told in the end, filled by whoever sees something.
    pub seen: Arc<Mutex<Report>>,
    /// What was written to the home directory.
    pub home_layer: Option<OwnedFd>,
    pub proxy: Option<Proxy>,
    pub watcher: Option<Watcher>,
    /// Held for as long as this process lives.
    _lock: File,
}

/// Process 1 inside, as it is seen from outside.
pub(super) struct Init {
    pub pid: Pid,
    pub handle: OwnedFd,
    pub socket: OwnedFd,
}

impl Init {
    /// Ends it, and with it everything inside. Waits until it is gone.
    pub fn end(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        while let Err(Errno::INTR) =
            rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty())
        {}
    }
}

/// Where a supervisor may do what.
struct Standing {
    /// A user namespace was taken or joined: init needs none of its own.
    apart: bool,
    /// This is not the first user namespace: overlays keep their marks where users may.
    below: bool,
}

impl Runtime {
    pub fn make(mut spec: Spec, directory: &Path) -> Result<Self, Refusal> {
        let lock = take_lock(directory)?;
        let listener = listen(directory)?;
        spec.hidden.extend(sockets::listening());
        spec.hidden = hidden::real(&spec.hidden);
        let standing = stand_apart(&spec)?;
        let group = make_group(&spec, directory)?;
        let started = start_init(&spec, &standing, &group);
        if started.is_err() {
            let _ = group.remove();
        }
        let (init, handed) = started?;
        raise_descriptors();
        let seen = Arc::new(Mutex::new(Report::default()));
        let events = Arc::new(Events::open(directory, Arc::clone(&seen)));
        let watcher = start_watcher(handed.watch, handed.writable, &events)?;
        let proxy = start_proxy(&spec, handed.listener, &events)?;
        Ok(Self {
            directory: directory.to_path_buf(),
            ready: Ready { spec, confined: handed.confined, enforced: group.enforcement().clone() },
            init,
            group,
            listener,
            started: Instant::now(),
            seen,
            home_layer: handed.home_layer,
            proxy,
            watcher,
            _lock: lock,
        })
    }
}

/// Each connection through the proxy takes several. Init has been made and keeps the limit that it was given.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn take_lock(directory: &Path) -> Result<File, Refusal> {
    let path = directory.join("lock");
    let failed = || format!("lock {}", path.display());
    let file = File::options().create(true).append(true).open(&path).refused(failed)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(POLL),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).refused(failed),
        }
    }
}

/// Whoever holds the lock may remove what a dead one left. The path may be longer than an address can be.
fn listen(directory: &Path) -> Result<UnixListener, Refusal> {
    let failed = || format!("listen in {}", directory.display());
    let path = directory.join("socket");
    let _ = std::fs::remove_file(&path);
    let opened = File::open(directory).refused(failed)?;
    let listener = UnixListener::bind(crate::local::client::short(&opened).join("socket")).refused(failed)?;
    listener.set_nonblocking(true).refused(failed)?;
    Ok(listener)
}

/// Joins the namespaces that hold the workspaces' mounts, or takes a user namespace, or needs neither.
fn stand_apart(spec: &Spec) -> Result<Standing, Refusal> {
    if let Some(keeper) = spec.keeper {
        join(keeper).refused(|| format!("join keeper {keeper}"))?;
        return Ok(Standing { apart: true, below: true });
    }
    if !geteuid().is_root() {
        sandboxer_keeper::take_namespaces().map_err(|why| Refusal::new("take a user namespace", why))?;
        return Ok(Standing { apart: true, below: true });
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let first = map.split_whitespace().eq(["0", "0", "4294967295"]);
    Ok(Standing { apart: false, below: !first })
}

fn join(keeper: u32) -> std::io::Result<()> {
    let namespaces = Path::new("/proc").join(keeper.to_string()).join("ns");
    let (user, mount) = (File::open(namespaces.join("user"))?, File::open(namespaces.join("mnt"))?);
    setns(user, CloneFlags::CLONE_NEWUSER)?;
    Ok(setns(mount, CloneFlags::CLONE_NEWNS)?)
}

/// What is about to be made is written down first, so that it can be removed if we are killed.
fn make_group(spec: &Spec, directory: &Path) -> Result<Group, Refusal> {
    let plan = Group::plan(&spec.sandbox, &spec.limits, &Roots::system())?;
    let mut list = File::create(directory.join(CGROUPS)).refused(|| "write down the cgroups".to_owned())?;
    for path in plan.paths() {
        writeln!(list, "{}", path.display()).refused(|| "write down the cgroups".to_owned())?;
    }
    let group = plan.make();
    let weak = group.enforcement().weak();
    if spec.isolation == Isolation::Strict && !weak.is_empty() {
        let reason = group.enforcement().reason.clone().unwrap_or_else(|| "no cgroup is writable".to_owned());
        let _ = group.remove();
        return Err(Refusal::new(format!("limit {} for everything inside", weak.join(", ")), reason));
    }
    Ok(group)
}

/// What init hands over.
struct Handed {
    confined: Confined,
    listener: Option<OwnedFd>,
    watch: Option<OwnedFd>,
    home_layer: Option<OwnedFd>,
    writable: Vec<PathBuf>,
}

fn start_init(spec: &Spec, standing: &Standing, group: &Group) -> Result<(Init, Handed), Refusal> {
    let (ours, theirs) =
        std::os::unix::net::UnixStream::pair().refused(|| "make a socket pair".to_owned())?;
    let mut namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if spec.network != Network::Host {
        namespaces |= CloneFlags::CLONE_NEWNET;
    }
    // Being moved later would cost more than everything else here.
    let cgroup = group.unified().and_then(|path| File::open(path).ok());
    let forked = fork_into(namespaces, cgroup.as_ref().map(AsFd::as_fd))
        .map_err(|e| Refusal::new("make namespaces", sandboxer_keeper::why_no_namespaces(&e)))?;
    let Some(pid) = forked else {
        drop(ours);
        init::live(Given {
            spec,
            socket: theirs.into(),
            nests: !standing.apart,
            user_marks: standing.below,
            enforced: group.enforcement(),
        });
    };
    drop(theirs);
    let handle = pidfd_open(pid, PidfdFlags::empty()).refused(|| "hold on to init".to_owned())?;
    let init = Init { pid, handle, socket: ours.into() };
    let moved = if cgroup.is_some() { group.add_cloned(pid) } else { group.add(pid) };
    let made = moved.map_err(Refusal::from).and_then(|()| admit(&init));
    if made.is_err() {
        init.end();
    }
    Ok((init, made?))
}

/// Init is where it belongs: lets it go on, and waits until it has built everything.
fn admit(init: &Init) -> Result<Handed, Refusal> {
    let told = |order: &Order| send(&init.socket, order, &[]).refused(|| "speak to init".to_owned());
    told(&Order::Go)?;
    loop {
        match receive::<Told>(&init.socket).refused(|| "hear from init".to_owned())? {
            Some((Told::Unmapped, _)) => {
                map_ids(init.pid)?;
                told(&Order::Go)?;
            }
            Some((Told::Ready(told), along)) => {
                let mut along = along.into_iter();
                let mut next = |there: bool| there.then(|| along.next()).flatten();
                return Ok(Handed {
                    confined: told.confined,
                    listener: next(told.listener),
                    watch: next(told.watch),
                    home_layer: next(told.home_layer),
                    writable: told.writable,
                });
            }
            Some((Told::Failed(refusal), _)) => return Err(refusal),
            other => return Err(Refusal::new("hear from init", format!("it says {other:?}"))),
        }
    }
}

/// Everybody is in the new user namespace who they are here.
fn map_ids(pid: Pid) -> Result<(), Refusal> {
    for name in ["uid_map", "gid_map"] {
        let failed = || format!("set the {name} of a user namespace");
        let ours = std::fs::read_to_string(Path::new("/proc/self").join(name)).refused(failed)?;
        let same = |line: &str| {
            let mut fields = line.split_whitespace();
            let (first, count) = (fields.next()?, fields.nth(1)?);
            Some(format!("{first} {first} {count}\n"))
        };
        let map: String = ours.lines().filter_map(same).collect();
        let path = Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join(name);
        std::fs::write(path, map).refused(failed)?;
    }
    Ok(())
}

fn start_watcher(
    listener: Option<OwnedFd>,
    writable: Vec<PathBuf>,
    events: &Arc<Events>,
) -> Result<Option<Watcher>, Refusal> {
    let Some(listener) = listener else { return Ok(None) };
    let events = Arc::clone(events);
    let watcher = Watcher::start(listener, writable, Arc::new(move |refused| events.refused(&refused)));
    watcher.map(Some).refused(|| "watch for writes".to_owned())
}

fn start_proxy(
    spec: &Spec,
    listener: Option<OwnedFd>,
    events: &Arc<Events>,
) -> Result<Option<Proxy>, Refusal> {
    let (Network::Allow(entries), Some(listener)) = (&spec.network, listener) else { return Ok(None) };
    let rules = Rules::parse(entries).map_err(|e| Refusal::new("read the allowed hosts", e.to_string()))?;
    let events = Arc::clone(events);
    let proxy = Proxy::start(listener.into(), rules, Arc::new(move |decision| events.decided(decision)));
    proxy.map(Some).refused(|| "start the proxy".to_owned())
}
