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
use super::place::{Place, fresh_dir, remove_database, replace};
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
                self.finish(&place, &operation, true)
            }
            Phase::Prepare => {
                let (result, lock) = self.prepare(&place, &operation, request)?;
                self.locks.keep(&place.dir, lock);
                Ok(result)
            }
            Phase::Finish | Phase::FinishPossible => {
                self.finish(&place, &operation, request.digest.is_some())
            }
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
        let lock = self.lock(place)?;
        fresh_dir(&place.commit())?;
        let prepared = frozen_difference(place, request).and_then(|(difference, seen)| {
            let applied = sqlite::check_difference(&place.original, &difference, &place.frozen(), policy)?;
            result_of(&difference, seen, &applied, policy)
        });
        match prepared {
            Ok(result) => {
                let (operation, on_conflict) = (operation.to_owned(), request.on_conflict);
                let record = Record::prepared(operation, on_conflict, result);
                record.write(place)?;
                Ok((record.result, lock))
            }
            Err(error) => {
                sandboxer_fs::remove_tree(&place.commit())?;
                Err(error)
            }
        }
    }

    /// `alone`: nothing else was decided by whoever asks, so that it can still be refused.
    fn finish(&self, place: &Place, operation: &str, alone: bool) -> Result<CommitResult> {
        let record = Record::read(place)?.filter(|record| record.operation == operation);
        let Some(record) = record else { return Ok(CommitResult::default()) };
        if record.state == State::Done {
            return Ok(if operation == UNNAMED { CommitResult::default() } else { record.result });
        }
        let _lock = match self.locks.let_go(&place.dir) {
            None if place.original.exists() => Some(self.lock(place)?),
            lock => lock,
        };
        let alone = alone && record.state == State::Prepared;
        match make_real(place, Record { alone: alone || record.alone, ..record }) {
            // It was interrupted, and given up now: nobody waits for it any more.
            Err(_) if !alone && Record::read(place)?.is_none() => Ok(CommitResult::default()),
            result => result,
        }
    }

    fn lock(&self, place: &Place) -> Result<DatabaseLock> {
        DatabaseLock::acquire(&place.original, place.within.as_deref(), &self.context.cancel)
    }

    /// Forgets what was only prepared, and finishes what was decided.
    pub(super) fn settle(&self, place: &Place) -> Result<()> {
        match Record::read(place)? {
            Some(record) if record.state == State::Done => Ok(()),
            Some(record) if record.state >= State::Decided => {
                self.finish(place, &record.operation, false).map(drop)
            }
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
    let record = match record.state {
        State::Prepared | State::Decided => apply(place, record.reached(State::Decided, place)?)?,
        _ => record,
    };
    let next = if record.pending { place.next() } else { place.frozen() };
    if next.exists() {
        replace(&next, &place.base())?;
    }
    sandboxer_fs::remove_tree(&place.commit())?;
    Ok(record.reached(State::Done, place)?.result)
}

/// Writes the rows. What was left, and what the next base is, is on record before anything else is touched: whoever goes on after a
/// crash tells the same.
pub(super) fn apply(place: &Place, mut record: Record) -> Result<Record> {
    let difference = sqlite::exact_difference(&place.base(), &place.frozen())?;
    let policy = record.policy();
    let (left, nothing_done) = match attempt(place, &difference, policy) {
        Ok(applied) if policy == Policy::Fail && !applied.conflicts.is_empty() && !was_done(&applied) => {
            return give_up(place, Error::Conflict { conflicts: conflicts(&applied.conflicts)? });
        }
        Ok(_) if policy == Policy::Accept => (Vec::new(), false),
        Ok(applied) => (applied.conflicts, false),
        Err(refusal @ Error::Refused { .. }) if record.alone => return give_up(place, refusal),
        // It is decided, and others act on that: it is over, and everything stays pending.
        Err(Error::Refused { reason, .. }) => (difference.left_for(&reason), true),
        Err(error) => return Err(error),
    };
    if !left.is_empty() {
        let done = difference.without(&left);
        record.result = result_of_less(record.result, &done, &left)?;
        record.pending = true;
        match nothing_done {
            true => remove_database(&place.next())?,
            false => make_next(place, &done)?,
        }
    }
    record.reached(State::Applied, place)
}

/// An original that is gone, or is no database any more, takes no rows: trying again does not help.
fn attempt(place: &Place, difference: &Difference, policy: Policy) -> Result<Applied> {
    if !place.original.exists() {
        return Err(Error::refused(format!("{} is not there any more", place.original.display())));
    }
    match sqlite::apply_difference(&place.original, difference, &place.frozen(), policy) {
        Err(Error::Corrupt { path, reason }) if path == place.original => {
            Err(Error::refused(format!("{}: {reason}", path.display())))
        }
        other => other,
    }
}

/// Whether everything but the conflicts is there already: it was done before a crash, and somebody has written since.
fn was_done(applied: &Applied) -> bool {
    applied.already > 0 && applied.rows == 0 && applied.definitions == 0
}

/// Nothing was written, and nobody counts on it: it is as if it had not been tried.
fn give_up(place: &Place, error: Error) -> Result<Record> {
    Record::forget(place)?;
    sandboxer_fs::remove_tree(&place.commit())?;
    Err(error)
}

/// What was really done: less than was prepared, where somebody got in between.
fn result_of_less(
    prepared: CommitResult,
    done: &Difference,
    left: &[sqlite::Conflict],
) -> Result<CommitResult> {
    let seen = view(&converted(done.changes()))?;
    let is_known = |conflict: &Conflict| prepared.notices.iter().any(|notice| notice.path == conflict.path);
    let new = conflicts(left)?.into_iter().filter(|conflict| !is_known(conflict)).collect();
    Ok(CommitResult { digest: seen.digest, entries: seen.entries, conflicts: new, ..prepared })
}

/// Makes the next base: the old one with what was done. The rest still differs from it, and is still a conflict.
fn make_next(place: &Place, done: &Difference) -> Result<()> {
    remove_database(&place.next())?;
    sqlite::clone(&place.base(), &place.next())?;
    sqlite::apply_difference(&place.next(), done, &place.frozen(), Policy::Accept).map(drop)
}

fn abort(place: &Place, operation: &str) -> Result<()> {
    match Record::read(place)? {
        Some(record) if record.state == State::Done && operation == UNNAMED => Ok(()),
        Some(record) if record.operation == operation && record.state != State::Prepared => {
            Err(Error::already_decided(operation))
        }
        Some(record) if record.operation == operation => {
            Record::forget(place)?;
            sandboxer_fs::remove_tree(&place.commit())
        }
        _ => Ok(()),
    }
}
