//! The kernel's side of watching: a filter with a listener, and the three requests to it.
//!
//! Neither nix, rustix nor seccompiler has these, so they are made by hand, here and nowhere else.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use ::seccompiler::{BpfProgram, sock_filter};
use nix::errno::Errno;
use nix::libc::{self, c_long, c_ulong, c_ushort, seccomp_data, seccomp_notif, seccomp_notif_resp};
use rustix::thread::set_no_new_privs;

/// Wakes the one who waits on the processor of the one who asks, since one of them sleeps while the other works.
const SYNC_WAKE_UP: c_ulong = 1;

/// What the kernel takes a program as.
#[repr(C)]
struct Program {
    len: c_ushort,
    filter: *const sock_filter,
}

/// A call that waits for an answer.
pub(super) struct Notification {
    id: u64,
    /// The thread, as this process sees it: the kernel translates the number for whoever receives.
    pub(super) thread: u32,
    pub(super) call: c_long,
    pub(super) arguments: [u64; 6],
}

/// Installs a filter in this thread, and gives the listener that it asks.
pub(super) fn install(program: &BpfProgram) -> Result<OwnedFd, Errno> {
    set_no_new_privs(true).map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
    let plain = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // A call that was received is not broken off by a signal then, as it would not be without a filter.
    let patient = plain | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    match install_with(program, patient) {
        Err(Errno::EINVAL) => install_with(program, plain),
        result => result,
    }
}

fn install_with(program: &BpfProgram, flags: c_ulong) -> Result<OwnedFd, Errno> {
    let len = c_ushort::try_from(program.len()).map_err(|_| Errno::E2BIG)?;
    let program = Program { len, filter: program.as_ptr() };
    // SAFETY: the kernel reads as many instructions as are said, from memory that outlives the call.
    let fd =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    let fd = Errno::result(fd)? as RawFd;
    // SAFETY: the kernel made the descriptor for us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Kernels before 6.6 do not know this, and are slower.
pub(super) fn wake_on_one_processor(listener: impl AsFd) {
    // SAFETY: the argument is a number.
    let _ = unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
    };
}

/// Takes the next call. `ENOENT` is one whose caller is dead by now.
pub(super) fn receive(listener: impl AsFd) -> Result<Notification, Errno> {
    // The kernel insists on zeros.
    let data = seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
    let mut notification = seccomp_notif { id: 0, pid: 0, flags: 0, data };
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: the size of what is written is part of the request, and it is this type's.
    Errno::result(unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notification) })?;
    let data = notification.data;
    Ok(Notification {
        id: notification.id,
        thread: notification.pid,
        call: data.nr.into(),
        arguments: data.args,
    })
}

/// Lets the kernel do what was asked for, as if nobody had looked. This can fail only if the caller is dead.
pub(super) fn go_on(listener: impl AsFd, notification: &Notification) {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = seccomp_notif_resp { id: notification.id, val: 0, error: 0, flags };
    // SAFETY: the size of what is read is part of the request, and it is this type's.
    let _ =
        unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}
