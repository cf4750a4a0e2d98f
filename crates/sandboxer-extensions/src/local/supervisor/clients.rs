//! The loop: what clients ask for, what init tells, what the clock says. It ends when no command is left.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Signal, geteuid};

use super::making::{CGROUPS, Runtime};
use super::processes;
use crate::local::home;
use crate::local::report::Report;
use crate::local::wire::{End, Exec, Order, PROTOCOL, Reply, Request, Told, be_impatient, receive, send};

/// How often the disk is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// More clients than this at once are not heard.
const MAX_CLIENTS: usize = 256;

/// How many files of the home directory are looked at in the end.
const MAX_HOME_FILES: usize = 10_000;

/// Somebody who is connected.
pub(super) struct Client {
    pub(super) socket: UnixStream,
    command: Option<Command>,
    /// Whether it wants everything to stand still.
    pub(super) froze: bool,
    pub(super) gone: bool,
}

/// The command of a client.
struct Command {
    id: u64,
    deadline: Option<Instant>,
    timed_out: bool,
}

/// The loop's state.
pub(super) struct Serving {
    pub(super) runtime: Runtime,
    pub(super) clients: Vec<Client>,
    /// What init is told when everything goes on.
    pub(super) held_back: Vec<(Order, Vec<OwnedFd>)>,
    next_id: u64,
    reserve: Reserve,
    last_look: Instant,
}

/// How everything ended.
enum Over {
    /// No command is left; this is what is owed to the last one's client.
    Idle,
    /// Somebody wants it, or something happened.
    Ended(End),
}

impl Runtime {
    /// Serves until no command is left. The first client is told that the runtime is there.
    pub fn serve(self, first: UnixStream) -> io::Result<()> {
        send(&first, &Reply::Ready(Box::new(self.ready.clone())), &[])?;
        let reserve = Reserve::of(&self);
        let client = Client { socket: first, command: None, froze: false, gone: false };
        let mut serving = Serving {
            runtime: self,
            clients: vec![client],
            held_back: Vec::new(),
            next_id: 0,
            reserve,
            last_look: Instant::now(),
        };
        let over = serving.run();
        serving.finish(over);
        Ok(())
    }
}

/// What is owed to a client when everything is over.
struct Owed {
    client: UnixStream,
    end: End,
}

impl Serving {
    fn run(&mut self) -> (Option<Owed>, Over) {
        loop {
            let (init, listener, asking) = self.wait();
            // Clients first: what init tells may remove some of them.
            for at in asking {
                if let Some(over) = self.hear_client(at) {
                    return (None, over);
                }
            }
            if init {
                match self.hear_init() {
                    Ok(None) => {}
                    Ok(Some(owed)) => return (Some(owed), Over::Idle),
                    Err(_) => return (None, Over::Ended(End::Lost)),
                }
            }
            self.let_go();
            if listener {
                self.accept();
            }
            if let Some(over) = self.look_at_the_clock() {
                return (None, over);
            }
        }
    }

    /// Waits until somebody says something: init, a new client, or clients that are there.
    fn wait(&self) -> (bool, bool, Vec<usize>) {
        let mut fds = vec![
            PollFd::new(&self.runtime.init.socket, PollFlags::IN),
            PollFd::new(&self.runtime.listener, PollFlags::IN),
        ];
        fds.extend(self.clients.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)));
        let timeout = Timespec::try_from(self.patience()).ok();
        if let Err(Errno::INTR) = poll(&mut fds, timeout.as_ref()) {
            return (false, false, Vec::new());
        }
        let said: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let asking = said[2..].iter().enumerate().filter(|(_, said)| **said).map(|(at, _)| at).collect();
        (said[0], said[1], asking)
    }

    fn patience(&self) -> Duration {
        let deadlines = self.clients.iter().filter_map(|client| client.command.as_ref()?.deadline);
        let next = deadlines.min().map(|at| at.saturating_duration_since(Instant::now()));
        next.unwrap_or(LOOK).min(LOOK)
    }

    fn accept(&mut self) {
        let Ok((socket, _)) = self.runtime.listener.accept() else { return };
        // Only our own user is answered; others cannot come through the directory, except for root.
        let ours = sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == geteuid());
        if ours
            && self.clients.len() < MAX_CLIENTS
            && socket.set_nonblocking(false).is_ok()
            && be_impatient(&socket).is_ok()
        {
            self.clients.push(Client { socket, command: None, froze: false, gone: false });
        }
    }

    /// What a command's client is owed, if it was the last.
    fn hear_init(&mut self) -> io::Result<Option<Owed>> {
        let Some((told, along)) = receive::<Told>(&self.runtime.init.socket)? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match told {
            Told::Spawned { id } => {
                let along: Vec<_> = along.iter().map(AsFd::as_fd).collect();
                self.answer(id, &Reply::Started, &along);
            }
            Told::NotSpawned { id, errno, step } => {
                self.answer(id, &Reply::NotStarted { errno, step }, &[]);
                return Ok(self.forget(id, None));
            }
            Told::Ended { id, end } => return Ok(self.forget(id, Some(end))),
            Told::Stopped { still } => self.hear_stopped(still),
            Told::Unmapped | Told::Ready(_) | Told::Failed(_) => {}
        }
        Ok(None)
    }

    fn answer(&mut self, id: u64, reply: &Reply, along: &[std::os::fd::BorrowedFd<'_>]) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.runs(id)) {
            client.gone |= send(&client.socket, reply, along).is_err();
        }
    }

    /// A command has ended. If it was the last one its client is told when everything else has ended too.
    fn forget(&mut self, id: u64, end: Option<End>) -> Option<Owed> {
        let at = self.clients.iter().position(|client| client.runs(id))?;
        let client = self.clients.remove(at);
        let timed_out = client.command.as_ref().is_some_and(|command| command.timed_out);
        let end = end.map(|end| if timed_out { End::TimedOut } else { end });
        // Somebody who has just come may be about to start something.
        self.accept();
        let last = self.clients.iter().all(|client| client.gone);
        match (end, last) {
            (Some(end), true) => return Some(Owed { client: client.socket, end }),
            (Some(end), false) => {
                let _ = send(&client.socket, &Reply::Ended { end, report: None }, &[]);
            }
            // It never began, and has heard so.
            (None, _) => self.clients.push(Client { command: None, ..client }),
        }
        None
    }

    fn hear_client(&mut self, at: usize) -> Option<Over> {
        let request = receive::<Request>(&self.clients[at].socket);
        let (request, along) = match request {
            Ok(Some(heard)) => heard,
            Ok(None) | Err(_) => {
                self.clients[at].gone = true;
                return None;
            }
        };
        let answered = match request {
            Request::Hello => self.say(at, &Reply::Hello { protocol: PROTOCOL, pid: std::process::id() }),
            Request::Attach | Request::Start { .. } => {
                self.say(at, &Reply::Ready(Box::new(self.runtime.ready.clone())))
            }
            Request::Exec(exec) => self.exec(at, exec, along),
            Request::Signal(signal) => self.signal(at, signal),
            Request::Freeze => self.freeze(at),
            Request::Thaw => {
                self.thaw(at);
                self.say(at, &Reply::Done)
            }
            Request::Processes => {
                let init = self.runtime.init.pid.as_raw_nonzero().get().cast_unsigned();
                self.say(at, &Reply::Processes(processes::inside(init)))
            }
            Request::End => return Some(Over::Ended(End::Lost)),
        };
        self.clients[at].gone |= answered.is_err();
        None
    }

    pub(super) fn say(&self, at: usize, reply: &Reply) -> io::Result<()> {
        send(&self.clients[at].socket, reply, &[])
    }

    fn exec(&mut self, at: usize, exec: Box<Exec>, along: Vec<OwnedFd>) -> io::Result<()> {
        if self.clients[at].command.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.next_id += 1;
        let timeout = exec.timeout.or(self.runtime.ready.spec.limits.timeout);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.clients[at].command = Some(Command { id: self.next_id, deadline, timed_out: false });
        self.order(Order::Spawn { id: self.next_id, exec }, along)
    }

    fn signal(&mut self, at: usize, signal: i32) -> io::Result<()> {
        match &self.clients[at].command {
            Some(command) => self.order(Order::Signal { id: command.id, signal }, Vec::new()),
            None => Ok(()),
        }
    }

    /// Takes leave of clients that are gone: what they froze goes on, and what they started ends.
    fn let_go(&mut self) {
        while let Some(at) = self.clients.iter().position(|client| client.gone) {
            if self.clients[at].froze {
                self.thaw(at);
            }
            if self.clients[at].command.is_some() {
                let _ = self.signal(at, Signal::KILL.as_raw());
            }
            self.clients.remove(at);
        }
    }

    fn look_at_the_clock(&mut self) -> Option<Over> {
        let now = Instant::now();
        if let Some(late) = self.clients.iter().position(|client| client.is_late(now)) {
            if self.clients.iter().filter(|client| client.command.is_some()).count() == 1 {
                return Some(Over::Ended(End::TimedOut));
            }
            self.end_late(late);
        }
        if now.duration_since(self.last_look) >= LOOK {
            self.last_look = now;
            if self.reserve.is_touched(&self.runtime) {
                return Some(Over::Ended(End::DiskLow));
            }
        }
        self.clients.is_empty().then_some(Over::Idle)
    }

    /// Others have more time: only this one's command ends.
    fn end_late(&mut self, at: usize) {
        let _ = self.signal(at, Signal::KILL.as_raw());
        if let Some(command) = &mut self.clients[at].command {
            (command.deadline, command.timed_out) = (None, true);
        }
    }

    /// Ends everything inside, then tells whoever waits.
    fn finish(mut self, (owed, over): (Option<Owed>, Over)) {
        let report = Box::new(self.end_everything());
        drop(self.runtime.proxy.take());
        drop(self.runtime.watcher.take());
        if let Some(Owed { client, end }) = owed {
            let _ = send(&client, &Reply::Ended { end, report: Some(report.clone()) }, &[]);
        }
        let end = match over {
            Over::Idle => End::Lost,
            Over::Ended(end) => end,
        };
        for client in self.clients.iter() {
            let reply = match client.command {
                Some(_) => Reply::Ended { end, report: Some(report.clone()) },
                None => Reply::Done,
            };
            let _ = send(&client.socket, &reply, &[]);
        }
    }

    fn end_everything(&mut self) -> Report {
        let runtime = &self.runtime;
        let _ = std::fs::remove_file(runtime.directory.join("socket"));
        if self.is_frozen() && runtime.group.can_freeze() {
            // What is frozen cannot die.
            let _ = runtime.group.thaw();
        }
        runtime.init.end();
        let mut report = runtime.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report.wall = runtime.started.elapsed();
        report.use_resources(&runtime.group);
        if let Some(upper) = &runtime.home_layer {
            for path in home::written(upper, MAX_HOME_FILES) {
                report.home_files.add(path.to_string_lossy().into_owned());
            }
        }
        if runtime.group.remove().is_ok() {
            let _ = std::fs::remove_file(runtime.directory.join(CGROUPS));
        }
        report
    }
}

impl Client {
    fn is_late(&self, now: Instant) -> bool {
        self.command.as_ref().and_then(|command| command.deadline).is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn runs(&self, id: u64) -> bool {
        self.command.as_ref().is_some_and(|command| command.id == id)
    }
}

/// Space on the workspaces' filesystems that nobody inside may use up.
struct Reserve {
    bytes: u64,
}

impl Reserve {
    /// As much as was asked for; where less than twice that is free already, half of what is.
    fn of(runtime: &Runtime) -> Self {
        let free = free(runtime).unwrap_or(0);
        Self { bytes: runtime.ready.spec.disk_reserve.min(free / 2) }
    }

    fn is_touched(&self, runtime: &Runtime) -> bool {
        self.bytes > 0 && free(runtime).is_some_and(|free| free < self.bytes)
    }
}

fn free(runtime: &Runtime) -> Option<u64> {
    let spaces = runtime
        .ready
        .spec
        .workspaces
        .iter()
        .filter_map(|workspace| rustix::fs::statvfs(&workspace.from).ok());
    spaces.map(|space| space.f_bavail * space.f_frsize).min()
}
