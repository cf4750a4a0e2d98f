//! System calls that no build needs are refused. Everything else is allowed: a list of what is allowed would have to know every
//! program, and what the list is there for is the kernel's surface, not what the namespaces keep apart already.
//!
//! Programs for other instruction sets do not run: a process that makes a system call of the 32-bit interface (i386, or ARM on
//! aarch64) is killed by SIGSYS, since numbers and arguments mean something else there. The x32 interface, whose calls come with
//! the numbers of x86-64 and one more bit, does not exist (ENOSYS).

mod calls;
mod conditions;

use std::collections::BTreeMap;

use ::seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use nix::libc::{EAFNOSUPPORT, ENOSYS, EPERM, c_long};

use super::Step;
use crate::local::Isolation;

/// An argument by its number, and what it is compared with. Only the lower 32 bits are: every argument that is looked at here is
/// an `int` to the kernel, which does not see the rest either.
type Test = (u8, SeccompCmpOp, u64);

/// A call and what has to be true of it, all at once. Nothing has to be if there is no test.
type Rule = (c_long, Vec<Test>);

/// Programs for the kernel, which runs all of them and obeys the strictest.
#[derive(Clone, Debug)]
pub struct Filter {
    programs: Vec<BpfProgram>,
}

/// Compiles what is refused under `isolation`. This touches nothing, so it can be done before there is an init.
pub fn filter(isolation: Isolation) -> Result<Filter, Step> {
    let strict = isolation == Isolation::Strict;
    let refused = program(calls::refused(strict).chain(conditions::refused(strict)), EPERM);
    // Who asks for these has another way for kernels that do not have them, and takes it only at this answer.
    let missing = program(calls::missing(strict), ENOSYS);
    let unknown_families = program(conditions::unknown_families(), EAFNOSUPPORT);
    let programs =
        [refused.map(without_x32), missing, unknown_families].into_iter().collect::<Result<_, _>>();
    let programs = programs.map_err(|e| Step::new("compile the system call filter", e))?;
    Ok(Filter { programs })
}

impl Filter {
    /// Installs it in this process, which must have one thread, for good.
    pub fn install(&self) -> Result<(), Step> {
        for program in &self.programs {
            apply_filter(program).map_err(|e| Step::new("install the system call filter", e))?;
        }
        Ok(())
    }

    /// How many instructions the kernel runs at most, at a call that it has to look at.
    pub fn instructions(&self) -> usize {
        self.programs.iter().map(Vec::len).sum()
    }
}

/// Answers every call for which a rule is true with `errno`.
fn program(rules: impl Iterator<Item = Rule>, errno: i32) -> Result<BpfProgram, BackendError> {
    filtering(rules, SeccompAction::Errno(errno as u32))
}

/// Does `action` at every call for which a rule is true.
pub(super) fn filtering(
    rules: impl Iterator<Item = Rule>,
    action: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let (always, sometimes): (Vec<Rule>, Vec<Rule>) = rules.partition(|(_, tests)| tests.is_empty());
    let mut by_call: BTreeMap<c_long, Vec<SeccompRule>> = BTreeMap::new();
    for (call, tests) in sometimes {
        by_call.entry(call).or_default().push(compiled(tests)?);
    }
    // No rules at all are how a call is matched always, whatever else was said of it.
    by_call.extend(always.into_iter().map(|(call, _)| (call, Vec::new())));
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(by_call, SeccompAction::Allow, action, arch)?.try_into()
}

fn compiled(tests: Vec<Test>) -> Result<SeccompRule, BackendError> {
    let condition =
        |(argument, op, value)| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value);
    SeccompRule::new(tests.into_iter().map(condition).collect::<Result<_, _>>()?)
}

#[cfg(target_arch = "x86_64")]
fn without_x32(program: BpfProgram) -> BpfProgram {
    use ::seccompiler::sock_filter;
    use nix::libc::{BPF_ABS, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ERRNO};

    /// What the numbers of that interface have and those of x86-64 have not.
    const X32_SYSCALL_BIT: u32 = 0x4000_0000;
    let instruction = |code: u32, k, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    let guard = [
        // The number is the first word of what the program sees.
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        instruction(BPF_JMP | BPF_JGE | BPF_K, X32_SYSCALL_BIT, 0, 1),
        instruction(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS as u32, 0, 0),
    ];
    // Jumps are relative, so what follows need not know.
    guard.into_iter().chain(program).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn without_x32(program: BpfProgram) -> BpfProgram {
    program
}

#[cfg(test)]
mod tests;
