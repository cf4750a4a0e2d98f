//! A command is started by init: with the streams that came along, or with a terminal of the sandbox's own in their place.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{FileType, Mode, OFlags, fstat, makedev, open};
use rustix::io::Errno;
use rustix::process::umask;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::system::lead_session;
use super::wire::Exec;

/// What runs now.
pub(crate) struct Spawned {
    pub pid: i32,
    /// The other side of its terminal.
    pub master: Option<OwnedFd>,
    /// Its side of it, held for as long as it runs: what it closes and opens again goes on.
    pub side: Option<OwnedFd>,
}

/// Why nothing runs.
pub(crate) struct NotSpawned {
    pub errno: i32,
    /// What failed: `execute make`, `enter /x`.
    pub step: String,
}

/// Starts `exec` with `streams` as its standard input, output and error.
pub(crate) fn spawn(exec: &Exec, streams: Vec<OwnedFd>) -> Result<Spawned, NotSpawned> {
    let Some((program, arguments)) = exec.argv.split_first() else {
        return Err(failed("execute nothing", &io::Error::from(io::ErrorKind::InvalidInput)));
    };
    let Ok(streams) = <[OwnedFd; 3]>::try_from(streams) else {
        return Err(failed("take over its streams", &io::Error::from(io::ErrorKind::InvalidInput)));
    };
    let directory = &exec.directory;
    // Not for reading: what is there may be a pipe that nobody writes to.
    if let Err(e) = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        return Err(failed(&format!("enter {}", directory.display()), &e.into()));
    }
    let terminal = exec.terminal.contains(&true).then(|| Terminal::open(exec.size)).transpose();
    let terminal = terminal.map_err(|e| failed("open a terminal", &e))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(exec.environment.iter().map(|(k, v)| (k, v)))
        .current_dir(directory);
    let [input, output, error] = with_terminal(streams, exec.terminal, terminal.as_ref())
        .map_err(|e| failed("open a terminal", &e))?;
    command.stdin(input).stdout(output).stderr(error);
    let control = exec.terminal.iter().position(|is| *is).and_then(|stream| i32::try_from(stream).ok());
    lead_session(&mut command, control);
    let before = umask(Mode::from_raw_mode(exec.umask));
    let child = command.spawn();
    umask(before);
    let child = child.map_err(|e| failed(&format!("execute {}", program.display()), &e))?;
    // It is waited for with everything else that dies here.
    let (master, side) = terminal.map(|terminal| (terminal.master, terminal.side)).unzip();
    Ok(Spawned { pid: child.id().cast_signed(), master, side })
}

fn with_terminal(
    streams: [OwnedFd; 3],
    which: [bool; 3],
    terminal: Option<&Terminal>,
) -> io::Result<[Stdio; 3]> {
    let mut chosen = Vec::with_capacity(3);
    for (stream, is_terminal) in streams.into_iter().zip(which) {
        chosen.push(match terminal.filter(|_| is_terminal) {
            Some(terminal) => Stdio::from(terminal.side.try_clone()?),
            // The host's own could be changed by whoever is its owner.
            None if is_null(&stream) => Stdio::null(),
            None => Stdio::from(stream),
        });
    }
    chosen.try_into().map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn is_null(stream: &OwnedFd) -> bool {
    let null = makedev(1, 3);
    fstat(stream).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == null
    })
}

fn failed(step: &str, error: &io::Error) -> NotSpawned {
    let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
    NotSpawned { errno, step: step.to_owned() }
}

/// Both sides of a terminal.
struct Terminal {
    master: OwnedFd,
    side: OwnedFd,
}

impl Terminal {
    fn open((rows, columns): (u16, u16)) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        let side = ioctl_tiocgptpeer(&master, flags)?;
        if (rows, columns) != (0, 0) {
            tcsetwinsize(&side, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        }
        Ok(Self { master, side })
    }
}
