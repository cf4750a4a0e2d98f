//! Power cuts during and after commits of a checkout's sandbox.

use sandboxer_testkit::faults::{Outcome, sample};
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::skip;
use tempfile::TempDir;

use crate::sweeps::git::case::{Case, Task};
use crate::sweeps::git::{can_trace, trace, twin};

type Make = fn(u64) -> Result<Mounted, String>;

/// D03: what was acknowledged is there after a power cut, and the repository holds together.
#[test]
fn d03_an_acknowledged_commit_survives() {
    let kinds: [(&str, Make, u64); 2] = [("ext4", Mounted::ext4, 64 << 20), ("xfs", Mounted::xfs, 320 << 20)];
    for (name, make, bytes) in kinds {
        let mounted = match make(bytes) {
            Ok(mounted) => mounted,
            Err(reason) => {
                skip(&format!("{name}: {reason}"));
                continue;
            }
        };
        for (task, whole) in [(Task::Commit, true), (Task::Commit, false), (Task::Undo, true)] {
            let elsewhere = (!whole).then(|| TempDir::with_prefix("sandboxer-home-").unwrap());
            let settled = || Case::at(task, mounted.path(), elsewhere.as_ref().map(TempDir::path));
            let twin = settled();
            twin.cli.ok(&twin.arguments());
            let seen = twin.look();
            let case = settled();
            mounted.settle();
            case.cli.ok(&case.arguments());
            twin.detach();
            case.detach();
            if let Err(reason) = mounted.power_cut() {
                return skip(&reason);
            }
            let context = format!("{name}: power cut after {task:?}, state directory on the image: {whole}");
            case.assert_repository(&context);
            assert_eq!(case.recover_and_check(&seen, &context), Outcome::New, "{context}");
        }
    }
}

/// What only a full run takes.
mod full {
    use super::*;

    /// The same in the middle of it: all old or all new, with what the power cut leaves.
    #[test]
    fn d03_a_cut_in_the_middle_leaves_old_or_new() {
        if !can_trace() {
            return;
        }
        let mounted = match Mounted::ext4(64 << 20) {
            Ok(mounted) => mounted,
            Err(reason) => return skip(&reason),
        };
        let (seen, points) = twin(Task::Commit, false);
        for point in sample(&points, 4) {
            let case = Case::at(Task::Commit, mounted.path(), None);
            mounted.settle();
            trace(&case, false).kill(&point, &case.arguments());
            case.detach();
            if let Err(reason) = mounted.power_cut() {
                return skip(&reason);
            }
            case.recover_and_check(&seen, &format!("power cut at {point:?}"));
        }
    }
}
