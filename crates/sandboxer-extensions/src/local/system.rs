//! What no safe function is there for: a process made with namespaces of its own, a whole tree of mounts changed at once, and
//! what a child does between fork and exec. Nothing else in this crate's runtime is unsafe.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::sched::CloneFlags;
use rustix::process::Pid;

/// What the mounts of a tree are to be besides what they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    /// `MOUNT_ATTR_*` to set.
    pub set: u64,
    /// `MS_SLAVE` and the like; 0 leaves it.
    pub propagation: u64,
}

/// Nothing on the mount can be written.
pub(crate) const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// Nothing on it gives privileges or is a device.
pub(crate) const TAME: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
/// Nothing on it gives privileges or is executed; devices are devices.
pub(crate) const BARE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
/// What is mounted outside later does not come in.
pub(crate) const APART: u64 = libc::MS_PRIVATE;

/// `CLONE_INTO_CGROUP`, which is wider than the libc crate's type for it.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// A copy of this process in new namespaces, and in `cgroup` if one is given: `None` in the copy, its process id in the original.
/// There must be one thread.
pub(crate) fn fork_into(namespaces: CloneFlags, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Pid>> {
    // SAFETY: all zeroes is a value of every field of the structure.
    let mut wanted: libc::clone_args = unsafe { std::mem::zeroed() };
    wanted.flags = u64::from(namespaces.bits().cast_unsigned());
    wanted.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    if let Some(cgroup) = cgroup {
        wanted.flags |= INTO_CGROUP;
        wanted.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: without CLONE_VM and with no stack given this is fork(2), and the structure is what its size says. The process has
    // one thread, so no lock can be held by a thread that is missing in the copy.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const wanted, size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(i32::try_from(pid).ok().and_then(Pid::from_raw)),
    }
}

/// Changes a mount: the one that `dir` is, where `path` is empty. With everything below it if `recursive`.
pub(crate) fn change_mount(
    dir: impl AsFd,
    path: &Path,
    recursive: bool,
    wanted: Attributes,
) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes =
        libc::mount_attr { attr_set: wanted.set, attr_clr: 0, propagation: wanted.propagation, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a string that ends with NUL, the structure is what its size says, and both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the command the leader of a session of its own; with `terminal`, its standard input (or whichever stream is one) is
/// what controls that.
pub(crate) fn lead_session(command: &mut Command, terminal: Option<i32>) {
    let prepare = move || {
        rustix::process::setsid()?;
        if let Some(stream) = terminal {
            // SAFETY: a standard stream is open for as long as the closure runs.
            let stream = unsafe { BorrowedFd::borrow_raw(stream) };
            rustix::process::ioctl_tiocsctty(stream)?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls and nothing else: it takes no lock and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Switches the loopback device of this network namespace on.
pub(crate) fn bring_up_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all zeroes is a value of every field of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(up).unwrap_or(libc::c_short::MAX);
    // SAFETY: the request is what SIOCSIFFLAGS wants, and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
