//! What may not leave a sandbox: bits and attributes that give whoever runs a file somebody else's powers.

use sandboxer_core::model::{DiffKind, Notice};

use crate::diff::{Delta, Seen};
use crate::xattrs::{CAPABILITY, Xattrs};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// The permission bits that are committed. An entry whose content stays may keep what the original has already.
pub fn allowed_mode(delta: &Delta, seen: &Seen, notices: &mut Vec<Notice>) -> u32 {
    let wanted = seen.stamp.permissions();
    let held = if keeps_owner(delta, seen) { delta.base.as_ref().and_then(|b| b.base) } else { None };
    let held = held.map_or(0, |s| s.permissions());
    // On a directory setgid only says which group new files get.
    let harmless = if seen.stamp.is_dir() { SETGID } else { 0 };
    let mut mode = wanted;
    for (bit, name) in [(SETUID, "setuid"), (SETGID, "setgid")] {
        if wanted & bit & !held & !harmless != 0 {
            mode &= !bit;
            notices.push(notice(delta, format!("{name} bit removed")));
        }
    }
    mode
}

/// Whether content and owner stay what they were: another owner would give the same bits other powers.
fn keeps_owner(delta: &Delta, seen: &Seen) -> bool {
    let before = delta.base.as_ref().and_then(|b| b.base).map(|s| (s.uid, s.gid));
    delta.entry.kind == DiffKind::Metadata && before == Some(owner(delta, seen))
}

/// The attributes that are committed.
pub fn allowed_xattrs(delta: &Delta, seen: &Seen, notices: &mut Vec<Notice>) -> Xattrs {
    let mut xattrs = seen.xattrs.clone();
    let base = delta.base.as_ref().filter(|_| keeps_owner(delta, seen));
    let held = base.and_then(|b| b.xattrs.get(CAPABILITY));
    if xattrs.get(CAPABILITY).is_some_and(|wanted| Some(wanted) != held) {
        xattrs.remove(CAPABILITY);
        notices.push(notice(delta, "file capabilities removed".to_owned()));
    }
    xattrs
}

/// The owner that is committed: the original's, unless the sandbox shows another on purpose.
pub fn owner(delta: &Delta, seen: &Seen) -> (u32, u32) {
    let unchanged = delta.base.as_ref().and_then(|b| b.copy).is_some_and(|c| c.same_owner(&seen.stamp));
    match delta.base.as_ref().and_then(|b| b.base) {
        Some(base) if unchanged => (base.uid, base.gid),
        _ => (seen.stamp.uid, seen.stamp.gid),
    }
}

fn notice(delta: &Delta, message: String) -> Notice {
    Notice { path: delta.entry.path.clone(), message }
}
