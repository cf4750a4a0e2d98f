//! What is said to a keeper and what it answers: one JSON line each, one of each a connection.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sandboxer_core::Error;
use serde::{Deserialize, Serialize};

use crate::chain::in_words;
use crate::mount::{OPEN, STEPS};
use crate::{Overlay, Unmounted, paths};

/// The version of everything below. `Hello` and its answer stay as they are in every version.
pub(crate) const PROTOCOL: u32 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Hello,
    Mount {
        overlay: Overlay,
        /// What the one who asks sees at each lower, the upper and the work directory.
        seen: Vec<Identity>,
    },
    /// Mounts an overlay in place of the one that is mounted there.
    Replace {
        overlay: Overlay,
        /// As of `Mount`.
        seen: Vec<Identity>,
    },
    Unmount {
        #[serde(with = "paths::one")]
        at: PathBuf,
    },
    IsBusy {
        #[serde(with = "paths::one")]
        at: PathBuf,
    },
    Renew {
        #[serde(with = "paths::one")]
        at: PathBuf,
    },
    Quit,
}

/// Device and inode.
pub(crate) type Identity = (u64, u64);

/// What this process sees at the layers of an overlay. A keeper may see something else: what was mounted on the host after
/// it started need not be mounted for it.
pub(crate) fn seen(overlay: &Overlay) -> Result<Vec<Identity>, Error> {
    layers(overlay).map(|layer| identity(layer)).collect()
}

/// Refuses an overlay whose layers are not what was seen.
pub(crate) fn check_seen(overlay: &Overlay, seen: &[Identity]) -> Result<(), Error> {
    let mut seen = seen.iter();
    for layer in layers(overlay) {
        if seen.next() != Some(&identity(layer)?) {
            let why = "its keeper sees another directory there, as when something was mounted after the keeper started";
            return Err(Error::io(OPEN, layer, io::Error::other(why)));
        }
    }
    Ok(())
}

fn layers(overlay: &Overlay) -> impl Iterator<Item = &PathBuf> {
    overlay.lowers.iter().chain([&overlay.upper, &overlay.work])
}

fn identity(layer: &Path) -> Result<Identity, Error> {
    let facts = layer.symlink_metadata().map_err(|e| Error::io(OPEN, layer, e))?;
    Ok((facts.dev(), facts.ino()))
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Hello { protocol: u32, pid: u32 },
    Done,
    Unmounted(Unmounted),
    Busy(bool),
    Failed(Failure),
}

/// What a keeper says once, through a pipe, to who started it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Startup {
    /// It listens.
    Ready,
    /// Another one holds the lock.
    Taken,
    /// It could not get as far, for this reason.
    Failed(String),
}

/// An error on its way from one process to another.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    step: String,
    #[serde(with = "paths::one")]
    path: PathBuf,
    errno: Option<i32>,
    said: String,
}

impl Failure {
    /// A refusal that is about no path.
    pub(crate) fn refusal(said: impl Into<String>) -> Self {
        Self { step: String::new(), path: PathBuf::new(), errno: None, said: said.into() }
    }

    /// The error as it was over there, as far as callers can tell.
    pub(crate) fn into_error(self) -> Error {
        let Some(step) = STEPS.into_iter().find(|step| *step == self.step) else {
            return Error::refused(format!("the keeper says: {}", self.said));
        };
        let kind =
            self.errno.map_or(io::ErrorKind::Other, |errno| io::Error::from_raw_os_error(errno).kind());
        Error::io(step, self.path, io::Error::new(kind, self.said))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { step, path, source } if STEPS.contains(&step) => {
                Self { step: step.to_owned(), path, errno: errno_of(&source), said: source.to_string() }
            }
            other => Self::refusal(in_words(&other)),
        }
    }
}

/// The number behind an error, also where the kernel's words were added to it.
fn errno_of(error: &io::Error) -> Option<i32> {
    error
        .raw_os_error()
        .or_else(|| error.to_string().split("(os error ").nth(1)?.split(')').next()?.parse().ok())
}

/// What a keeper without an answer gets.
pub(crate) fn unexpected(dir: &Path, reply: &Reply) -> Error {
    Error::corrupt(dir.join("socket"), format!("the keeper gave an answer that does not fit: {reply:?}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn passed_on(error: Error) -> Error {
        let json = serde_json::to_string(&Failure::from(error)).unwrap();
        serde_json::from_str::<Failure>(&json).unwrap().into_error()
    }

    #[test]
    fn hello_is_the_same_in_every_version() {
        assert_eq!(serde_json::to_string(&Request::Hello).unwrap(), r#""hello""#);
        let reply = serde_json::to_string(&Reply::Hello { protocol: 1, pid: 7 }).unwrap();
        assert_eq!(reply, r#"{"hello":{"protocol":1,"pid":7}}"#);
    }

    #[test]
    fn an_error_stays_itself_between_processes() {
        let refused = io::Error::from_raw_os_error(13);
        let Error::Io { step, path, source } = passed_on(Error::io("open directory", "/l", refused)) else {
            panic!()
        };
        assert_eq!(
            (step, path, source.kind()),
            ("open directory", "/l".into(), io::ErrorKind::PermissionDenied)
        );
        let said = io::Error::other("Device or resource busy (os error 16): overlay: no");
        let Error::Io { source, .. } = passed_on(Error::io("mount overlay at", "/m", said)) else { panic!() };
        assert_eq!(source.kind(), io::ErrorKind::ResourceBusy);
        assert!(source.to_string().ends_with("overlay: no"));
        assert!(
            matches!(passed_on(Error::refused("no")), Error::Refused { reason, .. } if reason.contains("no"))
        );
    }
}
