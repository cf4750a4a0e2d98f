//! Why the kernel may have refused an overlay. It tells its log, which is not ours to read, and us only a number; so what is
//! known to make it refuse is looked for.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{OVERLAY_MAGIC, submounts};
use crate::{Kind, Overlay, work};

/// The most layers the kernel takes.
const MAX_LOWERS: usize = 500;

/// What is known to be wrong with an overlay that was refused. In a work directory that had not been used before, the
/// mark is of the very mount that was refused, and tells nothing.
pub(super) fn what_is_wrong(overlay: &Overlay, kind: Kind, used: bool) -> Option<String> {
    let looks = [too_many, apart, on_overlayfs];
    let wrong = looks.iter().find_map(|look| look(overlay));
    wrong.or_else(|| mounts_inside(overlay, kind)).or_else(|| marked(overlay).filter(|_| used))
}

fn too_many(overlay: &Overlay) -> Option<String> {
    let count = overlay.lowers.len();
    (count > MAX_LOWERS)
        .then(|| format!("{count} layers are more than the {MAX_LOWERS} that the kernel takes"))
}

fn marked(overlay: &Overlay) -> Option<String> {
    let marked = work::is_marked(&overlay.work).unwrap_or(false);
    marked.then(|| "its work directory has the mark of a volatile mount".to_owned())
}

fn apart(overlay: &Overlay) -> Option<String> {
    let device = |path: &Path| path.metadata().ok().map(|facts| facts.dev());
    (device(&overlay.upper) != device(&overlay.work))
        .then(|| "its upper and its work directory are on different filesystems".to_owned())
}

fn on_overlayfs(overlay: &Overlay) -> Option<String> {
    let facts = rustix::fs::statfs(&overlay.upper).ok()?;
    (facts.f_type as u64 == OVERLAY_MAGIC).then(|| "its upper is on an overlay itself".to_owned())
}

/// Mounts that came with a user namespace cannot be taken apart, so nothing can be shown without what is mounted in it.
fn mounts_inside(overlay: &Overlay, kind: Kind) -> Option<String> {
    let found = overlay.lowers.iter().find_map(|lower| submounts(lower).ok()?.into_iter().next());
    let found = found.filter(|_| kind == Kind::User)?;
    Some(format!("{} is mounted inside, which only a mount on the host can leave out", found.display()))
}
