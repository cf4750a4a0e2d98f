//! Names of objects.

use std::fmt;
use std::str::FromStr;

use sandboxer_core::Error;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use sha2::Sha256;

/// How a repository names its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectFormat {
    /// As nearly every repository does.
    #[default]
    Sha1,
    /// As git can since 2.29.
    Sha256,
}

impl ObjectFormat {
    /// As git calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// The name of no object.
    pub fn zero(self) -> Oid {
        let digits = match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        };
        Oid("0".repeat(digits))
    }

    /// The name that a blob of this content has.
    pub fn blob(self, content: &[u8]) -> Oid {
        let header = format!("blob {}\0", content.len());
        match self {
            Self::Sha1 => Oid(hex(&Sha1::new().chain_update(header).chain_update(content).finalize())),
            Self::Sha256 => Oid(hex(&Sha256::new().chain_update(header).chain_update(content).finalize())),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of an object, in lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Enough of it for a person.
    pub fn short(&self) -> &str {
        &self.0[..10]
    }

    /// Whether it names no object.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|b| b == b'0')
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Oid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if digits && matches!(text.len(), 40 | 64) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::usage(format!("{text:?} is not the name of an object")))
    }
}

impl TryFrom<String> for Oid {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_named_as_git_names_them() {
        assert_eq!(ObjectFormat::Sha1.blob(b"").as_str(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            ObjectFormat::Sha256.blob(b"").as_str(),
            "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"
        );
    }

    #[test]
    fn only_digits_of_a_known_length_are_a_name() {
        assert!("0".repeat(40).parse::<Oid>().unwrap().is_zero());
        for bad in ["", "HEAD", &"0".repeat(39), &"A".repeat(40), "--exec=x"] {
            assert!(bad.parse::<Oid>().is_err(), "{bad}");
        }
        assert!(!ObjectFormat::Sha256.blob(b"x").is_zero() && ObjectFormat::Sha256.zero().is_zero());
    }
}
