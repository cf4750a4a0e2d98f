//! Commits, in one or in phases, and what becomes of one whose keeper died in it.

use sandboxer_core::model::{CommitRequest, CommitResult, Conflict, OnConflict, Phase, SandboxRef};
use sandboxer_core::{Error, Result};

use super::place::{GONE, Place};
use super::{Transactions, unexpected};
use crate::engine::{Outcome, Prepared};
use crate::engines;
use crate::keeper::{Answer, Record, Request};

impl Transactions {
    pub(super) fn commit_phase(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        self.check(request)?;
        let place = Place::of(sandbox)?;
        let operation = sandbox.operation().map_or_else(|| "whole".to_owned(), |id| id.to_string());
        let digest = request.digest.clone();
        match request.phase {
            Phase::Whole => self.commit_whole(&place, operation, digest),
            Phase::Prepare => self.prepare(&place, operation, digest),
            Phase::Finish | Phase::FinishPossible => self.finish(&place, &operation),
            Phase::Abort => self.abort(&place, &operation).map(|()| CommitResult::default()),
        }
    }

    fn check(&self, request: &CommitRequest) -> Result<()> {
        let what = if !(request.paths.is_empty() && request.hunks.is_empty()) {
            "commit a part"
        } else if request.on_conflict != OnConflict::Fail {
            "resolve conflicts"
        } else {
            return Ok(());
        };
        let reason =
            "a transaction is committed as a whole; rows that others changed it waits for".to_owned();
        Err(Error::Unsupported { strategy: self.name.clone(), what, reason })
    }

    fn commit_whole(&self, place: &Place, operation: String, digest: Option<String>) -> Result<CommitResult> {
        let request = Request::Commit { operation: operation.clone(), digest };
        match self.keeper(place).ask(&request, &[])? {
            Some((Answer::Committed(result), _)) => Ok(result),
            Some((other, _)) => Err(unexpected(&other)),
            None => match Record::of(&place.keeper(), &operation)? {
                Some(record) if self.outcome(place, &record)? == Outcome::Committed => {
                    self.now_real(place, record)
                }
                _ => Err(place.lost(GONE)),
            },
        }
    }

    fn prepare(&self, place: &Place, operation: String, digest: Option<String>) -> Result<CommitResult> {
        match self.keeper(place).ask(&Request::Prepare { operation, digest }, &[])? {
            Some((Answer::Prepared(result, Prepared::Durable(_)), _)) => Ok(result),
            Some((Answer::Prepared(result, Prepared::AtDecision { reason, .. }), _)) => {
                Ok(CommitResult { at_decision: Some(reason), ..result })
            }
            Some((other, _)) => Err(unexpected(&other)),
            None => Err(place.lost(GONE)),
        }
    }

    fn finish(&self, place: &Place, operation: &str) -> Result<CommitResult> {
        let request = Request::Finish { operation: operation.to_owned() };
        let failed = match self.keeper(place).ask(&request, &[]) {
            Ok(Some((Answer::Committed(result), _))) => return Ok(result),
            Ok(Some((other, _))) => unexpected(&other),
            Ok(None) => place.lost(GONE),
            Err(error) => error,
        };
        let Some(record) = Record::of(&place.keeper(), operation)? else {
            return Ok(CommitResult::default());
        };
        match self.outcome(place, &record)? {
            Outcome::Committed => self.now_real(place, record),
            Outcome::Waiting if matches!(record.prepared, Prepared::AtDecision { .. }) => Err(failed),
            Outcome::Waiting => {
                engines::settle(&place.setup(&self.around)?, &record.prepared, Some(true))?;
                self.now_real(place, record)
            }
            Outcome::Aborted => self.nothing_left(place, record, failed),
        }
    }

    /// It was rolled back by somebody else, or lost with its keeper. Who decides by it hears so, and forgets everything; for one that was decided
    /// already, nothing more can be done than to say so, or it would be tried for ever.
    fn nothing_left(&self, place: &Place, record: Record, failed: Error) -> Result<CommitResult> {
        if !record.vain && matches!(record.prepared, Prepared::AtDecision { .. }) {
            Record { vain: true, ..record }.write(&place.keeper())?;
            return Err(failed);
        }
        Record::forget(&place.keeper())?;
        let reason = format!("not committed: {} lost it after the decision", place.location);
        let conflicts = record.result.entries.into_iter().map(|entry| Conflict::new(entry.path, &reason));
        Ok(CommitResult { conflicts: conflicts.collect(), ..CommitResult::default() })
    }

    /// What is real stays, and is said by this very error.
    fn abort(&self, place: &Place, operation: &str) -> Result<()> {
        // The keeper is asked in any case: it may just be about to prepare, for somebody who is no more.
        let request = Request::Abort { operation: operation.to_owned() };
        let (failed, is_gone) = match self.keeper(place).ask(&request, &[]) {
            Ok(Some((Answer::Aborted(_), _))) => return Ok(()),
            Ok(Some((Answer::Committed(_), _))) => return Err(Error::already_decided(operation)),
            Ok(Some((other, _))) => (unexpected(&other), false),
            Ok(None) => (place.lost(GONE), true),
            Err(error) => (error, false),
        };
        let Some(record) = Record::of(&place.keeper(), operation)? else {
            return if is_gone { Ok(()) } else { Err(failed) };
        };
        match self.outcome(place, &record)? {
            Outcome::Waiting if is_gone => {
                let setup = place.setup(&self.around)?;
                let settled = engines::settle(&setup, &record.prepared, Some(false));
                self.given_up(place, record, settled?)
            }
            Outcome::Waiting => Err(failed),
            outcome => self.given_up(place, record, outcome),
        }
    }

    /// The end of an abort. What the server has not ended yet may still be prepared: it is kept, to be asked for once more.
    fn given_up(&self, place: &Place, record: Record, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Aborted => Record::forget(&place.keeper()),
            Outcome::Committed => {
                let error = Error::already_decided(&record.operation);
                self.now_real(place, record).and(Err(error))
            }
            Outcome::Waiting => Err(Error::Database {
                database: place.location.clone(),
                message: "its session has not ended yet, so that it is undecided; ask again in a moment"
                    .to_owned(),
                code: None,
            }),
        }
    }

    /// Rolls back what was prepared and never decided, of a keeper that is gone.
    pub(super) fn forget_undecided(&self, place: &Place) -> Result<()> {
        match Record::read(&place.keeper())? {
            Some(record) if !record.committed => match self.abort(place, &record.operation) {
                Err(error) if !error.is_already_decided() => Err(error),
                _ => Record::forget(&place.keeper()),
            },
            _ => Record::forget(&place.keeper()),
        }
    }

    fn outcome(&self, place: &Place, record: &Record) -> Result<Outcome> {
        if record.committed {
            return Ok(Outcome::Committed);
        }
        engines::settle(&place.setup(&self.around)?, &record.prepared, None)
    }

    fn now_real(&self, place: &Place, record: Record) -> Result<CommitResult> {
        let record = Record { committed: true, ..record };
        record.write(&place.keeper())?;
        Ok(record.result)
    }
}

#[cfg(test)]
#[path = "commits_tests.rs"]
mod tests;
