//! Tries a strategy on something that can be thrown away: does it do what it says?
//!
//! Every promise of [`SandboxStrategy`] that can be seen from outside is one step with an outcome of its own. What a strategy
//! says it did is not believed: content is read back, the resource is looked at past the sandbox (directly where it is on this machine,
//! in a fresh sandbox where it is not), and a difference is compared with what was really written. Each group of steps has a
//! sandbox of its own, so that one failure does not look like several; whatever was made is cleaned up in any case.

mod bench;
mod claims;
mod commits;
mod declared;
mod environments;
mod faithful;
mod later;
mod report;
#[cfg(test)]
mod tests;
mod texts;
mod trusted;
mod work;

use std::collections::BTreeMap;
use std::time::Instant;

use sandboxer_core::Error;
use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{DiffEntry, DiffKind, DiffView, NodeType, PlanId, RelPath, Resource, SandboxRef};

pub use bench::{Again, Bench, Ground};
pub use environments::{AnotherExtension, Trial, check_extension};
pub use report::{Outcome, Report, Step};

use report::{Sheet, Verdict};

/// The names of the steps.
mod name {
    pub const SEED: &str = "seed";
    pub const CREATE: &str = "create";
    pub const REF: &str = "ref";
    pub const ANOTHER_PROCESS: &str = "another_process";
    pub const READ: &str = "read";
    pub const READ_MISSING: &str = "read_missing";
    pub const RANGES: &str = "ranges";
    pub const WRITE: &str = "write";
    pub const WRITE_NEW: &str = "write_new";
    pub const UNTOUCHED: &str = "untouched";
    pub const DIFF: &str = "diff";
    pub const DIGEST: &str = "digest";
    pub const CHECKPOINT: &str = "checkpoint";
    pub const RESTORE: &str = "restore";
    pub const ROLLBACK: &str = "rollback";
    pub const LINKS: &str = "links";
    pub const COMMIT: &str = "commit";
    pub const COMMITTED: &str = "committed";
    pub const OTHER_DIGEST: &str = "other_digest";
    pub const FLAGS: &str = "flags";
    pub const SCOPED_ROLLBACK: &str = "scoped_rollback";
    pub const SELECT_PATHS: &str = "select_paths";
    pub const TWO_PHASE: &str = "two_phase";
    pub const UNDO: &str = "undo";
    pub const PARTS: &str = "parts";
    pub const KEEPS_BASE: &str = "keeps_base";
    pub const SELECT_HUNKS: &str = "select_hunks";
    pub const FAITHFUL: &str = "faithful";
    pub const CONFLICT: &str = "conflict";
    pub const REMOVE: &str = "remove";
    pub const CLEANUP: &str = "cleanup";
}

/// Tries everything that `strategy` promises on what `bench` holds.
///
/// # Errors
/// [`Error::Unavailable`] where that is its answer to the first `create`: then nothing can be tried here.
pub fn check(
    strategy: &dyn SandboxStrategy,
    capabilities: &Capabilities,
    bench: &Bench,
) -> sandboxer_core::Result<Report> {
    let mut check = Check {
        strategy,
        can: capabilities,
        bench,
        sheet: Sheet::new(&bench.cancel),
        sandbox: None,
        made: Vec::new(),
        files: 0,
        unavailable: None,
    };
    check.seed();
    check.work();
    check.commits();
    check.declared();
    check.conflict();
    check.remove();
    check.clean_up();
    check.unavailable.map_or(Ok(check.sheet.finish(capabilities)), Err)
}

/// A check under way.
struct Check<'a> {
    strategy: &'a dyn SandboxStrategy,
    can: &'a Capabilities,
    bench: &'a Bench,
    sheet: Sheet,
    /// The sandbox that the present group of steps works in.
    sandbox: Option<SandboxRef>,
    /// Every sandbox that was made.
    made: Vec<SandboxRef>,
    /// How many new files were named.
    files: usize,
    /// Why there was no first sandbox, where that is nobody's fault.
    unavailable: Option<Error>,
}

impl Check<'_> {
    /// One step, if those that it builds on went well.
    fn step(&mut self, name: &'static str, needs: &[&'static str], body: impl FnOnce(&mut Self) -> Verdict) {
        if let Some(why) = self.sheet.obstacle(needs) {
            return self.sheet.not_tried(name, why);
        }
        let began = Instant::now();
        let verdict = body(self);
        self.sheet.add(name, began, verdict);
    }

    /// A step for those who declare that they can.
    fn step_if(
        &mut self,
        offered: Result<(), &str>,
        name: &'static str,
        needs: &[&'static str],
        body: impl FnOnce(&mut Self) -> Verdict,
    ) {
        match offered {
            Ok(()) => self.step(name, needs, body),
            Err(why) => self.sheet.not_offered(name, why),
        }
    }

    /// Whether the resource can have more than one file.
    fn has_room(&self) -> Result<(), &'static str> {
        match self.bench.ground {
            Ground::File(_) => Err("the resource is a single file"),
            _ => Ok(()),
        }
    }

    /// A sandbox of the resource, which will be cleaned up.
    fn open(&mut self) -> Result<SandboxRef, String> {
        self.open_as(&PlanId::generate(), &self.bench.resource)
    }

    /// The same of a plan and a resource that say more.
    fn open_as(&mut self, plan: &PlanId, resource: &Resource) -> Result<SandboxRef, String> {
        let made = self.strategy.create(plan, resource).map_err(|error| {
            let wrong = format!("`create` failed: {}", words(&error));
            if self.made.is_empty() && matches!(error, Error::Unavailable { .. }) {
                self.unavailable = Some(error);
            }
            wrong
        })?;
        self.made.push(made.clone());
        if made.plan_id != *plan || made.resource_id != self.bench.resource.id {
            return Err("its ref is about another plan or resource than it was asked for".to_owned());
        }
        Ok(made)
    }

    fn sandbox(&self) -> Result<SandboxRef, String> {
        self.sandbox.clone().ok_or_else(|| "there is no sandbox to try it in".to_owned())
    }

    fn kept(&self) -> Result<RelPath, String> {
        self.bench.kept().map_err(|error| error.to_string())
    }

    /// A path that nobody has used, where there is room for one.
    fn new_path(&mut self) -> Option<RelPath> {
        self.files += 1;
        self.bench.new_path(self.files)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<(), String> {
        let change = told("write", self.strategy.write(sandbox, path, content))?;
        if change.path == *path {
            return Ok(());
        }
        Err(format!("`write` of {path} answers about {}", change.path))
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView, String> {
        told("diff", self.strategy.diff(sandbox))
    }

    /// What the sandbox shows at `path`.
    fn seen(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Option<Vec<u8>>, String> {
        match self.strategy.read(sandbox, path) {
            Ok(content) => Ok(Some(content)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(format!("`read` of {path} failed: {}", words(&error))),
        }
    }

    fn expect_seen(
        &self,
        sandbox: &SandboxRef,
        path: &RelPath,
        expected: Option<&[u8]>,
    ) -> Result<(), String> {
        expect(&format!("{path} in the sandbox"), self.seen(sandbox, path)?, expected)
    }

    /// What the resource itself has at `path`, whatever any sandbox shows.
    fn real(&mut self, path: &RelPath) -> Result<Option<Vec<u8>>, String> {
        match self.bench.on_disk(path) {
            Some(file) => bench::look_at(&file),
            None => self.in_fresh_sandbox(|check, sandbox| check.seen(sandbox, path)),
        }
    }

    fn expect_real(&mut self, path: &RelPath, expected: Option<&[u8]>) -> Result<(), String> {
        let found = self.real(path)?;
        expect(&format!("{path} in the resource"), found, expected)
    }

    /// Looks with new eyes. What is left of that sandbox is told when everything is cleaned up.
    fn in_fresh_sandbox<T>(
        &mut self,
        look: impl FnOnce(&Self, &SandboxRef) -> Result<T, String>,
    ) -> Result<T, String> {
        let sandbox = self.open()?;
        let found = look(self, &sandbox);
        let _ = self.strategy.cleanup(&sandbox);
        found
    }
}

/// What a call answered, or in words that it failed.
fn told<T>(method: &str, answer: sandboxer_core::Result<T>) -> Result<T, String> {
    answer.map_err(|error| format!("`{method}` failed: {}", words(&error)))
}

/// An error with its sources, in one line.
fn words(error: &Error) -> String {
    let sources = std::iter::successors(std::error::Error::source(error), |inner| inner.source());
    let parts: Vec<String> =
        [error.to_string()].into_iter().chain(sources.map(ToString::to_string)).collect();
    parts.join(": ").replace('\n', " / ")
}

fn expect(what: &str, found: Option<Vec<u8>>, expected: Option<&[u8]>) -> Result<(), String> {
    if found.as_deref() == expected {
        return Ok(());
    }
    if shown(found.as_deref()) == shown(expected) {
        return Err(format!("{what}: {}, and not those that were expected", shown(expected)));
    }
    Err(format!("{what}: expected {}, found {}", shown(expected), shown(found.as_deref())))
}

fn shown(content: Option<&[u8]>) -> String {
    const MOST: usize = 40;
    match content {
        None => "nothing".to_owned(),
        Some(bytes) if bytes.len() > MOST => format!("{} bytes", bytes.len()),
        Some(bytes) => format!("\"{}\"", bytes.escape_ascii()),
    }
}

/// Whether a difference is exactly this, but for the directories that new files are in.
fn expect_entries(view: &DiffView, expected: &[(&RelPath, DiffKind)]) -> Result<(), String> {
    let wanted: BTreeMap<&RelPath, DiffKind> = expected.iter().copied().collect();
    let holds_new = |entry: &DiffEntry| {
        let is_directory = entry.new.as_ref().is_none_or(|node| node.node_type == NodeType::Directory);
        let is_above = wanted.keys().any(|path| path.is_within(&entry.path) && **path != entry.path);
        entry.kind == DiffKind::Created && is_directory && is_above
    };
    let entries = view.entries.iter().filter(|entry| !holds_new(entry));
    let found: Vec<(&RelPath, DiffKind)> = entries.map(|entry| (&entry.path, entry.kind)).collect();
    if found.len() == wanted.len() && found.iter().all(|(path, kind)| wanted.get(path) == Some(kind)) {
        return Ok(());
    }
    Err(format!("expected {}, found {}", listed(expected), listed(&found)))
}

fn listed(entries: &[(&RelPath, DiffKind)]) -> String {
    let words: Vec<String> =
        entries.iter().map(|(path, kind)| format!("{path} {}", format!("{kind:?}").to_lowercase())).collect();
    if words.is_empty() { "no difference".to_owned() } else { words.join(", ") }
}
