//! What a strategy is tried on.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::{PlanId, Resource};
use sandboxer_core::registry::StrategyEntry;
use sandboxer_core::types::ResourceTypes;
use sandboxer_core::{Error, Result};
use sandboxer_plugin::check::{Bench, Ground};
use sandboxer_strategies::overlay;
use serde_json::Value;

use crate::cli::error::{CliError, Kind};

/// A directory for everything that a check needs, and that is gone afterwards.
pub struct Place {
    path: PathBuf,
    /// Tells one check from another, in a resource that stays.
    id: String,
}

impl Place {
    pub fn make() -> Result<Self> {
        let temporary = std::env::temp_dir();
        let temporary = temporary.canonicalize().map_err(|error| Error::io("resolve", &temporary, error))?;
        let id = PlanId::generate().as_str().trim_start_matches("pln_").to_owned();
        let place = Self { path: temporary.join(format!("sandboxer-check-{id}")), id };
        for directory in [&place.path, &place.home(), &place.outside()] {
            let made = DirBuilder::new().mode(0o700).create(directory);
            made.map_err(|error| Error::io("create directory", directory, error))?;
        }
        Ok(place)
    }

    /// The state directory of the check.
    pub fn home(&self) -> PathBuf {
        self.path.join("state")
    }

    fn outside(&self) -> PathBuf {
        self.path.join("outside")
    }

    /// Something to throw away that is of a type which the strategy takes.
    pub fn throw_away(&self, entry: &StrategyEntry, cancel: CancelFlag) -> Result<Bench, CliError> {
        let types = &entry.capabilities.resource_types;
        let takes = |name: &&str| types.is_empty() || types.iter().any(|taken| taken == name);
        let Some(type_name) = ["fs-directory", "git-checkout", "fs-file"].into_iter().find(takes) else {
            return Err(needs_a_resource(entry));
        };
        let path = self.path.join("resource");
        let ground = match type_name {
            "fs-file" => Ground::File(path.clone()),
            _ => Ground::Directory(path.clone()),
        };
        if ground == Ground::Directory(path.clone()) {
            fs::create_dir(&path).map_err(|error| Error::io("create directory", &path, error))?;
        }
        let bench = self.bench(Resource::at_path(type_name, &path), ground, false, cancel);
        seed(&bench)?;
        if type_name == "git-checkout" {
            make_checkout(&path)?;
        }
        Ok(bench)
    }

    /// Something real, which the user has named.
    pub fn on(&self, types: &ResourceTypes, location: &str, cancel: CancelFlag) -> Result<Bench, CliError> {
        let resource = types.detect(location)?;
        let ground = match resource.path() {
            Some(path) if path.is_dir() => Ground::Directory(path.to_path_buf()),
            Some(path) => return Err(single_file(path)),
            None => Ground::Elsewhere,
        };
        Ok(self.bench(resource, ground, true, cancel))
    }

    /// What is checked is this strategy, and not one that steps in for it.
    fn bench(&self, mut resource: Resource, ground: Ground, stays: bool, cancel: CancelFlag) -> Bench {
        resource.properties.insert("no_fallback".to_owned(), Value::Bool(true));
        let name = format!("sandboxer-check-{}", self.id);
        Bench { resource, ground, name, stays, outside: self.outside(), again: None, cancel }
    }

    /// What a strategy did not clean up may be mounted; the report has told of it. Nobody would find it any more: it goes with the
    /// state that knows of it. Directories that were made beside a resource go where they are empty: others may use them too.
    fn remove_scratch(&self) {
        let listed = fs::read_to_string(self.home().join("scratch-roots")).unwrap_or_default();
        let own = self.home().join("scratch");
        for root in std::iter::once(own.as_path()).chain(listed.lines().map(Path::new)) {
            for workspace in
                fs::read_dir(root).into_iter().flatten().flatten().filter(|w| self.is_ours(&w.path()))
            {
                let _ = overlay::remove_workspace(&workspace.path());
            }
            let _ = fs::remove_dir(root);
        }
    }

    fn is_ours(&self, workspace: &Path) -> bool {
        let owner = fs::read(workspace.join("owner.json")).unwrap_or_default();
        let owner: Value = serde_json::from_slice(&owner).unwrap_or_default();
        workspace.starts_with(self.home())
            || owner["home"].as_str().is_some_and(|home| Path::new(home) == self.home())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove_scratch();
        let _ = sandboxer_fs::remove_tree(&self.path);
    }
}

/// Puts the first file there.
pub fn seed(bench: &Bench) -> Result<()> {
    bench.seed().map_err(|error| Error::io("write to", &bench.resource.location, error))
}

fn needs_a_resource(entry: &StrategyEntry) -> CliError {
    let (name, types) = (&entry.name, entry.capabilities.resource_types.join(", "));
    CliError::usage(format!("{name} takes {types}, and none of that can be made up to be thrown away")).hint(
        format!("name one that may be written to: `sandbox strategies check {name} --on LOCATION --yes`"),
    )
}

fn single_file(path: &Path) -> CliError {
    CliError::usage(format!("{} is a single file, and a check would write over it", path.display()))
        .on(path)
        .hint("name a directory; without --on, a strategy of single files is tried on a file of its own")
}

/// A checkout whose one commit has everything that is there.
fn make_checkout(path: &Path) -> Result<(), CliError> {
    let steps: [&[&str]; 5] = [
        &["init", "-q", "--initial-branch=main", "--template="],
        &["config", "user.name", "sandboxer check"],
        &["config", "user.email", "check@sandboxer.invalid"],
        &["add", "--all"],
        &["-c", "commit.gpgSign=false", "commit", "-q", "-m", "Before the check"],
    ];
    steps.into_iter().try_for_each(|arguments| git(path, arguments))
}

fn git(path: &Path, arguments: &[&str]) -> Result<(), CliError> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(path).stdin(Stdio::null());
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let unavailable = |said: String| {
        CliError::new(Kind::Unavailable, format!("a git checkout to try it on cannot be made: {said}"))
    };
    let output = command.output().map_err(|error| unavailable(format!("git cannot be started ({error})")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(unavailable(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
