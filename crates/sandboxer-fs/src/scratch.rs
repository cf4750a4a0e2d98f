//! Where workspaces live.
//!
//! A workspace is a directory `ws_…` in a scratch root: the state directory's own, or one on the resource's filesystem. Every
//! root is listed in the state directory before anything is made in it, and every workspace says whose it is, so that what a
//! crash leaves behind can be found.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use sandboxer_core::model::{PlanId, Resource};
use sandboxer_core::{Error, Result};
use ulid::Ulid;

use crate::{durable, lock};

/// A workspace directory while it is being filled: removed again unless kept, and locked so that no clean-up takes it.
#[must_use = "the workspace is removed unless it is kept"]
pub struct NewWorkspace {
    path: PathBuf,
    _lock: File,
    kept: bool,
}

impl NewWorkspace {
    /// Makes a workspace directory in `root`, which belongs to the state directory `home`.
    pub fn create(home: &Path, root: &Path, plan: &PlanId, resource: &Resource) -> Result<Self> {
        register(home, root)?;
        make_private(root)?;
        let path = root.join(format!("ws_{}", Ulid::generate().to_string().to_lowercase()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| Error::io("create directory", &path, e))?;
        let lock = File::open(&path).map_err(|e| Error::io("open directory", &path, e))?;
        lock::try_exclusive(&lock);
        let new = Self { path, _lock: lock, kept: false };
        let owner = serde_json::json!({ "plan_id": plan, "resource_id": resource.id, "home": home });
        // It tells whose the directory is until the store knows; after a power cut, one that says nothing is an orphan too.
        durable::write_lazily(&new.path.join("owner.json"), owner.to_string().as_bytes())?;
        Ok(new)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It is complete.
    pub fn keep(mut self) -> PathBuf {
        self.kept = true;
        self.path.clone()
    }
}

impl Drop for NewWorkspace {
    fn drop(&mut self) {
        if !self.kept {
            // An error is on its way to the user already; what cannot be removed now, `gc` finds.
            let _ = crate::remove_tree(&self.path);
        }
    }
}

/// Refuses a resource that is not there: a missing name would pass for a file that is yet to be made.
pub fn require(resource: &Path) -> Result<()> {
    resource.symlink_metadata().map(drop).map_err(|e| Error::io("examine", resource, e))
}

/// The scratch root in the state directory.
pub fn in_state(home: &Path) -> PathBuf {
    home.join("scratch")
}

/// Directories that could hold workspaces on the same filesystem as `original`, the best first.
pub fn on_filesystem_of(home: &Path, original: &Path, chosen: Option<&Path>) -> Vec<PathBuf> {
    let hidden = format!(".sandboxer-{}", rustix::process::geteuid().as_raw());
    let beside = original.parent().map(|p| p.join(&hidden));
    let top = mount_top(original).map(|p| p.join(&hidden));
    let all = [chosen.map(Path::to_path_buf), Some(in_state(home)), beside, top];
    let mut roots: Vec<PathBuf> =
        all.into_iter().flatten().filter(|root| same_device(root, original)).collect();
    roots.dedup();
    // A root inside the original would be copied into itself.
    roots.retain(|root| !root.starts_with(original) || root.starts_with(home));
    roots
}

/// Whether both are on one filesystem: by their device, or by their mount, in which the subvolumes of btrfs have a device each.
fn same_device(root: &Path, original: &Path) -> bool {
    let stat = |path: &Path| {
        let found = |p: &Path| statx(CWD, p, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::MNT_ID);
        path.ancestors().find_map(|p| found(p).ok())
    };
    let Some((root, original)) = stat(root).zip(stat(original)) else { return false };
    let device = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor);
    // A kernel that tells no mount has not set the bit.
    let mount = |stat: &Statx| (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id);
    device(&root) == device(&original) || (mount(&root).is_some() && mount(&root) == mount(&original))
}

/// The highest directory on the same filesystem.
fn mount_top(path: &Path) -> Option<&Path> {
    let device = path.metadata().ok()?.dev();
    path.ancestors().take_while(|p| p.metadata().is_ok_and(|m| m.dev() == device)).last()
}

/// Lists `root` in the state directory, once.
fn register(home: &Path, root: &Path) -> Result<()> {
    if root == in_state(home) {
        return Ok(());
    }
    make_private(home)?;
    let list = home.join("scratch-roots");
    let line = root.to_string_lossy();
    let known = std::fs::read_to_string(&list).unwrap_or_default();
    if known.lines().any(|l| l == line) {
        return Ok(());
    }
    let mut file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&list)
        .map_err(|e| Error::io("open", &list, e))?;
    file.write_all(format!("{line}\n").as_bytes()).map_err(|e| Error::io("write", &list, e))?;
    file.sync_all().map_err(|e| Error::io("flush", &list, e))
}

fn make_private(dir: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| Error::io("create directory", dir, e))?;
    // A hidden directory in a place that others can write to may be theirs.
    let owner = dir.metadata().map_err(|e| Error::io("examine", dir, e))?.uid();
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(Error::refused(format!("{} belongs to another user", dir.display())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn resource() -> Resource {
        Resource::at_path("fs-directory", Path::new("/r"))
    }

    #[test]
    fn a_workspace_that_is_not_kept_leaves_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("elsewhere/.sandboxer-0");
        let home = temp.path().join("home");
        let new = NewWorkspace::create(&home, &root, &PlanId::generate(), &resource()).unwrap();
        let path = new.path().to_path_buf();
        assert!(path.join("owner.json").exists());
        drop(new);
        assert!(!path.exists());
        let kept = NewWorkspace::create(&home, &root, &PlanId::generate(), &resource()).unwrap().keep();
        assert!(kept.exists());
        let listed = std::fs::read_to_string(home.join("scratch-roots")).unwrap();
        assert_eq!(listed.lines().count(), 1);
    }

    #[test]
    fn roots_are_on_the_filesystem_of_the_original_and_not_inside_it() {
        let temp = tempfile::tempdir().unwrap();
        let original = temp.path().join("original");
        std::fs::create_dir(&original).unwrap();
        let inside = original.join("scratch");
        let roots = on_filesystem_of(&temp.path().join("home"), &original, Some(&inside));
        assert!(!roots.is_empty());
        assert!(!roots.contains(&inside));
        assert!(roots.iter().all(|r| same_device(r, &original)));
        assert!(
            on_filesystem_of(Path::new("/proc/home"), &original, None)
                .iter()
                .all(|r| !r.starts_with("/proc"))
        );
    }

    #[test]
    fn a_root_of_another_user_is_refused_and_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let theirs = temp.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        if std::os::unix::fs::chown(&theirs, Some(65534), None).is_err() {
            eprintln!("skipped: giving a directory away needs root");
            return;
        }
        let new = NewWorkspace::create(&temp.path().join("home"), &theirs, &PlanId::generate(), &resource());
        let error = new.err().unwrap().to_string();
        assert!(error.contains("theirs belongs to another user"), "{error}");
        assert_eq!(std::fs::read_dir(&theirs).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_made_in_a_root_that_cannot_be_listed() {
        let temp = tempfile::tempdir().unwrap();
        let (home, root) = (temp.path().join("home"), temp.path().join("root"));
        std::fs::create_dir_all(home.join("scratch-roots")).unwrap();
        let new = NewWorkspace::create(&home, &root, &PlanId::generate(), &resource());
        assert!(matches!(new.err(), Some(Error::Io { step: "open", .. })));
        assert!(!root.exists());
    }

    #[test]
    fn a_root_that_cannot_be_made_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (home, root) in
            [(temp.path().join("home"), file.join("root")), (file.clone(), temp.path().join("root"))]
        {
            let new = NewWorkspace::create(&home, &root, &PlanId::generate(), &resource());
            let error = new.err().unwrap().to_string();
            assert!(error.starts_with("cannot create directory") && error.contains("file"), "{error}");
        }
    }

    #[test]
    fn a_file_has_its_roots_where_its_directory_has() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(mount_top(&file), mount_top(temp.path()));
        assert_eq!(mount_top(&temp.path().join("missing")), None);
        assert!(require(&file).is_ok());
        assert!(matches!(require(&temp.path().join("missing")), Err(Error::Io { step: "examine", .. })));
    }
}
