//! What is taken back, and what is put away and taken up again.

use sandboxer_core::model::{CommitRequest, OpId, Part, SandboxRef};

use super::commits::done_with;
use super::report::Verdict;
use super::{Check, told};

const TAKEN_BACK: &[u8] = b"committed, and to be taken back\n";
const PARKED: &[u8] = b"changed, and put away\n";

impl Check<'_> {
    pub(super) fn take_back(&mut self) -> Verdict {
        let kept = self.kept()?;
        let before = self.real(&kept)?;
        let (sandbox, new) = self.changed(TAKEN_BACK)?;
        let (commit, undo) = (OpId::generate(), OpId::generate());
        self.commit_with(&sandbox.clone().for_operation(&commit), &CommitRequest::default())?;
        self.expect_all_real(TAKEN_BACK, new.as_ref())?;
        let undoing = sandbox.clone().for_operation(&undo).undoing(&commit);
        self.commit_with(&undoing, &CommitRequest::default()).map_err(|wrong| format!("undo: {wrong}"))?;
        self.expect_unchanged(before.as_deref(), new.as_ref())
            .map_err(|wrong| format!("after the undo: {wrong}"))?;
        self.expect_seen(&sandbox, &kept, Some(TAKEN_BACK))?;
        done_with(self, &sandbox)?;
        Ok("the resource is as before the commit, and the changes are pending again".to_owned())
    }

    pub(super) fn come_back_from_parking(&mut self) -> Verdict {
        let kept = self.kept()?;
        let (sandbox, new) = self.changed(PARKED)?;
        let digest = self.diff(&sandbox)?.digest;
        told("cleanup", self.strategy.cleanup(&sandbox.clone().for_part(&Part::Unchanged)))?;
        let again = self.bring_up(&sandbox)?;
        self.expect_seen(&again, &kept, Some(PARKED)).map_err(|wrong| format!("taken up again: {wrong}"))?;
        if new.is_some_and(|path| self.seen(&again, &path).is_ok_and(|content| content.is_none())) {
            return Err("taken up again: the new file is gone".to_owned());
        }
        if self.diff(&again)?.digest != digest {
            return Err("taken up again, its difference has another digest".to_owned());
        }
        done_with(self, &again)?;
        Ok("what was put away is there again, with the same digest".to_owned())
    }

    /// Takes up what was put away of `sandbox`.
    fn bring_up(&mut self, sandbox: &SandboxRef) -> Result<SandboxRef, String> {
        let home = sandbox.metadata.get("dir").ok_or("it declares `parts`, and its ref has no `dir`")?;
        let mut resource = self.bench.resource.clone();
        resource.properties.insert("parked".to_owned(), home.clone());
        self.open_as(&sandbox.plan_id, &resource)
    }
}
