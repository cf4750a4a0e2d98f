//! What a plugin writes to its standard error: into a file of bounded size, the last lines at hand for errors.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A log that has grown to this size becomes `.1`, and a new one begins.
const MAX_LOG: u64 = 1 << 20;
/// A longer line is split.
const MAX_LINE: u64 = 4 << 10;
/// How many lines an error quotes.
const QUOTED_LINES: usize = 4;
/// How much of each.
const QUOTED_CHARS: usize = 200;
/// Shorter values of variables are words like `1` or `true`, and no secrets.
const SHORTEST_SECRET: usize = 6;

/// How long the last lines of a process that has ended are waited for: a child of its may hold the pipe open.
const ON_THEIR_WAY: Duration = Duration::from_millis(200);

/// Takes standard error in, on a thread of its own.
#[derive(Clone)]
pub struct Log {
    path: PathBuf,
    said: Arc<Said>,
}

#[derive(Default)]
struct Said {
    last: Mutex<VecDeque<String>>,
    is_over: AtomicBool,
}

impl Log {
    /// A log that is kept in `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), said: Arc::default() }
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps everything that comes from `stderr`, the values of `secrets` taken out, until it ends.
    pub fn follow(&self, stderr: impl Read + Send + 'static, secrets: Vec<(String, String)>) {
        let log = self.clone();
        log.last().clear();
        log.said.is_over.store(false, Ordering::Release);
        let secrets = secrets.into_iter().filter(|(_, value)| value.len() >= SHORTEST_SECRET).collect::<Vec<_>>();
        let copy = move || {
            let mut input = BufReader::new(stderr);
            while let Some(line) = next_line(&mut input) {
                log.add(&without(&secrets, line));
            }
            log.said.is_over.store(true, Ordering::Release);
        };
        // Where there is no thread to be had, the pipe closes and the plugin's words are lost; its work is not.
        let _ = std::thread::Builder::new().name("plugin-stderr".to_owned()).spawn(copy);
    }

    fn add(&self, line: &str) {
        let mut last = self.last();
        last.push_back(line.chars().take(QUOTED_CHARS).collect());
        if last.len() > QUOTED_LINES {
            last.pop_front();
        }
        drop(last);
        // A log that cannot be written is no reason to fail.
        let _ = append(&self.path, line);
    }

    fn last(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.said.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its last words, for an error. Of a process that has ended, they may still be on their way.
    pub fn last_words(&self) -> Option<String> {
        let deadline = Instant::now() + ON_THEIR_WAY;
        while !self.said.is_over.load(Ordering::Acquire) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let last = self.last();
        (!last.is_empty()).then(|| Vec::from(last.clone()).join(" / "))
    }
}

fn next_line(input: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let read = input.take(MAX_LINE).read_until(b'\n', &mut line).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
}

fn without(secrets: &[(String, String)], mut line: String) -> String {
    for (name, value) in secrets {
        if line.contains(value.as_str()) {
            line = line.replace(value.as_str(), &format!("[{name}]"));
        }
    }
    line
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|found| found.len() > MAX_LOG) {
        let mut older = path.as_os_str().to_owned();
        older.push(".1");
        std::fs::rename(path, older)?;
    }
    let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
    writeln!(file, "{} {line}", jiff::Timestamp::now().round(jiff::Unit::Millisecond).unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn followed(text: &[u8], secrets: &[(&str, &str)]) -> (tempfile::TempDir, Log) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::new(&dir.path().join("x.log"));
        let secrets = secrets.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
        let mut input = BufReader::new(text);
        while let Some(line) = next_line(&mut input) {
            log.add(&without(&secrets, line));
        }
        (dir, log)
    }

    #[test]
    fn lines_are_kept_and_the_last_are_quoted() {
        let (_dir, log) = followed(b"one\ntwo\nthree\nfour\nfive", &[]);
        assert_eq!(log.last_words().unwrap(), "two / three / four / five");
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.lines().count(), 5);
        assert!(text.lines().next().unwrap().ends_with("Z one"), "{text}");
        assert_eq!(Log::new(Path::new("/nowhere/x")).last_words(), None);
    }

    #[test]
    fn values_of_the_environment_are_taken_out() {
        let (_dir, log) = followed(b"key is s3cr3t-value\n", &[("AWS_SECRET", "s3cr3t-value")]);
        assert_eq!(log.last_words().unwrap(), "key is [AWS_SECRET]");
        assert!(!std::fs::read_to_string(log.path()).unwrap().contains("s3cr3t"));
    }

    #[test]
    fn a_flood_stays_bounded() {
        let flood = b"x".repeat(5 << 20);
        let (dir, log) = followed(&flood, &[]);
        let size = |name: &str| std::fs::metadata(dir.path().join(name)).map_or(0, |found| found.len());
        assert!(size("x.log") <= MAX_LOG + 2 * MAX_LINE && size("x.log.1") <= MAX_LOG + 2 * MAX_LINE);
        assert!(log.last_words().unwrap().len() < 1000);
    }
}
