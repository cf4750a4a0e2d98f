//! What a plugin writes to its standard error: into a file of bounded size, the last lines at hand for errors.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::secrets::Secrets;

/// A log that has grown to this size becomes `.1`, and a new one begins.
const MAX_LOG: u64 = 1 << 20;
/// What a line has beyond this is left out.
const MAX_LINE: usize = 16 << 10;
/// How many lines an error quotes.
const QUOTED_LINES: usize = 4;
/// How much of each.
const QUOTED_CHARS: usize = 200;

/// How long the last lines of a process that has ended are waited for: a child of its may hold the pipe open.
const ON_THEIR_WAY: Duration = Duration::from_millis(200);

/// Where the standard error of one plugin is kept.
#[derive(Clone)]
pub struct Log {
    path: PathBuf,
    secrets: Secrets,
}

/// What one process of it has said.
#[derive(Clone, Default)]
pub struct Words(Arc<Said>);

#[derive(Default)]
struct Said {
    last: Mutex<VecDeque<String>>,
    is_over: AtomicBool,
}

impl Log {
    /// A log that is kept in `path`, without the `secrets`.
    pub fn new(path: &Path, secrets: Secrets) -> Self {
        Self { path: path.to_path_buf(), secrets }
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What may not be told.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Keeps everything that comes from `stderr` until it ends, on a thread of its own.
    pub fn follow(&self, stderr: impl Read + Send + 'static) -> Words {
        let (log, words) = (self.clone(), Words::default());
        let said = words.clone();
        let copy = move || {
            log.keep(&mut BufReader::new(stderr), &said);
            said.0.is_over.store(true, Ordering::Release);
        };
        // Where there is no thread to be had, the pipe closes and the plugin's words are lost; its work is not.
        let _ = std::thread::Builder::new().name("plugin-stderr".to_owned()).spawn(copy);
        words
    }

    fn keep(&self, input: &mut impl BufRead, words: &Words) {
        while let Some(line) = self.next_line(input) {
            words.add(&line);
            // A log that cannot be written is no reason to fail.
            let _ = append(&self.path, &line);
        }
    }

    /// A whole line, without secrets. Of one that is cut, the end goes too, where half a secret could be.
    fn next_line(&self, input: &mut impl BufRead) -> Option<String> {
        let mut line = Vec::new();
        let read = input.take(MAX_LINE as u64).read_until(b'\n', &mut line).ok()?;
        let is_cut = read == MAX_LINE && line.last() != Some(&b'\n');
        if is_cut {
            input.skip_until(b'\n').ok()?;
        }
        let text = self.secrets.taken_out(&String::from_utf8_lossy(line.trim_ascii_end()));
        let kept =
            if is_cut { text.chars().count().saturating_sub(self.secrets.longest()) } else { usize::MAX };
        (read > 0).then(|| text.chars().take(kept).collect())
    }
}

impl Words {
    fn add(&self, line: &str) {
        let mut last = self.last();
        last.push_back(line.chars().take(QUOTED_CHARS).collect());
        if last.len() > QUOTED_LINES {
            last.pop_front();
        }
    }

    fn last(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its last words, for an error. Of a process that has ended, they may still be on their way.
    pub fn last_words(&self) -> Option<String> {
        let deadline = Instant::now() + ON_THEIR_WAY;
        while !self.0.is_over.load(Ordering::Acquire) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let last = self.last();
        (!last.is_empty()).then(|| Vec::from(last.clone()).join(" / "))
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|found| found.len() > MAX_LOG) {
        let mut older = path.as_os_str().to_owned();
        older.push(".1");
        std::fs::rename(path, older)?;
    }
    let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
    let now = jiff::Timestamp::now().round(jiff::Unit::Millisecond).unwrap_or_default();
    file.write_all(format!("{now} {line}\n").as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn followed(text: &[u8], secrets: &[(&str, &str)]) -> (tempfile::TempDir, Log, Words) {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::of(&secrets.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect());
        let (log, words) = (Log::new(&dir.path().join("x.log"), secrets), Words::default());
        log.keep(&mut &text[..], &words);
        words.0.is_over.store(true, Ordering::Release);
        (dir, log, words)
    }

    #[test]
    fn lines_are_kept_and_the_last_are_quoted() {
        let (_dir, log, words) = followed(b"one\ntwo\nthree\nfour\nfive", &[]);
        assert_eq!(words.last_words().unwrap(), "two / three / four / five");
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.lines().count(), 5);
        assert!(text.lines().next().unwrap().ends_with("Z one"), "{text}");
        assert_eq!(followed(b"", &[]).2.last_words(), None);
    }

    #[test]
    fn values_of_the_environment_are_taken_out_wherever_they_stand() {
        let secret = "s3cr3t-value";
        for before in [7, MAX_LINE - 20, MAX_LINE - 6, MAX_LINE - 1] {
            let line = format!("{}{secret}\nnext\n", "x".repeat(before));
            let (_dir, log, words) = followed(line.as_bytes(), &[("AWS_SECRET", secret)]);
            let text = std::fs::read_to_string(log.path()).unwrap();
            assert!(!text.contains("xs3c"), "{before}");
            assert_eq!(text.lines().count(), 2, "the rest of a line that is cut is no line");
            assert!(words.last_words().unwrap().ends_with("/ next"));
        }
    }

    #[test]
    fn a_flood_stays_bounded() {
        let flood = [&b"x".repeat(3 << 20)[..], b"\n", &b"words\n".repeat(1 << 18)[..]].concat();
        let (dir, _log, words) = followed(&flood, &[]);
        let size = |name: &str| std::fs::metadata(dir.path().join(name)).map_or(0, |found| found.len());
        let most = MAX_LOG + 2 * MAX_LINE as u64;
        assert!(size("x.log") <= most && size("x.log.1") <= most && size("x.log.1") > 0);
        assert!(words.last_words().unwrap().len() < 1000);
    }
}
