//! What a project's file may say before the user has trusted it: stricter, and nothing else.

use std::path::Path;

use super::keys::{KEYS, Setting};
use super::schema::Entry;
use super::settings::{Durability, Settings};
use crate::{Error, Result};

/// The strategy that isolates nothing.
const NO_ISOLATION: &str = "none";

/// Refuses `entry` of the untrusted `file` unless it only tightens `so_far`, the settings of the layers below.
pub(super) fn check(entry: &Entry, so_far: &Settings, file: &Path) -> Result<()> {
    let key = entry.setting.key();
    let allowed = KEYS.iter().any(|known| known.name == key && known.untrusted);
    let complaint = match &entry.setting {
        _ if !allowed => Some("is not for an untrusted project to set".to_owned()),
        Setting::Strategy(name) if !isolates(name, so_far) => {
            Some(format!("chooses {name:?}, which does not isolate"))
        }
        Setting::DefaultTtl(ttl) if so_far.default_ttl.is_some_and(|own| *ttl > own) => {
            Some("is longer than your own".to_owned())
        }
        Setting::Durability(Durability::Volatile) => {
            Some("lets a sandbox lose what was written last when the machine goes down".to_owned())
        }
        Setting::Run(setting) => setting.loosens(&so_far.run).map(str::to_owned),
        _ => None,
    };
    match complaint {
        Some(complaint) => Err(refusal(&format!("{key} {complaint}"), file, entry.line)),
        None => Ok(()),
    }
}

/// Refuses what is the user's alone to say, whoever trusts `file`: a hub hears of every sandbox of the state directory, not only of
/// this project's, and whoever is limited would raise the limit.
pub(super) fn check_owner(entry: &Entry, file: &Path) -> Result<()> {
    match &entry.setting {
        setting @ (Setting::Events(_) | Setting::Quotas(_)) => Err(Error::Config {
            file: file.to_path_buf(),
            line: entry.line,
            column: None,
            message: format!("{} is not for a project to set", setting.key()),
            hint: Some("remove the key here, and set it in the user's configuration file".to_owned()),
        }),
        _ => Ok(()),
    }
}

/// As far as can be told by name: built-ins registered again are followed. Resolution asks the registry once more.
fn isolates(name: &str, so_far: &Settings) -> bool {
    let builtin = so_far.custom_strategies.get(name).and_then(|custom| custom.builtin());
    builtin.unwrap_or(name) != NO_ISOLATION
}

/// A refusal that names the key, the file and the way out.
pub(crate) fn refusal(what: &str, file: &Path, line: Option<u64>) -> Error {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let directory = file.parent().unwrap_or(Path::new("/")).display();
    Error::Refused {
        reason: format!("{what} ({}{line})", file.display()),
        hint: Some(format!("read the file, then `sandbox trust {directory}`, or remove the key")),
    }
}
