//! Starting git so that it reads no configuration but what it is given, runs no hook, asks nobody and writes durably.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;

use sandboxer_core::{Error, Result};

/// The oldest git that has what is used here.
pub const OLDEST: Version = Version { major: 2, minor: 30 };

/// What is switched off, or on, in every call: nothing that is configured may run, and what is written stays written.
const SETTINGS: [&str; 9] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=all",
    "core.fsyncObjectFiles=true",
    "core.commitGraph=false",
    "core.pager=cat",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
];

/// The environment of every call.
const ENVIRONMENT: [(&str, &str); 12] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    // Before 2.32 git knew no other way to be told.
    ("HOME", "/nonexistent"),
    ("XDG_CONFIG_HOME", "/nonexistent"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
];

/// What a call that asks may take from the caller's environment: where the user's configuration is, and who the user is.
const ASKING: [&str; 9] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_GLOBAL",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
];

/// A version of git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the first dot.
    pub major: u32,
    /// After it.
    pub minor: u32,
}

impl Version {
    /// Reads what `git version` prints.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().strip_prefix("git version ")?.split('.');
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The git of this machine, or why it cannot be used.
pub fn version() -> Result<Version, String> {
    let told = base().arg("version").output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "git is not installed".to_owned(),
        _ => format!("git cannot be started ({e})"),
    })?;
    let text = String::from_utf8_lossy(&told.stdout);
    let version = Version::parse(&text).ok_or_else(|| format!("`git version` said {text:?}"))?;
    if version < OLDEST {
        return Err(format!("git {version} is too old: {OLDEST} or newer is needed"));
    }
    Ok(version)
}

/// Which git directory a command is about.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// This one, and no search for another.
    Dir(&'a Path),
    /// The one that git finds from this directory.
    From(&'a Path),
}

/// A call of git.
pub struct Git {
    command: Command,
    /// What it is about, for messages.
    about: PathBuf,
}

/// The git of the search path. Only what is absolute in it counts: calls are made from directories that others write to, where a
/// relative one would lead to a program of theirs.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| find_program(&std::env::var_os("PATH").unwrap_or_default()))
}

/// Where there is none, what is returned is not found either.
fn find_program(search: &OsStr) -> PathBuf {
    let runs = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let mut places = std::env::split_paths(search).filter(|dir| dir.is_absolute()).map(|dir| dir.join("git"));
    places.find(runs).unwrap_or_else(|| PathBuf::from("/nonexistent/git"))
}

/// Git without anything that the caller's environment would tell it.
fn base() -> Command {
    let mut command = Command::new(program());
    let ours = |name: &OsStr| name.to_string_lossy().starts_with("GIT_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command.envs(ENVIRONMENT).stdin(Stdio::null());
    command
}

impl Git {
    /// A call about `place`.
    pub fn at(place: Place<'_>) -> Self {
        let mut command = base();
        let about = match place {
            Place::Dir(dir) => {
                command.env("GIT_DIR", dir);
                // Whatever is in the directory that the caller happens to be in is none of its business.
                command.current_dir(dir);
                dir
            }
            Place::From(dir) => {
                command.current_dir(dir);
                dir
            }
        };
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        Self { command, about: about.to_path_buf() }
    }

    /// A call that reads the user's own configuration, as far as the environment and the system have one, and knows the
    /// user's name as the environment gives it. Only for asking what it says.
    pub fn asking(place: Place<'_>) -> Self {
        let mut git = Self::at(place);
        for name in ASKING {
            match std::env::var_os(name) {
                Some(value) => git.command.env(name, value),
                None => git.command.env_remove(name),
            };
        }
        git
    }

    /// One more setting; put before the command's name.
    pub fn set(mut self, setting: impl AsRef<OsStr>) -> Self {
        self.command.arg("-c").arg(setting);
        self
    }

    /// One more word.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.command.arg(word);
        self
    }

    /// More words.
    pub fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.command.args(words);
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What it prints; a failure is an error with what it said.
    pub fn output(mut self) -> Result<Vec<u8>> {
        let output = self.command.output().map_err(|e| self.not_started(e))?;
        self.checked(output)
    }

    /// Like [`Git::output`], as one line.
    pub fn line(self) -> Result<String> {
        let bytes = self.output()?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }

    /// What it prints, or `None` where it ends with a failure.
    pub fn try_output(mut self) -> Result<Option<Vec<u8>>> {
        let output = self.command.output().map_err(|e| self.not_started(e))?;
        Ok(output.status.success().then_some(output.stdout))
    }

    /// What it prints, or `None` where it ends with 1, which is git's way to say no; any other failure is an error.
    pub fn output_unless_no(mut self) -> Result<Option<Vec<u8>>> {
        let output = self.command.output().map_err(|e| self.not_started(e))?;
        if output.status.code() == Some(1) { Ok(None) } else { self.checked(output).map(Some) }
    }

    /// What it prints when given `input`.
    pub fn feed(self, input: &[u8]) -> Result<Vec<u8>> {
        self.feed_with(|pipe| pipe.write_all(input))
    }

    /// What it prints when given what `write` writes, which runs in a thread of its own. A failure of git counts before one of
    /// `write`: a git that ends early has said why.
    pub fn feed_with<W>(mut self, write: W) -> Result<Vec<u8>>
    where
        W: FnOnce(&mut ChildStdin) -> std::io::Result<()> + Send,
    {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|e| self.not_started(e))?;
        let pipe = child.stdin.take();
        let (written, output) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || pipe.map_or(Ok(()), |mut pipe| write(&mut pipe)));
            let output = child.wait_with_output();
            let stopped = |_| Err(std::io::Error::other("the thread that feeds it has failed"));
            (writer.join().unwrap_or_else(stopped), output)
        });
        let output = self.checked(output.map_err(|e| self.not_started(e))?)?;
        match written {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(self.failed(e)),
            _ => Ok(output),
        }
    }

    /// Starts it with pipes to and from it, and one for what it says as an error, which has to be short. An interrupt from the terminal
    /// does not reach it: it ends when its input does.
    pub fn talk_aloud(mut self) -> Result<Child> {
        self.command.process_group(0);
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.spawn().map_err(|e| self.not_started(e))
    }

    /// Starts it with pipes to and from it; what it says as an error goes nowhere.
    pub fn talk(mut self) -> Result<Child> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.command.spawn().map_err(|e| self.not_started(e))
    }

    fn checked(&self, output: Output) -> Result<Vec<u8>> {
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = complaint(&output.stderr);
        let why = if said.is_empty() { output.status.to_string() } else { said };
        Err(self.failed(std::io::Error::other(why)))
    }

    fn not_started(&self, error: std::io::Error) -> Error {
        self.failed(error)
    }

    /// The command's name is the first word after the settings.
    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("run git on", &self.about, error)
    }
}

/// What git said as an error, without what it thinks of [`SETTINGS`], which are for older ones too.
pub(crate) fn complaint(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = said.lines().filter(|line| !line.starts_with("warning: core.fsyncObjectFiles "));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let version = Version::parse("git version 2.47.3\n").unwrap();
        assert!(version > OLDEST && Version::parse("git version 2.29.rc1").unwrap() < OLDEST);
        assert_eq!(Version::parse("git version 2.39.5 (Apple Git-154)").unwrap().to_string(), "2.39");
        assert!(Version::parse("hello").is_none());
    }

    #[test]
    fn only_absolute_places_are_searched_for_git() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, good) = (dir.path().join("plain"), dir.path().join("good"));
        for (place, mode) in [(&plain, 0o644), (&good, 0o755)] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("git"), "").unwrap();
            std::fs::set_permissions(place.join("git"), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let search = |places: &[&Path]| find_program(&std::env::join_paths(places).unwrap());
        assert_eq!(search(&[Path::new(""), Path::new("."), &plain, &good]), good.join("git"));
        let up = "../".repeat(40) + good.strip_prefix("/").unwrap().to_str().unwrap();
        assert!(Path::new(&up).join("git").exists());
        assert_eq!(search(&[Path::new(&up), &plain]), Path::new("/nonexistent/git"));
        assert_eq!(search(&[]), Path::new("/nonexistent/git"));
    }

    #[test]
    fn a_failure_says_what_git_said() {
        let dir = tempfile::tempdir().unwrap();
        let error = Git::at(Place::Dir(dir.path())).args(["cat-file", "-p", "HEAD"]).output().unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("not a git repository"), "{cause}");
    }

    #[test]
    fn settings_of_ours_are_nobodys_trouble() {
        let said =
            b"warning: core.fsyncObjectFiles is deprecated; use core.fsync instead\nfatal: no\nhint: y\n";
        assert_eq!(complaint(said), "fatal: no\nhint: y");
    }

    #[test]
    fn what_is_fed_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        Git::at(Place::From(dir.path())).args(["init", "-q", "."]).output().unwrap();
        let git = Git::at(Place::Dir(&dir.path().join(".git")));
        let told = git.args(["hash-object", "--stdin", "--no-filters"]).feed(b"").unwrap();
        assert!(told.starts_with(b"e69de29"));
    }
}
