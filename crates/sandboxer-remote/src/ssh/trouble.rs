//! What `ssh` complains of, told apart.

use std::fmt;
use std::io;

use sandboxer_core::Error;

use crate::address::Address;
use crate::words::last_words;

/// Why a host cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody knows a machine of that name.
    Name,
    /// Nobody answers, in time or at all.
    Unreachable,
    /// It has a key that was never seen before.
    KeyUnknown,
    /// It has another key than before.
    KeyChanged,
    /// It does not let us in.
    Login,
    /// There was a connection, and it broke.
    Lost,
    /// Something else, in the words of `ssh`.
    Other,
}

/// Why a host cannot be used, and what to type. It is the source of the error that says so.
#[derive(Debug)]
pub struct Trouble {
    /// Which kind.
    pub fault: Fault,
    /// The host, as a URL.
    pub host: String,
    /// What `ssh` said last.
    pub said: String,
    /// What to do about it.
    pub advice: String,
}

/// The trouble with a host that an error is about, if it is about that.
pub fn trouble(error: &Error) -> Option<&Trouble> {
    match error.root() {
        Error::Io { source, .. } => source.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::Name => "there is no host of that name",
            Fault::Unreachable => "it does not answer",
            Fault::KeyUnknown => "the key of the host is not known",
            Fault::KeyChanged => "the key of the host is not the one that is known",
            Fault::Login => "it does not let us in",
            Fault::Lost => "the connection was lost",
            Fault::Other => "ssh failed",
        };
        f.write_str(what)?;
        if !self.said.is_empty() {
            write!(f, " ({})", self.said)?;
        }
        write!(f, "; {}", self.advice)
    }
}

impl std::error::Error for Trouble {}

/// There was no connection to be had.
pub(super) fn unreachable(address: &Address, said: &[u8]) -> Error {
    let said = last_words(said);
    told(address, fault_of(&said).unwrap_or(Fault::Other), said)
}

/// Nobody answered in time.
pub(super) fn too_late(address: &Address, seconds: u64) -> Error {
    told(address, Fault::Unreachable, format!("no connection in {seconds} s"))
}

/// A call that had got through was cut, or could not get through because what it meant to use is gone.
pub(super) fn lost(address: &Address, said: &[u8]) -> Error {
    let said = last_words(said);
    told(address, fault_of(&said).unwrap_or(Fault::Lost), said)
}

fn told(address: &Address, fault: Fault, said: String) -> Error {
    let advice = advice(address, fault);
    let host = address.to_string();
    let kind = kind(fault);
    Error::io("reach", &host, io::Error::new(kind, Trouble { fault, host: host.clone(), said, advice }))
}

fn kind(fault: Fault) -> io::ErrorKind {
    match fault {
        Fault::Name => io::ErrorKind::NotFound,
        Fault::Unreachable => io::ErrorKind::HostUnreachable,
        Fault::KeyUnknown | Fault::KeyChanged | Fault::Login => io::ErrorKind::PermissionDenied,
        Fault::Lost => io::ErrorKind::ConnectionAborted,
        Fault::Other => io::ErrorKind::Other,
    }
}

/// Its words have been these for many years; what is not among them is quoted.
fn fault_of(said: &str) -> Option<Fault> {
    const WORDS: &[(&str, Fault)] = &[
        ("HOST IDENTIFICATION HAS CHANGED", Fault::KeyChanged),
        ("differs from the key for the IP address", Fault::KeyChanged),
        ("host key is known for", Fault::KeyUnknown),
        ("Host key verification failed", Fault::KeyUnknown),
        ("Could not resolve hostname", Fault::Name),
        ("Permission denied", Fault::Login),
        ("Too many authentication failures", Fault::Login),
        ("Connection refused", Fault::Unreachable),
        ("timed out", Fault::Unreachable),
        ("No route to host", Fault::Unreachable),
        ("Network is unreachable", Fault::Unreachable),
        ("UNKNOWN port 65535", Fault::Unreachable),
        ("kex_exchange_identification", Fault::Unreachable),
    ];
    WORDS.iter().find(|(words, _)| said.contains(words)).map(|(_, fault)| *fault)
}

fn advice(address: &Address, fault: Fault) -> String {
    let typed = address.typed();
    match fault {
        Fault::Name => format!("see `ssh -G {typed}`, and ~/.ssh/config"),
        Fault::Unreachable => format!("is it on? see `ssh -v {typed}`"),
        Fault::KeyUnknown => format!("connect once by hand and compare the key: `ssh {typed}`"),
        Fault::KeyChanged => {
            let known = match (address.host.as_str(), address.port) {
                (host, Some(port)) if port != 22 => format!("'[{host}]:{port}'"),
                (host, _) => host.to_owned(),
            };
            format!(
                "if it was set up anew, `ssh-keygen -R {known}` and connect once by hand; if not, somebody is in between"
            )
        }
        Fault::Login => format!(
            "see `ssh -v {typed}`; a key is copied there with `ssh-copy-id {typed}`, and one with a passphrase needs an agent"
        ),
        Fault::Lost => format!("see `ssh {typed} true`, and try again"),
        Fault::Other => format!("see `ssh -v {typed} true`"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_common_ones_are_told_apart_and_say_what_to_type() {
        let address = Address::parse("ssh://me@box:2222").unwrap();
        let cases = [
            (
                "ssh: Could not resolve hostname box: Name or service not known",
                Fault::Name,
                "ssh -G -p 2222 me@box",
            ),
            ("ssh: connect to host box port 2222: Connection refused", Fault::Unreachable, "ssh -v"),
            ("Connection timed out during banner exchange", Fault::Unreachable, "ssh -v"),
            (
                "No ED25519 host key is known for [box]:2222 and you have requested strict checking.\nHost key verification failed.",
                Fault::KeyUnknown,
                "`ssh -p 2222 me@box`",
            ),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                Fault::KeyChanged,
                "ssh-keygen -R '[box]:2222'",
            ),
            ("me@box: Permission denied (publickey).", Fault::Login, "ssh-copy-id -p 2222 me@box"),
            ("something new", Fault::Other, "something new"),
        ];
        for (said, fault, advice) in cases {
            let error = unreachable(&address, said.as_bytes());
            assert_eq!(error.to_string(), "cannot reach ssh://me@box:2222");
            let trouble = trouble(&error).unwrap();
            assert_eq!(trouble.fault, fault, "{said}");
            assert!(trouble.to_string().contains(advice), "{trouble}");
        }
        assert_eq!(trouble(&lost(&address, b"")).unwrap().fault, Fault::Lost);
        assert!(trouble(&Error::usage("x")).is_none());
    }
}
