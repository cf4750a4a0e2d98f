//! Which step tries which capability: what no step has tried is nobody's to vouch for.

use sandboxer_core::contract::Capabilities;

use super::name;
use super::report::{Outcome, Report};

/// Every capability of `can`, whether it is declared, and the step that tries it.
fn claims(can: &Capabilities) -> [(&'static str, bool, Option<&'static str>); 17] {
    [
        ("isolates", can.isolates, Some(name::UNTOUCHED)),
        ("file_tree", can.file_tree, Some(name::CREATE)),
        ("faithful", can.faithful, Some(name::FAITHFUL)),
        ("two_phase", can.two_phase, Some(name::TWO_PHASE)),
        ("prepare_ends", can.prepare_ends, None),
        ("select_paths", can.select_paths, Some(name::SELECT_PATHS)),
        ("select_hunks", can.select_hunks, Some(name::SELECT_HUNKS)),
        ("scoped_rollback", can.scoped_rollback, Some(name::SCOPED_ROLLBACK)),
        ("checkpoints", can.checkpoints, Some(name::RESTORE)),
        ("keeps_base", can.keeps_base, Some(name::KEEPS_BASE)),
        ("resolves", can.resolves, None),
        ("undo", can.undo, Some(name::UNDO)),
        ("parts", can.parts, Some(name::PARTS)),
        ("looks_through", can.looks_through, None),
        ("refreshes", can.refreshes, None),
        ("branches", can.branches, None),
        ("ranges", can.ranges, Some(name::RANGES)),
    ]
}

/// What is declared, and was tried by no step of `report`.
pub(super) fn untried(can: &Capabilities, report: &Report) -> Vec<&'static str> {
    let was_tried = |step: Option<&str>| {
        let outcome = step.and_then(|step| report.outcome(step));
        matches!(outcome, Some(Outcome::Ok | Outcome::Failed))
    };
    let declared = claims(can).into_iter().filter(|(_, is_declared, _)| *is_declared);
    declared.filter(|(_, _, step)| !was_tried(*step)).map(|(claim, ..)| claim).collect()
}
