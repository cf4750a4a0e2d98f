//! Process 1 inside: builds what a command sees, gives up everything, starts commands and buries the dead.
//!
//! It is a fork of the supervisor, with one thread. Whatever runs inside is started by it and so has its restrictions; nothing
//! inside can end it, since signals from within do not reach process 1, or look into it, since it is not dumpable.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::exit;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, set_parent_process_death_signal, wait};

use super::confine;
use super::confine::landlock::LandlockStatus;
use super::limits;
use super::network::PORT;
use super::refusal::{Refusal, Refused};
use super::report::Confined;
use super::root::{self, Root};
use super::spawn::{self, NotSpawned};
use super::spec::{Network, Spec};
use super::stopping;
use super::system::bring_up_loopback;
use super::wire::{Built, End, Order, Told, receive, send};

/// What init is given by the process it is a copy of.
pub(crate) struct Given<'a> {
    pub spec: &'a Spec,
    pub socket: OwnedFd,
    /// Whether it has to take a user namespace itself.
    pub nests: bool,
    /// Whether overlays keep their marks where users may.
    pub user_marks: bool,
    /// What enforces each limit.
    pub enforced: &'a limits::Enforcement,
}

/// What is handed to the supervisor when everything is in place.
#[derive(Default)]
struct Handed {
    confined: Confined,
    listener: Option<TcpListener>,
    watch: Option<OwnedFd>,
    home_layer: Option<OwnedFd>,
    writable: Vec<PathBuf>,
}

/// Lives as init. Never returns.
pub(crate) fn live(given: Given) -> ! {
    // Without its supervisor there is nobody who keeps time or the network.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let outcome = bound.refused(|| "bind init to its supervisor".to_owned()).and_then(|()| build(&given));
    match outcome {
        Ok(handed) => {
            let told = tell_ready(&given.socket, &handed);
            drop(handed);
            if told.is_ok() {
                let _ = serve(&given.socket);
            }
            exit(0)
        }
        Err(refusal) => {
            let _ = send(&given.socket, &Told::Failed(refusal), &[]);
            exit(1)
        }
    }
}

fn tell_ready(socket: &OwnedFd, handed: &Handed) -> io::Result<()> {
    let along: Vec<BorrowedFd<'_>> = [
        handed.listener.as_ref().map(AsFd::as_fd),
        handed.watch.as_ref().map(AsFd::as_fd),
        handed.home_layer.as_ref().map(AsFd::as_fd),
    ]
    .into_iter()
    .flatten()
    .collect();
    let built = Built {
        confined: handed.confined.clone(),
        listener: handed.listener.is_some(),
        watch: handed.watch.is_some(),
        home_layer: handed.home_layer.is_some(),
        writable: handed.writable.clone(),
    };
    send(socket, &Told::Ready(Box::new(built)), &along)
}

fn build(given: &Given) -> Result<Handed, Refusal> {
    let spec = given.spec;
    hear_go(&given.socket)?;
    unshare(CloneFlags::CLONE_NEWCGROUP).refused(|| "take a cgroup namespace".to_owned())?;
    let mut handed = Handed::default();
    if spec.network != Network::Host {
        bring_up_loopback().refused(|| "bring up the loopback device".to_owned())?;
    }
    if matches!(spec.network, Network::Allow(_)) {
        let listener =
            TcpListener::bind(("127.0.0.1", PORT)).refused(|| "listen for the proxy".to_owned())?;
        handed.listener = Some(listener);
    }
    let Root { writable, home_layer } = root::build(spec, given.user_marks)?;
    handed.home_layer = home_layer;
    if given.nests {
        take_user_namespace(&given.socket)?;
    }
    limits::apply_fallback(&spec.limits, given.enforced).refused(|| "set resource limits".to_owned())?;
    confine::privileges::drop_all()?;
    let landlock = confine::landlock::restrict(&writable, spec.isolation, spec.network == Network::Host)?;
    if let LandlockStatus::Enforced { abi } = landlock {
        handed.confined.landlock = Some(abi);
    }
    handed.writable = writable;
    handed.watch = Some(confine::watch::install()?);
    confine::seccomp::filter(spec.isolation)?.install()?;
    Ok(handed)
}

/// The supervisor moves us into the cgroup before we make its root ours.
fn hear_go(socket: &OwnedFd) -> Result<(), Refusal> {
    match receive::<Order>(socket).refused(|| "hear the supervisor".to_owned())? {
        Some((Order::Go, _)) => Ok(()),
        other => Err(Refusal::new("hear the supervisor", format!("it says {other:?}"))),
    }
}

/// Last, so that what was mounted belongs to a namespace in which nobody inside has a right.
fn take_user_namespace(socket: &OwnedFd) -> Result<(), Refusal> {
    unshare(CloneFlags::CLONE_NEWUSER).refused(|| "take a user namespace".to_owned())?;
    send(socket, &Told::Unmapped, &[]).refused(|| "tell the supervisor".to_owned())?;
    hear_go(socket)
}

/// A command that runs.
struct Started {
    id: u64,
    /// Its side of its terminal.
    _side: Option<OwnedFd>,
}

/// The commands that were started, by process id.
#[derive(Default)]
struct Commands {
    started: BTreeMap<i32, Started>,
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    let mut mask = SigSet::empty();
    mask.add(NixSignal::SIGCHLD);
    mask.thread_block()?;
    let deaths = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut commands = Commands::default();
    loop {
        let mut waiting = [PollFd::new(socket, PollFlags::IN), PollFd::new(&deaths, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let (asked, died) = (!waiting[0].revents().is_empty(), !waiting[1].revents().is_empty());
        if died {
            let _ = deaths.read_signal();
        }
        commands.bury(socket)?;
        if asked {
            match receive(socket)? {
                Some((order, along)) => commands.obey(order, along, socket)?,
                None => return Ok(()),
            }
        }
    }
}

impl Commands {
    /// Reaps whatever has died: commands, and what lost its parent and became ours.
    fn bury(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let Some(Started { id, .. }) = self.started.remove(&pid.as_raw_nonzero().get()) else { continue };
            let end = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => End::Exited(code),
                (None, Some(signal)) => End::Killed(signal),
                (None, None) => End::Lost,
            };
            send(socket, &Told::Ended { id, end }, &[])?;
        }
        Ok(())
    }

    fn obey(&mut self, order: Order, along: Vec<OwnedFd>, socket: &OwnedFd) -> io::Result<()> {
        match order {
            Order::Go => Ok(()),
            Order::Spawn { id, exec } => match spawn::spawn(&exec, along) {
                Ok(spawned) => {
                    self.started.insert(spawned.pid, Started { id, _side: spawned.side });
                    let along: Vec<_> = spawned.master.iter().map(AsFd::as_fd).collect();
                    send(socket, &Told::Spawned { id }, &along)
                }
                Err(NotSpawned { errno, step }) => send(socket, &Told::NotSpawned { id, errno, step }, &[]),
            },
            Order::Signal { id, signal } => {
                self.signal(id, signal);
                Ok(())
            }
            Order::Stop => {
                let still = stopping::stop_everything();
                send(socket, &Told::Stopped { still }, &[])
            }
            Order::Continue => {
                stopping::continue_everything();
                Ok(())
            }
        }
    }

    fn signal(&self, id: u64, signal: i32) {
        let pid = self
            .started
            .iter()
            .find(|(_, command)| command.id == id)
            .and_then(|(pid, _)| Pid::from_raw(*pid));
        if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
            let _ = kill_process_group(pid, signal);
        }
    }
}
