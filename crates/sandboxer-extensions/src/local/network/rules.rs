//! What may be connected to: the entries of `--allow-host`, parsed and asked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sandboxer_core::Result;

use super::address::special;
use super::decision::Decision;
use super::entry;
use super::target::{Host, Name, Target};

/// What may be connected to. Nothing at all, if there is no rule.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) typed: String,
    pub(super) pattern: Pattern,
    pub(super) ports: Ports,
}

/// Which hosts an entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Exactly this one.
    Name(Name),
    /// All below this one, without itself.
    Below(Name),
    /// Addresses that begin with the same bits.
    Network(IpAddr, u8),
}

/// Which ports an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// 80 and 443, where none is given.
    Web,
    /// This one.
    One(u16),
    /// All.
    Any,
}

impl Rules {
    /// The rules that these entries are. Each is a name (`api.example.com`), all names below one (`*.example.com`), an address, or a
    /// network in CIDR notation, with `:PORT`, with `:*` for every port, or without for 80 and 443.
    pub fn parse(entries: &[String]) -> Result<Self> {
        let rules = entries.iter().map(|entry| entry::parse(entry)).collect::<Result<_>>()?;
        Ok(Self { rules })
    }

    /// Whether that may be connected to. For a name it is only the first half of the answer: the addresses it resolves to are looked at
    /// one by one. What is refused here is not even resolved, so that no question to a name server carries anything out.
    pub fn decide(&self, target: &Target) -> Decision {
        let rule = match &target.host {
            Host::Name(name) => self.for_name(name, target.port),
            Host::Ip(address) => self.for_address(*address, target.port),
        };
        match rule {
            Some(rule) => yes(target, rule),
            None => no(target, self.why_not(target)),
        }
    }

    /// The second half: whether an address that `target` resolved to may be connected to. The error is the refusal.
    pub(super) fn check(&self, target: &Target, address: IpAddr) -> std::result::Result<(), Decision> {
        let Some(special) = special(address) else { return Ok(()) };
        let address = address.to_canonical();
        if self.for_address(address, target.port).is_some() || self.is_localhost(target, address) {
            return Ok(());
        }
        let reason = format!("it resolves to {address}, which is {special} and not named by any rule");
        let entry = Target { host: Host::Ip(address), port: target.port }.to_string();
        Err(Decision { address: Some(address), entry: Some(entry), ..no(target, reason) })
    }

    fn for_name(&self, name: &Name, port: u16) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.ports.have(port) && rule.pattern.has_name(name))
    }

    fn for_address(&self, address: IpAddr, port: u16) -> Option<&Rule> {
        let named =
            |rule: &&Rule| rule.pattern.has_address(address) || rule.is_localhost() && is_local(address);
        self.rules.iter().filter(|rule| rule.ports.have(port)).find(named)
    }

    /// Whether this is `localhost`, asked for and allowed by that name, and what it resolved to is that.
    fn is_localhost(&self, target: &Target, address: IpAddr) -> bool {
        let Host::Name(name) = &target.host else { return false };
        let rule = self.rules.iter().any(|rule| rule.is_localhost() && rule.ports.have(target.port));
        rule && name.as_str() == LOCALHOST && address.is_loopback()
    }

    fn why_not(&self, target: &Target) -> String {
        let other_port = self.rules.iter().any(|rule| match &target.host {
            Host::Name(name) => rule.pattern.has_name(name),
            Host::Ip(address) => rule.pattern.has_address(*address),
        });
        match &target.host {
            _ if other_port => "the rules name it with other ports only".to_owned(),
            Host::Name(_) => "no rule names it".to_owned(),
            Host::Ip(address) => match special(*address) {
                Some(special) => format!("no rule names this address, which is {special}"),
                None => "no rule names this address".to_owned(),
            },
        }
    }
}

const LOCALHOST: &str = "localhost";

/// The two addresses that are what everybody means by `localhost`.
fn is_local(address: IpAddr) -> bool {
    address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

impl Rule {
    fn is_localhost(&self) -> bool {
        matches!(&self.pattern, Pattern::Name(name) if name.as_str() == LOCALHOST)
    }
}

impl Pattern {
    fn has_name(&self, name: &Name) -> bool {
        match self {
            Self::Name(own) => own == name,
            // Both are valid names, so there is something before the dot.
            Self::Below(above) => {
                name.as_str().strip_suffix(above.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            Self::Network(..) => false,
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Network(network, bits) if network_of(address, *bits) == Some(*network))
            && matches!(self, Self::Network(network, _) if network.is_ipv4() == address.is_ipv4())
    }
}

/// The first bits of an address, the others zero. `None` if it has not as many.
pub(super) fn network_of(address: IpAddr, bits: u8) -> Option<IpAddr> {
    let bits = u32::from(bits);
    Some(match address {
        IpAddr::V4(address) => {
            let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
            (bits <= 32).then(|| Ipv4Addr::from(u32::from(address) & !rest))?.into()
        }
        IpAddr::V6(address) => {
            let rest = u128::MAX.checked_shr(bits).unwrap_or(0);
            (bits <= 128).then(|| Ipv6Addr::from(u128::from(address) & !rest))?.into()
        }
    })
}

impl Ports {
    fn have(self, port: u16) -> bool {
        match self {
            Self::Web => matches!(port, 80 | 443),
            Self::One(own) => own == port,
            Self::Any => true,
        }
    }
}

fn yes(target: &Target, rule: &Rule) -> Decision {
    let rule = Some(rule.typed.clone());
    Decision {
        allowed: true,
        reason: "a rule names it".to_owned(),
        rule,
        entry: None,
        ..no(target, String::new())
    }
}

fn no(target: &Target, reason: String) -> Decision {
    let Target { host, port } = target;
    let (host, entry) = (host.to_string(), Some(target.to_string()));
    Decision { host, port: *port, allowed: false, reason, rule: None, address: None, entry }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(entries: &[&str]) -> Rules {
        Rules::parse(&entries.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    }

    fn target(text: &str) -> Target {
        Target::parse(text, None).unwrap()
    }

    fn allows(entries: &[&str], text: &str) -> bool {
        rules(entries).decide(&target(text)).allowed
    }

    fn resolves(entries: &[&str], text: &str, address: &str) -> bool {
        rules(entries).check(&target(text), address.parse().unwrap()).is_ok()
    }

    #[test]
    fn without_a_rule_nothing_is_allowed() {
        assert!(!allows(&[], "example.com:443") && !allows(&[], "1.1.1.1:443"));
    }

    #[test]
    fn without_a_port_it_is_the_two_of_the_web() {
        for (port, allowed) in [(80, true), (443, true), (22, false), (8080, false)] {
            assert_eq!(allows(&["example.com"], &format!("example.com:{port}")), allowed, "{port}");
            assert_eq!(allows(&["10.0.0.5"], &format!("10.0.0.5:{port}")), allowed, "{port}");
        }
        assert!(allows(&["example.com:*"], "example.com:22"));
        assert!(!allows(&["example.com:443"], "example.com:80"));
    }

    #[test]
    fn a_name_is_only_itself() {
        assert!(allows(&["API.example.com.:443"], "api.Example.com:443"));
        for other in [
            "example.com:443",
            "x.api.example.com:443",
            "api.example.com.evil.org:443",
            "xapi.example.com:443",
        ] {
            assert!(!allows(&["api.example.com:443"], other), "{other}");
        }
    }

    #[test]
    fn a_wildcard_matches_one_label_or_more_but_not_none() {
        for (text, allowed) in [
            ("static.crates.io:443", true),
            ("a.b.crates.io:443", true),
            ("crates.io:443", false),
            ("evilcrates.io:443", false),
            ("crates.io.evil.org:443", false),
            ("static.crates.io:22", false),
        ] {
            assert_eq!(allows(&["*.crates.io"], text), allowed, "{text}");
        }
    }

    #[test]
    fn addresses_are_named_one_by_one_or_by_network() {
        for (entry, text, allowed) in [
            ("10.0.0.5:5432", "10.0.0.5:5432", true),
            ("10.0.0.5:5432", "10.0.0.6:5432", false),
            ("10.0.0.0/8:*", "10.255.0.1:1", true),
            ("10.0.0.0/8:*", "11.0.0.1:1", false),
            ("10.0.0.0/8:*", "[::ffff:10.0.0.1]:1", true),
            ("0.0.0.0/0:*", "1.2.3.4:1", true),
            ("0.0.0.0/0:*", "[2606::1]:1", false),
            ("[::/0]:*", "1.2.3.4:1", false),
            ("[::1]:8080", "[::1]:8080", true),
            ("[fd00::/8]:443", "[fd12:3::4]:443", true),
            ("[fd00::/8]:443", "[fe12:3::4]:443", false),
            ("[::ffff:10.0.0.0/104]:1", "10.1.2.3:1", true),
            ("[::/0]:*", "[2606::1]:1", true),
        ] {
            assert_eq!(allows(&[entry], text), allowed, "{entry} {text}");
        }
    }

    #[test]
    fn an_address_needs_a_rule_even_if_a_name_of_it_has_one() {
        assert!(!allows(&["example.com:*", "*.com:*"], "1.1.1.1:443"));
    }

    #[test]
    fn a_name_may_resolve_to_public_addresses_only() {
        assert!(resolves(&["example.com"], "example.com:443", "1.1.1.1"));
        for address in [
            "10.0.0.5",
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "::ffff:10.0.0.5",
            "64:ff9b::a00:5",
            "fd00::1",
        ] {
            assert!(!resolves(&["example.com"], "example.com:443", address), "{address}");
        }
    }

    #[test]
    fn a_name_may_resolve_to_an_address_that_is_named_with_that_port() {
        let entries = ["db.example.com:*", "10.0.0.0/8:5432"];
        assert!(resolves(&entries, "db.example.com:5432", "10.0.0.5"));
        assert!(resolves(&entries, "db.example.com:5432", "::ffff:10.0.0.5"));
        assert!(!resolves(&entries, "db.example.com:443", "10.0.0.5"));
        assert!(!resolves(&entries, "db.example.com:5432", "192.168.0.5"));
    }

    #[test]
    fn a_network_rule_does_not_allow_names() {
        assert!(!allows(&["0.0.0.0/0:*", "[::/0]:*"], "example.com:443"));
    }

    #[test]
    fn localhost_means_the_loopback_of_the_host_and_nothing_else_does() {
        let entries = ["localhost:3000", "*.localhost:*", "other.example:*"];
        assert!(
            resolves(&entries, "localhost:3000", "127.0.0.1") && resolves(&entries, "localhost:3000", "::1")
        );
        assert!(allows(&entries, "127.0.0.1:3000") && allows(&entries, "[::1]:3000"));
        assert!(!allows(&entries, "127.0.0.1:3001") && !allows(&entries, "127.0.0.2:3000"));
        assert!(!resolves(&entries, "localhost:3000", "10.0.0.1"));
        assert!(!resolves(&entries, "a.localhost:3001", "127.0.0.1"));
        assert!(!resolves(&entries, "other.example:3001", "127.0.0.1"));
    }

    #[test]
    fn a_decision_says_why_and_what_to_type() {
        let rules = rules(&["example.com:443"]);
        let yes = rules.decide(&target("example.com:443"));
        assert_eq!((yes.allowed, yes.rule.as_deref(), yes.entry), (true, Some("example.com:443"), None));
        let no = rules.decide(&target("example.com:22"));
        assert!(no.reason.contains("other ports") && no.entry.as_deref() == Some("example.com:22"));
        let no = rules.decide(&target("[fd00::1]:22"));
        assert!(no.reason.contains("unique-local") && no.entry.as_deref() == Some("[fd00::1]:22"));
        let no = rules.check(&target("example.com:443"), "10.0.0.1".parse().unwrap()).unwrap_err();
        assert!(no.reason.contains("10.0.0.1") && no.reason.contains("private"), "{}", no.reason);
        assert_eq!((no.host.as_str(), no.entry.as_deref()), ("example.com", Some("10.0.0.1:443")));
    }
}
