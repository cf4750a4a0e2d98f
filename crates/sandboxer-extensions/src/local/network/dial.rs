//! Connecting to a target: asked of the rules, resolved, each address checked, and only those connected to that passed.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::bell::{Bell, stopped};
use super::connection::Context;
use super::decision::Decision;
use super::target::{Host, Target};

/// Why there is no connection, for whoever wanted it.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) cause: Cause,
    /// One line.
    pub(super) text: String,
    /// What `--allow-host` would have to be given, if that would help.
    pub(super) entry: Option<String>,
}

/// The kinds of trouble that the protocols have different words for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The rules do not allow it.
    Rules,
    /// The name has no address, or nothing leads to its addresses.
    Unreachable,
    /// The host does not want to.
    Refused,
    /// The host does not answer.
    TimedOut,
}

/// Connects, and reports what was decided.
pub(super) fn dial(context: &Context, target: &Target) -> Result<TcpStream, Trouble> {
    let mut decision = context.rules.decide(target);
    if !decision.allowed {
        return Err(refuse(context, decision));
    }
    let connected = resolve(target).and_then(|addresses| {
        let addresses = checked(context, target, &addresses).map_err(Failed::Rules)?;
        connect_any(&addresses, Instant::now() + context.bounds.connect, &context.bell).map_err(Failed::Io)
    });
    match connected {
        Ok((stream, address)) => {
            decision.address = Some(address.ip().to_canonical());
            (context.on_decision)(&decision);
            Ok(stream)
        }
        Err(Failed::Rules(decision)) => Err(refuse(context, *decision)),
        Err(Failed::Io(error)) => {
            decision.reason = format!("{}, but there is no connection: {error}", decision.reason);
            (context.on_decision)(&decision);
            Err(trouble(target, &error))
        }
    }
}

enum Failed {
    Rules(Box<Decision>),
    Io(io::Error),
}

/// Reports a refusal and puts it into words.
pub(super) fn refuse(context: &Context, decision: Decision) -> Trouble {
    (context.on_decision)(&decision);
    Trouble { cause: Cause::Rules, text: decision.in_words(), entry: decision.entry }
}

fn trouble(target: &Target, error: &io::Error) -> Trouble {
    let cause = match error.kind() {
        io::ErrorKind::ConnectionRefused => Cause::Refused,
        io::ErrorKind::TimedOut => Cause::TimedOut,
        _ => Cause::Unreachable,
    };
    Trouble { cause, text: format!("cannot connect to {target}: {error}"), entry: None }
}

/// The addresses of a target. It is asked for once: what is checked is what is connected to.
fn resolve(target: &Target) -> Result<Vec<SocketAddr>, Failed> {
    match &target.host {
        Host::Ip(address) => Ok(vec![SocketAddr::new(*address, target.port)]),
        Host::Name(name) => {
            let addresses = (name.as_str(), target.port).to_socket_addrs().map_err(Failed::Io)?;
            Ok(addresses.collect())
        }
    }
}

/// The addresses that may be connected to, or the first refusal if there are none.
fn checked(
    context: &Context,
    target: &Target,
    addresses: &[SocketAddr],
) -> Result<Vec<SocketAddr>, Box<Decision>> {
    if matches!(target.host, Host::Ip(_)) {
        // It was decided about as it stands.
        return Ok(addresses.to_vec());
    }
    let (mut passed, mut refusal) = (Vec::new(), None);
    for address in addresses {
        match context.rules.check(target, address.ip()) {
            Ok(()) => passed.push(*address),
            Err(decision) => refusal = refusal.or(Some(decision)),
        }
    }
    match refusal {
        Some(decision) if passed.is_empty() => Err(Box::new(decision)),
        _ => Ok(passed),
    }
}

/// Connects to the first address that answers. The time is shared out, so that one that is silent does not use it all up.
fn connect_any(
    addresses: &[SocketAddr],
    deadline: Instant,
    bell: &Bell,
) -> io::Result<(TcpStream, SocketAddr)> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let untried = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match connect_one(address, Instant::now() + left / untried, bell) {
            Ok(stream) => return Ok((stream, *address)),
            Err(error) if error.kind() == stopped().kind() => return Err(error),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn connect_one(address: &SocketAddr, deadline: Instant, bell: &Bell) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            bell.wait(&socket, PollFlags::OUT, Some(deadline))?;
            sockopt::socket_error(&socket)??;
        }
        Err(errno) => return Err(errno.into()),
    }
    let stream = TcpStream::from(socket);
    prepare(&stream)?;
    Ok(stream)
}

/// Sets a socket up to be relayed. A peer that has vanished without a word is noticed by probes: nothing else would ever end a tunnel in
/// which one side has closed its half and the other is silent.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, Duration::from_secs(60))?;
    set_tcp_keepintvl(stream, Duration::from_secs(15))?;
    Ok(set_tcp_keepcnt(stream, 4)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;
    use crate::local::network::{Bounds, Rules};

    fn closed_port() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn the_next_address_is_tried_when_one_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let bell = Bell::new().unwrap();
        let (stream, address) = connect_any(&[closed_port(), open], soon(), &bell).unwrap();
        assert_eq!((stream.peer_addr().unwrap(), address), (open, open));
    }

    #[test]
    fn why_the_last_one_failed_is_said() {
        let bell = Bell::new().unwrap();
        let refused = connect_any(&[closed_port()], soon(), &bell).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect_any(&[], soon(), &bell).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn trouble_is_told_apart_by_its_cause() {
        let target = Target::parse("example.com:443", None).unwrap();
        for (kind, cause) in [
            (io::ErrorKind::ConnectionRefused, Cause::Refused),
            (io::ErrorKind::TimedOut, Cause::TimedOut),
            (io::ErrorKind::NetworkUnreachable, Cause::Unreachable),
            // What a name that cannot be resolved ends with.
            (io::ErrorKind::Other, Cause::Unreachable),
        ] {
            let trouble = trouble(&target, &kind.into());
            assert_eq!(trouble.cause, cause);
            assert!(trouble.text.contains("example.com:443"), "{}", trouble.text);
        }
    }

    #[test]
    fn of_a_names_addresses_those_are_left_that_pass() {
        let context = Context {
            rules: Rules::parse(&["example.com:443".to_owned(), "10.0.0.5:443".to_owned()]).unwrap(),
            on_decision: Arc::new(|_| {}),
            bounds: Bounds::default(),
            bell: Bell::new().unwrap(),
        };
        let target = Target::parse("example.com:443", None).unwrap();
        let all: Vec<SocketAddr> = ["127.0.0.1:443", "1.1.1.1:443", "10.0.0.5:443", "[::ffff:10.0.0.6]:443"]
            .map(|address| address.parse().unwrap())
            .to_vec();
        assert_eq!(checked(&context, &target, &all).unwrap(), all[1..3]);
        let refusal = checked(&context, &target, &[all[3], all[0]]).unwrap_err();
        assert_eq!(refusal.entry.as_deref(), Some("10.0.0.6:443"));
        assert_eq!(checked(&context, &target, &[]).unwrap(), []);
    }

    #[test]
    fn a_silent_host_is_given_up_on_at_the_deadline() {
        // A listener whose queue is full does not answer any more.
        let full = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&full, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let address = TcpListener::from(full.try_clone().unwrap()).local_addr().unwrap();
        let bell = Bell::new().unwrap();
        let deadline = || Instant::now() + Duration::from_millis(100);
        let mut held = Vec::new();
        let given_up = loop {
            match connect_any(&[address], deadline(), &bell) {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
            assert!(held.len() < 10, "the queue never fills");
        };
        assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
    }
}
