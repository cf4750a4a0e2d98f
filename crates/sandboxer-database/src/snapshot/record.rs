//! What is known on disk of a commit that is under way, or was the last.

use std::path::PathBuf;

use sandboxer_core::model::{CommitResult, OnConflict};
use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;
use sandboxer_sqlite::Policy;
use serde::{Deserialize, Serialize};

use super::place::Place;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Everything is ready and nothing is changed.
    Prepared,
    /// It is being made real, and nothing stops that.
    Decided,
    /// The original has it; the base may not yet.
    Applied,
    /// It is over.
    Done,
}

/// One commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub operation: String,
    pub state: State,
    pub on_conflict: OnConflict,
    pub result: CommitResult,
    /// Whether nothing else hangs on it: it can be refused for as long as nothing is written.
    #[serde(default)]
    pub alone: bool,
    /// Whether something was left: the next base is not the whole clone.
    #[serde(default)]
    pub pending: bool,
}

impl Record {
    pub fn prepared(operation: String, on_conflict: OnConflict, result: CommitResult) -> Self {
        Self { operation, state: State::Prepared, on_conflict, result, alone: false, pending: false }
    }

    /// What becomes of rows that somebody has changed since it was prepared. Once others count on it, it cannot fail for them: they are left
    /// alone, and told.
    pub fn policy(&self) -> Policy {
        match self.on_conflict {
            OnConflict::Theirs => Policy::Accept,
            OnConflict::Fail if self.alone => Policy::Fail,
            _ => Policy::Skip,
        }
    }

    fn path(place: &Place) -> PathBuf {
        place.dir.join("commit.json")
    }

    pub fn read(place: &Place) -> Result<Option<Self>> {
        let path = Self::path(place);
        match std::fs::read(&path) {
            Ok(content) => serde_json::from_slice(&content)
                .map(Some)
                .map_err(|error| Error::corrupt(&path, error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }

    pub fn write(&self, place: &Place) -> Result<()> {
        let path = Self::path(place);
        let content = serde_json::to_vec(self).map_err(|error| Error::corrupt(&path, error.to_string()))?;
        durable::write(&path, &content)
    }

    pub fn forget(place: &Place) -> Result<()> {
        durable::remove(&Self::path(place))
    }

    /// The same, one step on.
    pub fn reached(self, state: State, place: &Place) -> Result<Self> {
        let record = Self { state, ..self };
        record.write(place)?;
        Ok(record)
    }
}
