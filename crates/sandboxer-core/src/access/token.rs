//! Tokens: a secret that is shown once and never kept.
//!
//! The text is `sbxt_ID_SECRET`. The id finds the row; of the secret, 32 random bytes, only the SHA-256 is in the store: it has nothing to
//! guess, so a slow hash would protect nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use jiff::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::service::Consumer;
use crate::{Error, Result, resolve};

const PREFIX: &str = "sbxt_";
const ID_BYTES: usize = 10;
const SECRET_BYTES: usize = 32;

/// What a token is good for. Each includes those before it, but `admin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// To look: sandboxes, differences, files, events, usage.
    Read,
    /// To make sandboxes and work in them, and to end them.
    Work,
    /// To make the difference real.
    Commit,
    /// To see and use what is others', and to act for any consumer.
    Admin,
}

impl TokenScope {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Work, Self::Commit, Self::Admin];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Work => "work",
            Self::Commit => "commit",
            Self::Admin => "admin",
        }
    }

    /// This one and what it includes.
    pub fn closure(self) -> BTreeSet<Self> {
        match self {
            Self::Admin => BTreeSet::from([Self::Read, Self::Admin]),
            scope => Self::ALL.into_iter().filter(|other| *other <= scope).collect(),
        }
    }

    /// What an action of a use case takes. One that nobody has thought of takes the most.
    pub fn needed_for(action: &str) -> Self {
        match action {
            "read" | "diff" | "get" | "list" | "events" | "usage" => Self::Read,
            "create" | "write" | "exec" | "rollback" | "checkpoint" | "restore" | "extend" | "recreate"
            | "destroy" | "refresh" | "unpark" => Self::Work,
            "commit" | "undo" => Self::Commit,
            _ => Self::Admin,
        }
    }
}

impl FromStr for TokenScope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(|scope| scope.as_str().to_owned());
            let near = resolve::nearest(text, words.iter());
            Error::Usage {
                message: format!("{text:?} is no scope of a token: read, work, commit or admin"),
                hint: near.first().map(|near| format!("did you mean {near}?")),
            }
        })
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a token is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Who.
    pub principal: String,
    /// On whose behalf.
    pub consumer: Consumer,
    /// What it may do.
    pub scopes: BTreeSet<TokenScope>,
    /// What it may isolate: directories with everything below them, or beginnings of URLs.
    pub resources: Vec<String>,
    /// Until when.
    pub expires_at: Option<Timestamp>,
}

/// A token as it is kept: all but its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// What it is called: the part of its text that is no secret.
    pub id: String,
    /// Who.
    pub principal: String,
    /// On whose behalf.
    pub consumer: Consumer,
    /// What it may do.
    pub scopes: BTreeSet<TokenScope>,
    /// What it may isolate.
    pub resources: Vec<String>,
    /// Since when.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Timestamp,
    /// Until when, if not for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub expires_at: Option<Timestamp>,
    /// Since when it is no good any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub revoked_at: Option<Timestamp>,
}

/// Why a token is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It does not look like one.
    #[error("this is not a token of sandboxer: one begins with sbxt_")]
    Malformed,
    /// No such id, or another secret: which of both is nobody's business.
    #[error("the token {0} is not known here")]
    Unknown(String),
    /// Its time was up.
    #[error("the token {0} expired at {1}")]
    Expired(String, Timestamp),
    /// Somebody took it back.
    #[error("the token {0} was revoked at {1}")]
    Revoked(String, Timestamp),
}

/// The SHA-256 of a secret. Compared in constant time, and only so.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Of the secret itself.
    fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// As it is kept.
    pub fn to_text(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// From how it is kept; what was damaged is nobody's secret.
    pub fn from_text(text: &str) -> Option<Self> {
        HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(Self)
    }

    /// Whether both are of the same secret, in a time that does not depend on where they differ.
    pub fn is(&self, other: &Self) -> bool {
        constant_time_eq::constant_time_eq_32(&self.0, &other.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a caller shows: the id, and the secret as it can be compared.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Which token.
    pub id: String,
    /// Its secret.
    pub secret: Secret,
}

impl Credential {
    /// A new one, with the text that its owner is shown once.
    pub fn generate() -> Result<(Self, String)> {
        let id = lower(&random::<ID_BYTES>()?);
        let secret = lower(&random::<SECRET_BYTES>()?);
        let text = format!("{PREFIX}{id}_{secret}");
        Ok((Self { id, secret: Secret::of(secret.as_bytes()) }, text))
    }

    /// From the text of a token.
    pub fn parse(text: &str) -> std::result::Result<Self, TokenRefusal> {
        let parts = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let plain = |part: &str, bytes: usize| {
            part.len() == encoded(bytes) && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
        };
        match parts {
            Some((id, secret)) if plain(id, ID_BYTES) && plain(secret, SECRET_BYTES) => {
                Ok(Self { id: id.to_owned(), secret: Secret::of(secret.as_bytes()) })
            }
            _ => Err(TokenRefusal::Malformed),
        }
    }
}

const fn encoded(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5)
}

fn lower(bytes: &[u8]) -> String {
    BASE32_NOPAD.encode(bytes).to_ascii_lowercase()
}

/// So many bytes that nobody can guess.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole, or not at all.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == N => Ok(bytes),
        Ok(_) => Err(Error::refused("the kernel gave too few random bytes for a token")),
        Err(error) => Err(Error::io("read random bytes from", "/dev/random", error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_is_read_back_and_its_secret_is_not_in_what_is_kept() {
        let (made, text) = Credential::generate().unwrap();
        let read = Credential::parse(&text).unwrap();
        assert_eq!(read.id, made.id);
        assert!(read.secret.is(&made.secret));
        assert!(Secret::from_text(&made.secret.to_text()).unwrap().is(&made.secret));
        let secret = text.rsplit('_').next().unwrap();
        assert!(!made.secret.to_text().contains(secret) && !format!("{made:?}").contains(secret));
        assert!(!Credential::generate().unwrap().0.secret.is(&made.secret));
    }

    #[test]
    fn what_does_not_look_like_a_token_is_none() {
        let (_, text) = Credential::generate().unwrap();
        let short = &text[..text.len() - 1];
        for bad in [
            "",
            "sbxt_",
            "sbxt_a_b",
            short,
            &text.to_uppercase(),
            &format!("{text}a"),
            &text.replace("sbxt_", "ghp_"),
        ] {
            assert_eq!(Credential::parse(bad).unwrap_err(), TokenRefusal::Malformed, "{bad:?}");
        }
        assert!(Secret::from_text("zz").is_none() && Secret::from_text("00").is_none());
    }

    #[test]
    fn scopes_include_what_is_less() {
        assert_eq!(TokenScope::Work.closure(), BTreeSet::from([TokenScope::Read, TokenScope::Work]));
        assert_eq!(TokenScope::Commit.closure().len(), 3);
        assert_eq!(TokenScope::Admin.closure(), BTreeSet::from([TokenScope::Read, TokenScope::Admin]));
        assert_eq!("work".parse::<TokenScope>().unwrap(), TokenScope::Work);
        assert!(matches!("wrok".parse::<TokenScope>(), Err(Error::Usage { hint: Some(_), .. })));
    }

    #[test]
    fn an_action_that_nobody_thought_of_takes_the_most() {
        assert_eq!(TokenScope::needed_for("diff"), TokenScope::Read);
        assert_eq!(TokenScope::needed_for("commit"), TokenScope::Commit);
        assert_eq!(TokenScope::needed_for("anything"), TokenScope::Admin);
    }
}
