//! Filesystems for the original and the state directory of a history.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandboxer_testkit::mounts::Mounted;
use tempfile::TempDir;

const IMAGE_BYTES: u64 = 400 << 20;

/// On which filesystem the original and the state directory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The machine's own.
    Machine,
    Memory,
    Ext4,
    Xfs,
    Btrfs,
    /// The original on XFS, the state directory on the machine's own.
    XfsAndMachine,
    /// The original on an overlay, the state directory on the machine's own.
    Overlay,
}

/// All on which an overlay can be mounted.
pub const GROUNDS: [Ground; 6] =
    [Ground::Machine, Ground::Memory, Ground::Ext4, Ground::Xfs, Ground::Btrfs, Ground::XfsAndMachine];

/// A ground that is mounted until this is dropped.
pub struct LaidGround {
    pub state: PathBuf,
    pub originals: PathBuf,
    _directory: TempDir,
    _mounted: Option<Mounted>,
}

impl LaidGround {
    pub fn new(ground: Ground) -> Result<Self, String> {
        let directory = match ground {
            Ground::Memory => TempDir::new_in("/dev/shm"),
            _ => TempDir::new(),
        };
        let directory = directory.map_err(|error| error.to_string())?;
        let mounted = match ground {
            Ground::Machine | Ground::Memory => None,
            Ground::Ext4 => Some(Mounted::ext4(IMAGE_BYTES)?),
            Ground::Xfs | Ground::XfsAndMachine => Some(Mounted::xfs(IMAGE_BYTES)?),
            Ground::Btrfs => Some(Mounted::btrfs(IMAGE_BYTES)?),
            Ground::Overlay => Some(Mounted::overlay()?),
        };
        let originals = mounted.as_ref().map_or(directory.path(), Mounted::path).to_path_buf();
        let is_apart = matches!(ground, Ground::XfsAndMachine | Ground::Overlay);
        let state = if is_apart { directory.path().to_path_buf() } else { originals.clone() };
        [&state, &originals].into_iter().for_each(|path| open_to_all(path));
        Ok(Self { state, originals, _directory: directory, _mounted: mounted })
    }
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).unwrap();
}
