//! One program for many rules.
//!
//! `seccompiler` knows how arguments are compared; which rules a call has is looked up here, by halving. It would ask for one number
//! after the other, and what a filter costs is decided by that: the kernel tries every number there is when it is installed, to
//! learn which calls are allowed whatever their arguments are, and runs it again at each call that is not.

use std::collections::BTreeMap;

use ::seccompiler::{
    BackendError, BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule, sock_filter,
};
use nix::libc::*;

/// What the kernel calls this architecture.
#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the system call filters are written for x86-64 and aarch64");

/// What the numbers of the x32 interface have, and those of x86-64 have not.
const X32_SYSCALL_BIT: u32 = 0x4000_0000;

/// An argument by its number, and what it is compared with. Only the lower 32 bits are: every argument that is looked at is an `int`
/// to the kernel, which does not see the rest either.
pub(in crate::local::confine) type Test = (u8, SeccompCmpOp, u64);

/// A call, what has to be true of it, all at once, and what the kernel is told then. Nothing has to be if there is no test.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::local::confine) struct Rule {
    pub(in crate::local::confine) call: c_long,
    pub(in crate::local::confine) tests: Vec<Test>,
    pub(in crate::local::confine) answer: u32,
}

/// Answers as the first rule says that is true. Rules without a test come before all others of their call.
pub(in crate::local::confine) fn program(rules: &[Rule]) -> Result<BpfProgram, BackendError> {
    let mut by_call: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        by_call.entry(rule.call as u32).or_default().push(rule);
    }
    let bodies = by_call.into_iter().map(|(call, rules)| Ok((call, body(&rules)?)));
    let bodies = bodies.collect::<Result<Vec<_>, BackendError>>()?;
    Ok([guard(), tree(&bodies)].concat())
}

/// Lets nothing pass that is not a call of this architecture, and leaves its number to be looked at.
fn guard() -> BpfProgram {
    let mut guard =
        vec![load(4), branch(BPF_JEQ, AUDIT_ARCH, 1, 0), answer(SECCOMP_RET_KILL_PROCESS), load(0)];
    if cfg!(target_arch = "x86_64") {
        guard.push(branch(BPF_JGE, X32_SYSCALL_BIT, 0, 1));
        guard.push(answer(SECCOMP_RET_ERRNO | ENOSYS as u32));
    }
    guard
}

/// Finds the number among those that have rules. What has none is allowed.
fn tree(bodies: &[(u32, BpfProgram)]) -> BpfProgram {
    match bodies {
        [] => vec![answer(SECCOMP_RET_ALLOW)],
        [(call, body)] => {
            [&[branch(BPF_JEQ, *call, 1, 0), answer(SECCOMP_RET_ALLOW)], body.as_slice()].concat()
        }
        _ => {
            let (low, high) = bodies.split_at(bodies.len() / 2);
            let below = tree(low);
            // A conditional jump does not get far enough, so one that does is jumped over.
            let fork = [branch(BPF_JGE, high[0].0, 0, 1), statement(BPF_JMP | BPF_JA, below.len() as u32)];
            [fork.to_vec(), below, tree(high)].concat()
        }
    }
}

/// The rules of one call.
fn body(rules: &[&Rule]) -> Result<BpfProgram, BackendError> {
    if let Some(always) = rules.iter().find(|rule| rule.tests.is_empty()) {
        return Ok(vec![answer(always.answer)]);
    }
    let mut body = BpfProgram::new();
    for rule in rules {
        // Where a test fails it goes on behind the one instruction that follows.
        body.extend(BpfProgram::from(compared(&rule.tests)?));
        body.push(answer(rule.answer));
    }
    body.push(answer(SECCOMP_RET_ALLOW));
    Ok(body)
}

fn compared(tests: &[Test]) -> Result<SeccompRule, BackendError> {
    let conditions = tests.iter().cloned();
    let condition =
        |(argument, op, value)| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value);
    SeccompRule::new(conditions.map(condition).collect::<Result<_, _>>()?)
}

fn load(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn answer(value: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, value)
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn branch(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}
