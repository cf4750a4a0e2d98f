//! The calls that are refused for some of their arguments.

use ::seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use nix::libc::*;

use super::{Case, Test};

/// Which line discipline a terminal has: the others are drivers for modems and the like.
const TIOCSETD: u64 = 0x5423;
/// Types a character into a terminal, as if its user had.
const TIOCSTI: u64 = 0x5412;
/// Reads the screen of a console, and pastes into it.
const TIOCLINUX: u64 = 0x541c;

/// `personality` of an i686 kernel, which only `uname` says.
const PER_LINUX32: u64 = 0x0008;
/// Asks `personality` what is set.
const QUERY: u64 = 0xffff_ffff;

/// Every namespace there is a flag for.
const NAMESPACES: [c_int; 7] =
    [CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET];
/// The one that `unshare` alone knows: to `clone` the bit is part of a signal's number.
const CLONE_NEWTIME: c_int = 0x80;

/// What is answered with EPERM.
pub(super) fn refused(strict: bool) -> impl Iterator<Item = Case> {
    let rules = [namespaces(), nodes(), terminals(), sockets(), personalities()].into_iter().flatten();
    rules.chain(if strict { odd_protocols() } else { foreign_traces() })
}

fn namespaces() -> Vec<Case> {
    let cloned = NAMESPACES.map(|flag| (SYS_clone, has(0, flag)));
    let unshared = NAMESPACES.into_iter().chain([CLONE_NEWTIME]).map(|flag| (SYS_unshare, has(0, flag)));
    cloned.into_iter().chain(unshared).collect()
}

/// Device nodes, also the one that says to an overlay that a file is gone: everybody may make that, by two ways.
fn nodes() -> Vec<Case> {
    let kinds = [S_IFCHR, S_IFBLK].map(u64::from);
    let is_kind = |argument, kind| vec![(argument, MaskedEq(u64::from(S_IFMT)), kind)];
    let mut rules: Vec<Case> = kinds.iter().map(|kind| (SYS_mknodat, is_kind(2, *kind))).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(kinds.iter().map(|kind| (SYS_mknod, is_kind(1, *kind))));
    rules.push((SYS_renameat2, has(4, RENAME_WHITEOUT as c_int)));
    rules
}

fn terminals() -> Vec<Case> {
    [TIOCSTI, TIOCLINUX, TIOCSETD].map(|request| (SYS_ioctl, vec![(1, Eq, request)])).into()
}

/// Raw packets, by either of their names, and what of netlink is not about addresses and routes.
fn sockets() -> Vec<Case> {
    const SOCK_PACKET: c_int = 10;
    let kinds = [SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET];
    let rule = |kind: c_int| [is_internet(), vec![(1, MaskedEq(0xf), kind as u64)]].concat();
    let netlink = vec![(0, Eq, AF_NETLINK as u64), (2, Ne, NETLINK_ROUTE as u64)];
    kinds.map(|kind| (SYS_socket, rule(kind))).into_iter().chain([(SYS_socket, netlink)]).collect()
}

/// Transports that come as modules, which asking for them loads.
fn odd_protocols() -> Vec<Case> {
    let usual = [0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_MPTCP];
    let unusual = usual.map(|protocol| (2, Ne, protocol as u64));
    vec![(SYS_socket, [is_internet(), unusual.to_vec()].concat())]
}

/// Neither of the two families that are not the internet's; further families are nobody's business here.
fn is_internet() -> Vec<Test> {
    vec![(0, Ne, AF_UNIX as u64), (0, Ne, AF_NETLINK as u64)]
}

/// All families but four. The answer is that of a kernel which was built without them.
pub(super) fn unknown_families() -> impl Iterator<Item = Case> {
    let known = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];
    let is_none = known.map(|family| (0, Ne, family as u64)).to_vec();
    [(SYS_socket, is_none), (SYS_socketpair, vec![(0, Ne, AF_UNIX as u64)])].into_iter()
}

/// Personalities other than the plain ones: they make memory executable or map its first page.
fn personalities() -> Vec<Case> {
    let plain = [0, QUERY, PER_LINUX32, ADDR_NO_RANDOMIZE as u64];
    vec![(SYS_personality, plain.map(|value| (0, Ne, value)).to_vec())]
}

/// A debugger starts what it looks into: a child asks to be traced. What already runs is left alone. That costs the one program which
/// attaches to itself: LeakSanitizer, at the end of what was built with AddressSanitizer, wants `ASAN_OPTIONS=detect_leaks=0`.
fn foreign_traces() -> Vec<Case> {
    [PTRACE_ATTACH, PTRACE_SEIZE].map(|request| (SYS_ptrace, vec![(0, Eq, request as u64)])).into()
}

fn has(argument: u8, flag: c_int) -> Vec<Test> {
    let flag = u64::from(flag as u32);
    vec![(argument, MaskedEq(flag), flag)]
}
