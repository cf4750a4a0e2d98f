//! Which addresses are not simply somewhere in the internet.
//!
//! A name that is allowed may resolve to anything its owner likes. An address with a meaning on this machine or in its network is
//! therefore only connected to when a rule names it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address needs a rule that names it, in a word; `None` for an address of the public internet.
pub(super) fn special(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [169, 254, 169, 254] => Some("a cloud's metadata service"),
        [0, ..] => Some("unspecified"),
        [127, ..] => Some("loopback"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("private"),
        [169, 254, ..] => Some("link-local"),
        [100, 64..=127, ..] => Some("shared by customers of a carrier"),
        [192, 0, 0, _] => Some("reserved for protocols"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some("for documentation"),
        [192, 88, 99, _] => Some("a 6to4 relay"),
        [198, 18..=19, ..] => Some("for benchmarks"),
        [255, 255, 255, 255] => Some("broadcast"),
        [224..=239, ..] => Some("multicast"),
        [240..=255, ..] => Some("reserved"),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Some("a cloud's metadata service"),
        [0xfc00..=0xfdff, ..] => Some("unique-local"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfec0..=0xfeff, ..] => Some("site-local"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some("for documentation"),
        [0x2001, 2, 0, ..] => Some("for benchmarks"),
        [0x2001, 0x10..=0x2f, ..] => Some("reserved for protocols"),
        [0x100, 0, 0, 0, ..] => Some("for discarding"),
        // A network of one's own behind a translator has any IPv4 address in it, at a place that only its owner knows.
        [0x64, 0xff9b, 1, ..] => Some("translated locally"),
        segments => {
            let inside = embedded(address).into_iter().flatten().find_map(special_v4);
            // Nothing else than this has been given to anybody.
            let public = matches!(segments, [0x2000..=0x3fff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..]);
            inside.or((!public).then_some("reserved"))
        }
    }
}

/// The IPv4 addresses that a packet to this address may be delivered to by a translator or through a tunnel.
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        // The compatible form, the form of SIIT, and the NAT64 prefix.
        [0, 0, 0, 0, 0, 0, h, l] | [0, 0, 0, 0, 0xffff, 0, h, l] | [0x64, 0xff9b, 0, 0, 0, 0, h, l] => {
            [v4(h, l), None]
        }
        // 6to4.
        [0x2002, h, l, ..] => [v4(h, l), None],
        // Teredo: its server in the clear, its client with every bit turned over.
        [0x2001, 0, sh, sl, _, _, ch, cl] => [v4(sh, sl), v4(!ch, !cl)],
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, h, l] => [v4(h, l), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(address: &str) -> Option<&'static str> {
        special(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_need_no_rule_of_their_own() {
        for address in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "169.253.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(why(address), None, "{address}");
        }
    }

    #[test]
    fn addresses_with_a_meaning_here_are_special() {
        for (address, word) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.0.0.5", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("127.0.0.1", "loopback"),
            ("127.255.0.1", "loopback"),
            ("169.254.1.1", "link-local"),
            ("169.254.169.254", "metadata"),
            ("100.64.0.1", "carrier"),
            ("100.127.255.255", "carrier"),
            ("192.0.0.8", "protocols"),
            ("192.0.2.1", "documentation"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.1", "documentation"),
            ("198.18.0.1", "benchmarks"),
            ("198.19.255.255", "benchmarks"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("fd00::1", "unique-local"),
            ("fc00::1", "unique-local"),
            ("fd00:ec2::254", "metadata"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("2001:db8::1", "documentation"),
            ("3fff::1", "documentation"),
            ("2001:2::1", "benchmarks"),
            ("100::1", "discarding"),
            ("64:ff9b:1::808:808", "translated"),
            ("2001:20::1", "protocols"),
            ("::8.8.8.8", "reserved"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
        ] {
            assert!(why(address).is_some_and(|why| why.contains(word)), "{address}: {:?}", why(address));
        }
    }

    #[test]
    fn an_ipv4_address_is_found_inside_an_ipv6_address() {
        for address in [
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::1",
            "2001:0:808:808::80ff:fffe",
            "2001:0:7f00:1::1",
            "2606:4700::5efe:7f00:1",
        ] {
            assert_eq!(why(address), Some("loopback"), "{address}");
        }
        assert_eq!(why("64:ff9b::a9fe:a9fe"), Some("a cloud's metadata service"));
    }
}
