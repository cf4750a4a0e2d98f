//! The process that holds a runtime: outside, where its clients, its cgroup, the clock and the network are.
//!
//! It is this program, started as `sandbox-runtime` by its first client, which speaks to it through its standard input. It makes init
//! before it has a second thread, and then does one thing after another in one loop: nothing here takes long. It ends with its last command.

mod clients;
mod events;
mod making;
mod processes;
mod quiet;
mod sockets;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::exit;

use rustix::fs::{self, Mode, OFlags};
use rustix::process::{setsid, umask};

use super::refusal::{Refusal, Refused};
use super::spec::Spec;
use super::wire::{Reply, Request, be_impatient, receive, send};
pub(crate) use making::CGROUPS;
use making::Runtime;

/// The name that a supervisor is started under.
pub(crate) const NAME: &str = "sandbox-runtime";

/// First thing in `main`: supervises and exits if this process was started for that (its name is `sandbox-runtime`). Returns
/// at once in every other process. There must be no second thread yet.
pub fn supervise_if_asked() {
    if std::env::args_os().next().as_deref() != Some(OsStr::new(NAME)) {
        return;
    }
    let served = first_client().and_then(serve);
    exit(i32::from(served.is_err()))
}

/// Takes the first client from standard input, and nothing else from whoever started us.
fn first_client() -> io::Result<UnixStream> {
    let client = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    close_all_but(&client)?;
    let null = fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    drop(null);
    let _ = rustix::thread::set_name(c"sandbox-runtime");
    let _ = setsid();
    umask(Mode::from_raw_mode(0o077));
    std::env::set_current_dir("/")?;
    Ok(UnixStream::from(client))
}

/// Somebody may wait for the end of a pipe that the program which started us was given, and knew nothing of.
fn close_all_but(kept: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let entries = std::fs::read_dir("/proc/self/fd")?.flatten();
    let numbers: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2 && *number != kept.as_raw_fd()) {
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

/// Waits to be told what to hold, for as long as it takes to make that.
fn serve(client: UnixStream) -> io::Result<()> {
    let Some((Request::Start { spec, directory }, _)) = receive(&client)? else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    be_impatient(&client)?;
    match made(*spec, &directory) {
        Ok(runtime) => runtime.serve(client),
        Err(refusal) => send(&client, &Reply::Refused(refusal), &[]),
    }
}

fn made(spec: Spec, directory: &Path) -> Result<Runtime, Refusal> {
    std::fs::create_dir_all(directory).refused(|| format!("make {}", directory.display()))?;
    Runtime::make(spec, directory)
}
