//! Whether there is room here for what comes. The state of all sandboxes may be on the same disk, and whatever runs on a host decides how much comes.

use rustix::fs::fstatvfs;
use sandboxer_core::{Error, Result};

use super::Mirror;
use super::check::Meeting;
use super::entry::{Entry, Kind, shown};
use super::place::Place;

/// How much stays free of a filesystem of so many bytes.
pub(super) type Reserve = fn(u64) -> u64;

/// How many files are named.
const NAMED: usize = 3;

/// A twentieth of a small filesystem; this is enough on any.
pub(super) fn usual(whole: u64) -> u64 {
    (whole / 20).min(256 << 20)
}

/// Refuses what leaves less than the reserve. Asked with what a file really holds: how long it is said to be may be mostly holes.
pub(super) fn expect(
    mirror: &Mirror<'_>,
    place: &Place,
    meeting: &Meeting<'_>,
    reserve: Reserve,
    bytes: u64,
) -> Result<()> {
    let found = fstatvfs(&place.root).map_err(|e| Error::io("look for room on", place.root.path(), e))?;
    let (whole, free) =
        (found.f_blocks.saturating_mul(found.f_frsize), found.f_bavail.saturating_mul(found.f_frsize));
    let kept = reserve(whole);
    // Some filesystems do not tell.
    if whole == 0 || free >= bytes.saturating_add(kept) {
        return Ok(());
    }
    let (host, root) = (mirror.shell.name(), place.root.path().display());
    let (bytes, free, kept) = (size(bytes), size(free), size(kept));
    let largest = largest(meeting);
    Err(Error::Refused {
        reason: format!(
            "there is no room for what {host} has: the next file needs {bytes}, {free} are free at {root}, and {kept} of it stay free; the largest are {largest}"
        ),
        hint: Some(format!("remove them on {host}, or make room here, and try again")),
    })
}

fn largest(meeting: &Meeting<'_>) -> String {
    let present = meeting.told.present.values();
    let mut files: Vec<&Entry> = present.filter(|entry| entry.kind == Kind::File).collect();
    files.sort_unstable_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
    let named =
        files.iter().take(NAMED).map(|entry| format!("{} ({})", shown(&entry.path), size(entry.size)));
    named.collect::<Vec<_>>().join(", ")
}

fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut left, mut unit) = (bytes, 0);
    while left >= 10 << 10 && unit + 1 < units.len() {
        (left, unit) = (left >> 10, unit + 1);
    }
    format!("{left} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_a_small_disk_keeps_little() {
        let sizes = [0, 10_239, 10_240, 500 << 30, u64::MAX].map(size);
        assert_eq!(sizes, ["0 bytes", "10239 bytes", "10 KiB", "500 GiB", "16777215 TiB"]);
        assert_eq!((usual(20 << 20), usual(1 << 40)), (1 << 20, 256 << 20));
    }
}
