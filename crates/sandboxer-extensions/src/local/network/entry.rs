//! One entry of `--allow-host`, as it is typed, and what to type instead where it makes no sense.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sandboxer_core::{Error, Result};

use super::rules::{Pattern, Ports, Rule, network_of};
use super::target::{Name, parse_port};

/// What is wrong with an entry, and what to type instead.
struct Wrong {
    what: String,
    hint: String,
}

type Parsed<T> = std::result::Result<T, Wrong>;

const EXAMPLES: &str = "such as api.example.com:443, *.example.com, 10.0.0.5:5432 or '[fd00::/8]:443'";

pub(super) fn parse(typed: &str) -> Result<Rule> {
    match parse_parts(typed) {
        Ok((pattern, ports)) => Ok(Rule { typed: typed.to_owned(), pattern, ports }),
        Err(Wrong { what, hint }) => Err(Error::Usage {
            message: format!("cannot allow the host {typed:?}: {what}"),
            hint: Some(hint),
        }),
    }
}

fn parse_parts(typed: &str) -> Parsed<(Pattern, Ports)> {
    refuse_other_things(typed)?;
    let (host, port) = split(typed)?;
    let ports = parse_ports(port)?;
    let pattern = match host {
        Part::Bracketed(text) => parse_network::<Ipv6Addr>(text)?,
        Part::Plain(text) if text.contains('/') || text.parse::<Ipv4Addr>().is_ok() => {
            parse_network::<Ipv4Addr>(text)?
        }
        Part::Plain(text) => parse_name(text)?,
    };
    Ok((pattern, ports))
}

/// What people are likely to type and mean something by.
fn refuse_other_things(typed: &str) -> Parsed<()> {
    if typed == "*" || typed.starts_with("*:") {
        return wrong("that is every host", "--network host allows the whole network");
    }
    if !typed.is_ascii() {
        return wrong("it is not ASCII", "write the name in punycode, as in xn--bcher-kva.example");
    }
    if let Some((scheme, rest)) = typed.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let port = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
        let hint = if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        return wrong("a URL is more than a host", &format!("{hint:?} without the rest"));
    }
    Ok(())
}

enum Part<'a> {
    Plain(&'a str),
    Bracketed(&'a str),
}

fn split(typed: &str) -> Parsed<(Part<'_>, Option<&str>)> {
    if let Some(rest) = typed.strip_prefix('[') {
        let Some((address, rest)) = rest.split_once(']') else {
            return wrong("a bracket is not closed", EXAMPLES);
        };
        let port = match rest.strip_prefix(':') {
            _ if rest.is_empty() => None,
            Some(port) => Some(port),
            None => return wrong("something follows the bracket that is no port", EXAMPLES),
        };
        return Ok((Part::Bracketed(address), port));
    }
    match typed.split_once(':') {
        Some((_, rest)) if rest.contains(':') => {
            wrong("an IPv6 address has to be in brackets", "'[fd00::1]:443' or '[fd00::/8]:443'")
        }
        Some((host, port)) => Ok((Part::Plain(host), Some(port))),
        None => Ok((Part::Plain(typed), None)),
    }
}

fn parse_ports(port: Option<&str>) -> Parsed<Ports> {
    match port {
        None => Ok(Ports::Web),
        Some("*") => Ok(Ports::Any),
        Some(port) => match parse_port(port) {
            Ok(port) => Ok(Ports::One(port)),
            Err(what) => wrong(what, "HOST:443, or HOST:* for every port"),
        },
    }
}

/// An address or a network; what is written in the other family's form is wrong.
fn parse_network<A: std::str::FromStr + Into<IpAddr>>(text: &str) -> Parsed<Pattern> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<A>() else {
        return wrong("that is no address", EXAMPLES);
    };
    let address = address.into();
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits.map(parse_bits) {
        None => longest,
        Some(Some(bits)) if bits <= longest => bits,
        Some(_) => return wrong(&format!("a network has 0 to {longest} bits"), EXAMPLES),
    };
    check_rest(address, bits)?;
    Ok(canonical(address, bits))
}

fn parse_bits(text: &str) -> Option<u8> {
    (text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// `10.0.0.5/8` may be meant as the one or as the other.
fn check_rest(address: IpAddr, bits: u8) -> Parsed<()> {
    match network_of(address, bits) {
        Some(network) if network != address => {
            wrong("it has more bits than its network", &format!("{network}/{bits} or {address}"))
        }
        _ => Ok(()),
    }
}

/// Targets have IPv4 addresses in their own form, so rules have too.
fn canonical(address: IpAddr, bits: u8) -> Pattern {
    match address.to_canonical() {
        IpAddr::V4(v4) if address.is_ipv6() && bits >= 96 => Pattern::Network(v4.into(), bits - 96),
        _ => Pattern::Network(address, bits),
    }
}

fn parse_name(text: &str) -> Parsed<Pattern> {
    let (below, name) = match text.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if name.contains('*') {
        return wrong("a wildcard stands for the first part of a name only", "*.example.com");
    }
    match Name::parse(name) {
        Ok(name) if below => Ok(Pattern::Below(name)),
        Ok(name) => Ok(Pattern::Name(name)),
        Err(what) => wrong(what, EXAMPLES),
    }
}

fn wrong<T>(what: &str, hint: &str) -> Parsed<T> {
    Err(Wrong { what: what.to_owned(), hint: hint.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(typed: &str) -> (String, String) {
        match parse(typed) {
            Err(Error::Usage { message, hint: Some(hint) }) => (message, hint),
            other => panic!("{typed:?}: {other:?}"),
        }
    }

    #[test]
    fn an_entry_keeps_the_words_it_was_typed_in() {
        let rule = parse("*.Crates.IO:443").unwrap();
        assert_eq!(rule.typed, "*.Crates.IO:443");
        assert_eq!(rule.pattern, Pattern::Below(Name::parse("crates.io").unwrap()));
        assert_eq!(rule.ports, Ports::One(443));
    }

    #[test]
    fn a_mapped_network_is_the_one_it_stands_for() {
        let ten = Pattern::Network([10, 0, 0, 0].into(), 8);
        assert_eq!(parse("[::ffff:10.0.0.0/104]").unwrap().pattern, ten);
        assert_eq!(parse("10.0.0.0/8").unwrap().pattern, ten);
        let wider = parse("[::/0]").unwrap().pattern;
        assert_eq!(wider, Pattern::Network(Ipv6Addr::UNSPECIFIED.into(), 0));
    }

    #[test]
    fn what_to_type_instead_is_said() {
        for (typed, hint) in [
            ("*", "--network host"),
            ("*:443", "--network host"),
            ("bücher.example", "punycode"),
            ("https://api.example.com/v1", "\"api.example.com:443\""),
            ("http://api.example.com", "\"api.example.com:80\""),
            ("https://api.example.com:8443/", "\"api.example.com:8443\""),
            ("fd00::1", "[fd00::1]:443"),
            ("10.0.0.5/8", "10.0.0.0/8 or 10.0.0.5"),
            ("a.*.example", "*.example.com"),
            ("**.example", "*.example.com"),
            ("example.com:https", "HOST:443"),
            ("127.1", "such as"),
        ] {
            let (message, hinted) = refusal(typed);
            assert!(hinted.contains(hint), "{typed}: {hinted}");
            assert!(message.contains(&format!("{typed:?}")), "{message}");
        }
    }

    #[test]
    fn entries_that_make_no_sense_are_refused() {
        for typed in [
            "",
            ":",
            ":443",
            "a b",
            "a\n",
            "a\0",
            "a:0",
            "a:65536",
            "a:-1",
            "a,b",
            "u@a",
            "[::1",
            "[::1]x",
            "[a]",
            "[10.0.0.1]",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "[fd00::/129]",
            "a/8",
            "0x7f.1",
            "2130706433",
            "*.",
            "*.*",
            "\u{1b}[2J",
        ] {
            let (message, _) = refusal(typed);
            assert!(!message.contains(|c: char| c.is_control()), "{message:?}");
        }
    }
}
