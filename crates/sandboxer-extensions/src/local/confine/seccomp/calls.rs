//! The calls that are refused whatever their arguments are.

use nix::libc::*;

use super::Case;

/// `open_tree_attr`, which the table of libc does not have. From 424 on numbers are the same on all architectures.
const SYS_OPEN_TREE_ATTR: c_long = 467;

/// What changes the tree of mounts. Without a capability the kernel refuses most of them as well; their parsers of options are
/// what is kept out of reach here.
const MOUNTS: &[c_long] = &[
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
    SYS_OPEN_TREE_ATTR,
    SYS_mount_setattr,
];

/// What reaches into another process or namespace. A handle of a file is a way round every mount.
const OTHERS: &[c_long] = &[
    SYS_setns,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_open_by_handle_at,
];

/// What belongs to the whole machine. Key rings are here since no namespace keeps them apart.
const MACHINE: &[c_long] = &[
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
    SYS_nfsservctl,
    SYS_lookup_dcookie,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_vhangup,
];

/// What programs do without, and holes in the kernel were made with.
const SURFACE: &[c_long] = &[SYS_bpf, SYS_perf_event_open, SYS_userfaultfd];

/// What other architectures do not have.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &[c_long] = &[SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const ARCHITECTURE: &[c_long] = &[];

/// What some programs do use, though few of those that build or test anything.
const STRICT: &[c_long] = &[
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

/// Calls whose users have another way. The flags of `clone3` are in memory, where no filter sees them; its users go on with
/// `clone`. What is done through `io_uring` is not seen by a filter at all.
const MISSING: &[c_long] = &[SYS_clone3, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register];

const STRICT_MISSING: &[c_long] = &[SYS_memfd_secret];

/// What is answered with EPERM.
pub(super) fn refused(strict: bool) -> impl Iterator<Item = Case> {
    always([MOUNTS, OTHERS, MACHINE, SURFACE, ARCHITECTURE, if strict { STRICT } else { &[] }])
}

/// What is answered with ENOSYS.
pub(super) fn missing(strict: bool) -> impl Iterator<Item = Case> {
    always([MISSING, if strict { STRICT_MISSING } else { &[] }])
}

fn always<const N: usize>(lists: [&'static [c_long]; N]) -> impl Iterator<Item = Case> {
    lists.into_iter().flatten().map(|call| (*call, Vec::new()))
}
