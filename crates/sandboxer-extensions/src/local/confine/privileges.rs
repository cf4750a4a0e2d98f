//! No capability in any set, and no way to one.
//!
//! An empty bounding set and `no_new_privs` each suffice to keep `execve` from giving a capability back. Both are set: the first
//! holds where a file has capabilities, the second where it has a set-user-id bit.

use std::fs;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits as SecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use super::Refusal;

/// Gives up every privilege of this process, and looks afterwards whether all are gone. The process must have one thread, and
/// `CAP_SETPCAP` in its user namespace, or the bounding set cannot be emptied.
pub fn drop_all() -> Result<(), Refusal> {
    done("be unreadable to others", set_dumpable_behavior(DumpableBehavior::NotDumpable))?;
    done("set no_new_privs", set_no_new_privs(true))?;
    done("refuse core dumps", setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }))?;
    done("lock the secure bits", lock_secure_bits())?;
    done("empty the bounding set", empty_bounding_set())?;
    done("clear the ambient capabilities", clear_ambient_capability_set())?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    done("give up all capabilities", set_capabilities(None, sets))?;
    verify()
}

fn done(step: &str, result: Result<(), Errno>) -> Result<(), Refusal> {
    result.map_err(|errno| match errno {
        Errno::PERM => Refusal::new(step, format!("{errno} (CAP_SETPCAP in the user namespace is needed)")),
        errno => Refusal::new(step, errno),
    })
}

/// User 0 is nobody special from here on. Kernels that do not know a bit, or somebody who locked others before, say EPERM; then
/// the bits stay as they were, and the empty sets have to do.
fn lock_secure_bits() -> Result<(), Errno> {
    let locked = SecureBits::NO_ROOT
        | SecureBits::NO_ROOT_LOCKED
        | SecureBits::NO_SETUID_FIXUP
        | SecureBits::NO_SETUID_FIXUP_LOCKED
        | SecureBits::KEEP_CAPS_LOCKED
        | SecureBits::NO_CAP_AMBIENT_RAISE
        | SecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    match set_capabilities_secure_bits(locked) {
        Err(Errno::PERM) => Ok(()),
        result => result,
    }
}

/// Asks until the kernel does not know the number: newer kernels have more capabilities than we have names.
fn empty_bounding_set() -> Result<(), Errno> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Err(Errno::INVAL) if number > 0 => return Ok(()),
            result => result?,
        }
    }
    Ok(())
}

fn verify() -> Result<(), Refusal> {
    let step = "see that all privileges are gone";
    let status = fs::read_to_string("/proc/self/status")
        .map_err(|e| Refusal::new(step, format!("/proc/self/status: {e}")))?;
    match remaining(&status) {
        None => Ok(()),
        Some(line) => Err(Refusal::new(step, format!("/proc/self/status says `{line}`"))),
    }
}

/// The first line of a process's status that tells of a privilege, or that a line is missing which would.
fn remaining(status: &str) -> Option<String> {
    let expected =
        [("CapInh", 0), ("CapPrm", 0), ("CapEff", 0), ("CapBnd", 0), ("CapAmb", 0), ("NoNewPrivs", 1)];
    expected.into_iter().find_map(|(name, value)| {
        let line = status.lines().find(|line| line.split(':').next() == Some(name));
        let found = line.and_then(|line| u64::from_str_radix(line.split(':').nth(1)?.trim(), 16).ok());
        (found != Some(value))
            .then(|| line.map_or_else(|| format!("nothing of {name}"), |line| line.replace('\t', " ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "Name:\tinit\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
         CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t0\n";

    #[test]
    fn whatever_remains_is_named() {
        assert_eq!(remaining(CLEAN), None);
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let left =
                CLEAN.replace(&format!("{name}:\t0000000000000000"), &format!("{name}:\t0000010000000000"));
            assert_eq!(remaining(&left), Some(format!("{name}: 0000010000000000")));
        }
        assert_eq!(remaining(&CLEAN.replace("Privs:\t1", "Privs:\t0")), Some("NoNewPrivs: 0".to_owned()));
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_taken_for_good() {
        assert_eq!(remaining(&CLEAN.replace("CapAmb", "CapOther")), Some("nothing of CapAmb".to_owned()));
        assert_eq!(remaining(&CLEAN.replace("CapBnd:\t0", "CapBnd:\tx")).map(|line| line.len()), Some(24));
    }
}
