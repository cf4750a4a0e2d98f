//! A sandbox over a directory with a small and a large file, made by a plugin.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::config::CustomStrategy;
use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{PlanId, RelPath, Resource, SandboxRef};
use sandboxer_core::registry::StrategyContext;
use sandboxer_plugin::strategy::{Surroundings, declaration};
use tempfile::TempDir;

use super::Scale;
use super::ends::{PLUGIN, VARIABLE};
use crate::failure::{During, Failure, Result};
use crate::place::Place;

/// The names of the two files.
pub const SMALL: &str = "small";
pub const LARGE: &str = "large";

/// The strategy in Python: it reads what is in a copy, and does nothing else that is measured.
const IN_PYTHON: &str = r#"
import os, shutil
from sandboxer_plugin import Capabilities, SandboxRef


class Copies:
    """Reads from a copy of a directory."""

    capabilities = Capabilities(file_tree=True, ranges=True)

    def create(self, plan_id, resource):
        tree = os.path.join(resource.scratch, "tree")
        shutil.copytree(resource.location, tree)
        return SandboxRef(metadata={"path": tree, "base": resource.location})

    def read(self, ref, path):
        with open(os.path.join(ref["path"], path), "rb", buffering=0) as file:
            if ref.range is None:
                return file.read()
            offset, length = ref.range
            return os.pread(file.fileno(), length, offset)

    def write(self, ref, path, content): raise NotImplementedError
    def diff(self, ref): return []
    def commit(self, ref): raise NotImplementedError
    def rollback(self, ref): raise NotImplementedError
    def checkpoint(self, ref, checkpoint_id): raise NotImplementedError
    def restore_checkpoint(self, ref, checkpoint_id): raise NotImplementedError
    def cleanup(self, ref): pass
"#;

/// What the plugin is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// The SDK of this workspace.
    Rust,
    /// The one that the program carries.
    Python,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
        })
    }
}

/// An open sandbox. Its strategy, and so its process, goes with it.
pub struct Scene {
    strategy: Arc<dyn SandboxStrategy>,
    sandbox: SandboxRef,
    // Last: the plugin works in it.
    _directory: TempDir,
}

impl Scene {
    /// Makes files, plugin and sandbox in a directory of their own.
    pub fn new(place: &Place, language: Language, scale: &Scale) -> Result<Self> {
        let directory = tempfile::tempdir_in(place.root()).during("create directory", place.root())?;
        let original = original(directory.path(), scale)?;
        let home = directory.path().join("home");
        let modules = Some(directory.path().to_path_buf());
        let around = Surroundings { modules, ..Surroundings::of_home(&home) };
        let custom = custom(directory.path(), language)?;
        let failed = |error: sandboxer_core::Error| Failure::new(error.to_string());
        let entry = declaration("bench", &custom, &around)
            .and_then(|declared| (declared.verify)())
            .map_err(failed)?;
        let strategy =
            (entry.factory)("bench", &entry.options, &StrategyContext::quiet(&home)).map_err(failed)?;
        let resource = Resource::at_path("fs-directory", &original);
        let sandbox = strategy.create(&PlanId::generate(), &resource).map_err(failed)?;
        Ok(Self { strategy, sandbox, _directory: directory })
    }

    /// Reads a file, or a piece of it.
    pub fn read(&self, path: &RelPath, range: Option<(u64, u64)>) -> Result<Vec<u8>> {
        let sandbox = match range {
            Some((offset, length)) => &self.sandbox.clone().ranged(offset, length),
            None => &self.sandbox,
        };
        self.strategy.read(sandbox, path).map_err(|error| Failure::new(error.to_string()))
    }

    /// Reads a piece, all of which has to be there.
    pub fn read_piece(&self, path: &RelPath, offset: u64, length: u64) -> Result<()> {
        let piece = self.read(path, Some((offset, length)))?;
        if piece.len() as u64 == length { Ok(()) } else { Err(Failure::new("a piece came back short")) }
    }
}

/// A directory with both files.
pub fn original(directory: &Path, scale: &Scale) -> Result<PathBuf> {
    let original = directory.join("original");
    fs::create_dir_all(&original).during("create directory", &original)?;
    for (name, size) in [(SMALL, scale.small), (LARGE, scale.large)] {
        let path = original.join(name);
        let mut file = File::create(&path).during("create", &path)?;
        let piece: Vec<u8> = (0..size.min(1 << 20)).map(|n| (n * 31 % 251) as u8).collect();
        (0..size / piece.len() as u64).try_for_each(|_| file.write_all(&piece)).during("write", &path)?;
    }
    Ok(original)
}

/// The configuration of the plugin; what is written in Python is written there.
pub fn custom(directory: &Path, language: Language) -> Result<CustomStrategy> {
    let own = std::env::current_exe().during("find", Path::new("the benchmark's own file"))?;
    if language == Language::Rust {
        return Ok(CustomStrategy {
            module: format!("exec:{}", own.display()),
            env: [(VARIABLE.to_owned(), PLUGIN.to_owned())].into(),
            ..CustomStrategy::default()
        });
    }
    let module = directory.join("bench_copies.py");
    fs::write(&module, IN_PYTHON).during("write", &module)?;
    Ok(CustomStrategy { module: "bench_copies:Copies".to_owned(), ..CustomStrategy::default() })
}
