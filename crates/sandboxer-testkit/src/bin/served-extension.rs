//! A plugin that serves an extension written in Rust: a directory in the place of a machine, named by its sandbox, with what was asked for
//! inside. `ready_after_ms` says how long one takes to be ready; with `waits_for`, nothing is made before the file of that name is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{Found, Handle, Provision, Ready};
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};
use sandboxer_plugin::{ServedExtension, Start};
use serde_json::{Value, json};

fn main() -> ExitCode {
    sandboxer_plugin::serve_extension_with(|start| Ok(ServedExtension::new(Directories::of(start))))
}

struct Directories {
    top: PathBuf,
    ready_after: Duration,
    waits_for: Option<PathBuf>,
}

/// Longer than any test waits.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

impl Directories {
    fn of(start: &Start) -> Self {
        let after = start.options.get("ready_after_ms").and_then(Value::as_u64).unwrap_or_default();
        let waits_for = start.options.get("waits_for").and_then(Value::as_str).map(PathBuf::from);
        Self { top: start.state.join("made"), ready_after: Duration::from_millis(after), waits_for }
    }

    fn place(&self, sandbox: &SandboxId) -> PathBuf {
        self.top.join(sandbox.as_str())
    }

    /// Two steps, so that there is a half of it.
    fn make(&self, place: &Path, request: &Provision) -> std::io::Result<()> {
        fs::create_dir_all(place)?;
        fs::write(place.join("request.json"), json!(request).to_string())?;
        fs::File::open(place)?.sync_all()
    }

    fn is_ready(&self, handle: &Handle) -> Result<bool> {
        let place = self.place(&handle.sandbox_id);
        let made = place.metadata().and_then(|found| found.modified());
        let made = made.map_err(|error| Error::io("look at", &place, error))?;
        Ok(SystemTime::now().duration_since(made).unwrap_or_default() >= self.ready_after)
    }
}

/// Says beside the file that it waits for it.
fn wait_for(file: &Path) -> Result<()> {
    let sign = file.with_extension("waiting");
    fs::write(&sign, "").map_err(|error| Error::io("write", &sign, error))?;
    let began = Instant::now();
    while !file.exists() && began.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

impl EnvironmentExtension for Directories {
    fn provision(&self, request: &Provision) -> Result<Handle> {
        let place = self.place(&request.sandbox_id);
        self.waits_for.as_deref().map_or(Ok(()), wait_for)?;
        self.make(&place, request).map_err(|error| Error::io("make", &place, error))?;
        let (sandbox_id, data) = (request.sandbox_id.clone(), json!({"place": place}));
        Ok(Handle { version: 1, sandbox_id, data, exec: Vec::new(), exec_on_terminal: Vec::new() })
    }

    fn wait_ready(&self, handle: &Handle, deadline: Duration, cancel: &CancelFlag) -> Result<Ready> {
        let began = Instant::now();
        while !self.is_ready(handle)? {
            cancel.check()?;
            if began.elapsed() >= deadline {
                return Err(Error::refused("the paint is still wet"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Ready::default())
    }

    fn teardown(&self, sandbox: &SandboxId, _handle: Option<&Handle>) -> Result<()> {
        let place = self.place(sandbox);
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &place, error))
            }
            _ => Ok(()),
        }
    }

    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
        let entries = fs::read_dir(&self.top).into_iter().flatten().flatten();
        let ids = entries.map(|entry| SandboxId::from_string(entry.file_name().to_string_lossy()));
        let ours = ids.filter(|id| sandbox.is_none_or(|asked| asked == id));
        let found = |id: SandboxId| Found {
            what: format!("directory {id}"),
            sandbox_id: id,
            running: true,
            made_at: None,
        };
        Ok(ours.map(found).collect())
    }
}
