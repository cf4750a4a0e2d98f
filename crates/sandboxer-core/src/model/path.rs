//! Paths below a root. A [`RelPath`] cannot name anything outside the root it is used with, as far as its text goes;
//! links are the business of the confined handles that open it.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A relative path of plain components: no `..`, no `.`, no empty component, no NUL, not absolute, not empty.
///
/// Linux names are bytes, so this is bytes too. It serialises as the text itself where that is UTF-8 and as
/// `base64:…` where it is not, so that nothing is lost on the way through JSON.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Vec<u8>);

/// Why a path was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing was given.
    #[error("the path is empty")]
    Empty,
    /// It starts at `/`.
    #[error("{0:?} is absolute; paths inside a workspace are relative to its root")]
    Absolute(String),
    /// It has a `.`, `..` or empty component.
    #[error("{0:?} has a `.`, `..` or empty component")]
    Component(String),
    /// It has a NUL byte.
    #[error("{0:?} contains a NUL byte")]
    Nul(String),
}

impl RelPath {
    /// Checks `bytes` and wraps them.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let bytes = bytes.into();
        let shown = || String::from_utf8_lossy(&bytes).into_owned();
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul(shown()));
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute(shown()));
        }
        if bytes.split(|b| *b == b'/').any(|part| part.is_empty() || part == b"." || part == b"..") {
            return Err(PathError::Component(shown()));
        }
        Ok(Self(bytes))
    }

    /// Checks a path as a user typed it: a leading `./` and trailing slashes are forgiven.
    pub fn parse(path: impl AsRef<OsStr>) -> Result<Self, PathError> {
        let mut bytes = path.as_ref().as_bytes();
        while let Some(rest) = bytes.strip_prefix(b"./") {
            bytes = rest;
        }
        while bytes.len() > 1 && bytes.ends_with(b"/") {
            bytes = &bytes[..bytes.len() - 1];
        }
        Self::from_bytes(bytes)
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path for calls that take one. Join it to nothing: open it through a confined handle.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The last component.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or(&self.0)
    }

    /// Everything before the last component; `None` at the root's own level.
    pub fn parent(&self) -> Option<RelPath> {
        let cut = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(self.0[..cut].to_vec()))
    }

    /// This path with one more component, which must be a plain name from a directory listing.
    pub fn join(&self, name: &[u8]) -> RelPath {
        let mut bytes = Vec::with_capacity(self.0.len() + name.len() + 1);
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        Self(bytes)
    }

    /// A path of one component that came from a directory listing.
    pub fn single(name: &[u8]) -> Result<RelPath, PathError> {
        if name.contains(&b'/') {
            return Err(PathError::Component(String::from_utf8_lossy(name).into_owned()));
        }
        Self::from_bytes(name)
    }

    /// The components in order.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// Whether this is `ancestor` itself or lies below it.
    pub fn is_within(&self, ancestor: &RelPath) -> bool {
        self.0.strip_prefix(ancestor.0.as_slice()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// The path as a `PathBuf`.
    pub fn to_path_buf(&self) -> PathBuf {
        self.as_path().to_path_buf()
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

const ENCODED: &str = "base64:";

impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.starts_with(ENCODED) => serializer.serialize_str(text),
            _ => serializer.serialize_str(&format!("{ENCODED}{}", BASE64.encode(&self.0))),
        }
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = match text.strip_prefix(ENCODED) {
            Some(encoded) => BASE64.decode(encoded.as_bytes()).map_err(serde::de::Error::custom)?,
            None => text.into_bytes(),
        };
        Self::from_bytes(bytes).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_everything_that_could_leave_a_root() {
        for bad in ["", "/etc", "..", "a/../b", "a//b", "./a", "a/.", "a/", "a\0b", "/proc/self/root/x"] {
            assert!(RelPath::from_bytes(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn parse_forgives_what_shells_complete() {
        assert_eq!(RelPath::parse("./src/").unwrap().as_bytes(), b"src");
        assert!(RelPath::parse("/").is_err());
        assert!(RelPath::parse("./").is_err());
    }

    #[test]
    fn json_keeps_every_byte() {
        for bytes in [&b"plain/\xc3\xa9"[..], b"bad\xff\xfe", b"base64:not", b"new\nline"] {
            let path = RelPath::from_bytes(bytes).unwrap();
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<RelPath>(&json).unwrap(), path);
        }
        assert!(serde_json::from_str::<RelPath>("\"../x\"").is_err());
    }

    #[test]
    fn containment_is_by_component() {
        let path = |text: &str| RelPath::parse(text).unwrap();
        assert!(path("a/b").is_within(&path("a")));
        assert!(path("a").is_within(&path("a")));
        assert!(!path("ab").is_within(&path("a")));
        assert_eq!(path("a/b").parent(), Some(path("a")));
        assert_eq!(path("a").parent(), None);
        assert_eq!(path("a/b").name(), b"b");
        assert_eq!(path("a").join(b"c"), path("a/c"));
    }
}
