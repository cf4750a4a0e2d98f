//! The home directory as a command sees it: readable, without credentials, and with a layer over it that is thrown away.
//!
//! What is to be hidden is a whiteout in that layer: tools find it missing, which they know how to deal with, and may make their own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::mounting::Detached;
use super::refusal::{Refusal, Refused};

/// A home directory that is open, by a descriptor that leads there whatever is mounted over its path.
pub(crate) struct Home {
    path: PathBuf,
    dir: OwnedFd,
}

/// The layer that catches what is written.
pub(crate) struct Layer {
    /// To be put where the home directory is.
    pub mount: Detached,
    /// What was written.
    pub upper: OwnedFd,
}

impl Home {
    /// The home directory at `path`.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::open(path, flags, Mode::empty()).refused(|| format!("open {}", path.display()))?;
        Ok(Self { path: path.to_path_buf(), dir })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A layer over it in which `hidden` is missing. `scratch` is a directory in memory that is mounted somewhere.
    pub fn layer(
        &self,
        scratch: &Path,
        hidden: &[PathBuf],
        in_user_namespace: bool,
    ) -> Result<Layer, Refusal> {
        let (upper_at, work_at) = (scratch.join("upper"), scratch.join("work"));
        for at in [&upper_at, &work_at] {
            fs::mkdir(at, Mode::RWXU).refused(|| format!("make {}", at.display()))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let upper = fs::open(&upper_at, flags, Mode::empty()).refused(|| "open a layer".to_owned())?;
        self.dress(&upper, Path::new("."))?;
        let mut parents = BTreeMap::new();
        for path in hidden.iter().filter_map(|path| path.strip_prefix(&self.path).ok()) {
            self.hide(&upper, path, &mut parents)
                .refused(|| format!("hide {}", self.path.join(path).display()))?;
        }
        let lower = OsString::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()));
        let mut options = vec![
            ("source", OsStr::new("sandbox-home")),
            ("lowerdir", lower.as_os_str()),
            ("upperdir", upper_at.as_os_str()),
            ("workdir", work_at.as_os_str()),
        ];
        if in_user_namespace {
            options.push(("userxattr", OsStr::new("")));
        }
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount = Detached::new("overlay", &options, attributes)
            .map_err(|refusal| Refusal::new(format!("cover {}", self.path.display()), refusal.to_string()))?;
        Ok(Layer { mount, upper })
    }

    /// Gives a directory of the layer the mode of the one that it covers.
    fn dress(&self, upper: &OwnedFd, path: &Path) -> Result<(), Refusal> {
        let failed = || format!("copy the mode of {}", self.path.join(path).display());
        let stat = fs::statat(&self.dir, path, AtFlags::empty()).refused(failed)?;
        fs::chmodat(upper, path, Mode::from_raw_mode(stat.st_mode & 0o7777), AtFlags::empty()).refused(failed)
    }

    /// Puts a whiteout at `path`, or at the first name on the way that is not there: what comes to be there later is hidden as well.
    /// Many have the same parents, of which it is remembered what they are.
    fn hide<'a>(
        &self,
        upper: &OwnedFd,
        path: &'a Path,
        known: &mut BTreeMap<&'a Path, Option<FileType>>,
    ) -> rustix::io::Result<()> {
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(());
        }
        let parents: Vec<&Path> = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        for parent in parents.into_iter().rev() {
            let kind = match known.get(parent) {
                Some(kind) => *kind,
                None => self.laid(upper, parent)?,
            };
            known.insert(parent, kind);
            if kind != Some(FileType::Directory) {
                // It is hidden itself, or nothing can be below it.
                return Ok(());
            }
        }
        white_out(upper, path)
    }

    /// What a parent is. If it is a directory, it is laid in the layer; if it is not there, it is hidden.
    fn laid(&self, upper: &OwnedFd, parent: &Path) -> rustix::io::Result<Option<FileType>> {
        let kind = self.kind_of(parent)?;
        match kind {
            Some(FileType::Directory) => self.lay(upper, parent)?,
            None => white_out(upper, parent)?,
            Some(_) => {}
        }
        Ok(kind)
    }

    /// Makes a directory in the layer, like the one that it covers.
    fn lay(&self, upper: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
        match fs::mkdirat(upper, path, Mode::RWXU) {
            // A mode that is not the same hides nothing less.
            Ok(()) => drop(self.dress(upper, path)),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn kind_of(&self, path: &Path) -> rustix::io::Result<Option<FileType>> {
        match fs::statat(&self.dir, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Where something is in the layer already, that is what hides it.
fn white_out(upper: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    match fs::mknodat(upper, path, FileType::CharacterDevice, Mode::empty(), 0) {
        Err(Errno::EXIST | Errno::NOTDIR) => Ok(()),
        other => other,
    }
}

/// The files in a layer, relative to it: what was written to the home directory. At most so many are looked at.
pub(crate) fn written(upper: &OwnedFd, most: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        if found.len() >= most || pending.len() >= most {
            break;
        }
        let at = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(dir) = fs::openat(upper, at, flags, Mode::empty()).and_then(fs::Dir::new) else { continue };
        for entry in dir.flatten() {
            let name =
                OsStr::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(entry.file_name().to_bytes()));
            if name == "." || name == ".." {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => pending.push(path.join(name)),
                FileType::CharacterDevice => {}
                _ => found.push(path.join(name)),
            }
        }
    }
    found.sort();
    found
}
