//! Paths in JSON: text where they are UTF-8, their bytes where they are not.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Encoded {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Encoded {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<Encoded> for PathBuf {
    fn from(encoded: Encoded) -> Self {
        match encoded {
            Encoded::Text(text) => text.into(),
            Encoded::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// `#[serde(with)]` of one path.
pub mod one {
    use super::{Encoded, Path, PathBuf};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        Encoded::from(path).serialize(to)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Encoded::deserialize(from).map(PathBuf::from)
    }
}

/// `#[serde(with)]` of one that may be missing.
pub mod maybe {
    use super::{Encoded, PathBuf};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Encoded::from).serialize(to)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Encoded>::deserialize(from)?.map(PathBuf::from))
    }
}

/// `#[serde(with)]` of several.
pub mod list {
    use super::{Encoded, PathBuf};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| Encoded::from(path.as_path())))
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<Encoded>::deserialize(from)?;
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Overlay;

    #[test]
    fn every_path_survives_json() {
        let odd = PathBuf::from(OsString::from_vec(b"/bad\xff\xfe:,\\\n\"".to_vec()));
        let overlay = Overlay {
            lowers: vec!["/plain \u{e9}".into(), odd.clone()],
            upper: odd,
            work: "/w".into(),
            at: "/new\nline".into(),
            volatile: true,
        };
        let json = serde_json::to_string(&overlay).unwrap();
        assert!(json.contains(r#""work":"/w""#) && !json.contains('\n'));
        assert_eq!(serde_json::from_str::<Overlay>(&json).unwrap(), overlay);
    }
}
