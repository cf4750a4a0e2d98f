//! The phases of a commit, workspace by workspace: of one sandbox, or of all sandboxes of a plan.

use super::manager::{SandboxManager, in_workspace};
use super::{PerWorkspace, Sandbox, Target, Workspace};
use crate::model::{CommitRequest, CommitResult, Phase};
use crate::{Error, Result};

/// One workspace of a commit.
pub(super) struct Piece<'a> {
    pub sandbox: &'a Sandbox,
    pub workspace: &'a Workspace,
    /// What it is called among all of them: `WORKSPACE` within one sandbox, `SANDBOX:WORKSPACE` within a plan.
    pub label: String,
    of_plan: bool,
}

/// The pieces of one sandbox.
pub(super) fn pieces_of(target: &Target) -> Vec<Piece<'_>> {
    target.workspaces.iter().map(|workspace| piece(&target.sandbox, workspace, false)).collect()
}

/// The pieces of several, all of one plan.
pub(super) fn pieces_of_plan<'a>(targets: impl Iterator<Item = &'a Target>) -> Vec<Piece<'a>> {
    let of = |target: &'a Target| target.workspaces.iter().map(|w| piece(&target.sandbox, w, true));
    targets.flat_map(of).collect()
}

fn piece<'a>(sandbox: &'a Sandbox, workspace: &'a Workspace, of_plan: bool) -> Piece<'a> {
    let label = if of_plan { plan_label(sandbox, workspace) } else { workspace.name.clone() };
    Piece { sandbox, workspace, label, of_plan }
}

/// What a workspace is called among all of a plan.
pub(super) fn plan_label(sandbox: &Sandbox, workspace: &Workspace) -> String {
    format!("{}:{}", sandbox.name, workspace.name)
}

impl Piece<'_> {
    /// Says which workspace of several an error is about.
    pub fn explain(&self, error: Error) -> Error {
        match self.of_plan {
            true => Error::Workspace { workspace: self.label.clone(), source: Box::new(error) },
            false => in_workspace(self.sandbox, self.workspace)(error),
        }
    }
}

/// Results of a target's workspaces, by their names.
pub(super) fn named<T>(target: &Target, results: impl IntoIterator<Item = T>) -> PerWorkspace<T> {
    target.workspaces.iter().map(|workspace| workspace.name.clone()).zip(results).collect()
}

impl SandboxManager {
    /// One phase of a commit in one workspace.
    pub(super) fn commit_phase(&self, workspace: &Workspace, phase: Phase) -> Result<CommitResult> {
        let request = CommitRequest { phase, ..CommitRequest::default() };
        self.strategy_of(workspace)?.commit(&workspace.sandbox_ref, &request)
    }

    pub(super) fn phase_of(&self, piece: &Piece<'_>, phase: Phase) -> Result<CommitResult> {
        self.commit_phase(piece.workspace, phase).map_err(|error| piece.explain(error))
    }

    /// Whether it is prepared last, because it could not be taken up again.
    pub(super) fn prepare_ends(&self, workspace: &Workspace) -> bool {
        self.capabilities_of(workspace).is_ok_and(|can| can.prepare_ends)
    }

    /// In the order in which all commits prepare: commits over the same resources wait for each other, and never in a circle.
    pub(super) fn in_preparing_order(&self, pieces: &[Piece<'_>]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|at| {
            let workspace = pieces[*at].workspace;
            (self.prepare_ends(workspace), &workspace.resource.location)
        });
        order
    }

    /// In the order in which all commits finish: what cannot be taken up again comes first, and the rest is as it was made.
    pub(super) fn in_finishing_order<'a>(&self, mut workspaces: Vec<&'a Workspace>) -> Vec<&'a Workspace> {
        workspaces.sort_by_key(|workspace| !self.prepare_ends(workspace));
        workspaces
    }

    /// Finishes the only piece there is, which can still refuse.
    pub(super) fn finish_alone(
        &self,
        pieces: &[Piece<'_>],
        prepared: &CommitResult,
    ) -> Result<Vec<CommitResult>> {
        let digest = Some(prepared.digest.clone());
        let request = CommitRequest { phase: Phase::Finish, digest, ..CommitRequest::default() };
        let finish = |piece: &Piece<'_>| {
            let strategy = self.strategy_of(piece.workspace);
            let finished = strategy.and_then(|it| it.commit(&piece.workspace.sandbox_ref, &request));
            finished.map_err(|error| piece.explain(error))
        };
        pieces.iter().map(finish).collect()
    }

    /// Finishes every piece, past the failure of one: what is decided is decided. An error leaves the operation
    /// `decided`, and recovery finishes the rest. The results are in the order of the pieces.
    pub(super) fn finish_each(&self, pieces: &[Piece<'_>]) -> Result<Vec<CommitResult>> {
        self.finish_rest(pieces, None)
    }

    /// The same where one of them is finished already.
    pub(super) fn finish_rest(
        &self,
        pieces: &[Piece<'_>],
        mut finished: Option<(usize, CommitResult)>,
    ) -> Result<Vec<CommitResult>> {
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|at| !self.prepare_ends(pieces[*at].workspace));
        let mut results = vec![CommitResult::default(); pieces.len()];
        let mut first_failure = Ok(());
        for at in order {
            match finished.take_if(|(done, _)| *done == at) {
                Some((_, result)) => results[at] = result,
                None => match self.phase_of(&pieces[at], Phase::Finish) {
                    Ok(result) => results[at] = result,
                    Err(error) => first_failure = first_failure.and(Err(error)),
                },
            }
        }
        first_failure.map(|()| results)
    }

    /// Forgets what was prepared, last first.
    pub(super) fn abort_each(&self, pieces: &[Piece<'_>]) -> Result<()> {
        self.abort_some(pieces, &(0..pieces.len()).collect::<Vec<_>>())
    }

    /// The same for some of them, in the order in which they were prepared.
    pub(super) fn abort_some(&self, pieces: &[Piece<'_>], begun: &[usize]) -> Result<()> {
        let mut first_failure = Ok(());
        for at in begun.iter().rev() {
            first_failure = first_failure.and(self.phase_of(&pieces[*at], Phase::Abort).map(drop));
        }
        first_failure
    }
}
