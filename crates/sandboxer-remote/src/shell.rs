//! A shell that scripts of ours run in, wherever it is.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

pub use crate::process::Hears;
use crate::process::{self, Bounds, Group, Outcome, end_of};
use crate::words::last_words;

/// How long whoever has been told everything may take to end before it is killed.
pub(crate) const LAST_MOMENTS: Duration = Duration::from_secs(600);

/// One script to be run.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The script, a constant of ours; what varies is in the arguments.
    pub script: &'a str,
    /// `$1`, `$2`, ….
    pub arguments: &'a [&'a OsStr],
    /// What it reads.
    pub input: &'a [u8],
    /// How long it may take.
    pub deadline: Duration,
    /// How much it may say.
    pub output: usize,
    /// Whether to stop before its end.
    pub cancel: Option<&'a CancelFlag>,
    /// Hears the end of its complaints, whenever there is more of them: what long work says of itself. [`crate::last_line`] makes something to show of it.
    pub heard: Option<Hears<'a>>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The script's exit code.
    pub code: i32,
    /// What it said.
    pub stdout: Vec<u8>,
    /// The end of what it complained of.
    pub stderr: Vec<u8>,
    /// How long its first word took: the way there, for a script that speaks at once.
    pub first_word: Duration,
}

impl Answer {
    /// Its end of complaints in one line, fit for an error; how it ended where it said nothing.
    pub fn complaint(&self) -> String {
        let said = last_words(&self.stderr);
        if said.is_empty() { format!("it ended with exit code {}", self.code) } else { said }
    }
}

/// Runs scripts with a POSIX shell.
pub trait Shell: Send + Sync {
    /// Runs a script to its end. An exit code other than 0 is an answer; an error is where there is none.
    fn run(&self, call: &Call<'_>) -> Result<Answer>;
    /// Starts a script, for whoever streams to it or from it.
    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running>;
    /// What the machine is called, for messages.
    fn name(&self) -> &str;
}

/// What tells the script's own answer from a connection that broke.
pub(crate) type Judge = Box<dyn FnOnce(Answer) -> Result<Answer> + Send>;

/// A script that runs. Dropped before its end, it is killed.
#[must_use = "a script is only known to have worked when it is finished"]
pub struct Running {
    /// What it reads. Dropping it ends the input.
    pub stdin: Option<ChildStdin>,
    /// What it says.
    pub stdout: Option<ChildStdout>,
    name: String,
    group: Group,
    complaints: Option<JoinHandle<Vec<u8>>>,
    judge: Judge,
}

impl Running {
    /// `name` is that of the machine.
    pub(crate) fn start(command: &mut Command, name: &str, judge: Judge) -> Result<Self> {
        let mut group =
            Group::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let (stdin, stdout) = (group.child.stdin.take(), group.child.stdout.take());
        let stderr: Option<ChildStderr> = group.child.stderr.take();
        let complaints = stderr.map(|stderr| std::thread::spawn(move || end_of(stderr)));
        Ok(Self { stdin, stdout, name: name.to_owned(), group, complaints, judge })
    }

    /// Ends the input, hears the rest of the output without keeping it, and waits for the end. Whatever is not a success is an error with
    /// the last words of the script.
    pub fn finish(self) -> Result<()> {
        self.finish_unless(None)
    }

    /// The same; who asks to stop does not wait.
    pub fn finish_unless(self, cancel: Option<&CancelFlag>) -> Result<()> {
        self.finish_within(LAST_MOMENTS, cancel)
    }

    /// The same; who takes longer than `patience` is killed.
    pub(crate) fn finish_within(self, patience: Duration, cancel: Option<&CancelFlag>) -> Result<()> {
        let name = self.name.clone();
        let answer = self.answer(patience, cancel)?;
        if answer.code == 0 {
            return Ok(());
        }
        Err(Error::io("run a command on", name, std::io::Error::other(answer.complaint())))
    }

    /// The same for who knows what another code than 0 means.
    pub(crate) fn answer_unless(self, cancel: Option<&CancelFlag>) -> Result<Answer> {
        self.answer(LAST_MOMENTS, cancel)
    }

    fn answer(mut self, patience: Duration, cancel: Option<&CancelFlag>) -> Result<Answer> {
        self.stdin = None;
        // A thread: the rest has no end where somebody there goes on talking, and then the process is killed.
        let rest = self.stdout.take().map(|mut stdout| {
            std::thread::spawn(move || std::io::copy(&mut stdout.by_ref(), &mut std::io::sink()))
        });
        let ended = self.group.wait(Some(patience), cancel).map_err(|e| Error::io("wait for", "ssh", e));
        self.group.kill();
        let said = self.complaints.take().map(heard).unwrap_or_default();
        drop(rest);
        cancel.map_or(Ok(()), CancelFlag::check)?;
        match ended? {
            Some(status) => (self.judge)(Answer { code: code_of(status), stderr: said, ..Answer::default() }),
            None => Err(Error::refused(format!("the script did not end in {} s", patience.as_secs()))),
        }
    }
}

/// What was complained of. Something that the script left running may hold the stream open: it is not waited for.
fn heard(complaints: JoinHandle<Vec<u8>>) -> Vec<u8> {
    let until = Instant::now() + Duration::from_secs(2);
    while !complaints.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    if complaints.is_finished() { complaints.join().unwrap_or_default() } else { Vec::new() }
}

/// The shell of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl Here {
    fn command(script: &str, arguments: &[&OsStr]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(arguments);
        command
    }
}

impl Shell for Here {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        let mut command = Self::command(call.script, call.arguments);
        let outcome = process::run(&mut command, self.name(), &call.bounds())?;
        Ok(outcome.into_answer())
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        Running::start(&mut Self::command(script, arguments), self.name(), Box::new(Ok))
    }

    fn name(&self) -> &str {
        "this machine"
    }
}

impl Call<'_> {
    pub(crate) fn bounds(&self) -> Bounds<'_> {
        let Self { input, deadline, output, cancel, heard, .. } = *self;
        Bounds { input, deadline, output, cancel, heard }
    }
}

impl Outcome {
    pub(crate) fn into_answer(self) -> Answer {
        let Self { status, stdout, stderr, first_word } = self;
        Answer { code: code_of(status), stdout, stderr, first_word }
    }
}

/// The exit code as a shell would tell it.
pub(crate) fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
