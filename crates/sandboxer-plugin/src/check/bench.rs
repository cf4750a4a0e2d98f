//! What a check works on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use sandboxer_core::Result;
use sandboxer_core::contract::{CancelFlag, SandboxStrategy};
use sandboxer_core::model::{PathError, RelPath, Resource};

/// The content of the file that is there before anything is tried.
const SEED: &[u8] = b"there before the check\n";
/// The content of a file that no sandbox may reach.
pub(super) const SECRET: &[u8] = b"outside of every sandbox\n";

/// How the resource itself is looked at, past all sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// A directory of this machine.
    Directory(PathBuf),
    /// One file of this machine.
    File(PathBuf),
    /// By nothing but the strategy: in a sandbox that is made to look.
    Elsewhere,
}

/// Makes the strategy once more, as another process would.
#[derive(Clone)]
pub struct Again(pub Arc<dyn Fn() -> Result<Arc<dyn SandboxStrategy>> + Send + Sync>);

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Again")
    }
}

/// A resource that may be written to, and what a check needs beside it.
#[derive(Clone, Debug)]
pub struct Bench {
    /// What is isolated.
    pub resource: Resource,
    /// How it is looked at.
    pub ground: Ground,
    /// Everything that the check writes to the resource is in a directory of this name; a single file is written to itself.
    pub name: String,
    /// Whether the resource is still needed afterwards, so that what the check wrote has to be removed.
    pub stays: bool,
    /// An empty directory of the check's own that is no part of the resource.
    pub outside: PathBuf,
    /// How the strategy is made a second time; `None` where that cannot be done.
    pub again: Option<Again>,
    /// Set when the user wants to stop: what has been made is cleaned up, and nothing else is tried.
    pub cancel: CancelFlag,
}

impl Bench {
    /// The path of the file that is there from the beginning.
    pub(super) fn kept(&self) -> Result<RelPath, PathError> {
        match &self.ground {
            Ground::File(file) => RelPath::parse(file.file_name().unwrap_or_default()),
            _ => self.below("kept.txt"),
        }
    }

    /// The path of a new file; `None` where there is no room for one.
    pub(super) fn new_path(&self, number: usize) -> Option<RelPath> {
        let has_room = !matches!(self.ground, Ground::File(_));
        has_room.then(|| self.below(&format!("made/new-{number}.bin")).ok()).flatten()
    }

    pub(super) fn below(&self, path: &str) -> Result<RelPath, PathError> {
        RelPath::parse(format!("{}/{path}", self.name))
    }

    /// Where a path of the resource is on this machine.
    pub(super) fn on_disk(&self, path: &RelPath) -> Option<PathBuf> {
        match &self.ground {
            Ground::Directory(root) => Some(root.join(path.as_path())),
            Ground::File(file) => Some(file.clone()),
            Ground::Elsewhere => None,
        }
    }

    /// Puts the first file there, where that can be done by hand. A directory of its name must not be there yet. A check of what
    /// is not seeded begins with a commit that does it.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn seed(&self) -> io::Result<()> {
        match &self.ground {
            Ground::Directory(root) => {
                fs::create_dir(root.join(&self.name))?;
                fs::write(root.join(&self.name).join("kept.txt"), SEED)
            }
            Ground::File(file) => fs::write(file, SEED),
            Ground::Elsewhere => Ok(()),
        }
    }

    pub(super) fn seed_content(&self) -> &'static [u8] {
        SEED
    }

    /// A file that is no part of the resource.
    pub(super) fn secret(&self) -> io::Result<PathBuf> {
        let file = self.outside.join("secret");
        fs::write(&file, SECRET).map(|()| file)
    }
}

/// What a file holds, if it is there; links are not followed.
pub(super) fn look_at(file: &Path) -> Result<Option<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("{} cannot be read: {error}", file.display());
    match file.symlink_metadata() {
        Ok(found) if found.is_file() => fs::read(file).map(Some).map_err(failed),
        Ok(_) => Err(format!("{} is not a regular file any more", file.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
