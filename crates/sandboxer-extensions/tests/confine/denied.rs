//! What the filter refuses, each tried by somebody who has the capability for it.

use std::os::fd::AsRawFd;

use nix::libc::*;
use sandboxer_extensions::local::Isolation::{self, Standard, Strict};
use sandboxer_testkit::skip;

use crate::inside::{become_init, errno, filtered, forked};

pub const CASES: &[crate::Case] = &[
    ("what_no_build_needs_is_refused", what_no_build_needs_is_refused),
    ("strict_refuses_more", strict_refuses_more),
    ("what_has_a_substitute_seems_to_be_missing", what_has_a_substitute_seems_to_be_missing),
    ("no_namespace_can_be_made", no_namespace_can_be_made),
    ("nothing_is_typed_into_a_terminal", nothing_is_typed_into_a_terminal),
    ("no_device_can_be_made", no_device_can_be_made),
    ("only_four_families_of_sockets_are_known", only_four_families_of_sockets_are_known),
    ("no_raw_socket_can_be_had", no_raw_socket_can_be_had),
    ("odd_protocols_are_for_standard_only", odd_protocols_are_for_standard_only),
    ("what_runs_cannot_be_traced", what_runs_cannot_be_traced),
    ("no_strange_personality_can_be_taken", no_strange_personality_can_be_taken),
    ("other_interfaces_of_the_kernel_are_no_way_round", other_interfaces_of_the_kernel_are_no_way_round),
];

/// Leads nowhere, is no descriptor and no number of anything.
const BAD: [u64; 5] = [u64::MAX; 5];

/// `vhangup` is not here, as it has no argument that could be wrong.
const REFUSED: &[c_long] = &[
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
    467,
    SYS_mount_setattr,
    SYS_setns,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_open_by_handle_at,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_nfsservctl,
    SYS_lookup_dcookie,
    #[cfg(target_arch = "x86_64")]
    SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    SYS_uselib,
];

const REFUSED_BY_STRICT: &[c_long] = &[
    SYS_ptrace,
    SYS_mbind,
    SYS_move_pages,
    SYS_migrate_pages,
    SYS_set_mempolicy,
    SYS_set_mempolicy_home_node,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_remap_file_pages,
    SYS_vmsplice,
];

const MISSING: &[c_long] = &[SYS_clone3, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register];

fn answers(calls: &[c_long]) -> Vec<(c_long, i32)> {
    calls.iter().map(|call| (*call, errno(*call, BAD))).collect()
}

fn all(calls: &[c_long], errno: i32) -> Vec<(c_long, i32)> {
    calls.iter().map(|call| (*call, errno)).collect()
}

/// Some are refused by the kernel as well, to those who are not the host's root. Most must not be, or this would show nothing.
fn refuses(isolation: Isolation, calls: &[c_long], expected: i32) {
    become_init();
    let before = answers(calls);
    sandboxer_extensions::local::confine::seccomp::filter(isolation).unwrap().install().unwrap();
    assert_eq!(answers(calls), all(calls, expected));
    let changed = before.iter().filter(|(_, before)| *before != expected).count();
    assert!(
        changed * 2 > calls.len(),
        "only {changed} of {} calls are answered otherwise than before: {before:?}",
        calls.len()
    );
}

fn what_no_build_needs_is_refused() {
    refuses(Standard, REFUSED, EPERM);
    assert_eq!(errno(SYS_vhangup, [0; 5]), EPERM);
}

fn strict_refuses_more() {
    refuses(Strict, &[REFUSED, REFUSED_BY_STRICT].concat(), EPERM);
    assert_eq!(errno(SYS_memfd_secret, BAD), ENOSYS);
}

fn what_has_a_substitute_seems_to_be_missing() {
    refuses(Standard, MISSING, ENOSYS);
    assert_ne!(answers(REFUSED_BY_STRICT), all(REFUSED_BY_STRICT, EPERM));
}

fn no_namespace_can_be_made() {
    filtered(Standard);
    let flags =
        [CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET];
    for flag in flags.map(|flag| flag as u64) {
        // Bits above the 32nd are not looked at by the kernel.
        for flag in [flag, flag | 1 << 32] {
            assert_eq!(errno(SYS_clone, [flag | SIGCHLD as u64, 0, 0, 0, 0]), EPERM, "clone {flag:x}");
            assert_eq!(errno(SYS_unshare, [flag, 0, 0, 0, 0]), EPERM, "unshare {flag:x}");
        }
    }
    const CLONE_NEWTIME: u64 = 0x80;
    assert_eq!(errno(SYS_unshare, [CLONE_NEWTIME, 0, 0, 0, 0]), EPERM);
    assert_eq!(errno(SYS_unshare, [(CLONE_FILES | CLONE_FS) as u64, 0, 0, 0, 0]), 0);
}

fn nothing_is_typed_into_a_terminal() {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let slave = terminal.slave.as_raw_fd() as u64;
    let letter = b'x';
    filtered(Standard);
    for request in [0x5412, 0x541c, 0x5423] {
        for high in [0, 1 << 32, 0xffff_ffff << 32] {
            let arguments = [slave, request | high, (&raw const letter) as u64, 0, 0];
            assert_eq!(errno(SYS_ioctl, arguments), EPERM, "{request:x} {high:x}");
        }
    }
}

/// The node that an overlay takes for a deleted file is made by anybody, by `mknod` and by a rename.
fn no_device_can_be_made() {
    let temp = tempfile::tempdir().unwrap();
    std::env::set_current_dir(&temp).unwrap();
    std::fs::write("there", "").unwrap();
    filtered(Standard);
    let here = AT_FDCWD as u64;
    let name = |text: &std::ffi::CStr| text.as_ptr() as u64;
    for kind in [S_IFCHR, S_IFBLK].map(u64::from) {
        assert_eq!(errno(SYS_mknodat, [here, name(c"node"), kind | 0o600, 0, 0]), EPERM);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(errno(SYS_mknod, [name(c"node"), kind | 0o600, 0, 0, 0]), EPERM);
    }
    let whiteout = u64::from(RENAME_WHITEOUT);
    assert_eq!(errno(SYS_renameat2, [here, name(c"there"), here, name(c"away"), whiteout]), EPERM);
    assert_eq!(errno(SYS_renameat2, [here, name(c"there"), here, name(c"away"), 0]), 0);
    for kind in [S_IFIFO, S_IFREG, S_IFSOCK] {
        let made = format!("{kind:o}\0");
        assert_eq!(errno(SYS_mknodat, [here, made.as_ptr() as u64, (kind | 0o600).into(), 0, 0]), 0);
    }
}

fn socket(family: c_int, kind: c_int, protocol: c_int) -> i32 {
    errno(SYS_socket, [family as u64, kind as u64, protocol as u64, 0, 0])
}

fn only_four_families_of_sockets_are_known() {
    filtered(Standard);
    let known = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];
    for family in (0..64).filter(|family| !known.contains(family)) {
        assert_eq!(socket(family, SOCK_DGRAM, 0), EAFNOSUPPORT, "family {family}");
    }
    assert_eq!(errno(SYS_socketpair, [AF_TIPC as u64, SOCK_STREAM as u64, 0, 0, 0]), EAFNOSUPPORT);
    const AUDIT: c_int = 9;
    for protocol in [NETLINK_SOCK_DIAG, AUDIT, NETLINK_NETFILTER, NETLINK_KOBJECT_UEVENT, NETLINK_CRYPTO] {
        assert_eq!(socket(AF_NETLINK, SOCK_RAW, protocol), EPERM, "netlink {protocol}");
    }
}

/// In a network of its own this user is allowed to; the kernel takes the last kind for a family of its own.
fn no_raw_socket_can_be_had() {
    become_init();
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    assert_eq!(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), 0);
    sandboxer_extensions::local::confine::seccomp::filter(Standard).unwrap().install().unwrap();
    for kind in [SOCK_RAW, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 10, SOCK_SEQPACKET] {
        assert_eq!(socket(AF_INET, kind, IPPROTO_ICMP), EPERM, "kind {kind:x}");
        assert_eq!(socket(AF_INET6, kind, IPPROTO_ICMPV6), EPERM, "kind {kind:x}");
    }
}

fn odd_protocols_are_for_standard_only() {
    let with = |isolation| {
        forked(|| {
            filtered(isolation);
            socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE)
        })
    };
    assert_eq!(WEXITSTATUS(with(Strict)), EPERM);
    assert_ne!(WEXITSTATUS(with(Standard)), EPERM);
}

fn what_runs_cannot_be_traced() {
    filtered(Standard);
    let parent = std::process::id().into();
    let status = forked(|| {
        let refused =
            [PTRACE_ATTACH, PTRACE_SEIZE].map(|request| errno(SYS_ptrace, [request.into(), parent, 0, 0, 0]));
        let asked = errno(SYS_ptrace, [PTRACE_TRACEME.into(), 0, 0, 0, 0]);
        i32::from((refused, asked) != ([EPERM; 2], 0))
    });
    assert_eq!(status, 0);
}

fn no_strange_personality_can_be_taken() {
    filtered(Standard);
    for value in
        [READ_IMPLIES_EXEC, MMAP_PAGE_ZERO, ADDR_COMPAT_LAYOUT, ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC]
    {
        assert_eq!(errno(SYS_personality, [value as u64, 0, 0, 0, 0]), EPERM, "{value:x}");
    }
    for value in [0xffff_ffff, 0, ADDR_NO_RANDOMIZE as u64] {
        assert_eq!(errno(SYS_personality, [value, 0, 0, 0, 0]), 0, "{value:x}");
    }
}

#[cfg(target_arch = "x86_64")]
fn other_interfaces_of_the_kernel_are_no_way_round() {
    use std::arch::asm;
    // `getpid` of the 32-bit interface.
    let old = || {
        let mut answer: i32 = 20;
        // SAFETY: the call has no arguments and gives a number.
        unsafe {
            asm!("int 0x80", inout("eax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        i32::from(answer <= 0)
    };
    let before = forked(old);
    filtered(Standard);
    const X32_BIT: c_long = 0x4000_0000;
    assert_eq!(errno(X32_BIT | SYS_getpid, [0; 5]), ENOSYS);
    if before != 0 {
        return skip("this kernel has no 32-bit interface");
    }
    let after = forked(old);
    assert!(WIFSIGNALED(after) && WTERMSIG(after) == SIGSYS, "{after:x}");
}

#[cfg(not(target_arch = "x86_64"))]
fn other_interfaces_of_the_kernel_are_no_way_round() {
    skip("only x86-64 lets a 64-bit program make calls of another interface");
}
