//! Recognising what lies at a location.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use serde::{Deserialize, Serialize};

use super::location::{canonical, to_path};
use super::{ResourceType, ResourceTypes};
use crate::model::Resource;
use crate::{Error, Result};

/// How a type is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// What has to be at the location.
    pub kind: DetectKind,
    /// Types with a higher one are asked first.
    #[serde(default)]
    pub priority: i32,
}

/// What can be at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DetectKind {
    /// A directory, mount points included.
    Directory,
    /// A regular file.
    File,
    /// A directory on which a filesystem is mounted.
    MountPoint,
}

impl DetectKind {
    /// Whether something of kind `found` will do where this kind is asked for.
    fn accepts(self, found: DetectKind) -> bool {
        self == found || (self, found) == (Self::Directory, Self::MountPoint)
    }
}

impl fmt::Display for DetectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::File => "a file",
            Self::MountPoint => "a mount point",
        })
    }
}

impl ResourceTypes {
    /// The resource at `location`: a path, or a `file://` URL. The location becomes canonical, and has to be there,
    /// readable, and of a kind that some type is for.
    pub fn detect(&self, location: &str) -> Result<Resource> {
        let found = Found::at(location)?;
        let accepts = |ty: &&ResourceType| ty.detect.kind.accepts(found.kind);
        let resource_type = self.by_priority().into_iter().find(accepts).ok_or_else(|| {
            Error::usage(format!("no resource type is for {}, which is {}", found.location, found.kind))
        })?;
        Ok(found.into_resource(resource_type))
    }

    /// The resource at `location` as the type that the caller names.
    pub fn detect_as(&self, type_name: &str, location: &str) -> Result<Resource> {
        let resource_type = self.get(type_name)?;
        let found = Found::at(location)?;
        let needed = resource_type.detect.kind;
        if !needed.accepts(found.kind) {
            return Err(Error::Usage {
                message: format!("{type_name} needs {needed}, {} is {}", found.location, found.kind),
                hint: None,
            });
        }
        Ok(found.into_resource(resource_type))
    }
}

/// Something that is there and can be read.
struct Found {
    location: String,
    kind: DetectKind,
}

impl Found {
    fn at(location: &str) -> Result<Self> {
        let asked = to_path(location)?;
        let path = canonical(without_trailing_slash(&asked))?;
        let kind = kind_of(&path)?;
        if kind == DetectKind::File && has_trailing_slash(&asked) {
            return Err(Error::Usage {
                message: format!("{} is a file, and the slash at the end means a directory", path.display()),
                hint: Some("leave the slash out".to_owned()),
            });
        }
        check_readable(&path, kind)?;
        let location = path.into_os_string().into_string().map_err(|path| {
            Error::usage(format!("{} is not UTF-8, and a resource's location has to be", path.display()))
        })?;
        Ok(Self { location, kind })
    }

    fn into_resource(self, resource_type: &ResourceType) -> Resource {
        Resource::at_path(&resource_type.name, Path::new(&self.location))
    }
}

fn has_trailing_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The C library resolves `file/` in different ways, so it never sees the slash.
fn without_trailing_slash(path: &Path) -> &Path {
    if has_trailing_slash(path) { path.components().as_path() } else { path }
}

fn kind_of(path: &Path) -> Result<DetectKind> {
    let metadata = path.symlink_metadata().map_err(|error| Error::io("examine", path, error))?;
    match FileType::from_raw_mode(metadata.mode()) {
        FileType::Directory if is_mount_point(path, &metadata)? => Ok(DetectKind::MountPoint),
        FileType::Directory => Ok(DetectKind::Directory),
        FileType::RegularFile => Ok(DetectKind::File),
        FileType::Fifo => Err(unfit(path, "a FIFO")),
        FileType::Socket => Err(unfit(path, "a socket")),
        FileType::BlockDevice | FileType::CharacterDevice => Err(unfit(path, "a device")),
        _ => Err(unfit(path, "of an unknown kind")),
    }
}

fn unfit(path: &Path, what: &str) -> Error {
    Error::usage(format!("{} is {what}; only directories and regular files can be isolated", path.display()))
}

/// The kernel's own answer where it gives one (5.8 and later), else whether the device changes on the way up. The
/// device alone would take a btrfs subvolume for a mount point.
fn is_mount_point(path: &Path, metadata: &std::fs::Metadata) -> Result<bool> {
    let statx = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
    if let Ok(answer) = statx
        && answer.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
    {
        return Ok(answer.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    device_changes(path, metadata)
}

fn device_changes(path: &Path, metadata: &std::fs::Metadata) -> Result<bool> {
    let Some(parent) = path.parent() else { return Ok(true) };
    let above = parent.symlink_metadata().map_err(|error| Error::io("examine", parent, error))?;
    Ok(above.dev() != metadata.dev())
}

/// Finds out now what would otherwise fail in the middle of a copy.
fn check_readable(path: &Path, kind: DetectKind) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| Error::io("read", path, errno))?;
    if kind != DetectKind::File {
        // Listing a directory is one permission, reaching what is in it another.
        rustix::fs::statat(&fd, ".", AtFlags::empty()).map_err(|errno| Error::io("search", path, errno))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_fallback_tells_mount_points_by_their_device() {
        let (root, proc) = (Path::new("/"), Path::new("/proc"));
        assert!(device_changes(root, &root.metadata().unwrap()).unwrap());
        assert!(device_changes(proc, &proc.metadata().unwrap()).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        assert!(!device_changes(&inner, &inner.metadata().unwrap()).unwrap());
    }

    #[test]
    fn slashes_at_the_end_are_no_part_of_the_name() {
        assert_eq!(without_trailing_slash(Path::new("a/b//")), Path::new("a/b"));
        assert_eq!(without_trailing_slash(Path::new("/")).as_os_str(), "/");
        assert_eq!(without_trailing_slash(Path::new("a/b")).as_os_str(), "a/b");
    }
}
