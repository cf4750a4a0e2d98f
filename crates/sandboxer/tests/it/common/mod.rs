//! What every test of the command needs: a world of its own (state, home, a project), the command run in it, and output
//! without the parts that differ from run to run.

pub mod checkout;
pub mod contained;
pub mod databases;
pub mod doc_pages;
pub mod pty;
pub mod remains;
pub mod runtimes;
pub mod server;
pub mod serving;
pub mod stack;
pub mod user;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The command under test.
pub const SANDBOX: &str = env!("CARGO_BIN_EXE_sandbox");

/// A private state directory, home and project.
pub struct World {
    root: TempDir,
}

/// What a command did.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub raw: Vec<u8>,
}

impl World {
    /// With an empty state and a project of three files.
    pub fn new() -> Self {
        // Modes are part of what is compared, whatever the umask of whoever runs the tests.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let world = Self { root: tempfile::tempdir().unwrap() };
        world.file("project/hello.txt", "hello\nworld\n");
        world.file("project/src/main.rs", "fn main() {}\n");
        world.file("project/run.sh", "#!/bin/sh\necho hi\n");
        fs::create_dir(world.path("user")).unwrap();
        world
    }

    /// A world with a sandbox `try` of the project.
    pub fn with_sandbox() -> Self {
        let world = Self::new();
        world.ok(&["create", "--name", "try", "-s", "filesystem_copy"]);
        world
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub fn file(&self, below: &str, content: impl AsRef<[u8]>) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn text(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap()
    }

    /// Where the sandbox of that name is worked in.
    pub fn inside(&self, selector: &str) -> PathBuf {
        PathBuf::from(self.ok(&["path", selector]).trim_end())
    }

    /// The command with nothing of this machine's environment but the search path.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SANDBOX);
        self.furnish(&mut command);
        command.args(arguments);
        command
    }

    /// Gives any command this world's environment.
    pub fn furnish(&self, command: &mut Command) {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("SANDBOXER_HOME", self.path("home")).env("HOME", self.path("user"));
        if let Some(profile) = std::env::var_os("LLVM_PROFILE_FILE") {
            command.env("LLVM_PROFILE_FILE", profile);
        }
        command.current_dir(self.project()).stdin(Stdio::null());
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }

    /// Runs a command that says `ready` and then waits for a line, which it gets when `meanwhile` is done.
    pub fn run_while(&self, arguments: &[&str], meanwhile: impl FnOnce()) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        meanwhile();
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }

    /// Runs, expects success, gives stdout.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "sandbox {arguments:?}\n{}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Runs with `--json`, expects success, gives the document.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?} printed no JSON ({e}): {text}"))
    }

    /// Runs with `--json`, expects that exit code, gives the error document.
    pub fn json_error(&self, arguments: &[&str], code: i32) -> Value {
        let ran = self.run(&[&["--json"], arguments].concat());
        assert_eq!(ran.code, code, "sandbox {arguments:?}\n{}{}", ran.stdout, ran.stderr);
        let document: Value =
            serde_json::from_str(&ran.stderr).unwrap_or_else(|e| panic!("{e}: {}", ran.stderr));
        document["error"].clone()
    }

    /// Text without what differs from run to run.
    pub fn redact(&self, text: &str) -> String {
        redact(
            &text.replace(&canonical(self.root.path()), "[TMP]").replace(&shown(self.root.path()), "[TMP]"),
        )
    }
}

impl Drop for World {
    fn drop(&mut self) {
        remains::clear(self.root.path());
    }
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            raw: output.stdout,
        }
    }

    /// Everything for a snapshot.
    pub fn transcript(&self, world: &World) -> String {
        let part = |title: &str, text: &str| {
            if text.is_empty() { String::new() } else { format!("--- {title}\n{}", world.redact(text)) }
        };
        format!("exit {}\n{}{}", self.code, part("stdout", &self.stdout), part("stderr", &self.stderr))
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn canonical(path: &Path) -> String {
    shown(&fs::canonicalize(path).unwrap())
}

/// Replaces ids, digests, times and ages, and squeezes the padding that depends on them.
pub fn redact(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (replacement, length) = match redaction(rest, out.chars().last()) {
            Some((replacement, length)) => (replacement.to_owned(), length),
            None => (c.to_string(), c.len_utf8()),
        };
        out.push_str(&replacement);
        rest = &rest[length..];
    }
    out.lines().map(|line| squeeze(line) + "\n").collect()
}

/// What stands at the beginning of `rest`, if it is something that varies, and how long it is.
fn redaction(rest: &str, before: Option<char>) -> Option<(&'static str, usize)> {
    if before.is_some_and(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    for (prefix, name) in
        [("sbx_", "[SBX]"), ("pln_", "[PLN]"), ("op_", "[OP]"), ("cp_", "[CP]"), ("ws_", "[WS]")]
    {
        if let Some(id) = rest.strip_prefix(prefix)
            && run_of(id, |c| c.is_ascii_alphanumeric()) == 26
        {
            return Some((name, prefix.len() + 26));
        }
    }
    if let Some(digest) = rest.strip_prefix("blake3:") {
        return Some(("[DIGEST]", "blake3:".len() + run_of(digest, |c| c.is_ascii_hexdigit())));
    }
    // What is kept is counted in blocks, whose size is the filesystem's.
    let fields = [
        ("uid\": ", "uid\": [UID]"),
        ("gid\": ", "gid\": [GID]"),
        ("undo_bytes\": ", "undo_bytes\": [BYTES]"),
    ];
    for (field, name) in fields {
        if let Some(id) = rest.strip_prefix(field) {
            return Some((name, field.len() + run_of(id, |c| c.is_ascii_digit())));
        }
    }
    if is_time(rest) {
        let length = run_of(rest, |c| c.is_ascii_digit() || "-:T. ".contains(c)) + 1;
        return Some(("[TIME]", length));
    }
    age(rest).map(|length| ("[AGE]", length))
}

fn run_of(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|c| !wanted(c)).unwrap_or(text.len())
}

fn is_time(text: &str) -> bool {
    let shape: String = text.chars().take(11).map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    shape == "9999-99-99T" || shape == "9999-99-99 "
}

/// `just now ago`, `3s`, `2m`.
fn age(text: &str) -> Option<usize> {
    if text.starts_with("just now") {
        return Some("just now".len());
    }
    let digits = run_of(text, |c| c.is_ascii_digit());
    let ends = |unit: usize| !text[unit..].starts_with(|c: char| c.is_ascii_alphanumeric());
    (digits > 0 && text[digits..].starts_with(['s', 'm']) && ends(digits + 1)).then_some(digits + 1)
}

/// Padding inside a line becomes two spaces; indentation stays.
fn squeeze(line: &str) -> String {
    let indentation = run_of(line, |c| c == ' ');
    let words: Vec<&str> = line[indentation..].split("  ").map(str::trim).filter(|w| !w.is_empty()).collect();
    format!("{}{}", &line[..indentation], words.join("  "))
}
