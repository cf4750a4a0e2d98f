//! The two namespaces of a keeper, and why they could not be had.

use std::fs;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};

/// Takes a user and a mount namespace. The process must have one thread. The user is mapped to itself, so that owners
/// look the same from inside and from outside; everybody else is nobody.
pub fn enter() -> Result<(), String> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .map_err(|errno| why(Errno::from_raw_os_error(errno as i32), &setting))?;
    write("setgroups", "deny")?;
    write("uid_map", &format!("{uid} {uid} 1"))?;
    write("gid_map", &format!("{gid} {gid} 1"))?;
    // Downstream and not private: nothing gets out either way, but what the host unmounts must not stay mounted here, or
    // a keeper would hold every disk that was there when it started.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).map_err(|errno| {
        format!("the mounts of a new namespace cannot be made its own: {}", why(errno, &setting))
    })
}

/// Why namespaces were refused, in words, with the setting that is behind it where one is.
pub fn why_no_namespaces(error: &std::io::Error) -> String {
    why(Errno::from_io_error(error).unwrap_or(Errno::IO), &setting)
}

fn write(name: &str, text: &str) -> Result<(), String> {
    fs::write(Path::new("/proc/self").join(name), text).map_err(|e| {
        let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
        format!("{name} of a new user namespace cannot be set: {}", why(errno, &setting))
    })
}

/// A kernel setting, if this kernel has it.
fn setting(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok().map(|value| value.trim().to_owned())
}

/// A refusal in words, with the setting that is behind it where one is.
fn why(errno: Errno, setting: &dyn Fn(&str) -> Option<String>) -> String {
    let is = |name: &str, value: &str| setting(name).as_deref() == Some(value);
    match errno {
        Errno::NOSPC if is("user/max_user_namespaces", "0") => {
            "user namespaces are switched off (sysctl user.max_user_namespaces is 0)".to_owned()
        }
        Errno::NOSPC => "there are as many user namespaces as are allowed (sysctl user.max_user_namespaces)".to_owned(),
        Errno::PERM | Errno::ACCESS if is("kernel/unprivileged_userns_clone", "0") => {
            "user namespaces are for root only (sysctl kernel.unprivileged_userns_clone is 0)".to_owned()
        }
        Errno::PERM | Errno::ACCESS if is("kernel/apparmor_restrict_unprivileged_userns", "1") => {
            "AppArmor takes all rights from user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"
                .to_owned()
        }
        Errno::PERM => format!("{errno}: a container, a chroot or a security module forbids user namespaces"),
        Errno::INVAL | Errno::NOSYS => format!("{errno}: this kernel has no user namespaces"),
        errno => errno.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named() {
        let with = |errno, name: &'static str, value: &'static str| {
            why(errno, &move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert!(with(Errno::NOSPC, "user/max_user_namespaces", "0").contains("switched off"));
        assert!(with(Errno::NOSPC, "user/max_user_namespaces", "9").contains("as many"));
        assert!(with(Errno::PERM, "kernel/unprivileged_userns_clone", "0").contains("root only"));
        assert!(
            with(Errno::ACCESS, "kernel/apparmor_restrict_unprivileged_userns", "1").contains("AppArmor")
        );
        assert!(with(Errno::PERM, "kernel/unprivileged_userns_clone", "1").contains("container"));
        assert!(with(Errno::NOSYS, "", "").contains("no user namespaces"));
        assert_eq!(with(Errno::NOMEM, "", ""), Errno::NOMEM.to_string());
    }
}
