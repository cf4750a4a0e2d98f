//! The token that a hub asks for: where it is, and how it is kept from being seen.
//!
//! It is in memory while it is used, and nowhere else: not in arguments, environments, logs, events or the state. A courier reads a
//! file anew for each round, so that a token that is replaced is used; the value of a variable it is handed through a pipe.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// No token is longer.
const LONGEST: u64 = 8 << 10;

/// Something that is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Takes it in: one line of visible characters. The complaint does not repeat it.
    pub fn new(text: &str, place: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("there is no token in {place}: it is empty"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "what is in {place} is no token: it is one line of visible ASCII characters"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Takes it in from the first line of a file. The complaint does not repeat it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        let place = path.display().to_string();
        // Which bytes are not UTF-8 is nobody's business either.
        read.map_err(|e| format!("cannot read the token in {place}: {}", e.kind()))?;
        Self::new(text.lines().next().unwrap_or_default(), &place)
    }

    /// Its text, for the one header that it is sent in.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a secret)")
    }
}

/// Where the token is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Token {
    /// The hub asks for none.
    None,
    /// In a file, its first line; read when it is used.
    File(PathBuf),
    /// Here.
    Given(Secret),
    /// It should be somewhere, and is not; the reason.
    Missing(String),
}

impl Token {
    /// What a variable of the environment holds; `value` is `None` where it is not set.
    pub fn of_variable(name: &str, value: Option<&str>) -> Self {
        let place = format!("the variable {name}, which events.token names");
        match value.map(|value| Secret::new(value, &place)) {
            Some(Ok(secret)) => Self::Given(secret),
            Some(Err(why)) => Self::Missing(why),
            None => Self::Missing(format!("{place}, is not set")),
        }
    }

    /// The token as it is now.
    pub(crate) fn read(&self) -> Result<Option<Secret>, String> {
        match self {
            Self::None => Ok(None),
            Self::File(path) => Secret::read(path).map(Some),
            Self::Given(secret) => Ok(Some(secret.clone())),
            Self::Missing(why) => Err(why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_is_read_when_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = Token::File(path.clone());
        assert!(token.read().unwrap_err().contains("token"));
        for (text, found) in [("one\n", "one"), (" two \nmore\n", "two")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(token.read().unwrap().unwrap().reveal(), found);
        }
    }

    #[test]
    fn what_is_no_token_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for text in ["", "hunter2 and more", "hunter2\u{7}"] {
            std::fs::write(&path, text).unwrap();
            let why = Token::File(path.clone()).read().unwrap_err();
            assert!(!why.contains("hunter2") && why.contains("token"), "{why}");
            let given = Token::of_variable("HUB", Some(text));
            assert!(matches!(&given, Token::Missing(why) if why.contains("HUB") && !why.contains("hunter2")));
        }
        assert!(Token::of_variable("HUB", None).read().unwrap_err().contains("HUB"));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let given = Token::of_variable("HUB", Some("hunter2"));
        assert_eq!(given.read().unwrap().unwrap().reveal(), "hunter2");
        assert!(!format!("{given:?}").contains("hunter2"));
    }
}
