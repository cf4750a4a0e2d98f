//! What a courier leaves for people: a log that stays small, and the last thing that went wrong, for as long as it does.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The log gets no longer.
const LONGEST: u64 = 256 << 10;

/// Why the newest attempt to deliver came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// When.
    pub at: Timestamp,
    /// What went wrong.
    pub reason: String,
}

/// The files in a courier's directory. Only one process at a time writes them.
pub(crate) struct Journal {
    office: PathBuf,
}

impl Journal {
    pub(crate) fn new(office: &Path) -> Self {
        Self { office: office.to_path_buf() }
    }

    /// Adds a line. Delivering does not depend on it.
    pub(crate) fn say(&self, text: &str) {
        let at = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let line = format!("{at} {}\n", text.replace(char::is_control, " "));
        let _ = self.append(line.as_bytes());
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        let path = self.office.join("log");
        let length = fs::metadata(&path).map_or(0, |found| found.len());
        if length + line.len() as u64 > LONGEST {
            let kept = fs::read(&path)?;
            let half = &kept[kept.len() / 2..];
            let whole_lines =
                half.iter().position(|byte| *byte == b'\n').map_or(half, |end| &half[end + 1..]);
            self.replace("log", whole_lines)?;
        }
        File::options().create(true).append(true).mode(0o600).open(&path)?.write_all(line)
    }

    /// Remembers where events go by now.
    pub(crate) fn address(&self, address: &str) {
        if !self.is_address(address) {
            let _ = self.replace("address", address.as_bytes());
        }
    }

    /// Whether they go there still.
    pub(crate) fn is_address(&self, address: &str) -> bool {
        fs::read(self.office.join("address")).is_ok_and(|known| known == address.as_bytes())
    }

    /// Remembers what went wrong, until something goes well.
    pub(crate) fn failed(&self, reason: &str) {
        let failure = LastFailure { at: Timestamp::now(), reason: reason.to_owned() };
        let _ = self.replace("failure.json", &serde_json::to_vec(&failure).unwrap_or_default());
    }

    /// Nothing is wrong any more.
    pub(crate) fn went_well(&self) {
        let _ = fs::remove_file(self.office.join("failure.json"));
    }

    /// What went wrong last, if nothing went well since.
    pub(crate) fn last_failure(&self) -> Option<LastFailure> {
        serde_json::from_slice(&fs::read(self.office.join("failure.json")).ok()?).ok()
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let (new, path) = (self.office.join(format!("{name}.new")), self.office.join(name));
        File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?.write_all(content)?;
        fs::rename(new, path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_log_keeps_its_newest_whole_lines_and_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path());
        for number in 0..40 {
            journal.say(&format!("{number} {}", "x".repeat(10_000)));
        }
        let log = fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(log.len() as u64 <= LONGEST && log.len() as u64 > LONGEST / 4, "{}", log.len());
        assert!(log.lines().all(|line| line.split(' ').nth(1).unwrap().parse::<u32>().is_ok()));
        assert!(log.lines().last().unwrap().contains(" 39 x"));
    }

    #[test]
    fn a_line_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        Journal::new(dir.path()).say("a\nb\u{1b}[2J");
        assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_failure_is_remembered_until_something_goes_well() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path());
        assert_eq!(journal.last_failure(), None);
        journal.failed("one");
        journal.failed("two");
        assert_eq!(journal.last_failure().unwrap().reason, "two");
        journal.went_well();
        assert_eq!(journal.last_failure(), None);
    }
}
