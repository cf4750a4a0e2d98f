//! Where the sockets of masters are: in a directory that nobody else enters, under a path short enough for a socket.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use sandboxer_core::{Error, Result};

use super::Settings;
use crate::address::Address;

/// The kernel takes 107 bytes. `ssh` binds a socket under a longer name first: a dot and sixteen characters.
const LONGEST: usize = 107 - 17;
/// Characters of a digest: enough for all hosts that anybody has.
const DIGITS: usize = 16;

/// The socket's path for this host. The directory is made.
pub(super) fn place(address: &Address, settings: &Settings) -> Result<PathBuf> {
    let name = name(address, settings);
    let given = fits(&settings.control.join(&name)).then(|| make_private(&settings.control, true));
    let mut made = given.map(|made| made.map(|()| settings.control.clone()));
    for place in short_places() {
        if matches!(made, Some(Ok(_))) {
            break;
        }
        made = Some(make_private(&place, false).map(|()| place));
    }
    let nowhere = || Err(Error::usage("there is no place for the sockets of connections"));
    made.unwrap_or_else(nowhere).map(|directory| directory.join(&name))
}

fn short_places() -> [PathBuf; 2] {
    let uid = geteuid().as_raw();
    [
        PathBuf::from(format!("/run/user/{uid}/sandboxer-ssh")),
        PathBuf::from(format!("/tmp/sandboxer-ssh-{uid}")),
    ]
}

/// `ssh` replaces `%h` and `${HOME}` in this path, and sockets have short names.
fn fits(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    path.is_absolute() && bytes.len() <= LONGEST && !bytes.iter().any(|byte| b"%$\"\\".contains(byte))
}

/// One name for all that connect to the same place in the same way.
fn name(address: &Address, settings: &Settings) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(address.to_string().as_bytes()).update(b"\0");
    hasher.update(settings.config.as_deref().unwrap_or(Path::new("")).as_os_str().as_bytes());
    hasher.finalize().to_hex()[..DIGITS].to_owned()
}

/// Directories of the system's are not made where they are missing.
fn make_private(directory: &Path, with_parents: bool) -> Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(with_parents).create(directory);
    match made {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io("create directory", directory, e));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(directory).map_err(|e| Error::io("examine", directory, e))?;
    let ours = found.is_dir() && found.uid() == geteuid().as_raw();
    if !ours || found.mode() & 0o077 != 0 {
        return Err(Error::Refused {
            reason: format!("{} is not a directory of ours alone", directory.display()),
            hint: Some(format!("remove it, or `chmod 700 {}` if it is yours", directory.display())),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn settings(control: PathBuf) -> Settings {
        Settings { config: None, control, connect_timeout: Duration::from_secs(5) }
    }

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn the_directory_is_made_for_nobody_else() {
        let temp = tempfile::tempdir().unwrap();
        let control = temp.path().join("c");
        let socket = place(&address("ssh://a"), &settings(control.clone())).unwrap();
        assert_eq!(socket.parent(), Some(control.as_path()));
        assert_eq!(std::fs::metadata(&control).unwrap().mode() & 0o777, 0o700);
        assert_ne!(socket, place(&address("ssh://b"), &settings(control.clone())).unwrap());
        std::fs::set_permissions(&control, PermissionsExt::from_mode(0o755)).unwrap();
        let elsewhere = place(&address("ssh://a"), &settings(control.clone())).unwrap();
        assert_ne!(elsewhere.parent(), Some(control.as_path()), "others could get in");
    }

    #[test]
    fn a_path_that_is_too_long_or_means_something_to_ssh_is_replaced() {
        let temp = tempfile::tempdir().unwrap();
        for odd in ["d".repeat(120), "%h".into(), "${HOME}".into()] {
            let socket = place(&address("ssh://a"), &settings(temp.path().join(odd))).unwrap();
            assert!(!socket.starts_with(temp.path()) && fits(&socket), "{}", socket.display());
        }
    }
}
