//! What somebody wants to connect to: a name or an address, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The name of a host in its one spelling: lower case, without a final dot, made of letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(String);

/// A host by its name or by its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// To be resolved.
    Name(Name),
    /// Written out. IPv4 addresses in IPv6's clothes are IPv4 here.
    Ip(IpAddr),
}

/// What somebody wants to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl Name {
    /// Checks a name. The error says what is wrong with it, as half a sentence.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err("a host name is missing");
        }
        if !name.is_ascii() {
            return Err("a host name has to be ASCII, in punycode (xn--...)");
        }
        if name.len() > 253 {
            return Err("a host name has at most 253 characters");
        }
        name.split('.').try_for_each(check_label)?;
        if name.rsplit('.').next().is_some_and(is_number) {
            return Err("this is a number and neither a name nor an address (four decimal numbers)");
        }
        Ok(Self(name.to_ascii_lowercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check_label(label: &str) -> Result<(), &'static str> {
    if label.is_empty() || label.len() > 63 {
        return Err("each part of a host name has 1 to 63 characters");
    }
    if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return Err("a host name is made of letters, digits, '-', '_' and dots");
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err("no part of a host name begins or ends with '-'");
    }
    Ok(())
}

/// Whether the C library would take a name that ends like this for an address: `127.1`, `0x7f.1` and `2130706433` are all 127.0.0.1.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl Host {
    /// A host as it is written in a request, without brackets.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self::from(IpAddr::V6(address)));
        }
        match text.strip_suffix('.').unwrap_or(text).parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self::from(IpAddr::V4(address))),
            Err(_) => Name::parse(text).map(Self::Name),
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Ip(address.to_canonical())
    }
}

impl Target {
    /// The `host:port` of a request. Without a port it is `default`, or else an error.
    pub fn parse(text: &str, default: Option<u16>) -> Result<Self, &'static str> {
        let (host, port) = split(text)?;
        let port = match (port, default) {
            (Some(port), _) => parse_port(port)?,
            (None, Some(default)) => default,
            (None, None) => return Err("the port is missing"),
        };
        Ok(Self { host, port })
    }
}

fn split(text: &str) -> Result<(Host, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("a bracket is not closed")?;
        let address: Ipv6Addr = address.parse().map_err(|_| "there is no IPv6 address in the brackets")?;
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':').ok_or("something follows the bracket that is no port")?),
        };
        return Ok((Host::from(IpAddr::V6(address)), port));
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => Err("an IPv6 address has to be in brackets"),
        Some((host, port)) => Ok((Host::parse(host)?, Some(port))),
        None => Ok((Host::parse(text)?, None)),
    }
}

/// A port in decimal digits and nothing else; 0 is none.
pub(super) fn parse_port(text: &str) -> Result<u16, &'static str> {
    let wrong = "a port is a number from 1 to 65535";
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong);
    }
    text.parse().ok().filter(|port| *port != 0).ok_or(wrong)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// As it is typed: an IPv6 address has brackets.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        for text in ["Api.Example.COM", "api.example.com.", "api.example.com"] {
            assert_eq!(Name::parse(text).unwrap().as_str(), "api.example.com");
        }
        for text in
            ["localhost", "_srv.x_y.example", "xn--bcher-kva.example", "1password.com", "a1", "0xab.example"]
        {
            assert!(Name::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn odd_names_are_none() {
        let long_label = "a".repeat(64);
        let long = "a.".repeat(127);
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "a@b",
            "a%b",
            "a\0",
            "a\r\nb",
            "bücher.example",
            "-a.b",
            "a-.b",
            "a:b",
            "[a]",
            "*",
            &long_label,
            &format!("{long}aa"),
        ] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn numbers_that_the_resolver_takes_for_addresses_are_no_names() {
        for text in [
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "0x7f.0x0.0x0.0x1",
            "1.2.3.4.5",
            "0x",
            "0X7F.1",
            "127.0.0.01",
            "256.0.0.1",
            "example.1",
            "1.",
            "017700000001",
        ] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
        assert_eq!(Host::parse("127.0.0.1"), Host::parse("127.0.0.1."));
    }

    #[test]
    fn a_target_is_a_host_and_a_port() {
        for (text, shown) in [
            ("Example.com:443", "example.com:443"),
            ("example.com", "example.com:80"),
            ("10.0.0.5:5432", "10.0.0.5:5432"),
            ("[::1]:8080", "[::1]:8080"),
            ("[::1]", "[::1]:80"),
            ("[::FFFF:127.0.0.1]:1", "127.0.0.1:1"),
        ] {
            assert_eq!(Target::parse(text, Some(80)).unwrap().to_string(), shown);
        }
        assert!(Target::parse("example.com", None).is_err());
    }

    #[test]
    fn odd_targets_are_none() {
        for text in [
            "",
            ":",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a:8 0",
            "a:80:80",
            "::1",
            "::1:80",
            "[::1",
            "[::1]80",
            "[::1]:",
            "[a]:80",
            "[127.0.0.1]:80",
            "[fe80::1%eth0]:80",
            "u@a:80",
            "a/b:80",
            "a:٣",
        ] {
            assert!(Target::parse(text, Some(80)).is_err(), "{text:?}");
        }
    }
}
