//! The keys below `events`: whom lifecycle events are told to.
//!
//! A token is never a value here: the configuration is read, shown and copied, so it says where the token is. A complaint about a
//! value does not repeat it, since what was written by mistake may be the token.

use std::path::PathBuf;

use super::keys::absolute;
use crate::{Error, Result};

/// Everything below `events`, resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsSettings {
    /// `events.hub`: the URL that events are posted to.
    pub hub: Option<String>,
    /// `events.token`: where the token is that the hub asks for.
    pub token: Option<TokenRef>,
}

/// Where a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenRef {
    /// In a variable of the environment.
    Variable(String),
    /// In a file, its first line.
    File(PathBuf),
}

impl std::fmt::Display for TokenRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl TokenRef {
    /// Reads `env:NAME` or `file:/path`.
    pub fn parse(text: &str) -> Result<Self> {
        let is_name = |name: &str| {
            let mut letters = name.chars();
            letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match text.split_once(':') {
            Some(("env", name)) if is_name(name) => Ok(Self::Variable(name.to_owned())),
            Some(("file", path)) => absolute(path).map(Self::File),
            _ => Err(Error::Usage {
                message: "this is no reference to a token".to_owned(),
                hint: Some("say where the token is, not what it is: env:NAME or file:/path".to_owned()),
            }),
        }
    }
}

/// One value for one key below `events`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EventsSetting {
    Hub(String),
    Token(TokenRef),
}

impl EventsSetting {
    /// The key's name.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Hub(_) => "events.hub",
            Self::Token(_) => "events.token",
        }
    }

    /// Reads a value as a file or a variable gives it; nothing where `key` is none of these.
    pub(super) fn from_text(key: &str, text: &str) -> Result<Option<Self>> {
        Ok(Some(match key {
            "events.hub" => Self::Hub(url(text)?),
            "events.token" => Self::Token(TokenRef::parse(text)?),
            _ => return Ok(None),
        }))
    }

    /// Puts the value where it belongs.
    pub(super) fn apply(self, events: &mut EventsSettings) {
        match self {
            Self::Hub(url) => events.hub = Some(url),
            Self::Token(reference) => events.token = Some(reference),
        }
    }
}

/// A URL that may be shown: http or https, a host, and no password.
fn url(text: &str) -> Result<String> {
    let complaint =
        |message: &str, hint: &str| Error::Usage { message: message.to_owned(), hint: Some(hint.to_owned()) };
    let rest = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let strange = |c: char| c.is_control() || c.is_whitespace();
    match authority {
        Some(authority) if authority.contains('@') => Err(complaint(
            "a URL with a user or a password in it is not kept",
            "put the token into a variable or a file, and name that in events.token",
        )),
        Some(authority)
            if !authority.is_empty()
                && !authority.starts_with(':')
                && text.len() <= 2000
                && !text.contains(strange) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(complaint("this is no URL of a hub", "such as https://hub.example.com/events")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let mut settings = EventsSettings::default();
        for (key, text) in
            [("events.hub", "https://hub.example:8443/e?x=1"), ("events.token", "env:HUB_TOKEN")]
        {
            let setting = EventsSetting::from_text(key, text).unwrap().unwrap();
            assert_eq!(setting.key(), key);
            setting.apply(&mut settings);
        }
        assert_eq!(settings.hub.as_deref(), Some("https://hub.example:8443/e?x=1"));
        assert_eq!(settings.token.unwrap().to_string(), "env:HUB_TOKEN");
        assert_eq!(TokenRef::parse("file:/run/token").unwrap().to_string(), "file:/run/token");
        assert!(EventsSetting::from_text("run.pids", "1").unwrap().is_none());
    }

    #[test]
    fn what_is_refused_is_not_repeated() {
        for (key, text) in [
            ("events.hub", "ftp://secret.example/"),
            ("events.hub", "http:///secret"),
            ("events.hub", "http://:80/secret"),
            ("events.hub", "https://me:secret@hub.example/"),
            ("events.hub", "https://hub.example/secret two"),
            ("events.token", "secret"),
            ("events.token", "env:secret=1"),
            ("events.token", "env:"),
        ] {
            let error = EventsSetting::from_text(key, text).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("secret"), "{text}: {error:?}");
        }
        assert!(TokenRef::parse("file:relative").is_err());
    }
}
