//! What a caller typed for a resource: a path, a `file://` URL, which is a path too, or another URL.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::url::Url;
use crate::{Error, Result, resolve};

/// More names than this are not looked through for the one that was meant.
const MOST_NEIGHBOURS: usize = 1_000;

/// What a location names.
pub(super) enum Location<'a> {
    /// A path, not resolved yet.
    Path(PathBuf),
    /// Something that is not on this machine, or not a file.
    Url(Url<'a>),
}

impl<'a> Location<'a> {
    pub(super) fn parse(location: &'a str) -> Result<Self> {
        if location.is_empty() {
            return Err(Error::usage("the resource's location is empty"));
        }
        match Url::parse(location) {
            None => Ok(Self::Path(PathBuf::from(location))),
            Some(url) => match url.file() {
                Some(rest) => file_url(rest).map(Self::Path),
                None => Ok(Self::Url(url)),
            },
        }
    }
}

/// Whether `location` is a URL of anything but a file.
pub fn is_url(location: &str) -> bool {
    Url::parse(location).is_some_and(|url| url.file().is_none())
}

fn file_url(rest: &str) -> Result<PathBuf> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        let message = "a file:// URL names a path on this machine: file:///path".to_owned();
        return Err(Error::Usage { message, hint: None });
    }
    let bytes = percent_decoded(path.as_bytes())
        .ok_or_else(|| Error::usage("the file:// URL has a % that two hexadecimal digits do not follow"))?;
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

fn percent_decoded(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        if *first == b'%' {
            let digits = rest.get(..2)?;
            bytes.push(data_encoding::HEXLOWER_PERMISSIVE.decode(digits).ok()?[0]);
            text = &rest[2..];
        } else {
            bytes.push(*first);
            text = rest;
        }
    }
    Some(bytes)
}

/// The path itself: absolute, without links and dots. A missing one is not found, with names that come near.
pub(super) fn canonical(path: &Path) -> Result<PathBuf> {
    let found = std::fs::canonicalize(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound {
            what: "resource",
            name: path.to_string_lossy().into_owned(),
            similar: neighbours(path),
        },
        _ => Error::io("resolve", path, error),
    })?;
    if identity(path) == identity(&found) { Ok(found) } else { Err(through_a_process(path)) }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// What a process has mounted for itself is reached through `/proc`, and has no path without that: its canonical one leads to
/// whatever is there for everybody else.
fn through_a_process(path: &Path) -> Error {
    Error::Refused {
        reason: format!("{} is mounted for another process alone", path.display()),
        hint: Some("if it is a sandbox, name its original instead".to_owned()),
    }
}

fn neighbours(path: &Path) -> Vec<String> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().take(MOST_NEIGHBOURS);
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    resolve::nearest(name, names.iter())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn to_path(location: &str) -> Result<PathBuf> {
        match Location::parse(location)? {
            Location::Path(path) => Ok(path),
            Location::Url(url) => panic!("{location} is a URL of scheme {}", url.scheme),
        }
    }

    #[test]
    fn file_urls_are_paths() {
        let table = [
            ("file:///a/b", "/a/b"),
            ("FILE://localhost/a", "/a"),
            ("file:///a%20b%C3%A9", "/a bé"),
            ("plain/path", "plain/path"),
            ("./x://y", "./x://y"),
            ("1x://y", "1x://y"),
        ];
        for (location, path) in table {
            assert_eq!(to_path(location).unwrap(), Path::new(path), "{location}");
            assert!(!is_url(location), "{location}");
        }
        assert!(is_url("s3://bucket"));
    }

    #[test]
    fn what_names_no_path_is_refused() {
        for bad in ["", "file://host/path", "file://relative", "file:///a%2", "file:///a%zz"] {
            assert!(matches!(to_path(bad), Err(Error::Usage { .. })), "{bad:?}");
        }
    }

    #[test]
    fn a_missing_path_suggests_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("source")).unwrap();
        let error = canonical(&dir.path().join("sourec")).unwrap_err();
        let Error::NotFound { what: "resource", similar, .. } = error else { panic!("{error:?}") };
        assert_eq!(similar, ["source"]);
        assert!(matches!(canonical(Path::new("/..")), Ok(root) if root == Path::new("/")));
    }

    #[test]
    fn other_failures_name_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("loop");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        assert!(matches!(canonical(&link), Err(Error::Io { step: "resolve", path, .. }) if path == link));
    }
}
