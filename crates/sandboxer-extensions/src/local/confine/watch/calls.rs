//! The calls that are watched, and where their arguments are.

use ::seccompiler::SeccompCmpOp::MaskedEq;
use nix::libc::*;

use crate::local::confine::seccomp::Rule;

/// The table of libc does not have it for all architectures.
#[cfg(target_arch = "x86_64")]
const SYS_RENAMEAT: c_long = SYS_renameat;
#[cfg(target_arch = "aarch64")]
const SYS_RENAMEAT: c_long = 38;

/// Any of these makes opening a file a write. The first two are one value each and not bits, but none means both.
const WRITING: [c_int; 4] = [O_WRONLY, O_RDWR, O_CREAT, O_TRUNC];

/// What a call does with a path, if it is let.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// Makes it. It must not be there yet, or nothing is written.
    Make,
    /// Changes or removes it. It must be there.
    Change,
    /// Makes it, or changes it if it is there.
    Put,
}

/// Where the flags of an `open` are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flags {
    /// There are none: the call says by itself what it does.
    None,
    /// An argument.
    In(usize),
    /// The first word of what an argument points to.
    Behind(usize),
}

/// An argument that is a path, and the one that is the directory it starts from, if that is not always the current one.
pub(super) type Named = (Option<usize>, usize, Intent);

/// A call that is watched.
pub(super) struct Watched {
    call: c_long,
    pub(super) flags: Flags,
    pub(super) paths: &'static [Named],
}

const fn watched(call: c_long, paths: &'static [Named]) -> Watched {
    Watched { call, flags: Flags::None, paths }
}

const WATCHED: &[Watched] = &[
    Watched { call: SYS_openat, flags: Flags::In(2), paths: &[(Some(0), 1, Intent::Put)] },
    Watched { call: SYS_openat2, flags: Flags::Behind(2), paths: &[(Some(0), 1, Intent::Put)] },
    watched(SYS_mkdirat, &[(Some(0), 1, Intent::Make)]),
    watched(SYS_mknodat, &[(Some(0), 1, Intent::Make)]),
    watched(SYS_symlinkat, &[(Some(1), 2, Intent::Make)]),
    watched(SYS_linkat, &[(Some(2), 3, Intent::Make)]),
    watched(SYS_unlinkat, &[(Some(0), 1, Intent::Change)]),
    watched(SYS_truncate, &[(None, 0, Intent::Change)]),
    watched(SYS_RENAMEAT, &[(Some(0), 1, Intent::Change), (Some(2), 3, Intent::Put)]),
    watched(SYS_renameat2, &[(Some(0), 1, Intent::Change), (Some(2), 3, Intent::Put)]),
];

/// What newer architectures do without.
#[cfg(target_arch = "x86_64")]
const OLD: &[Watched] = &[
    Watched { call: SYS_open, flags: Flags::In(1), paths: &[(None, 0, Intent::Put)] },
    watched(SYS_creat, &[(None, 0, Intent::Put)]),
    watched(SYS_mkdir, &[(None, 0, Intent::Make)]),
    watched(SYS_mknod, &[(None, 0, Intent::Make)]),
    watched(SYS_symlink, &[(None, 1, Intent::Make)]),
    watched(SYS_link, &[(None, 1, Intent::Make)]),
    watched(SYS_unlink, &[(None, 0, Intent::Change)]),
    watched(SYS_rmdir, &[(None, 0, Intent::Change)]),
    watched(SYS_rename, &[(None, 0, Intent::Change), (None, 1, Intent::Put)]),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[Watched] = &[];

/// What is known of a call.
pub(super) fn find(call: c_long) -> Option<&'static Watched> {
    WATCHED.iter().chain(OLD).find(|watched| watched.call == call)
}

/// Notifies of each watched call, of an `open` only if it can write. Where the flags are in memory nobody can know before.
pub(super) fn rules() -> Vec<Rule> {
    WATCHED.iter().chain(OLD).flat_map(rules_of).collect()
}

fn rules_of(watched: &Watched) -> Vec<Rule> {
    let rule = |tests| Rule { call: watched.call, tests, answer: SECCOMP_RET_USER_NOTIF };
    match watched.flags {
        Flags::In(argument) => {
            let has = |flag: c_int| vec![(argument as u8, MaskedEq(flag as u64), flag as u64)];
            WRITING.map(|flag| rule(has(flag))).into()
        }
        Flags::None | Flags::Behind(_) => vec![rule(Vec::new())],
    }
}

/// What an `open` with these flags does, if it writes.
pub(super) fn intent(flags: u64) -> Option<Intent> {
    let has = |flag: c_int| flags & flag as u64 != 0;
    let writes = [O_WRONLY, O_RDWR, O_TRUNC].into_iter().any(has);
    match (has(O_CREAT), writes) {
        (true, true) if !has(O_EXCL) => Some(Intent::Put),
        (true, _) => Some(Intent::Make),
        (false, true) => Some(Intent::Change),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_open_does_is_in_its_flags() {
        let of = |flags: c_int| intent(flags as u64);
        assert_eq!(of(O_RDONLY | O_CLOEXEC | O_DIRECTORY), None);
        assert_eq!(of(O_WRONLY), Some(Intent::Change));
        assert_eq!(of(O_RDWR | O_TMPFILE), Some(Intent::Change));
        assert_eq!(of(O_WRONLY | O_CREAT | O_TRUNC), Some(Intent::Put));
        assert_eq!(of(O_RDWR | O_CREAT | O_EXCL), Some(Intent::Make));
        // Lock files are opened like this: if they are there, nothing is written.
        assert_eq!(of(O_RDONLY | O_CREAT), Some(Intent::Make));
    }

    #[test]
    fn every_watched_call_is_found_again() {
        for rule in rules() {
            assert_eq!(find(rule.call).map(|watched| watched.call), Some(rule.call));
        }
        assert!(find(SYS_read).is_none());
    }
}
