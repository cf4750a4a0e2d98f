//! The keys below `database`: how held transactions treat those who work on the same database.

use std::time::Duration;

use super::duration::parse_ttl;
use super::keys::word;
use crate::{Error, Result};

/// Everything below `database`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// `database.lock_timeout`: how long a statement waits for a lock that somebody else holds.
    pub lock_timeout: Duration,
    /// `database.block_limit`: how long a held transaction may keep others waiting before it is rolled back; `None` is for ever.
    pub block_limit: Option<Duration>,
    /// `database.turn_timeout`: how long a client waits for another client's transaction.
    pub turn_timeout: Duration,
    /// `database.allow_ddl`: statements with strong locks that are allowed all the same.
    pub allow_ddl: Vec<String>,
}

impl Default for DatabaseSettings {
    fn default() -> Self {
        Self {
            lock_timeout: Duration::from_secs(5),
            block_limit: Some(Duration::from_secs(60)),
            turn_timeout: Duration::from_secs(10),
            allow_ddl: Vec::new(),
        }
    }
}

/// One value for one key below `database`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DatabaseSetting {
    LockTimeout(Duration),
    BlockLimit(Option<Duration>),
    TurnTimeout(Duration),
    AllowDdl(Vec<String>),
}

impl DatabaseSetting {
    /// The key's name.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::LockTimeout(_) => "database.lock_timeout",
            Self::BlockLimit(_) => "database.block_limit",
            Self::TurnTimeout(_) => "database.turn_timeout",
            Self::AllowDdl(_) => "database.allow_ddl",
        }
    }

    /// Reads a value as a flag or a variable gives it; nothing where `key` is none of these.
    pub(super) fn from_text(key: &str, text: &str) -> Result<Option<Self>> {
        Ok(Some(match key {
            "database.lock_timeout" => Self::LockTimeout(time(text)?),
            "database.block_limit" if text == "none" => Self::BlockLimit(None),
            "database.block_limit" => Self::BlockLimit(Some(time(text)?)),
            "database.turn_timeout" => Self::TurnTimeout(time(text)?),
            "database.allow_ddl" => {
                return Self::from_list(key, text.split(',').map(|item| item.trim().to_owned()).collect());
            }
            _ => return Ok(None),
        }))
    }

    /// Reads a list as a file gives it; nothing where `key` is none of the lists here.
    pub(super) fn from_list(key: &str, list: Vec<String>) -> Result<Option<Self>> {
        if key != "database.allow_ddl" {
            return Ok(None);
        }
        list.iter().try_for_each(|item| statement(item))?;
        Ok(Some(Self::AllowDdl(list.iter().map(|item| item.to_lowercase()).collect())))
    }

    /// Puts the value where it belongs.
    pub(super) fn apply(self, database: &mut DatabaseSettings) {
        match self {
            Self::LockTimeout(time) => database.lock_timeout = time,
            Self::BlockLimit(time) => database.block_limit = time,
            Self::TurnTimeout(time) => database.turn_timeout = time,
            Self::AllowDdl(list) => database.allow_ddl = list,
        }
    }
}

fn time(text: &str) -> Result<Duration> {
    parse_ttl(text).map(|time| time.unsigned_abs())
}

fn statement(text: &str) -> Result<()> {
    if word(text).is_ok() && text.chars().all(|c| c.is_ascii_alphabetic() || c == ' ') {
        return Ok(());
    }
    Err(Error::Usage {
        message: format!("{text:?} is not the name of a statement"),
        hint: Some("such as `alter table` or `create index`; `all` allows all of them".to_owned()),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn set(key: &str, text: &str) -> Result<DatabaseSettings> {
        let mut settings = DatabaseSettings::default();
        let setting = DatabaseSetting::from_text(key, text)?.unwrap();
        assert_eq!(setting.key(), key);
        setting.apply(&mut settings);
        Ok(settings)
    }

    #[test]
    fn every_key_is_read() {
        assert_eq!(set("database.lock_timeout", "2s").unwrap().lock_timeout, Duration::from_secs(2));
        assert_eq!(set("database.turn_timeout", "1m").unwrap().turn_timeout, Duration::from_secs(60));
        assert_eq!(set("database.block_limit", "none").unwrap().block_limit, None);
        assert_eq!(set("database.block_limit", "90s").unwrap().block_limit, Some(Duration::from_secs(90)));
        let allowed = set("database.allow_ddl", "ALTER TABLE, create index").unwrap().allow_ddl;
        assert_eq!(allowed, ["alter table", "create index"]);
        assert!(DatabaseSetting::from_text("run.pids", "1").unwrap().is_none());
        assert!(DatabaseSetting::from_list("run.env", vec![]).unwrap().is_none());
    }

    #[test]
    fn nonsense_is_named() {
        for (key, text) in [
            ("database.lock_timeout", "soon"),
            ("database.block_limit", "0s"),
            ("database.allow_ddl", "alter table; drop"),
        ] {
            assert!(set(key, text).is_err(), "{key} {text}");
        }
    }
}
