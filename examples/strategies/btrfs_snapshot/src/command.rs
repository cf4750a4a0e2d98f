//! The `btrfs` command. Everything is given to it by its full path, and everything that it refuses is told in its own words.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sandboxer_core::{Error, Result};

use crate::stream::{Touch, read_touches};

/// The number that every subvolume's root directory has.
const SUBVOLUME_ROOT: u64 = 256;
/// What `statfs` calls btrfs.
const BTRFS_MAGIC: u64 = 0x9123_683E;

/// The step that fails where the command does.
pub const RUN: &str = "run";

/// Whether a snapshot can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    Writable,
}

/// The command, wherever it is.
#[derive(Clone, Debug)]
pub struct Btrfs {
    program: PathBuf,
}

impl Btrfs {
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Makes a snapshot of `source` at `target`, which is not there yet.
    pub fn snapshot(&self, source: &Path, target: &Path, access: Access) -> Result<()> {
        let mut command = self.command(&["subvolume", "snapshot"]);
        if access == Access::ReadOnly {
            command.arg("-r");
        }
        run(command.arg(source).arg(target))
    }

    /// Deletes a subvolume with all that it holds. It not being there is fine.
    pub fn delete(&self, subvolume: &Path) -> Result<()> {
        if !is_subvolume(subvolume) {
            return sandboxer_fs::remove_tree(subvolume);
        }
        let deleted = run(self.command(&["subvolume", "delete"]).arg(subvolume));
        // It may hold subvolumes of its own, which somebody made there; or this user may only remove it entry by entry.
        deleted.or_else(|error| self.remove_entries(subvolume).map_err(|_| error))
    }

    fn remove_entries(&self, subvolume: &Path) -> Result<()> {
        run(self.command(&["property", "set", "-ts"]).arg(subvolume).args(["ro", "false"]))?;
        sandboxer_fs::remove_tree(subvolume)
    }

    /// Hears of everything that has to be done to `old` to make it `new`; both are read-only snapshots.
    pub fn compare(&self, old: &Path, new: &Path, heard: impl FnMut(Touch)) -> Result<()> {
        let mut command = self.command(&["send", "--quiet", "--no-data", "-p"]);
        command.arg(old).arg(new).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&command, error))?;
        let read = match child.stdout.take() {
            Some(stdout) => read_touches(&mut BufReader::new(stdout), heard),
            None => Ok(()),
        };
        // A refusal of its own explains a stream that breaks off.
        finish(child).and(read).map_err(|error| failed(&command, error))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }
}

fn run(command: &mut Command) -> Result<()> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let done = command.spawn().and_then(finish);
    done.map_err(|error| failed(command, error))
}

fn finish(mut child: Child) -> io::Result<()> {
    let mut words = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What cannot be read says nothing; the exit status still does.
        let _ = stderr.read_to_string(&mut words);
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{} ({status})", words.trim()))) }
}

fn failed(command: &Command, error: io::Error) -> Error {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    Error::io(RUN, format!("`{}`", line.join(" ")), error)
}

/// Whether `path` is the root of a subvolume.
pub fn is_subvolume(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_root = path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.ino() == SUBVOLUME_ROOT);
    is_root && is_on_btrfs(path)
}

/// Whether `path` is on a btrfs.
pub fn is_on_btrfs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 == BTRFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_command_and_its_words() {
        let btrfs = Btrfs::new("false");
        let error = btrfs.snapshot(Path::new("/a b"), Path::new("/c"), Access::ReadOnly).unwrap_err();
        assert!(error.to_string().contains("`false subvolume snapshot -r /a b /c`"), "{error}");
    }

    #[test]
    fn a_command_that_is_not_there_is_told() {
        let error = Btrfs::new("/no/btrfs").compare(Path::new("/a"), Path::new("/b"), |_| ()).unwrap_err();
        assert!(error.to_string().contains("/no/btrfs send"), "{error}");
    }

    #[test]
    fn what_is_not_there_is_deleted_already() {
        let dir = tempfile::tempdir().unwrap();
        Btrfs::new("false").delete(&dir.path().join("gone")).unwrap();
    }
}
