//! Running a command where a keeper's mounts are: in the keeper's namespaces.
//!
//! From outside, a mount of a keeper is reached through `/proc/PID/root`, and whoever works there finds a current directory
//! that by its name is somewhere else. A command that is started inside has the mount at the path it goes by. Joining a user
//! namespace takes a process with one thread, so this program is started once more, as `sandbox-enter`, and becomes the
//! command.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use nix::sched::{CloneFlags, setns};

/// What a process that enters is called.
const NAME: &str = "sandbox-enter";

/// The exit codes of shells for a command that is not there, and for one that cannot be executed.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// The keeper that `link` leads through, and the path that it leads to there.
pub fn inside(link: &Path) -> Option<(u32, PathBuf)> {
    let target = std::fs::read_link(link).ok()?;
    let rest = target.strip_prefix("/proc").ok()?;
    let mut parts = rest.iter();
    let pid = parts.next()?.to_str()?.parse().ok()?;
    (parts.next()? == "root").then(|| (pid, Path::new("/").join(parts.as_path())))
}

/// A command that runs `program` in `directory`, both as they are for the keeper `pid`. It is started from `own`, which has
/// to call [`enter_if_asked`] first.
pub fn command(own: &Path, pid: u32, directory: &Path, program: &OsStr) -> Command {
    let mut command = Command::new(own);
    command.arg0(NAME).arg(pid.to_string()).arg(directory).arg(program);
    command
}

/// First thing in `main`: becomes another command if this process was started for that. Returns at once in every other
/// process. There must be no second thread yet.
pub fn enter_if_asked() {
    let mut arguments = std::env::args_os();
    if arguments.next().as_deref() != Some(OsStr::new(NAME)) {
        return;
    }
    let (pid, directory) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let program = arguments.next().unwrap_or_default();
    let (code, why) = match join(&pid, Path::new(&directory)) {
        Ok(()) => become_command(&program, arguments),
        Err(error) => (NOT_EXECUTABLE, error),
    };
    tell(&format!("error: {} cannot be executed: {why}\n", program.to_string_lossy().escape_debug()));
    exit(code)
}

fn join(pid: &OsStr, directory: &Path) -> io::Result<()> {
    let namespaces = Path::new("/proc").join(pid).join("ns");
    let (user, mount) = (File::open(namespaces.join("user"))?, File::open(namespaces.join("mnt"))?);
    setns(user, CloneFlags::CLONE_NEWUSER)?;
    setns(mount, CloneFlags::CLONE_NEWNS)?;
    std::env::set_current_dir(directory)
}

fn become_command(program: &OsStr, arguments: impl Iterator<Item = OsString>) -> (i32, io::Error) {
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    (code, error)
}

/// Without a macro that prints: nothing but this process's last words goes to its terminal.
fn tell(text: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_which_keeper_it_leads_through() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("tree");
        for (target, expected) in [
            ("/proc/12/root/a/b", Some((12, PathBuf::from("/a/b")))),
            ("/proc/self/root/a", None),
            ("/proc/12/cwd/a", None),
            ("/elsewhere", None),
        ] {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(inside(&link), expected, "{target}");
        }
        assert_eq!(inside(temp.path()), None);
    }
}
