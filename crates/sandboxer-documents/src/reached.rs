//! What happened in a runtime, as its supervisor wrote it down: decisions of the proxy, and writes that were refused.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use sandboxer_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// More than this is not read; the supervisor writes no more.
const MOST: u64 = 16 << 20;

/// One line of the log.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// `network` or `write`.
    pub kind: String,
    /// What, as its kind has it.
    pub what: Value,
}

/// How long the log in a runtime's directory is, in bytes; 0 where nothing ever ran.
pub fn length(directory: &Path) -> u64 {
    directory.join("events.jsonl").metadata().map_or(0, |found| found.len())
}

/// The events in a runtime's directory, oldest first. None where nothing ever ran.
pub fn read(directory: &Path) -> Result<Vec<Event>> {
    let path = directory.join("events.jsonl");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let lines = BufReader::new(file.take(MOST)).split(b'\n').map_while(std::io::Result::ok);
    // The last line may be half written.
    Ok(lines.filter_map(|line| serde_json::from_slice(&line).ok()).collect())
}

impl Event {
    /// What to type after `--allow-host` for this to be allowed, if it was not and can be.
    pub fn entry(&self) -> Option<&str> {
        let refused = self.kind == "network" && self.what["allowed"] == Value::Bool(false);
        self.what["entry"].as_str().filter(|_| refused)
    }

    /// In one line, not yet fit for a terminal.
    pub fn text(&self) -> String {
        let text = |field: &str| self.what[field].as_str().unwrap_or_default().to_owned();
        let verdict = if self.what["allowed"] == Value::Bool(true) { "allowed" } else { "refused" };
        match self.kind.as_str() {
            "network" => {
                let host = text("host");
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                let advice = self.entry().map(|entry| format!("; to allow it: --allow-host {entry}"));
                let (port, reason) = (&self.what["port"], text("reason"));
                format!("{verdict} {host}:{port}: {reason}{}", advice.unwrap_or_default())
            }
            "write" => format!("{verdict} {}", text("path")),
            _ => self.what.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_that_are_no_events_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).unwrap().is_empty());
        let log = concat!(
            r#"{"at_ms":1,"kind":"network","what":{"host":"::1","port":80,"allowed":false,"reason":"no","entry":"[::1]:80"}}"#,
            "\n\nnonsense\n",
            r#"{"at_ms":2,"kind":"write","what":{"path":"/etc/x","allowed":false}}"#,
            "\n{\"at_ms\":3,"
        );
        std::fs::write(directory.path().join("events.jsonl"), log).unwrap();
        let events = read(directory.path()).unwrap();
        let texts: Vec<String> = events.iter().map(Event::text).collect();
        assert_eq!(texts, ["refused [::1]:80: no; to allow it: --allow-host [::1]:80", "refused /etc/x"]);
        assert_eq!((events[0].entry(), events[1].entry()), (Some("[::1]:80"), None));
    }
}
