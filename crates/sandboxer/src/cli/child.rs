//! A command that runs in a sandbox: started there, waited for, and its end told as an exit code.
//!
//! The command has our terminal and our process group, so Ctrl-C reaches it without us. A SIGTERM or SIGHUP that is sent
//! to us alone is passed on: whoever ends us means the command too.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use sandboxer_keeper::enter;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;

use super::error::{CliError, Kind};
use super::exit;
use super::output;
use super::places::{SERVER, TOKEN, is_on_search_path};
use super::serving::HANDED_VARIABLES;

/// What to run, and where.
pub struct Job<'a> {
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// Where it works.
    pub directory: &'a Path,
    /// The sandbox's id, for its environment.
    pub sandbox_id: &'a str,
    /// Variables that lead it to databases.
    pub variables: Vec<(String, String)>,
    /// Whether its stdout becomes our stderr, because ours is for a JSON document.
    pub output_to_stderr: bool,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code, or 128 and the number of the signal.
    pub code: u8,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether somebody asked us to end: then nobody is there to be asked anything.
    pub we_were_told_to_end: bool,
}

/// Starts the command and waits for its end.
pub fn run(job: &Job) -> Result<Ended, CliError> {
    let told_to_end = Arc::new(AtomicBool::new(false));
    let passing = Signals::new([SIGTERM, SIGHUP]).map_err(|e| failed(job, &e))?;
    let child = start(job)?;
    let status = wait_passing_signals(child, passing, &told_to_end).map_err(|e| failed(job, &e))?;
    Ok(Ended { we_were_told_to_end: told_to_end.load(Ordering::Relaxed), ..ended(status) })
}

fn start(job: &Job) -> Result<Child, CliError> {
    let Some((program, arguments)) = job.command.split_first() else {
        return Err(CliError::usage("no command was given").exiting(exit::RUN_FAILED));
    };
    let (mut command, directory) = placed(program, job.directory)?;
    // Whatever else of ours it inherits where only files are isolated: what shows a server who we are is nobody else's.
    command.env_remove(TOKEN).env_remove(SERVER).env_remove(HANDED_VARIABLES);
    command.args(arguments).env("PWD", &directory).env("SANDBOX_PATH", &directory);
    command.env("SANDBOX_ID", job.sandbox_id).envs(job.variables.iter().cloned());
    if job.output_to_stderr {
        let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(|e| failed(job, &e))?;
        command.stdout(Stdio::from(stderr));
    }
    command.spawn().map_err(|error| not_started(program, &error))
}

/// The command, to be started in `directory`, and the path by which it will know that. What a keeper has mounted is joined:
/// by its path from outside, programs would take their current directory for another one.
fn placed(program: &OsString, directory: &Path) -> Result<(Command, PathBuf), CliError> {
    let own = std::env::current_exe().ok();
    if let (Some(own), Some((keeper, inside))) = (own, enter::inside(directory)) {
        let by_name = !program.as_encoded_bytes().contains(&b'/');
        if by_name && !is_on_search_path(program) {
            return Err(not_started(program, &io::ErrorKind::NotFound.into()));
        }
        return Ok((enter::command(&own, keeper, &inside, program), inside));
    }
    let mut command = Command::new(program);
    command.current_dir(directory);
    Ok((command, directory.to_path_buf()))
}

fn not_started(program: &OsString, error: &io::Error) -> CliError {
    let shown = output::name(program.as_encoded_bytes());
    let by_name = !program.as_encoded_bytes().contains(&b'/');
    if error.kind() == io::ErrorKind::NotFound || (by_name && !is_on_search_path(program)) {
        return CliError::new(Kind::NotFound, format!("there is no command {shown}"))
            .exiting(exit::RUN_NOT_FOUND);
    }
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or(&text);
    CliError::new(Kind::Error, format!("{shown} cannot be executed: {reason}"))
        .exiting(exit::RUN_NOT_EXECUTABLE)
}

fn failed(job: &Job, error: &io::Error) -> CliError {
    let shown =
        job.command.first().map(|program| output::name(program.as_encoded_bytes())).unwrap_or_default();
    CliError::new(Kind::Error, format!("cannot run {shown}: {error}")).exiting(exit::RUN_FAILED)
}

fn wait_passing_signals(
    mut child: Child,
    mut passing: Signals,
    told: &Arc<AtomicBool>,
) -> io::Result<ExitStatus> {
    let handle = passing.handle();
    let (pid, told) = (Pid::from_child(&child), Arc::clone(told));
    let passer = std::thread::spawn(move || {
        for signal in passing.forever() {
            told.store(true, Ordering::Relaxed);
            if let Some(signal) = Signal::from_named_raw(signal) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    let _ = passer.join();
    status
}

fn ended(status: ExitStatus) -> Ended {
    let signal = status.signal();
    let code = match (status.code(), signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::ERROR),
        (None, Some(signal)) => exit::SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or(0)),
        (None, None) => exit::RUN_FAILED,
    };
    Ended { code, signal, we_were_told_to_end: false }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run_here(command: &[&str]) -> Result<Ended, CliError> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let directory = std::env::temp_dir();
        run(&Job {
            command: &command,
            directory: &directory,
            sandbox_id: "sbx_x",
            variables: Vec::new(),
            output_to_stderr: true,
        })
    }

    #[test]
    fn the_command_knows_where_it_is() {
        let script = "test \"$PWD\" = \"$SANDBOX_PATH\" && test \"$SANDBOX_ID\" = sbx_x && exit 7";
        let ended = run_here(&["sh", "-c", script]).unwrap();
        assert_eq!((ended.code, ended.signal, ended.we_were_told_to_end), (7, None, false));
    }

    #[test]
    fn a_signal_is_told_as_shells_do() {
        let ended = run_here(&["sh", "-c", "kill -9 $$"]).unwrap();
        assert_eq!((ended.code, ended.signal), (137, Some(9)));
    }

    #[test]
    fn missing_and_not_executable_differ() {
        assert_eq!(run_here(&["no-such-command-at-all"]).unwrap_err().exit, 127);
        assert_eq!(run_here(&["/etc/passwd"]).unwrap_err().exit, 126);
        assert_eq!(run_here(&[]).unwrap_err().exit, 125);
    }
}
