//! Where a host is: `ssh://[USER@]HOST[:PORT]`.
//!
//! Such an address comes from a file and ends up among the arguments of `ssh`, whose configuration may hand it to a shell (`ProxyCommand` with
//! `%h`). So it is of few characters, none of which means anything to either, and cannot begin like an option.

use std::fmt;

use sandboxer_core::{Error, Result};

/// Names in DNS are no longer than this.
const LONGEST: usize = 253;

/// A host, and as whom and where to knock. What is not said is for the user's own `ssh_config` to say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// As whom.
    pub user: Option<String>,
    /// A name, an alias of `ssh_config`, or an address; one of IPv6 is without its brackets.
    pub host: String,
    /// At which port.
    pub port: Option<u16>,
}

impl Address {
    /// Reads `ssh://[USER@]HOST[:PORT]`. An IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Result<Self> {
        let rest =
            text.strip_prefix("ssh://").ok_or_else(|| invalid(text, "it does not begin with ssh://"))?;
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(checked_user(user, place)?), place),
            None => (None, rest),
        };
        let (host, port) =
            split_port(place).ok_or_else(|| invalid(text, "its host and port are not HOST:PORT"))?;
        let port = port.map(|port| {
            parse_port(port).ok_or_else(|| invalid(text, "its port is no number from 1 to 65535"))
        });
        Ok(Self { user, host: checked_host(text, host)?, port: port.transpose()? })
    }

    /// What is given to `ssh` after `--`. The port is an option of its own.
    pub fn destination(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        format!("{user}{}", self.host)
    }

    /// What a person types after `ssh` to get there: `-p 2222 me@box`.
    pub fn typed(&self) -> String {
        let port = self.port.map(|port| format!("-p {port} ")).unwrap_or_default();
        format!("{port}{}", self.destination())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ssh://")?;
        self.user.as_ref().map_or(Ok(()), |user| write!(f, "{user}@"))?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn invalid(text: &str, why: &str) -> Error {
    Error::Usage {
        message: format!("{text:?} is no address of a host: {why}"),
        hint: Some("write ssh://[USER@]HOST[:PORT]; everything else goes into ~/.ssh/config under a `Host` of your own".to_owned()),
    }
}

/// What comes before the `@` may hold a password, so it is not repeated.
fn checked_user(user: &str, place: &str) -> Result<String> {
    let shown = format!("ssh://…@{place}");
    if user.contains(':') {
        return Err(invalid(&shown, "a password does not belong into an address; use a key or an agent"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if user.is_empty() || user.len() > LONGEST || user.starts_with('-') || !user.chars().all(plain) {
        return Err(invalid(&shown, "its user is not of letters, digits, dots, hyphens and underscores"));
    }
    Ok(user.to_owned())
}

/// The host, and the port where there is one.
fn split_port(place: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        // Only what has colons needs brackets; anything else in them is somebody being clever.
        host.contains(':').then_some(())?;
        return if rest.is_empty() {
            Some((host, None))
        } else {
            Some((host, Some(rest.strip_prefix(':')?)))
        };
    }
    match place.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None => Some((place, None)),
    }
}

fn parse_port(port: &str) -> Option<u16> {
    port.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    port.parse().ok().filter(|port| *port != 0)
}

fn checked_host(text: &str, host: &str) -> Result<String> {
    if host.contains(':') {
        let parsed: Option<std::net::Ipv6Addr> = host.parse().ok();
        return parsed.map(|_| host.to_owned()).ok_or_else(|| invalid(text, "its host is no IPv6 address"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = host.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins || host.len() > LONGEST || !host.chars().all(plain) {
        return Err(invalid(text, "its host is not of letters, digits, dots and hyphens"));
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "ssh://box",
            "ssh://me@box",
            "ssh://me@box.example.org:2222",
            "ssh://[::1]",
            "ssh://a@[fe80::1]:22",
            "ssh://10.0.0.7:22",
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        let address = Address::parse("ssh://me@[::1]:2222").unwrap();
        assert_eq!((address.destination().as_str(), address.port), ("me@::1", Some(2222)));
        assert_eq!(address.typed(), "-p 2222 me@::1");
        assert_eq!(Address::parse("ssh://me@box").unwrap().typed(), "me@box");
    }

    #[test]
    fn whatever_could_be_an_option_or_mean_something_to_a_shell_is_refused() {
        let hosts = [
            "",
            "-oProxyCommand=id",
            "-",
            ".",
            "_x",
            "a b",
            "a;id",
            "a$(id)",
            "a`id`",
            "a|b",
            "a&b",
            "a\nb",
            "a'b",
            "a\"b",
            "a\\b",
            "%h",
            "a%h",
            "a/b",
            "a/",
            "a?b",
            "a#b",
            "ä",
            "a,b",
            "a=b",
            "a*",
            "a\0b",
            "[a]",
            "[::1%eth0]",
            "[-o::1]",
            "::1",
            "a:1:2",
            "[::1]x",
            "[::1",
        ];
        for host in hosts {
            assert!(Address::parse(&format!("ssh://{host}")).is_err(), "{host:?} was accepted");
            assert!(Address::parse(&format!("ssh://me@{host}")).is_err(), "me@{host:?} was accepted");
        }
        for user in
            ["", "-oProxyCommand=id", "-l", "a;id", "a b", "$x", "%r", "a'b", "a\nb", "a@b", "ä", "a/b"]
        {
            assert!(Address::parse(&format!("ssh://{user}@box")).is_err(), "{user:?} was accepted");
        }
        for port in ["", "0", "65536", "-1", "+1", "x", "22x", " 22", "22/"] {
            assert!(Address::parse(&format!("ssh://box:{port}")).is_err(), "port {port:?} was accepted");
        }
        for text in
            ["box", "http://box", "ssh:box", "SSH://box", " ssh://box", &format!("ssh://{}", "a".repeat(254))]
        {
            assert!(Address::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        let error = Address::parse("ssh://me:hunter2@box").unwrap_err().to_string();
        assert!(error.contains("password") && !error.contains("hunter2"), "{error}");
    }
}
