//! Recognising what lies at a location.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::location::{Location, canonical};
use super::url::needs;
use super::{ResourceType, ResourceTypes};
use crate::model::Resource;
use crate::{Error, Result};

/// How a type is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// What has to be at the location.
    pub kind: DetectKind,
    /// Types with a higher one are asked first.
    #[serde(default)]
    pub priority: i32,
    /// The schemes of the URLs it is for, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemes: Vec<String>,
}

/// What can be at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DetectKind {
    /// A directory, mount points included.
    Directory,
    /// A regular file.
    File,
    /// A directory on which a filesystem is mounted.
    MountPoint,
    /// A directory whose `.git` says that git keeps it.
    GitCheckout,
    /// A regular file that begins as a SQLite database does.
    SqliteFile,
    /// Something at a URL of one of the schemes.
    Url,
}

impl fmt::Display for DetectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::File => "a file",
            Self::MountPoint => "a mount point",
            Self::GitCheckout => "a git checkout",
            Self::SqliteFile => "a SQLite database",
            Self::Url => "a URL",
        })
    }
}

impl ResourceTypes {
    /// The resource at `location`: a path, or a URL. The location becomes canonical; a path has to be there, readable, and of a
    /// kind that some type is for, a URL of a scheme that some type is for.
    pub fn detect(&self, location: &str) -> Result<Resource> {
        let found = match Location::parse(location)? {
            Location::Url(url) => return self.detect_url(&url),
            Location::Path(path) => Found::at(&path)?,
        };
        refuse_bare(&found)?;
        let accepts = |ty: &&ResourceType| found.kinds.contains(&ty.detect.kind);
        let resource_type = self.by_priority().into_iter().find(accepts).ok_or_else(|| {
            Error::usage(format!("no resource type is for {}, which is {}", found.location, found.kind()))
        })?;
        Ok(found.into_resource(resource_type))
    }

    /// The resource at `location` as the type that the caller names.
    pub fn detect_as(&self, type_name: &str, location: &str) -> Result<Resource> {
        let resource_type = self.get(type_name)?;
        let found = match Location::parse(location)? {
            Location::Url(url) => return self.detect_url_as(resource_type, &url),
            Location::Path(path) => Found::at(&path)?,
        };
        if !found.kinds.contains(&resource_type.detect.kind) {
            let needed = needs(resource_type);
            return Err(Error::Usage {
                message: format!("{type_name} needs {needed}, {} is {}", found.location, found.kind()),
                hint: None,
            });
        }
        Ok(found.into_resource(resource_type))
    }
}

/// Something that is there and can be read.
struct Found {
    location: String,
    /// All that it is, the most special first.
    kinds: Vec<DetectKind>,
}

impl Found {
    fn at(asked: &Path) -> Result<Self> {
        let path = canonical(without_trailing_slash(asked))?;
        let kinds = kinds_of(&path)?;
        let is_file = kinds.contains(&DetectKind::File);
        if is_file && has_trailing_slash(asked) {
            return Err(Error::Usage {
                message: format!("{} is a file, and the slash at the end means a directory", path.display()),
                hint: Some("leave the slash out".to_owned()),
            });
        }
        check_readable(&path, is_file)?;
        let location = path.into_os_string().into_string().map_err(|path| {
            Error::usage(format!("{} is not UTF-8, and a resource's location has to be", path.display()))
        })?;
        Ok(Self { location, kinds })
    }

    fn kind(&self) -> DetectKind {
        self.kinds[0]
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

/// What is at `path`; there is at least one thing to call it.
fn kinds_of(path: &Path) -> Result<Vec<DetectKind>> {
    let metadata = path.symlink_metadata().map_err(|error| Error::io("examine", path, error))?;
    match FileType::from_raw_mode(metadata.mode()) {
        FileType::Directory => {
            let mounted = is_mount_point(path, &metadata)?.then_some(DetectKind::MountPoint);
            let checkout = is_git_checkout(path).then_some(DetectKind::GitCheckout);
            Ok(checkout.into_iter().chain(mounted).chain([DetectKind::Directory]).collect())
        }
        FileType::RegularFile => {
            let database = begins_with(path, b"SQLite format 3\0").then_some(DetectKind::SqliteFile);
            Ok(database.into_iter().chain([DetectKind::File]).collect())
        }
        FileType::Fifo => Err(unfit(path, "a FIFO")),
        FileType::Socket => Err(unfit(path, "a socket")),
        FileType::BlockDevice | FileType::CharacterDevice => Err(unfit(path, "a device")),
        _ => Err(unfit(path, "of an unknown kind")),
    }
}

fn unfit(path: &Path, what: &str) -> Error {
    Error::usage(format!("{} is {what}; only directories and regular files can be isolated", path.display()))
}

/// Whether git would take the directory for a checkout: its `.git` is a repository, or says where one is.
fn is_git_checkout(path: &Path) -> bool {
    let git = path.join(".git");
    match git.symlink_metadata() {
        Ok(found) if found.is_file() => begins_with(&git, b"gitdir: "),
        Ok(_) => git.join("HEAD").symlink_metadata().is_ok() && git.join("objects").is_dir(),
        Err(_) => false,
    }
}

fn begins_with<const LENGTH: usize>(path: &Path, word: &[u8; LENGTH]) -> bool {
    let begins = |mut file: std::fs::File| {
        let mut found = [0; LENGTH];
        std::io::Read::read_exact(&mut file, &mut found).is_ok_and(|()| found == *word)
    };
    std::fs::File::open(path).is_ok_and(begins)
}

/// A repository without files has nothing to work on, and a change of its own files by hand would only damage it.
fn refuse_bare(found: &Found) -> Result<()> {
    let path = Path::new(&found.location);
    let is_bare = found.kind() == DetectKind::Directory
        && path.join("HEAD").is_file()
        && path.join("objects").is_dir()
        && path.join("refs").is_dir();
    if !is_bare {
        return Ok(());
    }
    Err(Error::Refused {
        reason: format!("{} is a bare git repository, which has no files to work on", path.display()),
        hint: Some(format!("make a checkout of it: `git clone {}`", path.display())),
    })
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
fn check_readable(path: &Path, is_file: bool) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| Error::io("read", path, errno))?;
    if !is_file {
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
