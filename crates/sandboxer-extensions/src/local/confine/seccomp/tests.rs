//! What the programs answer, by running them: a kernel that refuses the same by itself would hide a hole in a filter.

#![allow(
    clippy::unnecessary_cast,
    reason = "the types of these constants are not the same in every C library"
)]

use nix::libc::*;

use super::*;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
const I386: u32 = 0x4000_0003;

/// What a program sees of a call.
struct Call {
    number: u32,
    arch: u32,
    arguments: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.arch,
            offset => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                (if offset % 8 == 0 { argument } else { argument >> 32 }) as u32
            }
        }
    }
}

fn run(program: &BpfProgram, call: &Call) -> u32 {
    traced(program, call).0
}

fn steps(program: &BpfProgram, call: &Call) -> usize {
    traced(program, call).1
}

/// As much of the kernel's machine as these programs need: the answer, and how many instructions led to it.
fn traced(program: &BpfProgram, call: &Call) -> (u32, usize) {
    let (mut at, mut accumulator, mut steps) = (0, 0, 0);
    loop {
        steps += 1;
        let instruction = &program[at];
        at += 1;
        let jump = |is: bool| usize::from(if is { instruction.jt } else { instruction.jf });
        let k = instruction.k;
        match u32::from(instruction.code) {
            code if code == BPF_LD | BPF_W | BPF_ABS => accumulator = call.word(k),
            code if code == BPF_ALU | BPF_AND | BPF_K => accumulator &= k,
            code if code == BPF_JMP | BPF_JA => at += k as usize,
            code if code == BPF_JMP | BPF_JEQ | BPF_K => at += jump(accumulator == k),
            code if code == BPF_JMP | BPF_JGT | BPF_K => at += jump(accumulator > k),
            code if code == BPF_JMP | BPF_JGE | BPF_K => at += jump(accumulator >= k),
            code if code == BPF_RET | BPF_K => return (k, steps),
            code => panic!("unknown instruction {code:x}"),
        }
    }
}

fn errno(isolation: Isolation, number: c_long, arguments: &[u64]) -> i32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let call = Call { number: number as u32, arch: ARCH, arguments: all };
    let answer = run(&filter(isolation).unwrap().program, &call);
    if answer == SECCOMP_RET_ALLOW {
        return 0;
    }
    assert_eq!(answer & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ERRNO);
    (answer & 0xffff) as i32
}

fn standard(number: c_long, arguments: &[u64]) -> i32 {
    errno(Isolation::Standard, number, arguments)
}

#[test]
fn every_call_of_the_lists_is_refused_whatever_its_arguments_are() {
    for isolation in [Isolation::Standard, Isolation::Strict] {
        let strict = isolation == Isolation::Strict;
        for arguments in [[0; 6], [u64::MAX; 6]] {
            calls::refused(strict)
                .for_each(|(call, _)| assert_eq!(errno(isolation, call, &arguments), EPERM, "{call}"));
            calls::missing(strict)
                .for_each(|(call, _)| assert_eq!(errno(isolation, call, &arguments), ENOSYS, "{call}"));
        }
    }
}

#[test]
fn what_builds_do_all_the_time_is_allowed() {
    let calls = [
        SYS_read,
        SYS_write,
        SYS_openat,
        SYS_execve,
        SYS_mmap,
        SYS_futex,
        SYS_wait4,
        SYS_kill,
        SYS_prctl,
        SYS_seccomp,
    ];
    for isolation in [Isolation::Standard, Isolation::Strict] {
        for call in calls {
            assert_eq!(errno(isolation, call, &[u64::MAX; 6]), 0, "{call}");
        }
        let thread =
            CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS;
        assert_eq!(errno(isolation, SYS_clone, &[thread as u64]), 0);
        assert_eq!(errno(isolation, SYS_clone, &[(CLONE_VM | CLONE_VFORK | SIGCHLD) as u64]), 0);
        assert_eq!(errno(isolation, SYS_ioctl, &[0, TCGETS as u64]), 0);
        assert_eq!(errno(isolation, SYS_ioctl, &[0, TIOCSCTTY as u64]), 0);
    }
}

#[test]
fn the_upper_half_of_an_argument_hides_nothing() {
    for high in [0, 1 << 32, 0xffff_ffff << 32] {
        assert_eq!(standard(SYS_ioctl, &[0, TIOCSTI as u64 | high]), EPERM);
        assert_eq!(standard(SYS_clone, &[CLONE_NEWUSER as u64 | high]), EPERM);
        assert_eq!(standard(SYS_unshare, &[CLONE_NEWTIME as u64 | high]), EPERM);
        assert_eq!(standard(SYS_socket, &[AF_PACKET as u64 | high]), EAFNOSUPPORT);
        assert_eq!(standard(SYS_socket, &[AF_INET as u64 | high, SOCK_RAW as u64 | high]), EPERM);
        assert_eq!(standard(SYS_mknodat, &[0, 0, u64::from(S_IFBLK | 0o600) | high]), EPERM);
        assert_eq!(standard(SYS_renameat2, &[0, 0, 0, 0, u64::from(RENAME_WHITEOUT) | high]), EPERM);
        assert_eq!(standard(SYS_personality, &[READ_IMPLIES_EXEC as u64 | high]), EPERM);
    }
}

#[test]
fn debuggers_work_in_standard_only() {
    for request in [PTRACE_TRACEME, PTRACE_CONT, PTRACE_PEEKTEXT] {
        assert_eq!(standard(SYS_ptrace, &[request.into()]), 0);
        assert_eq!(errno(Isolation::Strict, SYS_ptrace, &[request.into()]), EPERM);
    }
    assert_eq!(standard(SYS_ptrace, &[PTRACE_SEIZE.into()]), EPERM);
}

#[test]
fn calls_of_other_interfaces_are_not_taken_for_ours() {
    let filter = filter(Isolation::Standard).unwrap();
    let of = |number, arch| run(&filter.program, &Call { number, arch, arguments: [0; 6] });
    assert_eq!(of(20, I386), SECCOMP_RET_KILL_PROCESS);
    if cfg!(target_arch = "x86_64") {
        // Of the two, the second is a number that only x32 has, for `ptrace`.
        for number in [SYS_mount as u32, 521, SYS_getpid as u32] {
            assert_eq!(of(number | 0x4000_0000, ARCH), SECCOMP_RET_ERRNO | ENOSYS as u32);
        }
    }
}

#[test]
fn what_has_no_rule_is_allowed() {
    let rules = rules(Isolation::Strict);
    for call in (0..600).filter(|call| !rules.iter().any(|rule| rule.call == *call)) {
        assert_eq!(errno(Isolation::Strict, call, &[u64::MAX; 6]), 0, "{call}");
    }
}

#[test]
fn what_is_refused_always_is_not_weakened_by_a_condition() {
    let always = Rule { call: 1, tests: vec![], answer: 1 };
    let sometimes = Rule { tests: vec![(0, ::seccompiler::SeccompCmpOp::Eq, 7)], ..always.clone() };
    let only = program(std::slice::from_ref(&always)).unwrap();
    for rules in [[always.clone(), sometimes.clone()], [sometimes, always]] {
        assert_eq!(program(&rules).unwrap(), only);
    }
}

/// What a call costs: the instructions until there is an answer, and there are as many calls as make a tree seven high.
#[test]
fn an_answer_is_soon_found() {
    let filter = filter(Isolation::Strict).unwrap();
    let longest =
        (0..600).map(|number| steps(&filter.program, &Call { number, arch: ARCH, arguments: [0; 6] })).max();
    assert!(longest.unwrap() < 80, "{longest:?}");
    assert!(filter.program.len() < 800, "{}", filter.program.len());
}
