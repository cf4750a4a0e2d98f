//! Driving the `sandbox` command: a private state directory on the filesystem of the tree, an empty environment, and
//! the three commands that rows time. Everything around the timed command (parsing, destroying) happens outside.

use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, run};
use crate::place::tool;

/// The exit code of a strategy that does not work here.
const ISOLATION_UNAVAILABLE: i32 = 6;

/// One `sandbox` binary with a state directory of its own.
pub struct SandboxCommand {
    binary: PathBuf,
    home: PathBuf,
    output: PathBuf,
    user: Option<u32>,
}

/// A `sandbox` command that leaves no sandbox behind, also where a row failed between create and destroy.
pub struct Tidy(pub SandboxCommand);

impl Deref for Tidy {
    type Target = SandboxCommand;

    fn deref(&self) -> &SandboxCommand {
        &self.0
    }
}

impl Drop for Tidy {
    fn drop(&mut self) {
        if let Err(why) = self.0.destroy_all() {
            crate::say(&format!("cannot remove the sandboxes that are left: {why}"));
        }
    }
}

/// What `create --json` answers, as far as it is needed here.
#[derive(Debug, Deserialize)]
pub struct Created {
    /// Its id.
    pub sandbox_id: String,
    /// Where to work.
    pub sandbox_path: PathBuf,
    strategy: String,
    workspaces: Vec<WorkspaceReason>,
}

#[derive(Debug, Deserialize)]
struct WorkspaceReason {
    reason: String,
}

/// What `diff --json` and `commit --json` answer, as far as it is needed here.
#[derive(Deserialize)]
struct Listed {
    entries: Vec<IgnoredAny>,
}

/// What `list --json` answers, as far as it is needed here.
#[derive(Deserialize)]
struct Sandboxes {
    sandboxes: Vec<Listing>,
}

#[derive(Deserialize)]
struct Listing {
    sandbox_id: String,
}

/// What a command with `--json` says on stderr when it fails, as far as it is needed here.
#[derive(Deserialize)]
struct Refused {
    error: RefusalReason,
}

#[derive(Deserialize)]
struct RefusalReason {
    message: String,
}

impl SandboxCommand {
    /// Keeps state and output below `directory`.
    pub fn new(binary: &Path, directory: &Path) -> Self {
        let (home, output) = (directory.join("home"), directory.join("output"));
        Self { binary: binary.to_owned(), home, output, user: None }
    }

    /// The same, run by this user: a process that is told its user is started another way, so both sides of a
    /// comparison of users have to be told.
    pub fn run_by(self, user: u32) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Times `create` of `tree`; the sandbox is there afterwards.
    pub fn create(&self, tree: &Path, strategy: &str) -> Result<(Sample, Created)> {
        let (sample, created) = self.create_with(&[], tree, strategy)?;
        if created.strategy == strategy {
            return Ok((sample, created));
        }
        let reason = created.workspaces.first().map_or("no reason given", |workspace| &workspace.reason);
        let fell_back = format!("{strategy} fell back to {} ({reason})", created.strategy);
        self.destroy(&created).and(Err(Failure::Skipped(fell_back)))
    }

    /// Times `create` of `tree` by this strategy or none; the sandbox is there afterwards.
    pub fn create_by(&self, tree: &Path, strategy: &str) -> Result<(Sample, Created)> {
        self.create_with(&["--no-fallback"], tree, strategy)
    }

    /// Skips what rests on a strategy that cannot isolate `tree` here; the reason is the command's own.
    pub fn need_strategy(&self, tree: &Path, strategy: &str) -> Result<()> {
        let mut create = self.command(&["create", "--strategy", strategy, "--json", "--no-fallback"]);
        let output = create.arg(tree).output().during("run", &self.binary)?;
        if output.status.success() {
            let created = serde_json::from_slice(&output.stdout).during("understand the create of", tree)?;
            return self.destroy(&created);
        }
        let said = format!("no {strategy} here ({})", refusal(&output.stderr));
        let unavailable = output.status.code() == Some(ISOLATION_UNAVAILABLE);
        Err(if unavailable { Failure::Skipped(said) } else { Failure::new(said) })
    }

    fn create_with(&self, options: &[&str], tree: &Path, strategy: &str) -> Result<(Sample, Created)> {
        let mut command = self.command(&["create", "--strategy", strategy, "--json"]);
        let sample = run(command.args(options).arg(tree), &self.output, &[0])?;
        Ok((sample, self.parse_output()?))
    }

    /// Times `diff`, which must find `expected` entries.
    pub fn diff(&self, sandbox: &Created, expected: usize) -> Result<Sample> {
        self.diff_of(&sandbox.sandbox_id, expected)
    }

    /// The same of the sandbox with this id.
    pub fn diff_of(&self, id: &str, expected: usize) -> Result<Sample> {
        let sample = run(&mut self.command(&["diff", "--json", id]), &self.output, &[0])?;
        self.expect_entries("diff", expected)?;
        Ok(sample)
    }

    /// Times `diff --patch`, which must show the patches of `expected` files.
    pub fn diff_patch(&self, sandbox: &Created, expected: usize) -> Result<Sample> {
        let sample = run(&mut self.command(&["diff", "--patch", &sandbox.sandbox_id]), &self.output, &[0])?;
        expect_patches("diff --patch", &self.output, expected)?;
        Ok(sample)
    }

    /// Times `commit`, which must commit `expected` entries.
    pub fn commit(&self, sandbox: &Created, expected: usize) -> Result<Sample> {
        self.commit_with(&[], sandbox, expected)
    }

    /// Times a `commit` that merges where the original has changed, too; it must commit `expected` entries.
    pub fn commit_merging(&self, sandbox: &Created, expected: usize) -> Result<Sample> {
        self.commit_with(&["--on-conflict", "merge"], sandbox, expected)
    }

    fn commit_with(&self, options: &[&str], sandbox: &Created, expected: usize) -> Result<Sample> {
        let arguments = [&["commit", "--json"], options, &[&sandbox.sandbox_id]].concat();
        let sample = run(&mut self.command(&arguments), &self.output, &[0])?;
        self.expect_entries("commit", expected)?;
        Ok(sample)
    }

    /// Times `undo` of the sandbox's last commit, which must take back `expected` entries.
    pub fn undo(&self, sandbox: &Created, expected: usize) -> Result<Sample> {
        let sample = run(&mut self.command(&["undo", "--json", &sandbox.sandbox_id]), &self.output, &[0])?;
        self.expect_entries("undo", expected)?;
        Ok(sample)
    }

    /// Takes a checkpoint; not timed.
    pub fn checkpoint(&self, sandbox: &Created) -> Result<()> {
        tool(&mut self.command(&["checkpoint", &sandbox.sandbox_id]))
    }

    /// Times a `checkpoint` of that name.
    pub fn checkpoint_as(&self, sandbox: &Created, name: &str) -> Result<Sample> {
        run(&mut self.command(&["checkpoint", &sandbox.sandbox_id, name]), &self.output, &[0])
    }

    /// Times `restore` of the checkpoint of that name.
    pub fn restore(&self, sandbox: &Created, name: &str) -> Result<Sample> {
        run(&mut self.command(&["restore", &sandbox.sandbox_id, name]), &self.output, &[0])
    }

    /// A command in a session of its own, for a terminal that the caller gives it. `setsid --ctty` does what would need
    /// unsafe code here.
    pub fn on_terminal(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        command.env_clear().env("HOME", &self.home).env("SANDBOXER_HOME", &self.home);
        command.env("PATH", "/usr/bin:/bin").env("TERM", "dumb").current_dir("/");
        command.args(["--ctty", "--wait"]).arg(&self.binary).args(arguments);
        command
    }

    /// Times `list`.
    pub fn list(&self) -> Result<Sample> {
        run(&mut self.command(&["list"]), &self.output, &[0])
    }

    /// Removes a sandbox; not timed.
    pub fn destroy(&self, sandbox: &Created) -> Result<()> {
        tool(&mut self.command(&["destroy", "--discard", &sandbox.sandbox_id]))
    }

    /// Removes every sandbox that there still is; not timed.
    pub fn destroy_all(&self) -> Result<()> {
        run(&mut self.command(&["list", "--json"]), &self.output, &[0])?;
        let left: Sandboxes = self.parse_output()?;
        left.sandboxes
            .iter()
            .try_for_each(|sandbox| tool(&mut self.command(&["destroy", "--discard", &sandbox.sandbox_id])))
    }

    /// The command with these arguments, for a caller that times or changes it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        // No user's configuration and no project's may decide what is measured.
        command.env_clear().env("HOME", &self.home).env("SANDBOXER_HOME", &self.home);
        command.env("PATH", "/usr/bin:/bin").current_dir("/").args(arguments);
        command
    }

    fn expect_entries(&self, what: &str, expected: usize) -> Result<()> {
        let found = self.parse_output::<Listed>()?.entries.len();
        if found == expected {
            return Ok(());
        }
        Err(Failure::new(format!("{what} found {found} changed files where there are {expected}")))
    }

    fn parse_output<T: for<'a> Deserialize<'a>>(&self) -> Result<T> {
        let text = std::fs::read(&self.output).during("read", &self.output)?;
        serde_json::from_slice(&text).during("understand the JSON in", &self.output)
    }
}

/// What a command with `--json` said when it failed.
fn refusal(stderr: &[u8]) -> String {
    let refused = serde_json::from_slice::<Refused>(stderr);
    refused.map_or_else(|_| String::from_utf8_lossy(stderr).trim().to_owned(), |told| told.error.message)
}

/// Fails unless the patch in the file `output` is about `expected` files.
pub fn expect_patches(what: &str, output: &Path, expected: usize) -> Result<()> {
    let text = std::fs::read(output).during("read", output)?;
    let found = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"diff --git ")).count();
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(format!("{what} showed patches of {found} files where there are {expected}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A `sandbox` that answers `answer` to everything, and lists how it was called in the file `called`.
    fn fake(answer: &str) -> (TempDir, SandboxCommand) {
        fake_that(answer, 0)
    }

    /// The same, ending with this code.
    fn fake_that(answer: &str, code: i32) -> (TempDir, SandboxCommand) {
        let scratch = tempfile::tempdir().unwrap();
        let binary = scratch.path().join("sandbox");
        let called = scratch.path().join("called");
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}\necho because >&2\ncat <<'END'\n{answer}\nEND\nexit {code}\n",
            called.display()
        );
        let text = scratch.path().join("text");
        fs::write(&text, script).unwrap();
        // Written by another process: a file that a child of some parallel test inherited open could not be executed.
        tool(Command::new("install").args(["-m", "755"]).arg(&text).arg(&binary)).unwrap();
        let command = SandboxCommand::new(&binary, scratch.path());
        (scratch, command)
    }

    const CREATED: &str = r#"{"sandbox_id": "sbx_1", "sandbox_path": "/p", "strategy": "filesystem_copy",
        "workspaces": [{"reason": "no reflinks here"}]}"#;

    #[test]
    fn a_created_sandbox_is_understood() {
        let (_scratch, sandbox) = fake(CREATED);
        let (sample, created) = sandbox.create(Path::new("/tree"), "filesystem_copy").unwrap();
        assert_eq!((created.sandbox_id.as_str(), created.sandbox_path.as_path()), ("sbx_1", Path::new("/p")));
        assert!(!sample.wall.is_zero());
    }

    #[test]
    fn another_strategy_than_asked_for_skips_the_row_and_leaves_no_sandbox() {
        let (scratch, sandbox) = fake(CREATED);
        let why = sandbox.create(Path::new("/tree"), "copy_on_write").unwrap_err();
        let expected = "copy_on_write fell back to filesystem_copy (no reflinks here)";
        assert_eq!(why, Failure::Skipped(expected.to_owned()));
        let called = fs::read_to_string(scratch.path().join("called")).unwrap();
        assert!(called.ends_with("destroy --discard sbx_1\n"), "{called}");
    }

    #[test]
    fn no_fallback_is_asked_for_and_whatever_is_left_is_removed() {
        let (scratch, sandbox) = fake(CREATED);
        sandbox.create_by(Path::new("/tree"), "overlay").unwrap();
        let called = fs::read_to_string(scratch.path().join("called")).unwrap();
        assert_eq!(called, "create --strategy overlay --json --no-fallback /tree\n");
        let (scratch, sandbox) = fake(r#"{"sandboxes": [{"sandbox_id": "sbx_1"}, {"sandbox_id": "sbx_2"}]}"#);
        sandbox.destroy_all().unwrap();
        let called = fs::read_to_string(scratch.path().join("called")).unwrap();
        assert_eq!(called, "list --json\ndestroy --discard sbx_1\ndestroy --discard sbx_2\n");
    }

    #[test]
    fn a_diff_or_commit_of_the_wrong_size_is_a_failure() {
        let (_scratch, made) = fake(CREATED);
        let (_, created) = made.create(Path::new("/tree"), "filesystem_copy").unwrap();
        let (_scratch, sandbox) = fake(r#"{"entries": [{}, {}]}"#);
        assert!(sandbox.diff(&created, 2).is_ok() && sandbox.commit(&created, 2).is_ok());
        assert!(sandbox.commit_merging(&created, 2).is_ok() && sandbox.commit_merging(&created, 1).is_err());
        let message = sandbox.diff(&created, 3).unwrap_err().to_string();
        assert_eq!(message, "failed: diff found 2 changed files where there are 3");
    }
    #[test]
    fn patches_are_counted_by_their_headers() {
        let (_scratch, made) = fake(CREATED);
        let (_, created) = made.create(Path::new("/tree"), "filesystem_copy").unwrap();
        let (_scratch, sandbox) = fake("diff --git a/a b/a\n+diff --git a/no b/no\ndiff --git a/b b/b");
        assert!(sandbox.diff_patch(&created, 2).is_ok());
        let message = sandbox.diff_patch(&created, 3).unwrap_err().to_string();
        assert_eq!(message, "failed: diff --patch showed patches of 2 files where there are 3");
    }

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        assert_eq!(
            refusal(br#"{"error": {"kind": "isolation", "message": "no mounts here"}}"#),
            "no mounts here"
        );
        assert_eq!(refusal(b"Segmentation fault\n"), "Segmentation fault");
    }

    #[test]
    fn a_strategy_that_does_not_work_here_skips_and_any_other_failure_fails() {
        let need = |code| {
            let (_scratch, sandbox) = fake_that(CREATED, code);
            sandbox.need_strategy(Path::new("/tree"), "overlay")
        };
        assert_eq!(need(6), Err(Failure::Skipped("no overlay here (because)".to_owned())));
        assert_eq!(need(1), Err(Failure::new("no overlay here (because)")));
        let (scratch, sandbox) = fake(CREATED);
        sandbox.need_strategy(Path::new("/tree"), "overlay").unwrap();
        let called = fs::read_to_string(scratch.path().join("called")).unwrap();
        assert!(called.ends_with("destroy --discard sbx_1\n"), "{called}");
    }
}
