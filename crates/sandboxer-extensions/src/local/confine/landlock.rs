//! Landlock: a second layer under the read-only mounts. Everything can be read and executed, and only what is named be written.

use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus as Kernel, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope,
};
use serde::{Deserialize, Serialize};

use super::Refusal;
use crate::local::Isolation;

/// The newest that this module was written for. What the kernel does not have of it is left out.
const NEWEST: ABI = ABI::V9;

/// The first that knows `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET`.
const FIRST_WITH_SCOPES: i32 = 6;

/// What of Landlock is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LandlockStatus {
    /// The rules are in force, as far as this version of the interface has them.
    Enforced {
        /// The kernel's version of the interface, or ours if that is older.
        abi: i32,
    },
    /// Nothing is, for this reason.
    Absent(String),
}

impl LandlockStatus {
    /// Whether abstract sockets and processes outside cannot be reached, also those in the same network namespace.
    pub fn is_scoped(&self) -> bool {
        matches!(self, Self::Enforced { abi } if *abi >= FIRST_WITH_SCOPES)
    }
}

/// Restricts this process, which must have one thread, and all that it forks. Devices in `/dev` and files of `/proc` can still
/// be written: those have owners and mounts of their own. A kernel without Landlock is no error unless isolation is strict; nor
/// is one that cannot keep abstract sockets apart, unless they are those of the host as well.
pub fn restrict(
    writable: &[PathBuf],
    isolation: Isolation,
    network_is_host: bool,
) -> Result<LandlockStatus, Refusal> {
    let created = ruleset().map_err(|e| Refusal::new("make a Landlock ruleset", e))?;
    let ruled = with_rules(created, writable)?;
    let status = ruled.restrict_self().map_err(|e| Refusal::new("restrict itself by Landlock", e))?;
    let status = in_force(&status);
    match lacking(&status, network_is_host) {
        Some(why) if isolation == Isolation::Strict => Err(Refusal::new("restrict itself by Landlock", why)),
        _ => Ok(status),
    }
}

/// Before the second version nothing can be moved to another directory, not even where everything is allowed, and no build works.
/// So that right is required: without it nothing is enforced.
fn ruleset() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

fn with_rules(created: RulesetCreated, writable: &[PathBuf]) -> Result<RulesetCreated, Refusal> {
    let devices = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut ruled = with_rule(created, Path::new("/"), AccessFs::from_read(NEWEST))?;
    ruled = with_rule(ruled, Path::new("/dev"), devices)?;
    ruled = with_rule(ruled, Path::new("/proc"), AccessFs::WriteFile | AccessFs::Truncate)?;
    writable.iter().try_fold(ruled, |ruled, path| with_rule(ruled, path, AccessFs::from_all(NEWEST)))
}

fn with_rule(
    ruled: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Refusal> {
    let failed = |why: String| Refusal::new(format!("let Landlock allow {}", path.display()), why);
    let handle = PathFd::new(path).map_err(|e| failed(e.to_string()))?;
    // The kernel does not take rights of directories for a file.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    ruled.add_rule(PathBeneath::new(handle, access)).map_err(|e| failed(e.to_string()))
}

fn in_force(status: &RestrictionStatus) -> LandlockStatus {
    match (&status.landlock, &status.ruleset) {
        (Kernel::Available { .. }, RulesetStatus::NotEnforced) => {
            LandlockStatus::Absent("this kernel's Landlock is too old (Linux 5.19 is needed)".to_owned())
        }
        (Kernel::Available { effective_abi, .. }, _) => {
            LandlockStatus::Enforced { abi: *effective_abi as i32 }
        }
        (Kernel::NotEnabled, _) => LandlockStatus::Absent(
            "Landlock is switched off (boot with lsm=landlock,… to have it)".to_owned(),
        ),
        (Kernel::NotImplemented, _) => LandlockStatus::Absent("this kernel has no Landlock".to_owned()),
    }
}

fn lacking(status: &LandlockStatus, network_is_host: bool) -> Option<String> {
    match status {
        LandlockStatus::Absent(why) => Some(why.clone()),
        LandlockStatus::Enforced { abi } if network_is_host && !status.is_scoped() => Some(format!(
            "version {abi} cannot keep the host's abstract sockets out (Linux 6.12 can; or give it no host network)"
        )),
        LandlockStatus::Enforced { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_network_of_the_host_needs_scopes() {
        let version = |abi| LandlockStatus::Enforced { abi };
        assert_eq!(lacking(&version(6), true), None);
        assert_eq!(lacking(&version(5), false), None);
        assert!(lacking(&version(5), true).is_some_and(|why| why.contains("abstract sockets")));
        let absent = LandlockStatus::Absent("none".to_owned());
        assert_eq!(lacking(&absent, false), Some("none".to_owned()));
    }
}
