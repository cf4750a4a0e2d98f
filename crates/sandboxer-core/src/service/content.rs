//! Looking at what is in a sandbox, and changing it.
//!
//! Reading and diffing take no lock: they work while a command runs in the sandbox, and any number of them at once.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::lock::SandboxLock;
use super::manager::{SandboxManager, counted, in_workspace};
use super::{RollbackResults, Sandbox, SandboxState, Target, TargetDiff, Workspace, WorkspaceDiff};
use crate::contract::SandboxStrategy;
use crate::model::{Change, DiffKind, DiffView, RelPath, RollbackResult};
use crate::{Error, Result};

/// How much of a file is in memory at once, where the strategy can read a part.
const PIECE: u64 = 4 << 20;

/// An offset behind the end of everything.
const NO_FILE_IS_SO_LARGE: u64 = 1 << 60;

impl SandboxManager {
    /// The content of one file as the sandbox sees it.
    pub fn read(&self, target: &Target, path: &RelPath) -> Result<Vec<u8>> {
        let workspace = the_one(target, "read")?;
        self.permit_on(target, "read")?;
        self.check_open(&target.sandbox)?;
        self.look_elsewhere(target)?;
        let content = self.strategy_of(workspace)?.read(&workspace.sandbox_ref, path);
        content.map_err(in_workspace(&target.sandbox, workspace))
    }

    /// Writes the content of one file to `sink`: piece by piece where the strategy can, so that it need not fit into memory. Returns
    /// how much it was. Nothing is written before the first piece is there; a file that is replaced meanwhile comes out as parts of
    /// both, and whatever reads it in pieces has to bear with that.
    pub fn read_to(&self, target: &Target, path: &RelPath, sink: &mut dyn io::Write) -> Result<u64> {
        let workspace = the_one(target, "read")?;
        let write = |content: &[u8], sink: &mut dyn io::Write| {
            sink.write_all(content).map_err(|error| Error::io("pass on", path.to_string(), error))
        };
        self.permit_on(target, "read")?;
        self.check_open(&target.sandbox)?;
        self.look_elsewhere(target)?;
        if !self.capabilities_of(workspace)?.ranges {
            let content = self.read(target, path)?;
            return write(&content, sink).map(|()| content.len() as u64);
        }
        let strategy = self.strategy_of(workspace)?;
        let mut done = 0;
        loop {
            self.parts.cancel.check()?;
            let piece = read_piece(strategy.as_ref(), workspace, path, done);
            let piece = piece.map_err(in_workspace(&target.sandbox, workspace))?;
            if done == PIECE && !piece.is_empty() {
                check_offsets(strategy.as_ref(), workspace, path)?;
            }
            write(&piece, sink)?;
            done += piece.len() as u64;
            if (piece.len() as u64) < PIECE {
                return Ok(done);
            }
        }
    }

    /// Replaces the content of one file in the sandbox.
    pub fn write(&self, target: &Target, path: &RelPath, content: &[u8]) -> Result<Change> {
        the_one(target, "write")?;
        self.permit_on(target, "write")?;
        let change = match self.has_copies(&target.sandbox)? {
            true => {
                let (mut still, target) = self.lock_still(target)?;
                self.sending_one(&mut still, &target, || self.write_locked(&target, path, content))?
            }
            false => {
                let (_lock, target) = self.lock_open(target)?;
                self.write_locked(&target, path, content)?
            }
        };
        self.store.set_active(&target.sandbox.id)?;
        Ok(change)
    }

    fn write_locked(&self, target: &Target, path: &RelPath, content: &[u8]) -> Result<Change> {
        let workspace = the_one(target, "write")?;
        let strategy = self.strategy_of(workspace)?;
        let work = || strategy.write(&workspace.sandbox_ref, path, content);
        let change =
            self.logged(&target.sandbox.id, "write", json!({}), work, |change| told_write(workspace, change));
        change.map_err(in_workspace(&target.sandbox, workspace))
    }

    /// Where to work: the directory (or file) that stands for the resource.
    pub fn sandbox_path(&self, target: &Target) -> Result<PathBuf> {
        let workspace = the_one(target, "path")?;
        self.check_open(&target.sandbox)?;
        self.bring_up(target)?;
        workspace.require_path()
    }

    /// Everything that differs from the base, or the part within `paths`.
    pub fn diff(&self, target: &Target, paths: &[RelPath]) -> Result<TargetDiff> {
        paths_need_one_workspace(target, paths)?;
        self.permit_on(target, "diff")?;
        self.check_open(&target.sandbox)?;
        self.look_elsewhere(target)?;
        self.check_paths(target, paths)?;
        self.diff_unasked(target, paths)
    }

    /// The same for our own purposes, which nobody has to permit.
    pub(super) fn diff_unasked(&self, target: &Target, paths: &[RelPath]) -> Result<TargetDiff> {
        let mut workspaces = Vec::with_capacity(target.workspaces.len());
        let mut digests = Vec::with_capacity(target.workspaces.len());
        for workspace in &target.workspaces {
            let view = self.strategy_of(workspace)?.diff(&workspace.sandbox_ref);
            let view = view.map_err(in_workspace(&target.sandbox, workspace))?.select(paths);
            let DiffView { digest, entries, at_decision, notices } = view;
            digests.push((workspace.name.clone(), digest.clone()));
            workspaces.push(WorkspaceDiff {
                workspace: workspace.clone(),
                digest,
                entries,
                at_decision,
                notices,
            });
        }
        Ok(TargetDiff { digest: combined_digest(&digests), workspaces })
    }

    /// Throws the differences away: all, or those within `paths`.
    pub fn rollback(&self, target: &Target, paths: &[RelPath]) -> Result<RollbackResults> {
        paths_need_one_workspace(target, paths)?;
        self.permit_on(target, "rollback")?;
        let (mut still, target) = match paths {
            [] => self.lock_still_to_replace(target)?,
            _ => self.lock_still(target)?,
        };
        for workspace in target.workspaces.iter().filter(|_| !paths.is_empty()) {
            self.check_scoped_rollback(workspace)?;
        }
        self.check_paths(&target, paths)?;
        self.sending_one(&mut still, &target, || self.rollback_logged(&target, paths))
    }

    pub(super) fn rollback_logged(&self, target: &Target, paths: &[RelPath]) -> Result<RollbackResults> {
        let plan = json!({"workspaces": super::commit::names(target), "paths": paths});
        let told = |results: &RollbackResults| told_rollback(results, "rolled back");
        self.logged(&target.sandbox.id, "rollback", plan, || self.rollback_each(target, paths), told)
    }

    pub(super) fn rollback_each(&self, target: &Target, paths: &[RelPath]) -> Result<RollbackResults> {
        per_workspace(target, |workspace| self.rollback_one(workspace, paths))
    }

    /// A path that is nowhere is a mistyped one: not in the workspace, not in its base, and not among the differences
    /// (where it may be one that has gone from both). The differences are looked at only for such a path.
    pub(super) fn check_paths(&self, target: &Target, paths: &[RelPath]) -> Result<()> {
        for workspace in &target.workspaces {
            if !self.capabilities_of(workspace)?.file_tree {
                continue;
            }
            let missing: Vec<_> = paths.iter().filter(|path| !is_there(workspace, path)).collect();
            if missing.is_empty() {
                continue;
            }
            let view = self.strategy_of(workspace)?.diff(&workspace.sandbox_ref);
            let view = view.map_err(in_workspace(&target.sandbox, workspace))?;
            let is_nowhere =
                |path: &&&RelPath| !view.entries.iter().any(|e| e.is_selected(std::slice::from_ref(**path)));
            if let Some(path) = missing.iter().find(is_nowhere) {
                let error = Error::not_found("file", path.to_string());
                return Err(in_workspace(&target.sandbox, workspace)(error));
            }
        }
        Ok(())
    }

    fn rollback_one(&self, workspace: &Workspace, paths: &[RelPath]) -> Result<RollbackResult> {
        let strategy = self.strategy_of(workspace)?;
        match paths {
            [] => strategy.rollback(&workspace.sandbox_ref),
            some => strategy.rollback(&workspace.sandbox_ref.clone().scoped(some)),
        }
    }

    fn check_scoped_rollback(&self, workspace: &Workspace) -> Result<()> {
        if self.capabilities_of(workspace)?.scoped_rollback {
            return Ok(());
        }
        Err(Error::Unsupported {
            strategy: workspace.sandbox_ref.strategy_name.clone(),
            what: "roll back chosen paths",
            reason: "it rolls back everything or nothing".to_owned(),
        })
    }

    /// A sandbox that is still being made, or already being removed, has no content to speak of.
    fn check_open(&self, sandbox: &Sandbox) -> Result<()> {
        match sandbox.state {
            state if state.is_open() => Ok(()),
            SandboxState::Destroying if !SandboxLock::is_held(&self.sandbox_dir(&sandbox.id)) => {
                Err(Error::Refused {
                    reason: format!("sandbox {} is half removed", sandbox.name),
                    hint: Some(format!(
                        "finish it: `sandbox destroy {0} --discard`, or `sandbox destroy {0} --force` where its strategy cannot",
                        sandbox.name
                    )),
                })
            }
            state if state.is_live() => Err(Error::Busy {
                path: self.sandbox_dir(&sandbox.id),
                holder: Some(format!("sandbox {} is {}", sandbox.name, state.as_str())),
            }),
            SandboxState::Parked => Err(Error::Refused {
                reason: format!("sandbox {} is parked", sandbox.name),
                hint: Some(format!("take it up again: `sandbox unpark {}`", sandbox.name)),
            }),
            _ => Err(Error::not_found("sandbox", sandbox.name.as_str())),
        }
    }
}

/// The piece from `offset` on.
fn read_piece(
    strategy: &dyn SandboxStrategy,
    workspace: &Workspace,
    path: &RelPath,
    offset: u64,
) -> Result<Vec<u8>> {
    let piece = strategy.read(&workspace.sandbox_ref.clone().ranged(offset, PIECE), path)?;
    if piece.len() as u64 > PIECE {
        return Err(Error::Unsupported {
            strategy: workspace.sandbox_ref.strategy_name.clone(),
            what: "read a part of a file",
            reason: format!("it says that it can, and answered with {} bytes for {PIECE}", piece.len()),
        });
    }
    Ok(piece)
}

/// One that does not look at the offset would give the same piece for ever: nothing has that much before its end.
fn check_offsets(strategy: &dyn SandboxStrategy, workspace: &Workspace, path: &RelPath) -> Result<()> {
    if read_piece(strategy, workspace, path, NO_FILE_IS_SO_LARGE)?.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported {
        strategy: workspace.sandbox_ref.strategy_name.clone(),
        what: "be read in pieces",
        reason: "it declares `ranges`, and does not look at the offset".to_owned(),
    })
}

/// Whether the workspace or its base has anything at `path`. It only asks whether something is there, and opens nothing.
fn is_there(workspace: &Workspace, path: &RelPath) -> bool {
    let roots = ["path", "base"].into_iter().filter_map(|key| workspace.sandbox_ref.text(key));
    roots.map(Path::new).any(|root| match root.is_dir() {
        true => root.join(path.as_path()).symlink_metadata().is_ok(),
        // A single file is called by its name.
        false => root.file_name() == Some(path.as_path().as_os_str()),
    })
}

/// Does `work` in each workspace, in order; says which one an error is about.
pub(super) fn per_workspace<T>(
    target: &Target,
    mut work: impl FnMut(&Workspace) -> Result<T>,
) -> Result<Vec<(String, T)>> {
    let mut results = Vec::with_capacity(target.workspaces.len());
    for workspace in &target.workspaces {
        let result = work(workspace).map_err(in_workspace(&target.sandbox, workspace))?;
        results.push((workspace.name.clone(), result));
    }
    Ok(results)
}

/// The one workspace that is meant; an error that says how to name it where several are.
pub(super) fn the_one<'a>(target: &'a Target, command: &str) -> Result<&'a Workspace> {
    match &target.workspaces[..] {
        [only] => Ok(only),
        _ => Err(name_a_workspace(target, format!("`{command}` works in one workspace"))),
    }
}

/// Paths lie in one workspace, so one has to be named.
pub(super) fn paths_need_one_workspace(target: &Target, paths: &[RelPath]) -> Result<()> {
    if paths.is_empty() || target.workspaces.len() == 1 {
        return Ok(());
    }
    Err(name_a_workspace(target, "a path lies in one workspace".to_owned()))
}

fn name_a_workspace(target: &Target, why: String) -> Error {
    let sandbox = &target.sandbox;
    let choices: Vec<String> =
        sandbox.workspaces.iter().map(|w| format!("{}:{}", sandbox.name, w.name)).collect();
    Error::Usage {
        message: format!("{why}, and sandbox {} has {}", sandbox.name, choices.len()),
        hint: Some(format!("name one: {}", choices.join(", "))),
    }
}

/// One digest for a target: a single workspace's own, or one over the names and digests of several.
pub(super) fn combined_digest(digests: &[(String, String)]) -> String {
    if let [(_, only)] = digests {
        return only.clone();
    }
    let mut hasher = blake3::Hasher::new();
    for part in digests.iter().flat_map(|(name, digest)| [name, digest]) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    format!("blake3:{}", hasher.finalize().to_hex())
}

fn told_write(workspace: &Workspace, change: &Change) -> (String, Value) {
    let verb = if change.kind == DiffKind::Created { "created" } else { "wrote" };
    let summary = format!("{verb} {} ({})", change.path, counted(change.new_size as usize, "byte"));
    (summary, json!({"workspace": workspace.name, "path": change.path, "size": change.new_size}))
}

pub(super) fn told_rollback(results: &RollbackResults, verb: &str) -> (String, Value) {
    let restored: u64 = results.iter().map(|(_, result)| result.restored_files).sum();
    (format!("{verb} {}", counted(restored as usize, "path")), json!({"workspaces": results}))
}
