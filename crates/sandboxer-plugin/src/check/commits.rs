//! Making work real, refusing to, and leaving nothing behind.

use std::fs;
use std::time::Instant;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, CommitResult, DiffKind, RelPath, SandboxRef};

use super::report::Verdict;
use super::{Check, Ground, expect, expect_entries, name, told, words};

const COMMITTED: &[u8] = b"committed by the check\n";
const UNREVIEWED: &[u8] = b"changed after the review\n";
const MINE: &[u8] = b"changed in the sandbox, too late\n";
const THEIRS: &[u8] = b"changed by somebody else meanwhile\n";
const NEW: &[u8] = b"\0new, and to be committed\xff";

impl Check<'_> {
    pub(super) fn commits(&mut self) {
        self.step(name::COMMIT, &[name::WRITE], Self::commit);
        self.step(name::COMMITTED, &[name::COMMIT, name::DIFF], |check| {
            expect_entries(&check.diff(&check.sandbox()?)?, &[])?;
            Ok("what was committed differs no more".to_owned())
        });
        self.step(name::OTHER_DIGEST, &[name::COMMIT, name::DIGEST], Self::refuse_other_digest);
        let isolates = if self.can.isolates { Ok(()) } else { Err("it says that it does not isolate") };
        let trees = if self.can.file_tree { Ok(()) } else { Err("`file_tree` is not declared") };
        let offered = self.has_room().and(trees).and(isolates);
        self.step_if(offered, name::FLAGS, &[name::COMMIT, name::DIFF], Self::flag_and_relieve);
    }

    /// A new sandbox with `content` in the first file and something in a new one, where there is room.
    pub(super) fn changed(&mut self, content: &[u8]) -> Result<(SandboxRef, Option<RelPath>), String> {
        let (kept, new) = (self.kept()?, self.new_path());
        let sandbox = self.open()?;
        self.write(&sandbox, &kept, content)?;
        if let Some(path) = &new {
            self.write(&sandbox, path, NEW)?;
        }
        Ok((sandbox, new))
    }

    pub(super) fn commit_with(
        &self,
        sandbox: &SandboxRef,
        request: &CommitRequest,
    ) -> Result<CommitResult, String> {
        told("commit", self.strategy.commit(sandbox, request))
    }

    pub(super) fn expect_all_real(&mut self, content: &[u8], new: Option<&RelPath>) -> Result<(), String> {
        let kept = self.kept()?;
        self.expect_real(&kept, Some(content))?;
        new.map_or(Ok(()), |path| self.expect_real(path, Some(NEW)))
    }

    /// Expects the resource to have `content` in the first file, and nothing in the new one.
    pub(super) fn expect_unchanged(
        &mut self,
        content: Option<&[u8]>,
        new: Option<&RelPath>,
    ) -> Result<(), String> {
        let kept = self.kept()?;
        self.expect_real(&kept, content)?;
        new.map_or(Ok(()), |path| self.expect_real(path, None))
    }

    fn refuse_other_digest(&mut self) -> Verdict {
        let kept = self.kept()?;
        let before = self.real(&kept)?;
        let (sandbox, new) = self.changed(UNREVIEWED)?;
        let digest = Some(format!("blake3:{}", "0".repeat(64)));
        let answer = self.strategy.commit(&sandbox, &CommitRequest { digest, ..CommitRequest::default() });
        let refusal = refused(answer, "digest_mismatch", "what nobody has reviewed was committed")?;
        if !matches!(refusal, Error::DigestMismatch { .. }) {
            return Err(otherwise("digest_mismatch", &refusal));
        }
        if self.can.isolates {
            self.expect_unchanged(before.as_deref(), new.as_ref())?;
        }
        done_with(self, &sandbox)?;
        Ok("refused with digest_mismatch, and nothing changed".to_owned())
    }

    fn commit(&mut self) -> Verdict {
        let kept = self.kept()?;
        let (sandbox, new) = self.changed(COMMITTED)?;
        self.sandbox = Some(sandbox.clone());
        // A digest that does not follow the content is a fault of its own.
        let digest = match self.sheet.is_ok(name::DIGEST) {
            true => Some(self.diff(&sandbox)?.digest),
            false => None,
        };
        self.commit_with(&sandbox, &CommitRequest { digest, ..CommitRequest::default() })?;
        self.expect_all_real(COMMITTED, new.as_ref())?;
        self.expect_seen(&sandbox, &kept, Some(COMMITTED))?;
        let seen =
            if self.bench.ground == Ground::Elsewhere { "in a fresh sandbox" } else { "looked at directly" };
        Ok(format!("the resource has it, {seen}"))
    }

    /// The resource changes between the sandbox and its commit.
    pub(super) fn conflict(&mut self) {
        let isolates = if self.can.isolates { Ok(()) } else { Err("it says that it does not isolate") };
        self.step_if(isolates, name::CONFLICT, &[name::COMMIT], Self::refuse_conflict);
    }

    fn refuse_conflict(&mut self) -> Verdict {
        let kept = self.kept()?;
        let before = self.real_by_hand(&kept)?;
        let (sandbox, new) = self.changed(MINE)?;
        self.change_meanwhile(&kept, THEIRS)?;
        let answer = self.strategy.commit(&sandbox, &CommitRequest::default());
        let refusal = refused(answer, "conflict", "it went over what somebody else wrote")?;
        let Error::Conflict { conflicts } = refusal else { return Err(otherwise("conflict", &refusal)) };
        self.expect_conflict_at_kept(&conflicts)?;
        self.expect_unchanged(Some(THEIRS), new.as_ref())?;
        before.and_then(|content| self.write_by_hand(&kept, &content)).unwrap_or(Ok(()))?;
        Ok("refused with conflict, and nothing changed".to_owned())
    }

    fn expect_conflict_at_kept(&self, conflicts: &[sandboxer_core::model::Conflict]) -> Result<(), String> {
        let kept = self.kept()?;
        if conflicts.iter().any(|conflict| conflict.path == kept) {
            return Ok(());
        }
        Err(format!(
            "expected a conflict at {kept}, and it is not among the {} that were told",
            conflicts.len()
        ))
    }

    /// By hand where that is possible, else in a second sandbox.
    pub(super) fn change_meanwhile(&mut self, kept: &RelPath, content: &[u8]) -> Result<(), String> {
        if let Some(written) = self.write_by_hand(kept, content) {
            return written;
        }
        self.commit_meanwhile(kept, content)
    }

    /// In a second sandbox.
    pub(super) fn commit_meanwhile(&mut self, kept: &RelPath, content: &[u8]) -> Result<(), String> {
        let second = self.open()?;
        self.write(&second, kept, content)?;
        self.commit_with(&second, &CommitRequest::default())?;
        done_with(self, &second)
    }

    fn write_by_hand(&self, path: &RelPath, content: &[u8]) -> Option<Result<(), String>> {
        let file = self.bench.on_disk(path)?;
        Some(
            fs::write(&file, content)
                .map_err(|error| format!("{} cannot be written: {error}", file.display())),
        )
    }

    /// Takes what the check has committed out of a resource that stays, also where somebody has interrupted it.
    pub(super) fn remove(&mut self) {
        if !self.bench.stays {
            return;
        }
        let by_commit = self.can.file_tree && (self.can.branches || self.bench.ground == Ground::Elsewhere);
        if !by_commit && self.bench.ground == Ground::Elsewhere {
            let why =
                format!("what is below {} stays: a strategy without files removes none", self.bench.name);
            return self.sheet.not_offered(name::REMOVE, &why);
        }
        let began = Instant::now();
        let committed = if by_commit { self.remove_by_commit() } else { Ok(()) };
        let verdict = self.remove_by_hand().and(committed);
        self.sheet.add(
            name::REMOVE,
            began,
            verdict.map(|()| format!("{} is gone from the resource", self.bench.name)),
        );
    }

    fn remove_by_hand(&self) -> Result<(), String> {
        match &self.bench.ground {
            Ground::Directory(root) => {
                sandboxer_fs::remove_tree(&root.join(&self.bench.name)).map_err(|error| words(&error))
            }
            _ => Ok(()),
        }
    }

    fn remove_by_commit(&mut self) -> Result<(), String> {
        let kept = self.kept()?;
        let sandbox = self.open()?;
        let tree = sandbox.sandbox_path().ok_or("its ref has no `path`")?;
        sandboxer_fs::remove_tree(&tree.join(&self.bench.name)).map_err(|error| words(&error))?;
        self.commit_with(&sandbox, &CommitRequest::default())?;
        done_with(self, &sandbox)?;
        self.expect_real(&kept, None)
    }

    /// In any case: whatever was made is removed, and looked for.
    pub(super) fn clean_up(&mut self) {
        let began = Instant::now();
        let before = self.kept().and_then(|kept| Ok((self.real_by_hand(&kept)?, kept)));
        let made = std::mem::take(&mut self.made);
        let wrong: Vec<String> = made.iter().filter_map(|sandbox| self.cleaned(sandbox).err()).collect();
        let mut verdict = match &wrong[..] {
            [] => Ok(format!("all {} sandboxes are gone; cleaning up again is fine", made.len())),
            [first, ..] => Err(format!("{} of {} sandboxes: {first}", wrong.len(), made.len())),
        };
        if let (Ok(_), Ok((content, kept))) = (&verdict, before) {
            let same =
                self.real_by_hand(&kept).and_then(|after| expect("the resource", after, content.as_deref()));
            verdict = same.and(verdict);
        }
        match made.is_empty() {
            true => self.sheet.not_tried(name::CLEANUP, "no sandbox was made".to_owned()),
            false => self.sheet.add_always(name::CLEANUP, began, verdict),
        }
    }

    fn real_by_hand(&self, path: &RelPath) -> Result<Option<Vec<u8>>, String> {
        self.bench.on_disk(path).map_or(Ok(None), |file| super::bench::look_at(&file))
    }

    fn cleaned(&self, sandbox: &SandboxRef) -> Result<(), String> {
        told("cleanup", self.strategy.cleanup(sandbox))?;
        self.strategy
            .cleanup(sandbox)
            .map_err(|error| format!("the second `cleanup` failed: {}", words(&error)))?;
        // Where nothing is isolated, the path is the resource itself.
        let path = sandbox.text("path").filter(|_| self.can.isolates);
        let left =
            [path, sandbox.text("dir")].into_iter().flatten().find(|left| fs::symlink_metadata(left).is_ok());
        left.map_or(Ok(()), |left| Err(format!("{left} is still there")))
    }
}

/// Why a commit was refused that had to be.
fn refused(
    answer: sandboxer_core::Result<CommitResult>,
    expected: &str,
    otherwise: &str,
) -> Result<Error, String> {
    answer.err().ok_or_else(|| format!("expected {expected}, and {otherwise}"))
}

fn otherwise(expected: &str, error: &Error) -> String {
    format!("expected {expected}, and `commit` failed otherwise: {}", words(error))
}

/// A sandbox that is not needed any more; what is left of it is told in the end.
pub(super) fn done_with(check: &Check<'_>, sandbox: &SandboxRef) -> Result<(), String> {
    told("cleanup", check.strategy.cleanup(sandbox))
}

/// What a part of the changes comes to.
pub(super) fn pending(kept: &RelPath) -> [(&RelPath, DiffKind); 1] {
    [(kept, DiffKind::Modified)]
}
