//! SOCKS5 (RFC 1928): no authentication, and of its commands the one that connects.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::connection::{Connection, Opened};
use super::dial::{Cause, dial};
use super::target::{Host, Target};

/// What every message begins with.
pub(super) const VERSION: u8 = 5;

const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// Answers, by their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Succeeded = 0,
    Failed = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// Hears a client out and connects it. `None`: it was told why not.
pub(super) fn open(connection: &mut Connection<'_>) -> io::Result<Option<Opened>> {
    if !greet(connection)? {
        return Ok(None);
    }
    match hear(connection)?
        .and_then(|target| dial(connection.context, &target).map_err(|t| reply_to(t.cause)))
    {
        Ok(upstream) => {
            answer(connection, Reply::Succeeded)?;
            Ok(Some(Opened { upstream, first: std::mem::take(&mut connection.read) }))
        }
        Err(reply) => answer(connection, reply).map(|()| None),
    }
}

/// The client says how it can authenticate itself; it is to do without.
fn greet(connection: &mut Connection<'_>) -> io::Result<bool> {
    let count = connection.take(2)?[1];
    let methods = connection.take(count.into())?;
    let fits = methods.contains(&NO_AUTHENTICATION);
    connection.send(&[VERSION, if fits { NO_AUTHENTICATION } else { NO_METHOD }])?;
    Ok(fits)
}

/// What the client wants to connect to, or what to answer to something else.
fn hear(connection: &mut Connection<'_>) -> io::Result<Result<Target, Reply>> {
    let [version, command, _, kind] = take(connection)?;
    if version != VERSION {
        return Ok(Err(Reply::Failed));
    }
    let host = match kind {
        1 => Ok(Host::from(IpAddr::V4(Ipv4Addr::from(take::<4>(connection)?)))),
        4 => Ok(Host::from(IpAddr::V6(Ipv6Addr::from(take::<16>(connection)?)))),
        3 => {
            let [length] = take(connection)?;
            let name = connection.take(length.into())?;
            std::str::from_utf8(&name)
                .map_err(|_| "it is no text")
                .and_then(Host::parse)
                .map_err(|why| (name, why))
        }
        _ => return Ok(Err(Reply::AddressNotSupported)),
    };
    let port = u16::from_be_bytes(take(connection)?);
    if command != CONNECT {
        return Ok(Err(Reply::CommandNotSupported));
    }
    Ok(host.map(|host| Target { host, port }).map_err(|(name, why)| {
        connection.nonsense(&name, port, why);
        Reply::NotAllowed
    }))
}

fn take<const N: usize>(connection: &mut Connection<'_>) -> io::Result<[u8; N]> {
    connection.take(N)?.try_into().map_err(|_| io::ErrorKind::UnexpectedEof.into())
}

/// An answer. The address in it is where the connection comes from, which is nobody's business inside.
fn answer(connection: &mut Connection<'_>, reply: Reply) -> io::Result<()> {
    connection.send(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0])
}

fn reply_to(cause: Cause) -> Reply {
    match cause {
        Cause::Rules => Reply::NotAllowed,
        Cause::Unreachable | Cause::TimedOut => Reply::HostUnreachable,
        Cause::Refused => Reply::ConnectionRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_number() {
        let numbers =
            [Cause::Rules, Cause::Unreachable, Cause::TimedOut, Cause::Refused].map(|c| reply_to(c) as u8);
        assert_eq!(numbers, [2, 4, 4, 5]);
    }
}
