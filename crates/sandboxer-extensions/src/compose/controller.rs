//! The word that a state directory is known by on other machines: two controllers with one host do not take each other's for their own.
//!
//! Beside it stands where it was made. A state directory that was copied, to another machine or from a backup, would take the original's stacks for
//! what nobody knows, and remove them: it is refused until somebody has decided which of the two goes on under that word.

use std::io::{ErrorKind, Write};
use std::path::Path;

use sandboxer_core::{Error, Result};

const FILE: &str = "controller";

/// The word of the state in `home`; made up where it has none yet.
pub(super) fn controller(home: &Path) -> Result<String> {
    let file = home.join(FILE);
    match std::fs::read_to_string(&file) {
        Ok(text) => checked(home, &file, &text),
        Err(error) if error.kind() == ErrorKind::NotFound => make(home, &file),
        Err(error) => Err(Error::io("read", file, error)),
    }
}

/// Whole or not at all, and the first one stays.
fn make(home: &Path, file: &Path) -> Result<String> {
    let told = |error| Error::io("write", file, error);
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| told(error.into()))?;
    let word: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let draft = home.join(format!("{FILE}.{word}"));
    std::fs::create_dir_all(home).map_err(told)?;
    let written = std::fs::File::create(&draft).and_then(|mut to| {
        writeln!(to, "{word} {}", place(home))?;
        to.sync_all()
    });
    let linked = written.and_then(|()| std::fs::hard_link(&draft, file));
    let _ = std::fs::remove_file(&draft);
    match linked {
        Ok(()) => Ok(word),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => controller(home),
        Err(error) => Err(told(error)),
    }
}

/// It becomes part of paths and labels.
fn checked(home: &Path, file: &Path, text: &str) -> Result<String> {
    let (word, made_at) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if word.len() != 16 || !word.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(Error::corrupt(file, "it is not the word of a controller".to_owned()));
    }
    if made_at == place(home) {
        return Ok(word.to_owned());
    }
    Err(Error::Refused {
        reason: format!(
            "{} was copied from elsewhere: on hosts, its stacks and the original's are the same",
            home.display()
        ),
        hint: Some(format!(
            "end them where they were made; then, or if this is to be one of its own: `rm {}`",
            file.display()
        )),
    })
}

/// A digest of which machine this is, and where on it.
fn place(home: &Path) -> String {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_path_buf());
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let mut hasher = blake3::Hasher::new();
    hasher.update(machine.trim_ascii()).update(&[0]).update(home.as_os_str().as_encoded_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_state_directory_has_one_word_and_keeps_it() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let word = controller(one.path()).unwrap();
        assert_eq!(controller(one.path()).unwrap(), word);
        assert_ne!(controller(two.path()).unwrap(), word);
        assert_eq!(std::fs::read_dir(one.path()).unwrap().count(), 1);
    }

    #[test]
    fn all_who_ask_at_once_hear_the_same() {
        let home = tempfile::tempdir().unwrap();
        let ask = || std::thread::scope(|s| s.spawn(|| controller(home.path()).unwrap()).join().unwrap());
        let words: std::collections::BTreeSet<String> = (0..8).map(|_| ask()).collect();
        assert_eq!(words.len(), 1);
    }

    #[test]
    fn a_copy_does_not_go_by_the_originals_word() {
        let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let word = controller(original.path()).unwrap();
        std::fs::copy(original.path().join(FILE), copy.path().join(FILE)).unwrap();
        assert!(matches!(controller(copy.path()), Err(Error::Refused { hint: Some(_), .. })));
        std::fs::remove_file(copy.path().join(FILE)).unwrap();
        assert_ne!(controller(copy.path()).unwrap(), word);
    }

    #[test]
    fn what_is_no_word_is_not_put_into_paths() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FILE), "../../../../etc").unwrap();
        assert!(matches!(controller(home.path()), Err(Error::Corrupt { .. })));
    }
}
