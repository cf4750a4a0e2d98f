//! New content on the original's own filesystem, ready to be renamed into place.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};
use sandboxer_core::{Error, Result};

use super::journal::STAGE;
use crate::durable;
use crate::filter::RESERVED;
use crate::root::Root;

/// An empty directory from which a rename to anywhere below the original works.
pub struct Stage {
    /// The directory.
    pub root: Root,
}

impl Stage {
    /// Makes a stage for commits of the workspace at `home` into `original`. Where it is going to be is written to
    /// `note` beforehand, so that a crash leaves nothing that cannot be found.
    pub fn create(original: &Root, home: &Path, note: &Path) -> Result<Self> {
        let name = home.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hidden = format!("{}stage-{name}", String::from_utf8_lossy(RESERVED));
        let beside = original.path().parent().map(|parent| (parent.to_path_buf(), parent.join(&hidden)));
        let inside = (original.path().to_path_buf(), original.path().join(&hidden));
        let own = (home.to_path_buf(), home.join(STAGE));
        let mut reasons = Vec::new();
        for (parent, path) in [Some(own), beside, Some(inside)].into_iter().flatten() {
            match try_stage(original, &parent, &path, note) {
                Ok(stage) => return Ok(stage),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(Error::Refused {
            reason: format!(
                "new content cannot be staged on the filesystem of {}: {}; nothing was changed",
                original.path().display(),
                reasons.join("; ")
            ),
            hint: Some("make the directory or its parent writable for this user".to_owned()),
        })
    }

    /// Removes the stage and what is left in it. It is gone at once and as a whole: a stage that is there is complete,
    /// however often its removal was interrupted.
    pub fn discard(path: &Path) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let done = path.with_file_name(format!("{name}-done"));
        crate::remove_tree(&done)?;
        match std::fs::rename(path, &done) {
            Ok(()) => crate::remove_tree(&done),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io("remove", path, e)),
        }
    }
}

fn try_stage(original: &Root, parent: &Path, path: &Path, note: &Path) -> Result<Stage, String> {
    match (mount_of(original), Root::open(parent).ok().and_then(|p| mount_of(&p))) {
        (Some(ours), Some(theirs)) if ours == theirs => {}
        _ => return Err(format!("{} is on another filesystem", parent.display())),
    }
    make(path, note).map_err(|e| {
        use std::error::Error as _;
        let cause = e.source().map(|s| format!(" ({s})")).unwrap_or_default();
        format!("{e}{cause}")
    })
}

fn make(path: &Path, note: &Path) -> Result<Stage> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::DirBuilderExt;
    durable::write(note, path.as_os_str().as_bytes())?;
    // Left over from a commit that was killed before its journal was there.
    Stage::discard(path)?;
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|e| Error::io("create directory", path, e))?;
    // The journal may be on another filesystem: it must not outlive the stage that it speaks of.
    let synced = durable::sync_dir(path.parent().unwrap_or(path));
    let stage = synced.and_then(|()| Ok(Stage { root: Root::open(path)? }));
    if stage.is_err() {
        // Another place may be tried, and then the note speaks of that one.
        Stage::discard(path)?;
    }
    stage
}

/// Device and mount: renames work only within both.
fn mount_of(root: &Root) -> Option<(u32, u32, u64)> {
    let stat = statx(root, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_mnt_id))
}

/// The stage a note speaks of.
pub fn noted(note: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let bytes = std::fs::read(note).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_that_cannot_be_staged_on_is_refused_with_every_reason() {
        let temp = tempfile::tempdir().unwrap();
        let original = Root::open("/proc/sys").unwrap();
        let error = Stage::create(&original, temp.path(), &temp.path().join("note")).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("another filesystem") && text.contains("nothing was changed"), "{text}");
    }

    #[test]
    fn a_workspace_elsewhere_stages_beside_the_original() {
        let temp = tempfile::tempdir().unwrap();
        let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
            println!("SKIPPED: there is no second filesystem at /dev/shm");
            return;
        };
        let original = temp.path().join("original");
        std::fs::create_dir(&original).unwrap();
        let note = elsewhere.path().join("note");
        let stage = Stage::create(&Root::open(&original).unwrap(), elsewhere.path(), &note).unwrap();
        assert_eq!(stage.root.path().parent(), Some(temp.path()));
        assert_eq!(noted(&note).as_deref(), Some(stage.root.path()));
        Stage::discard(stage.root.path()).unwrap();
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
