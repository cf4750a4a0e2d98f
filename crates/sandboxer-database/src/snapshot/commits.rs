//! Commits of a clone's difference, in one or in phases.
//!
//! Preparing clones the clone: what is committed is what that holds, whatever programs do meanwhile, and the difference is durable by
//! both files being there. When all of it is in the original, it becomes the new base. A crash at any step is gone on from by `Finish`:
//! applying once more finds every row as it should be.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandboxer_core::model::{
    CommitRequest, CommitResult, Conflict, DiffView, Notice, OnConflict, Phase, RelPath, SandboxRef,
};
use sandboxer_core::{Error, Result};
use sandboxer_sqlite as sqlite;
use sandboxer_sqlite::{Applied, Difference, Policy};

use super::Snapshots;
use super::engine::converted;
use super::lock::DatabaseLock;
use super::place::{Place, fresh_dir, replace};
use super::record::{Record, State};
use crate::engine::{Changes, SchemaChange};
use crate::view::view;

/// What a commit is called that is logged as no operation: nobody asks for it by its name afterwards.
const UNNAMED: &str = "";

/// Locks held from prepare to finish, by workspace.
#[derive(Default)]
pub(super) struct Locks(Mutex<HashMap<PathBuf, DatabaseLock>>);

impl Locks {
    fn keep(&self, dir: &Path, lock: DatabaseLock) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(dir.to_path_buf(), lock);
    }

    pub fn let_go(&self, dir: &Path) -> Option<DatabaseLock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(dir)
    }
}

impl Snapshots {
    pub(super) fn commit_phase(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let place = Place::of(sandbox)?;
        let operation = sandbox.operation().map_or_else(|| UNNAMED.to_owned(), |id| id.to_string());
        match request.phase {
            Phase::Whole => {
                let lock = self.prepare(&place, &operation, request)?.1;
                self.locks.keep(&place.dir, lock);
                self.finish(&place, &operation)
            }
            Phase::Prepare => {
                let (result, lock) = self.prepare(&place, &operation, request)?;
                self.locks.keep(&place.dir, lock);
                Ok(result)
            }
            Phase::Finish => self.finish(&place, &operation),
            Phase::Abort => {
                let aborted = abort(&place, &operation);
                self.locks.let_go(&place.dir);
                aborted.map(|()| CommitResult::default())
            }
        }
    }

    fn policy(&self, request: &CommitRequest) -> Result<Policy> {
        if !(request.paths.is_empty() && request.hunks.is_empty()) {
            return Err(self.unsupported("commit a part", "a snapshot is committed as a whole"));
        }
        match request.on_conflict {
            OnConflict::Fail => Ok(Policy::Fail),
            OnConflict::Ours => Ok(Policy::Skip),
            OnConflict::Theirs => Ok(Policy::Accept),
            OnConflict::Merge | OnConflict::Mark => Err(self
                .unsupported("merge rows", "a row is taken from one side or the other: use ours or theirs")),
        }
    }

    /// A commit of this workspace that was decided is finished before another begins.
    fn prepare(
        &self,
        place: &Place,
        operation: &str,
        request: &CommitRequest,
    ) -> Result<(CommitResult, DatabaseLock)> {
        let policy = self.policy(request)?;
        self.settle(place)?;
        let lock = DatabaseLock::acquire(&place.original, place.within.as_deref(), &self.context.cancel)?;
        fresh_dir(&place.commit())?;
        let prepared = frozen_difference(place, request).and_then(|(difference, seen)| {
            let applied = sqlite::check_difference(&place.original, &difference, &place.frozen(), policy)?;
            result_of(&difference, seen, &applied, policy)
        });
        match prepared {
            Ok(result) => {
                let (operation, on_conflict) = (operation.to_owned(), request.on_conflict);
                let record = Record { operation, state: State::Prepared, on_conflict, result };
                record.write(place)?;
                Ok((record.result, lock))
            }
            Err(error) => {
                sandboxer_fs::remove_tree(&place.commit())?;
                Err(error)
            }
        }
    }

    fn finish(&self, place: &Place, operation: &str) -> Result<CommitResult> {
        let record = Record::read(place)?.filter(|record| record.operation == operation);
        let Some(record) = record else { return Ok(CommitResult::default()) };
        if record.state == State::Done {
            return Ok(if operation == UNNAMED { CommitResult::default() } else { record.result });
        }
        let _lock = match self.locks.let_go(&place.dir) {
            Some(lock) => lock,
            None => DatabaseLock::acquire(&place.original, place.within.as_deref(), &self.context.cancel)?,
        };
        make_real(place, record)
    }

    /// Forgets what was only prepared, and finishes what was decided.
    pub(super) fn settle(&self, place: &Place) -> Result<()> {
        match Record::read(place)? {
            Some(record) if record.state == State::Done => Ok(()),
            Some(record) if record.state >= State::Decided => self.finish(place, &record.operation).map(drop),
            Some(record) => {
                self.locks.let_go(&place.dir);
                abort(place, &record.operation)
            }
            None => Ok(()),
        }
    }
}

/// The clone as it is now, put aside, and its difference from the base.
fn frozen_difference(place: &Place, request: &CommitRequest) -> Result<(Difference, DiffView)> {
    sqlite::clone_confined(&place.clone, &place.frozen())?;
    let difference = sqlite::exact_difference(&place.base(), &place.frozen())?;
    let seen = view(&converted(difference.changes()))?;
    match &request.digest {
        Some(expected) if *expected != seen.digest => {
            Err(Error::DigestMismatch { expected: expected.clone(), found: seen.digest })
        }
        _ => Ok((difference, seen)),
    }
}

/// What a commit that finds things as `applied` tells is going to be.
fn result_of(
    difference: &Difference,
    seen: DiffView,
    applied: &Applied,
    policy: Policy,
) -> Result<CommitResult> {
    let seen = match policy {
        Policy::Fail if !applied.conflicts.is_empty() => {
            return Err(Error::Conflict { conflicts: conflicts(&applied.conflicts)? });
        }
        Policy::Skip => view(&converted(difference.without(&applied.conflicts).changes()))?,
        _ => seen,
    };
    let mut notices = notices(applied)?;
    if policy == Policy::Skip {
        for conflict in conflicts(&applied.conflicts)? {
            notices
                .push(Notice { path: conflict.path, message: format!("left pending: {}", conflict.reason) });
        }
    }
    Ok(CommitResult { digest: seen.digest, entries: seen.entries, notices, ..CommitResult::default() })
}

fn notices(applied: &Applied) -> Result<Vec<Notice>> {
    let path = RelPath::parse("schema.sql")?;
    Ok(applied
        .notices
        .iter()
        .map(|message| Notice { path: path.clone(), message: message.clone() })
        .collect())
}

fn conflicts(found: &[sqlite::Conflict]) -> Result<Vec<Conflict>> {
    found.iter().map(|conflict| Ok(Conflict::new(path_of(conflict)?, conflict.reason.clone()))).collect()
}

/// The path that the difference has it under.
fn path_of(conflict: &sqlite::Conflict) -> Result<RelPath> {
    let mut changes = Changes::default();
    match &conflict.change {
        Some(change) => changes.rows.push(change.clone()),
        None => {
            let (kind, name) = (conflict.kind.clone(), conflict.table.clone());
            changes.schema.push(SchemaChange { kind, name, old: None, new: Some(String::new()) });
        }
    }
    let entry = view(&changes)?.entries.into_iter().next();
    entry.map(|entry| entry.path).ok_or_else(|| Error::usage("a conflict is about nothing"))
}

/// Makes what was prepared real, from wherever it was stopped before.
fn make_real(place: &Place, record: Record) -> Result<CommitResult> {
    let mut record = record;
    if record.state < State::Applied {
        record = record.reached(State::Decided, place)?;
        let difference = sqlite::exact_difference(&place.base(), &place.frozen())?;
        // It cannot be refused any more: what somebody changed since it was prepared is left alone, and told.
        let policy = if record.on_conflict == OnConflict::Theirs { Policy::Accept } else { Policy::Skip };
        let applied = sqlite::apply_difference(&place.original, &difference, &place.frozen(), policy)?;
        record.result = final_result(record.result, &difference, &applied, policy)?;
        let pending = if policy == Policy::Skip { applied.conflicts } else { Vec::new() };
        if !pending.is_empty() {
            keep_pending(place, &difference.without(&pending))?;
        }
        record = record.reached(State::Applied, place)?;
    }
    if place.frozen().exists() {
        replace(&place.frozen(), &place.base())?;
    }
    sandboxer_fs::remove_tree(&place.commit())?;
    Ok(record.reached(State::Done, place)?.result)
}

/// What was really done: less than was prepared, where somebody got in between.
fn final_result(
    prepared: CommitResult,
    difference: &Difference,
    applied: &Applied,
    policy: Policy,
) -> Result<CommitResult> {
    if policy == Policy::Accept || applied.conflicts.is_empty() {
        return Ok(prepared);
    }
    let seen = view(&converted(difference.without(&applied.conflicts).changes()))?;
    let is_known = |conflict: &Conflict| prepared.notices.iter().any(|notice| notice.path == conflict.path);
    let new = conflicts(&applied.conflicts)?.into_iter().filter(|conflict| !is_known(conflict)).collect();
    Ok(CommitResult { digest: seen.digest, entries: seen.entries, conflicts: new, ..prepared })
}

/// Makes of the frozen clone, which is to be the base, the old base with what was applied: the rest still differs from it, and is still
/// a conflict.
fn keep_pending(place: &Place, applied: &Difference) -> Result<()> {
    let fresh = place.commit().join("base.db");
    super::place::remove_database(&fresh)?;
    sqlite::clone(&place.base(), &fresh)?;
    sqlite::apply_difference(&fresh, applied, &place.frozen(), Policy::Accept)?;
    replace(&fresh, &place.frozen())
}

fn abort(place: &Place, operation: &str) -> Result<()> {
    match Record::read(place)? {
        Some(record) if record.state == State::Done && operation == UNNAMED => Ok(()),
        Some(record) if record.operation == operation && record.state != State::Prepared => {
            Err(Error::refused(format!("the commit {operation} is decided")))
        }
        Some(record) if record.operation == operation => {
            Record::forget(place)?;
            sandboxer_fs::remove_tree(&place.commit())
        }
        _ => Ok(()),
    }
}
