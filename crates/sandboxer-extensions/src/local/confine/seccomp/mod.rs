//! System calls that no build needs are refused. Everything else is allowed: a list of what is allowed would have to know every
//! program, and what the list is there for is the kernel's surface, not what the namespaces keep apart already.
//!
//! Programs for other instruction sets do not run: a process that makes a system call of the 32-bit interface (i386, or ARM on
//! aarch64) is killed by SIGSYS, since numbers and arguments mean something else there. The x32 interface, whose calls come with
//! the numbers of x86-64 and one more bit, does not exist (ENOSYS).

mod assemble;
mod calls;
mod conditions;
#[cfg(test)]
mod tests;

use ::seccompiler::{BpfProgram, apply_filter};
use nix::libc::{EAFNOSUPPORT, ENOSYS, EPERM, SECCOMP_RET_ERRNO, c_long};

pub(super) use self::assemble::{Rule, Test, program};
use super::Refusal;
use crate::local::Isolation;

/// A call, and what has to be true of it.
type Case = (c_long, Vec<Test>);

/// A program for the kernel.
#[derive(Clone, Debug)]
pub struct Filter {
    program: BpfProgram,
}

/// Compiles what is refused under `isolation`. This touches nothing, so it can be done before there is an init.
pub fn filter(isolation: Isolation) -> Result<Filter, Refusal> {
    let program =
        program(&rules(isolation)).map_err(|e| Refusal::new("compile the system call filter", e))?;
    Ok(Filter { program })
}

fn rules(isolation: Isolation) -> Vec<Rule> {
    let strict = isolation == Isolation::Strict;
    // Who asks for these has another way for kernels that do not have them, and takes it only at this answer.
    let missing = answered(calls::missing(strict), ENOSYS);
    let families = answered(conditions::unknown_families(), EAFNOSUPPORT);
    let refused = answered(calls::refused(strict).chain(conditions::refused(strict)), EPERM);
    missing.chain(families).chain(refused).collect()
}

fn answered(cases: impl Iterator<Item = Case>, errno: i32) -> impl Iterator<Item = Rule> {
    cases.map(move |(call, tests)| Rule { call, tests, answer: SECCOMP_RET_ERRNO | errno as u32 })
}

impl Filter {
    /// Installs it in this process, which must have one thread, for good.
    pub fn install(&self) -> Result<(), Refusal> {
        apply_filter(&self.program).map_err(|e| Refusal::new("install the system call filter", e))
    }
}
