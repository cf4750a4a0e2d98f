//! What only some strategies declare.

use sandboxer_core::model::{CommitRequest, OpId, Phase, SandboxRef};

use super::commits::done_with;
use super::report::Verdict;
use super::work::done;
use super::{Check, expect_entries, name};

const IN_PART: &[u8] = b"changed, and not selected\n";
const PREPARED: &[u8] = b"committed in two phases\n";

/// What is asked only of those who say that they can.
fn declared(is: bool, why: &'static str) -> Result<(), &'static str> {
    if is { Ok(()) } else { Err(why) }
}

impl Check<'_> {
    pub(super) fn declared(&mut self) {
        let scoped =
            declared(self.can.scoped_rollback, "`scoped_rollback` is not declared").and(self.has_room());
        let select = declared(self.can.select_paths, "`select_paths` is not declared").and(self.has_room());
        let ranges = declared(self.can.ranges, "`ranges` is not declared");
        let phases = declared(self.can.two_phase, "`two_phase` is not declared");
        self.step_if(ranges, name::RANGES, &[name::WRITE], Self::read_in_pieces);
        self.step_if(scoped, name::SCOPED_ROLLBACK, &[name::ROLLBACK, name::DIFF], Self::roll_back_a_part);
        self.step_if(select, name::SELECT_PATHS, &[name::COMMIT, name::DIFF], Self::commit_a_part);
        self.step_if(phases, name::TWO_PHASE, &[name::COMMIT, name::DIFF], Self::commit_in_phases);
        self.declared_of_commits();
    }

    fn declared_of_commits(&mut self) {
        let undo = declared(self.can.undo, "`undo` is not declared");
        let parts = declared(self.can.parts, "`parts` is not declared");
        let hunks = declared(self.can.select_hunks, "`select_hunks` is not declared");
        let merges = declared(self.can.keeps_base, "`keeps_base` is not declared");
        let faithful = declared(self.can.faithful, "`faithful` is not declared")
            .and(declared(self.can.isolates, "it says that it does not isolate"))
            .and(declared(self.can.file_tree, "`file_tree` is not declared"))
            .and(self.has_room());
        self.step_if(faithful, name::FAITHFUL, &[name::READ, name::DIFF], Self::keep_everything);
        self.step_if(undo, name::UNDO, &[name::COMMIT], Self::take_back);
        self.step_if(parts, name::PARTS, &[name::WRITE, name::DIGEST], Self::come_back_from_parking);
        self.step_if(hunks, name::SELECT_HUNKS, &[name::COMMIT, name::DIFF], Self::commit_a_hunk);
        self.step_if(merges, name::KEEPS_BASE, &[name::COMMIT], Self::merge_both_sides);
    }

    fn roll_back_a_part(&mut self) -> Verdict {
        let kept = self.kept()?;
        let (sandbox, new) = self.changed(IN_PART)?;
        let new = new.ok_or("there is no room for a new file")?;
        done("rollback", self.strategy.rollback(&sandbox.clone().scoped(std::slice::from_ref(&new))))?;
        self.expect_seen(&sandbox, &new, None)?;
        self.expect_seen(&sandbox, &kept, Some(IN_PART))?;
        done("rollback", self.strategy.rollback(&sandbox))?;
        done_with(self, &sandbox)?;
        Ok("what was selected is back, the rest is as it was".to_owned())
    }

    fn commit_a_part(&mut self) -> Verdict {
        let kept = self.kept()?;
        let before = self.real(&kept)?;
        let (sandbox, new) = self.changed(IN_PART)?;
        let new = new.ok_or("there is no room for a new file")?;
        self.commit_with(&sandbox, &CommitRequest { paths: vec![new.clone()], ..CommitRequest::default() })?;
        if self.real(&new)?.is_none() {
            return Err(format!("{new} was selected, and the resource does not have it"));
        }
        self.expect_real(&kept, before.as_deref())?;
        expect_entries(&self.diff(&sandbox)?, &super::commits::pending(&kept))?;
        done_with(self, &sandbox)?;
        Ok("what was selected is real, the rest is pending".to_owned())
    }

    fn commit_in_phases(&mut self) -> Verdict {
        let kept = self.kept()?;
        let before = self.real(&kept)?;
        let (sandbox, new) = self.changed(PREPARED)?;
        for phase in [Phase::Prepare, Phase::Abort, Phase::Prepare] {
            self.phase(&sandbox, phase)?;
            self.expect_unchanged(before.as_deref(), new.as_ref())
                .map_err(|wrong| format!("after {phase:?}: {wrong}"))?;
        }
        for _ in 0..2 {
            self.phase(&sandbox, Phase::Finish)?;
            self.expect_all_real(PREPARED, new.as_ref())?;
        }
        expect_entries(&self.diff(&sandbox)?, &[])?;
        done_with(self, &sandbox)?;
        Ok("prepared, aborted, prepared, and finished twice".to_owned())
    }

    fn phase(&self, sandbox: &SandboxRef, phase: Phase) -> Result<(), String> {
        let sandbox = sandbox.clone().for_operation(&OpId::from_string("op_check"));
        let request = CommitRequest { phase, ..CommitRequest::default() };
        let answer = self.strategy.commit(&sandbox, &request);
        answer.map(drop).map_err(|error| format!("`commit` ({phase:?}) failed: {}", super::words(&error)))
    }
}
