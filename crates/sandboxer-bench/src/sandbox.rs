//! Driving the `sandbox` command: a private state directory on the filesystem of the tree, an empty environment, and
//! the three commands that rows time. Everything around the timed command (parsing, destroying) happens outside.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, run};
use crate::place::tool;

/// One `sandbox` binary with a state directory of its own.
pub struct SandboxCommand {
    binary: PathBuf,
    home: PathBuf,
    output: PathBuf,
}

/// What `create --json` answers, as far as it is needed here.
#[derive(Debug, Deserialize)]
pub struct Created {
    /// Its id.
    pub sandbox_id: String,
    /// Where to work.
    pub sandbox_path: PathBuf,
    strategy: String,
    reason: Option<String>,
}

impl SandboxCommand {
    /// Keeps state and output below `directory`.
    pub fn new(binary: &Path, directory: &Path) -> Self {
        let (home, output) = (directory.join("home"), directory.join("output"));
        Self { binary: binary.to_owned(), home, output }
    }

    /// Times `create` of `tree`; the sandbox is there afterwards.
    pub fn create(&self, tree: &Path, strategy: &str) -> Result<(Sample, Created)> {
        let mut command = self.command(&["create", "--strategy", strategy, "--json"]);
        let sample = run(command.arg(tree), &self.output, &[0])?;
        let created: Created = self.parse_output()?;
        if created.strategy == strategy {
            return Ok((sample, created));
        }
        let reason = created.reason.as_deref().unwrap_or("no reason given");
        let fell_back = format!("{strategy} fell back to {} ({reason})", created.strategy);
        self.destroy(&created).and(Err(Failure::Skipped(fell_back)))
    }

    /// Times `diff`, which must find `expected` entries.
    pub fn diff(&self, sandbox: &Created, expected: usize) -> Result<Sample> {
        let sample = run(&mut self.command(&["diff", "--json", &sandbox.sandbox_id]), &self.output, &[0])?;
        self.expect_entries("diff", expected)?;
        Ok(sample)
    }

    /// Times `commit`, which must commit `expected` entries.
    pub fn commit(&self, sandbox: &Created, expected: usize) -> Result<Sample> {
        let sample = run(&mut self.command(&["commit", "--json", &sandbox.sandbox_id]), &self.output, &[0])?;
        self.expect_entries("commit", expected)?;
        Ok(sample)
    }

    /// Times `list`.
    pub fn list(&self) -> Result<Sample> {
        run(&mut self.command(&["list"]), &self.output, &[0])
    }

    /// Removes a sandbox; not timed.
    pub fn destroy(&self, sandbox: &Created) -> Result<()> {
        tool(&mut self.command(&["destroy", &sandbox.sandbox_id]))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        // No user's configuration and no project's may decide what is measured.
        command.env_clear().env("HOME", &self.home).env("SANDBOXER_HOME", &self.home);
        command.env("PATH", "/usr/bin:/bin").current_dir("/").args(arguments);
        command
    }

    fn expect_entries(&self, what: &str, expected: usize) -> Result<()> {
        let answer: serde_json::Value = self.parse_output()?;
        let found = count_entries(&answer);
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

/// Entries at the top level, or below each workspace.
fn count_entries(answer: &serde_json::Value) -> usize {
    match answer.get("entries").and_then(|e| e.as_array()) {
        Some(entries) => entries.len(),
        None => answer["workspaces"].as_array().into_iter().flatten().map(count_entries).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_at_either_level() {
        let flat = serde_json::json!({"entries": [1, 2]});
        let nested = serde_json::json!({"workspaces": [{"entries": [1]}, {"entries": [2, 3]}]});
        assert_eq!(count_entries(&flat), 2);
        assert_eq!(count_entries(&nested), 3);
        assert_eq!(count_entries(&serde_json::json!({})), 0);
    }
}
