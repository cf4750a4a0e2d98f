//! Running `sandbox` with a state directory of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::binary;

/// `sandbox` over one state directory.
#[derive(Clone, Debug)]
pub struct Cli {
    home: PathBuf,
    configuration: PathBuf,
}

/// A sandbox that was made through the command line.
#[derive(Clone, Debug)]
pub struct Created {
    /// Its id.
    pub id: String,
    /// Where to work.
    pub path: PathBuf,
    /// The strategy in use.
    pub strategy: String,
}

impl Cli {
    /// Over the state directory `home`, which need not exist.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_path_buf(), configuration: home.join("no-configuration") }
    }

    /// The same with the user's own configuration in `sandboxer` below `directory`.
    #[must_use]
    pub fn configured(self, directory: &Path) -> Self {
        Self { configuration: directory.to_path_buf(), ..self }
    }

    /// The state directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A command that is not started yet, away from the user's own state and configuration.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Sets the environment of any command that runs `sandbox` in the end.
    pub fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("SANDBOXER_")) {
            command.env_remove(name);
        }
        command.env("SANDBOXER_HOME", &self.home).env("XDG_CONFIG_HOME", &self.configuration);
        command.env("NO_COLOR", "1").current_dir("/").stdin(std::process::Stdio::null());
    }

    /// Runs it.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it and returns its exit code.
    pub fn code<S: AsRef<OsStr>>(&self, arguments: &[S]) -> i32 {
        self.run(arguments).status.code().unwrap_or(-1)
    }

    /// Runs it; it has to work.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        let output = self.run(arguments);
        let shown: Vec<_> = arguments.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect();
        assert!(output.status.success(), "sandbox {}: {}", shown.join(" "), describe(&output));
        output
    }

    /// Runs it with `--json`; it has to work.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("no JSON ({e}): {}", describe(&output)))
    }

    /// Makes a sandbox of `resource`.
    #[track_caller]
    pub fn create(&self, resource: &Path, options: &[&str]) -> Created {
        let answer = self.json(&[&["create", resource.to_str().unwrap()], options].concat());
        let text =
            |key: &str| answer[key].as_str().unwrap_or_else(|| panic!("no {key} in {answer}")).to_owned();
        Created { id: text("sandbox_id"), path: text("sandbox_path").into(), strategy: text("strategy") }
    }

    /// The ids of the operations that are in one of `states`.
    #[track_caller]
    pub fn operations_in(&self, states: &[&str]) -> Vec<String> {
        let log = self.json(&["log", "-n", "1000"]);
        let all = log["operations"].as_array().unwrap();
        let meant = all.iter().filter(|op| states.iter().any(|state| op["state"] == *state));
        meant.map(|op| op["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Every file and directory below the state directory by name, the database's own files and what is inside
    /// workspaces' trees excepted: what has to be the same before and after something that left nothing behind.
    pub fn inventory(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(&self.home, Path::new(""), &mut found);
        found.sort();
        found
    }
}

fn collect(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), below.join(entry.file_name()));
        if name.to_string_lossy().starts_with("state.db") {
            continue;
        }
        let is_tree = name == "tree";
        if entry.file_type().is_ok_and(|t| t.is_dir()) && !is_tree {
            collect(root, &path, found);
        }
        found.push(path);
    }
}

/// An exit code and both outputs, for messages.
pub(super) fn describe(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    format!("{}\nstdout: {}\nstderr: {}", output.status, text(&output.stdout), text(&output.stderr))
}
