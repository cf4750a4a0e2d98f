//! What client, supervisor and init say to one another: JSON with its length before it, and descriptors that come along.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use sandboxer_keeper::paths;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::report::{Process, Ready, Report};
use super::spec::Spec;

/// The version of everything below. [`Hello`](Request::Hello) and its answer stay as they are in every version.
pub(crate) const PROTOCOL: u32 = 1;

/// Arguments and environment can have two megabytes, and each byte takes up to four in JSON.
const MAX_MESSAGE: usize = 16 << 20;

/// Three streams, or the master of a terminal, or a listener.
const MAX_DESCRIPTORS: usize = 4;

/// How long the other side may take for the rest of a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a client says to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Who is there? Also the first thing to say on a connection that may belong to another version.
    Hello,
    /// Make a runtime with its files in `directory`. Only the one who started the supervisor says so.
    Start {
        spec: Box<Spec>,
        #[serde(with = "paths::one")]
        directory: PathBuf,
    },
    /// What runtime is this? Who asks keeps it from ending.
    Attach,
    /// Run a command; standard input, output and error come along.
    Exec(Box<Exec>),
    /// Send a signal to the command of this connection.
    Signal(i32),
    /// Stop everything until this connection ends or says `Thaw`.
    Freeze,
    /// Go on.
    Thaw,
    /// What runs?
    Processes,
    /// End everything.
    End,
}

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exec {
    pub argv: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    #[serde(with = "paths::one")]
    pub directory: PathBuf,
    /// Which streams are to be a terminal of the sandbox's own.
    pub terminal: [bool; 3],
    /// Rows and columns of that.
    pub size: (u16, u16),
    pub umask: u32,
    pub timeout: Option<Duration>,
}

/// What a supervisor answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Hello {
        protocol: u32,
        pid: u32,
    },
    /// The runtime is there.
    Ready(Box<Ready>),
    /// The command runs. The terminal's master comes along, if there is one.
    Started,
    /// It could not be started, for the system's reason.
    NotStarted {
        errno: i32,
        step: String,
    },
    /// It ended, and what was used until then.
    Ended {
        end: End,
        report: Option<Box<Report>>,
    },
    Done,
    Processes(Vec<Process>),
    Refused(Refusal),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It took longer than it may.
    TimedOut,
    /// The runtime was ended, or ended by itself: out of memory, most likely.
    Lost,
    /// The disk was nearly full.
    DiskLow,
}

/// What the supervisor says to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// It is where it belongs; go on building.
    Go,
    /// Start a command; its streams come along.
    Spawn {
        id: u64,
        exec: Box<Exec>,
    },
    /// Send a signal to a command and what it started in its process group.
    Signal {
        id: u64,
        signal: i32,
    },
    /// Stop everything, or let it go on, where no cgroup can.
    Stop,
    Continue,
}

/// What init says to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// It has a user namespace, and needs somebody outside to say who is who in it.
    Unmapped,
    /// Everything is in place. Listener, watch and home layer come along, in this order, if there are any.
    Ready(Box<Built>),
    Failed(Refusal),
    Spawned {
        id: u64,
    },
    NotSpawned {
        id: u64,
        errno: i32,
        step: String,
    },
    Ended {
        id: u64,
        end: End,
    },
    /// Whether nothing runs any more.
    Stopped {
        still: bool,
    },
}

/// What init has built.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Built {
    pub confined: super::report::Confined,
    /// Which of them come along.
    pub listener: bool,
    pub watch: bool,
    pub home_layer: bool,
    /// Below these, writing is nobody's business.
    #[serde(with = "paths::list")]
    pub writable: Vec<PathBuf>,
}

/// Says something. A receiver that is gone is an error, and no signal.
pub(crate) fn send(socket: impl AsFd, what: &impl Serialize, along: &[BorrowedFd<'_>]) -> io::Result<()> {
    let body = serde_json::to_vec(what)?;
    let length = u32::try_from(body.len()).map_err(|_| too_long())?.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !along.is_empty() && !control.push(SendAncillaryMessage::ScmRights(along)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let sent = again(|| {
        sendmsg(&socket, &[IoSlice::new(&length), IoSlice::new(&body)], &mut control, SendFlags::NOSIGNAL)
    })?;
    let mut rest: Vec<u8> = [&length[..], &body].concat().split_off(sent);
    while !rest.is_empty() {
        let sent = again(|| rustix::net::send(&socket, &rest, SendFlags::NOSIGNAL))?;
        rest.drain(..sent);
    }
    Ok(())
}

/// Hears something, with the descriptors that came along. `None` where the other side has gone.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let mut along = Vec::new();
    let mut have = 0;
    while have < length.len() {
        match receive_some(&socket, &mut length[have..], &mut along)? {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => have += read,
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(too_long());
    }
    let mut body = vec![0; length];
    let mut have = 0;
    while have < length {
        match receive_some(&socket, &mut body[have..], &mut along)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => have += read,
        }
    }
    Ok(Some((serde_json::from_slice(&body)?, along)))
}

fn receive_some(socket: impl AsFd, into: &mut [u8], along: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = again(|| recvmsg(&socket, &mut [IoSliceMut::new(into)], &mut control, flags))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            along.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("descriptors were lost on the way"));
    }
    Ok(received.bytes)
}

/// Nobody waits for the rest of a message, or for somebody to take one, for ever.
pub(crate) fn be_impatient(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    Ok(sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?)
}

fn again<T>(mut attempt: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the message is too long")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_said_arrives_with_what_came_along() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let argument = OsString::from("x".repeat(1 << 20));
        let exec = Exec { argv: vec![argument], directory: "/d".into(), ..Exec::default() };
        let said = exec.clone();
        let speaker = std::thread::spawn(move || {
            let null = std::fs::File::open("/dev/null").unwrap();
            send(&ours, &said, &[null.as_fd(), null.as_fd(), null.as_fd()]).unwrap();
        });
        let (heard, along) = receive::<Exec>(&theirs).unwrap().unwrap();
        speaker.join().unwrap();
        assert_eq!((heard, along.len()), (exec, 3));
        assert!(receive::<Exec>(&theirs).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0zz", b"\x09\0\0\0short", b"\x01\0"] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            std::io::Write::write_all(&mut &ours, bytes).unwrap();
            drop(ours);
            assert!(receive::<String>(&theirs).is_err(), "{bytes:?}");
        }
    }
}
