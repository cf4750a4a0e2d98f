//! The process of a plugin: started in a group of its own, ended as a group, always reaped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::log::{Log, Words};

/// How much a pipe is made to hold: fewer changes between the two processes for large content.
const PIPE_BYTES: usize = 1 << 20;

/// How long a plugin that was told to end may take.
const FAREWELL: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(2);

/// What is started, and how.
#[derive(Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables on top of our own environment.
    pub env: BTreeMap<String, String>,
    /// Where it is started.
    pub directory: PathBuf,
}

impl Launch {
    /// What is started, in words.
    pub fn shown(&self) -> String {
        let arguments = self.arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
        std::iter::once(self.program.display().to_string()).chain(arguments).collect::<Vec<_>>().join(" ")
    }
}

/// A plugin's process. Dropped, it is ended and reaped.
pub struct Process {
    child: Mutex<Child>,
    words: Words,
    /// How it ended, once it is reaped.
    buried: OnceLock<String>,
    /// Whether it ran out of time: then it gets none to say farewell.
    hopeless: std::sync::atomic::AtomicBool,
}

/// Its pipes.
pub struct Pipes {
    /// To it.
    pub stdin: ChildStdin,
    /// From it.
    pub stdout: ChildStdout,
}

impl Process {
    /// Starts it; what it writes to standard error goes to `log`.
    pub fn start(launch: &Launch, log: &Log) -> std::io::Result<(Self, Pipes)> {
        let mut child = Command::new(&launch.program)
            .args(&launch.arguments)
            .envs(&launch.env)
            .current_dir(&launch.directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let words = stderr.map(|stderr| log.follow(stderr)).unwrap_or_default();
        let process =
            Self { child: Mutex::new(child), words, buried: OnceLock::new(), hopeless: false.into() };
        let missing = || std::io::Error::other("a pipe was asked for and not made");
        let pipes = Pipes { stdin: stdin.ok_or_else(missing)?, stdout: stdout.ok_or_else(missing)? };
        // Where a larger pipe is not to be had, the ordinary one does.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipes.stdin, PIPE_BYTES);
        let _ = rustix::pipe::fcntl_setpipe_size(&pipes.stdout, PIPE_BYTES);
        Ok((process, pipes))
    }

    /// It is not waited for any more.
    pub fn give_up(&self) {
        self.hopeless.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether it runs no more.
    pub fn has_ended(&self) -> bool {
        self.ending(Duration::ZERO).is_some()
    }

    /// How it ended, with its last words; `None` while it runs.
    pub fn obituary(&self, patience: Duration) -> Option<String> {
        let ending = self.ending(patience)?;
        Some(match self.words.last_words() {
            Some(words) => format!("it {ending}; it said: {words}"),
            None => format!("it {ending}"),
        })
    }

    /// Reaps it and ends what is left of its group, if it has ended: nobody may ask for it again for a long time.
    pub fn bury(&self) {
        let mut child = self.child();
        if self.buried.get().is_some() {
            return;
        }
        if let Some(ending) = ending_of(&child) {
            end_group(&mut child);
            let _ = self.buried.set(ending);
        }
    }

    /// How it ended, if it does within `patience`. It stays unreaped, so that its group keeps its number.
    fn ending(&self, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        loop {
            let child = self.child();
            let ending = self.buried.get().cloned().or_else(|| ending_of(&child));
            drop(child);
            if ending.is_some() || Instant::now() >= deadline {
                return ending;
            }
            std::thread::sleep(POLL);
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.hopeless.load(std::sync::atomic::Ordering::Relaxed) {
            self.ending(FAREWELL);
        }
        let mut child = self.child();
        if self.buried.get().is_none() {
            end_group(&mut child);
        }
    }
}

/// How a process has ended that is not reaped yet; `None` while it runs.
fn ending_of(child: &Child) -> Option<String> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::Pid(Pid::from_child(child)), options).ok()??;
    let signal = status.terminating_signal().map(|signal| format!("was killed by signal {signal}"));
    signal.or_else(|| Some(format!("exited with status {}", status.exit_status()?)))
}

/// Ends its children too. The group's number is not anybody else's before the child is reaped.
fn end_group(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn start(script: &str, dir: &std::path::Path) -> (Process, Pipes) {
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            env: BTreeMap::new(),
            directory: dir.to_path_buf(),
        };
        Process::start(&launch, &Log::new(&dir.join("log"), Default::default())).unwrap()
    }

    fn is_there(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn how_it_ended_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let wait = Duration::from_secs(20);
        assert_eq!(start("exit 3", dir.path()).0.ending(wait).unwrap(), "exited with status 3");
        assert_eq!(start("kill -9 $$", dir.path()).0.ending(wait).unwrap(), "was killed by signal 9");
        assert_eq!(start("sleep 60", dir.path()).0.ending(Duration::ZERO), None);
    }

    #[test]
    fn what_runs_is_not_buried() {
        let dir = tempfile::tempdir().unwrap();
        let (process, _pipes) = start("sleep 60", dir.path());
        process.bury();
        assert!(is_there(process.child().id()) && !process.has_ended());
        process.give_up();
    }

    #[test]
    fn its_children_end_with_it_and_nothing_stays() {
        use std::io::{BufRead, BufReader};
        let dir = tempfile::tempdir().unwrap();
        let (process, pipes) = start("sleep 1000 & echo $!; wait", dir.path());
        let mut line = String::new();
        BufReader::new(pipes.stdout).read_line(&mut line).unwrap();
        let (own, grandchild) = (process.child().id(), line.trim().parse().unwrap());
        assert!(is_there(own) && is_there(grandchild));
        process.give_up();
        drop(process);
        assert!(!is_there(own), "reaped");
        // Whoever adopts it reaps it.
        let gone = |_| {
            std::thread::sleep(POLL);
            !is_there(grandchild) || is_zombie(grandchild)
        };
        assert!((0..5000).any(gone));
    }

    #[test]
    fn what_has_ended_is_reaped_once_and_still_known() {
        let dir = tempfile::tempdir().unwrap();
        let (process, pipes) = start("echo last words >&2; exit 3", dir.path());
        process.ending(Duration::from_secs(20)).unwrap();
        let pid = process.child().id();
        assert!(is_there(pid), "it is a zombie by now");
        process.bury();
        process.bury();
        assert!(!is_there(pid), "reaped");
        assert_eq!(process.ending(Duration::ZERO).unwrap(), "exited with status 3");
        drop((process, pipes));
    }

    fn is_zombie(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    }
}
