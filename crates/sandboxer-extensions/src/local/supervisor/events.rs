//! What happens in a runtime, line by line in `events.jsonl`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::local::confine::watch::Refused;
use crate::local::network::Decision;
use crate::local::report::Report;

/// More than this is not kept: somebody inside may ask for hosts all day.
const MAX_BYTES: u64 = 4 << 20;

/// The file's name in a runtime's directory.
pub(crate) const NAME: &str = "events.jsonl";

/// The log of one runtime.
pub(super) struct Events {
    file: Mutex<Option<File>>,
    seen: Arc<Mutex<Report>>,
}

impl Events {
    /// The log in `directory`. One that cannot be opened keeps nothing, and nobody waiting.
    pub fn open(directory: &Path, seen: Arc<Mutex<Report>>) -> Self {
        let file = File::options().create(true).append(true).open(directory.join(NAME)).ok();
        Self { file: Mutex::new(file), seen }
    }

    /// The proxy has decided.
    pub fn decided(&self, decision: &Decision) {
        if !decision.allowed {
            let name = format!("{}:{}", decision.host, decision.port);
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).hosts_refused.add(name);
        }
        self.write("network", json!(decision));
    }

    /// Somebody tried to write where nothing can be written.
    pub fn refused(&self, refused: &Refused) {
        let path = refused.path.to_string_lossy().into_owned();
        if self.seen.lock().unwrap_or_else(PoisonError::into_inner).writes_refused.add(path.clone()) {
            self.write("write", json!({"path": path, "allowed": false}));
        }
    }

    fn write(&self, kind: &str, what: Value) {
        let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let line = format!("{}\n", json!({"at_ms": at.as_millis() as u64, "kind": kind, "what": what}));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = file.as_mut()
            && (open.metadata().map_or(true, |m| m.len() > MAX_BYTES)
                || open.write_all(line.as_bytes()).is_err())
        {
            *file = None;
        }
    }
}
