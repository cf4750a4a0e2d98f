//! The kernel's ways out: system calls, devices, settings and privileges that a contained command does not get.

use crate::common::contained::{attempts, everybody, shell, works};

#[test]
fn mounts_and_namespaces_are_refused() {
    for user in everybody() {
        let code = "
attempt('mount', lambda: call('mount', b'none', b'/tmp', b'tmpfs', 0, None))
attempt('bind', lambda: call('mount', b'/etc', b'/tmp', None, 4096, None))
attempt('remount', lambda: call('mount', None, b'/', None, 32, None))
attempt('umount proc', lambda: call('umount2', b'/proc/sys', 0))
attempt('umount home', lambda: call('umount2', os.environ['HOME'].encode(), 2))
attempt('umount tmp', lambda: call('umount2', b'/tmp', 2))
attempt('pivot_root', lambda: call('pivot_root', b'/tmp', b'/tmp'))
attempt('chroot', lambda: call('chroot', b'/tmp'))
attempt('fsopen', lambda: call('fsopen', b'tmpfs', 0))
attempt('open_tree', lambda: call('open_tree', -100, b'/', 1))
attempt('move_mount', lambda: call('move_mount', -100, b'/tmp', -100, b'/var/tmp', 0))
attempt('mount_setattr', lambda: call('mount_setattr', -100, b'/', 0, bytes(32), 32))
for flag in [0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x80]:
    attempt('unshare %x' % flag, lambda: call('unshare', flag))
for kind in ['mnt', 'pid', 'net', 'user']:
    attempt('setns ' + kind, lambda: call('setns', os.open('/proc/self/ns/' + kind, os.O_RDONLY), 0))
attempt('open_by_handle_at', lambda: call('open_by_handle_at', -100, bytes(16), 0))";
        attempts(&user, &[], code).refused(25, &["EPERM"]);
    }
}

#[test]
fn no_namespace_is_made_by_clone_either() {
    for user in everybody() {
        let code = "
attempt('clone3', lambda: call('clone3', struct.pack('11Q', 0x10000000, *[0] * 10), 88))
number = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
def cloned(flags):
    pid = libc.syscall(ctypes.c_long(number), ctypes.c_long(flags | 17), None, None, None, None)
    if pid == 0: os._exit(0)
    if pid == -1: raise OSError(ctypes.get_errno(), 'clone')
    return os.waitpid(pid, 0)[1]
attempt('user', lambda: cloned(0x10000000))
attempt('mount', lambda: cloned(0x20000))
attempt('plain', lambda: cloned(0))";
        let outcome = attempts(&user, &[], code);
        outcome.came_to("clone3", "ENOSYS");
        outcome.came_to("user", "EPERM");
        outcome.came_to("mount", "EPERM");
        outcome.came_to("plain", "done 0");
    }
}

#[test]
fn what_belongs_to_the_machine_is_refused() {
    for user in everybody() {
        let code = "
attempt('keyctl', lambda: call('keyctl', 0, -3, 0, 0, 0))
attempt('add_key', lambda: call('add_key', b'user', b'canary', b'x', 1, -3))
attempt('request_key', lambda: call('request_key', b'user', b'canary', None, -3))
attempt('bpf', lambda: call('bpf', 0, bytes(128), 128))
attempt('perf', lambda: call('perf_event_open', bytes(128), 0, -1, -1, 0))
attempt('userfaultfd', lambda: call('userfaultfd', 1))
attempt('io_uring', lambda: call('io_uring_setup', 4, bytes(128)))
attempt('init_module', lambda: call('init_module', bytes(16), 16, b''))
attempt('kexec', lambda: call('kexec_load', 0, 0, None, 0))
attempt('reboot', lambda: call('reboot', 0xfee1dead, 0x28121969, 0x89abcdef, None))
attempt('sethostname', lambda: call('sethostname', b'owned', 5))
attempt('settimeofday', lambda: call('settimeofday', bytes(16), None))
attempt('clock_settime', lambda: call('clock_settime', 0, bytes(16)))
attempt('swapon', lambda: call('swapon', b'/tmp/x', 0))
attempt('syslog', lambda: call('syslog', 3, bytes(64), 64))
attempt('acct', lambda: call('acct', b'/tmp/x'))
attempt('quotactl', lambda: call('quotactl', 0, None, 0, None))
attempt('personality', lambda: call('personality', 0x0100000))";
        attempts(&user, &[], code).refused(18, &["EPERM", "ENOSYS"]);
    }
}

#[test]
fn other_processes_are_not_traced_or_read() {
    for user in everybody() {
        let code = "
attempt('attach 1', lambda: call('ptrace', 16, 1, 0, 0))
attempt('seize 1', lambda: call('ptrace', 0x4206, 1, 0, 0))
attempt('mem', lambda: open('/proc/1/mem', 'rb'))
attempt('maps', lambda: text('/proc/1/maps'))
attempt('environ', lambda: text('/proc/1/environ'))
attempt('auxv', lambda: open('/proc/1/auxv', 'rb').read())
attempt('root', lambda: os.listdir('/proc/1/root'))
attempt('cwd', lambda: os.listdir('/proc/1/cwd'))
attempt('exe', lambda: os.readlink('/proc/1/exe'))
attempt('fd', lambda: os.readlink('/proc/1/fd/3'))
attempt('ns', lambda: os.open('/proc/1/ns/mnt', os.O_RDONLY))
attempt('vm_readv', lambda: call('process_vm_readv', 1, bytes(16), 1, bytes(16), 1, 0))
attempt('getfd', lambda: call('pidfd_getfd', call('pidfd_open', 1, 0), 3, 0))
child = os.fork()
if child == 0:
    signal.pause()
attempt('child', lambda: call('ptrace', 16, child, 0, 0))
os.kill(child, 9)";
        attempts(&user, &[], code).refused(14, &["EPERM", "EACCES"]);
    }
}

#[test]
fn no_device_is_made_or_opened() {
    for user in everybody() {
        let code = "
import stat
for kind in ['char', 'block']:
    mode = {'char': stat.S_IFCHR, 'block': stat.S_IFBLK}[kind] | 0o666
    for at in ['/tmp', '.', os.environ['HOME'], '/dev/shm']:
        attempt(kind + ' ' + at, lambda: os.mknod(at + '/node', mode, os.makedev(1, 1)))
attempt('whiteout', lambda: os.mknod('white', stat.S_IFCHR, 0))
def whiteout():
    write('/tmp/a')
    call('renameat2', -100, b'/tmp/a', -100, b'/tmp/b', 4)
attempt('whiteout by rename', whiteout)";
        attempts(&user, &[], code).refused(10, &["EPERM"]);
        let names = "mem kmem port kmsg sda vda nvme0n1 loop0 loop-control fuse kvm net/tun vhost-net mapper/control input/event0 snapshot \
                     console tty0 tty1 hwrng rtc0 cpu_dma_latency userfaultfd";
        let ran = works(
            &user,
            &[],
            &format!("cd /dev; for d in {names}; do test -e $d && echo $d; done; ls -A /dev; ls -A /dev/pts"),
        );
        let seen: Vec<&str> = ran.lines().collect();
        let expected = [
            "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
            "urandom", "zero", "ptmx",
        ];
        assert_eq!(seen, expected);
    }
}

#[test]
fn kernel_settings_are_read_only() {
    for user in everybody() {
        let code = "
paths = ['/proc/sys/kernel/hostname', '/proc/sys/kernel/core_pattern', '/proc/sys/vm/overcommit_memory', '/proc/sys/net/ipv4/ip_forward',
    '/proc/sys/kernel/ns_last_pid', '/proc/sys/fs/binfmt_misc/register', '/proc/sysrq-trigger', '/proc/irq/default_smp_affinity',
    '/proc/self/uid_map', '/proc/self/setgroups', '/sys/kernel/uevent_helper', '/sys/power/state', '/sys/kernel/mm/ksm/run',
    '/sys/module/overlay/parameters/metacopy', '/proc/1/oom_score_adj', '/proc/self/oom_score_adj']
for path in filter(os.path.exists, paths):
    attempt(path, lambda: write(path, '-500' if 'oom' in path else '1'))";
        let outcome = attempts(&user, &[], code);
        assert!(outcome.0.len() > 6, "{:?}", outcome.0);
        let count = outcome.0.len();
        outcome.refused(count, &["EROFS", "EACCES", "EPERM"]);
    }
}

#[test]
fn cgroups_are_out_of_reach() {
    for user in everybody() {
        let code = "
import glob
paths = glob.glob('/sys/fs/cgroup/**/cgroup.procs', recursive=True) + glob.glob('/sys/fs/cgroup/**/release_agent', recursive=True)
paths += glob.glob('/sys/fs/cgroup/**/*.max', recursive=True) + glob.glob('/sys/fs/cgroup/**/notify_on_release', recursive=True)
for path in paths[:200]:
    attempt(path, lambda: write(path, str(os.getpid())))
for path in ['/sys/fs/cgroup/mine', '/sys/fs/cgroup/memory/mine', '/sys/fs/cgroup/unified/mine']:
    attempt(path, lambda: os.mkdir(path))";
        let outcome = attempts(&user, &[], code);
        let count = outcome.0.len();
        outcome.refused(count, &["EROFS", "EACCES", "EPERM", "ENOENT"]);
        let own = works(&user, &[], "cat /proc/self/cgroup");
        assert!(
            own.lines().all(|line| line.ends_with(":/")),
            "its own cgroup is the root of what it sees: {own}"
        );
    }
}

#[test]
fn nobody_becomes_somebody_else() {
    for user in everybody() {
        let ran =
            works(&user, &[], "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -s '\\t ' ' '");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(ran.contains(&format!("{set}: 0000000000000000")), "{ran}");
        }
        assert!(ran.contains("NoNewPrivs: 1") && ran.contains("Seccomp: 2"), "{ran}");
        let code = "
attempt('setgroups', lambda: os.setgroups([0]))
attempt('setuid', lambda: os.setuid(os.getuid() ^ 1))
attempt('setgid', lambda: os.setgid(os.getgid() ^ 1))
attempt('nice', lambda: os.nice(-5))";
        attempts(&user, &[], code).refused(4, &["EPERM", "EINVAL", "EACCES"]);
    }
}

#[test]
fn set_user_id_programs_gain_nothing() {
    for user in everybody() {
        let copied = "cp /bin/sleep mine && chmod 6755 mine && ./mine 0 && cp /usr/bin/id who && chmod 6755 who && ./who -u && id -u";
        let ran = works(&user, &[], copied);
        let ids: Vec<&str> = ran.lines().collect();
        assert_eq!(ids[0], ids[1]);
        let ran = shell(
            &user,
            &[],
            "su -c 'touch /etc/canary' </dev/null; mount -t tmpfs none /tmp; umount /tmp; touch /etc/canary; true",
        );
        assert!(!std::path::Path::new("/etc/canary").exists(), "{}", ran.stderr);
    }
}

#[test]
fn setuid_bits_and_capabilities_of_the_workspace_do_not_count() {
    for user in everybody() {
        let ran = works(
            &user,
            &[],
            "grep -h nosuid /proc/self/mounts | grep -c \" $PWD \"; findmnt -no OPTIONS -T . 2>/dev/null || true",
        );
        assert!(ran.starts_with('1'), "the workspace is mounted nosuid: {ran}");
        let all = works(&user, &[], "grep -v -e nosuid -e ' /dev/' -e ' /proc/' /proc/self/mounts | wc -l");
        assert_eq!(all.trim(), "0", "mounts without nosuid");
    }
}

#[test]
fn a_terminal_is_not_typed_into() {
    for user in everybody() {
        let code = "
import fcntl, termios, pty
own = pty.openpty()[1]
attempt('own', lambda: fcntl.ioctl(own, termios.TIOCSTI, b'x'))
attempt('upper bits', lambda: libc.ioctl(own, ctypes.c_ulong(0x100000000 | termios.TIOCSTI), b'x') and (_ for _ in ()).throw(OSError(ctypes.get_errno(), '')))
attempt('console', lambda: fcntl.ioctl(own, 0x541c, bytes([2])))
attempt('discipline', lambda: fcntl.ioctl(own, 0x5423, struct.pack('i', 3)))
attempt('tty', lambda: os.open('/dev/tty', os.O_RDWR))";
        attempts(&user, &[], code).refused(5, &["EPERM", "ENXIO", "EIO", "ENOTTY"]);
    }
}

#[test]
fn odd_sockets_do_not_exist() {
    for user in everybody() {
        let code = "
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt('packet datagram', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt('raw 6', lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58))
attempt('vsock', lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
attempt('alg', lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
attempt('bluetooth', lambda: socket.socket(31, socket.SOCK_RAW, 1))
attempt('can', lambda: socket.socket(29, socket.SOCK_RAW, 1))
attempt('key', lambda: socket.socket(15, socket.SOCK_RAW, 2))
attempt('netfilter', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
attempt('audit', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9))
attempt('uevent', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15))
attempt('sctp', lambda: socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132))";
        attempts(&user, &[], code).refused(13, &["EPERM", "EAFNOSUPPORT"]);
        let change = "
nl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
# RTM_NEWLINK: takes the loopback device down.
nl.send(struct.pack('=IHHII', 32, 16, 5, 1, 0) + struct.pack('=BBHiII', 0, 0, 0, 1, 0, 1))
answer = nl.recv(4096)
attempt('link', lambda: (_ for _ in ()).throw(OSError(-struct.unpack_from('=i', answer, 16)[0], '')))";
        attempts(&user, &[], change).refused(1, &["EPERM"]);
    }
}

#[test]
fn programs_of_other_instruction_sets_do_not_run() {
    if !cfg!(target_arch = "x86_64") {
        return sandboxer_testkit::skip("int 0x80 is of x86");
    }
    for user in everybody() {
        // getpid of i386: mov eax, 20; int 0x80; ret
        let code = "
import mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex('b814000000cd80c3'))
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
child = os.fork()
if child == 0:
    ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    os._exit(0)
attempt('i386', lambda: os.waitpid(child, 0)[1] & 127)
attempt('x32', lambda: libc.syscall(ctypes.c_long(0x40000000 + 39)) == -1 and (_ for _ in ()).throw(OSError(ctypes.get_errno(), '')))";
        let outcome = attempts(&user, &[], code);
        outcome.came_to("i386", "done 31");
        outcome.came_to("x32", "ENOSYS");
    }
}
