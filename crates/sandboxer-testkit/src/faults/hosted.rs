//! Sandboxes with an environment, and the verdict on all of them once nothing runs any more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::scenario::is_of_a_sandbox;
use super::{Cli, Created};
use crate::manifest::{Facets, Manifest};

/// A strategy whose workspaces every process sees.
const STRATEGY: &str = "filesystem_copy";

/// A state directory with a catalogue of its own, and a directory to isolate.
pub struct Hosted {
    /// Runs commands over its state directory.
    pub cli: Cli,
    /// The original.
    pub resource: PathBuf,
    before: Manifest,
    dir: TempDir,
}

/// One sandbox, as `list` tells of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// Where it is in its life.
    pub state: String,
    /// Why it has no environment, if it has none.
    pub failure: Option<String>,
}

impl Row {
    fn of(document: &Value) -> Self {
        let text = |key: &str| document[key].as_str().unwrap_or_else(|| panic!("no {key}: {document}"));
        let failure = &document["environment"]["failure"];
        Self {
            id: text("sandbox_id").to_owned(),
            state: text("state").to_owned(),
            failure: (!failure.is_null()).then(|| failure.to_string()),
        }
    }

    /// Whether it can be worked in.
    pub fn is_open(&self) -> bool {
        ["ready", "active"].contains(&self.state.as_str())
    }

    /// Whether somebody makes or removes it; or was killed at it.
    pub fn is_under_way(&self) -> bool {
        ["requested", "provisioning", "destroying"].contains(&self.state.as_str())
    }

    fn is_gone(&self) -> bool {
        ["destroyed", "failed"].contains(&self.state.as_str())
    }
}

impl Hosted {
    /// `files` is the catalogue: paths such as `profiles/p.yaml`, with their content.
    pub fn new(files: &[(&str, String)]) -> Self {
        let dir = TempDir::with_prefix("sandboxer-hosted-").unwrap();
        let (configuration, resource) = (dir.path().join("configuration"), dir.path().join("resource"));
        for (name, content) in files {
            let file = configuration.join("sandboxer").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        fs::create_dir(&resource).unwrap();
        (0..4).for_each(|i| fs::write(resource.join(format!("{i}.txt")), format!("old {i}\n")).unwrap());
        let cli = Cli::new(&dir.path().join("home")).configured(&configuration);
        Self { before: Manifest::capture(&resource), cli, resource, dir }
    }

    /// The temporary directory that holds everything.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The arguments that make a sandbox of `profile`.
    pub fn create_arguments(&self, profile: &str, more: &[&str]) -> Vec<String> {
        let words = ["create", self.resource.to_str().unwrap(), "--strategy", STRATEGY, "--profile", profile];
        words.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    /// A sandbox of `profile` that somebody has worked in.
    #[track_caller]
    pub fn create(&self, profile: &str) -> Created {
        let made = self.cli.create(&self.resource, &["--strategy", STRATEGY, "--profile", profile]);
        self.cli.ok(&["path", &made.id]);
        fs::write(made.path.join("0.txt"), "new\n").unwrap();
        fs::write(made.path.join("added.txt"), "new\n").unwrap();
        made
    }

    /// Every sandbox that ever was.
    #[track_caller]
    pub fn rows(&self) -> Vec<Row> {
        let listed = self.cli.json(&["list", "--all"]);
        listed["sandboxes"].as_array().unwrap().iter().map(Row::of).collect()
    }

    /// Those that can be worked in.
    #[track_caller]
    pub fn open(&self) -> Vec<String> {
        self.rows().into_iter().filter(Row::is_open).map(|row| row.id).collect()
    }

    /// Each sandbox is whole, or gone without a trace; `there` is whose environments the extension has. Panics where anything is in between, or where
    /// what is told of a life is not one.
    #[track_caller]
    pub fn check(&self, there: &BTreeSet<String>, context: &str) {
        let rows = self.rows();
        for row in &rows {
            let has = there.contains(&row.id);
            assert!(!row.is_under_way(), "{context}: it is stuck: {row:?}");
            let expected = row.is_open() && row.failure.is_none();
            assert_eq!(has, expected, "{context}: whether the extension has it: {row:?}");
            if row.is_open() {
                let diff = self.cli.code(&["diff", "--exit-code", &row.id]);
                assert!([0, 1].contains(&diff), "{context}: diff of {row:?} ends with {diff}");
            }
            self.check_events(row, context);
        }
        let nobodys: Vec<_> = there.iter().filter(|id| !rows.iter().any(|row| row.id == **id)).collect();
        assert!(nobodys.is_empty(), "{context}: the extension has {nobodys:?}, of which nobody knows");
        self.check_directories(&rows, context);
        self.before.assert_same(&Manifest::capture(&self.resource), Facets::UNTOUCHED, context);
    }

    /// As many workspaces as there are sandboxes, and no lock of one that is gone.
    fn check_directories(&self, rows: &[Row], context: &str) {
        let inventory = self.cli.inventory();
        let ours = inventory.iter().filter(|path| is_of_a_sandbox(path) && !path.starts_with("plugins"));
        let names: BTreeSet<String> = ours
            .flat_map(|path| path.iter().map(|part| part.to_string_lossy().into_owned()))
            .filter(|name| name.starts_with("ws_") || name.starts_with("sbx_"))
            .collect();
        let mut present: BTreeSet<&str> =
            rows.iter().filter(|r| !r.is_gone()).map(|r| r.id.as_str()).collect();
        let (sandboxes, workspaces): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| name.starts_with("sbx_"));
        assert_eq!(workspaces.len(), present.len(), "{context}: of {present:?} there are {workspaces:?}");
        let left: Vec<_> = sandboxes.iter().filter(|name| !present.remove(name.as_str())).collect();
        assert!(left.is_empty(), "{context}: left of sandboxes that are gone: {left:?}");
    }

    fn check_events(&self, row: &Row, context: &str) {
        let told = self.cli.json(&["events", &row.id]);
        let events = told["events"].as_array().unwrap();
        let ids: BTreeSet<&str> = events.iter().filter_map(|event| event["id"].as_str()).collect();
        assert_eq!(ids.len(), events.len(), "{context}: an event is told twice: {events:?}");
        let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert!(seqs.is_sorted_by(|a, b| a < b), "{context}: not in order: {seqs:?}");
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
        assert_eq!(life(&kinds), Some(row.state.as_str()), "{context}: {row:?} was told as {kinds:?}");
    }
}

/// The state that a life has come to, where what is told of it can be one.
fn life<'a>(kinds: &[&'a str]) -> Option<&'a str> {
    kinds.iter().try_fold("", |state, kind| match (state, *kind) {
        ("", "requested") | ("requested", "provisioning") => Some(*kind),
        ("provisioning", "ready" | "failed") | ("ready", "active") => Some(*kind),
        ("ready" | "active", "extended" | "recreated" | "lost") => Some(state),
        ("ready" | "active", "parked" | "destroying") => Some(*kind),
        ("parked", "ready" | "destroying") | ("destroying", "destroyed") => Some(*kind),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_told_in_order() {
        let whole =
            ["requested", "provisioning", "ready", "lost", "active", "recreated", "destroying", "destroyed"];
        assert_eq!(life(&whole), Some("destroyed"));
        assert_eq!(life(&whole[..5]), Some("active"));
        assert_eq!(life(&["requested", "provisioning", "failed"]), Some("failed"));
        let wrong: [&[&str]; 4] = [
            &["provisioning"],
            &["requested", "provisioning", "failed", "ready"],
            &["requested", "provisioning", "ready", "ready"],
            &["requested", "provisioning", "ready", "destroyed"],
        ];
        assert!(wrong.iter().all(|kinds| life(kinds).is_none()));
    }
}
