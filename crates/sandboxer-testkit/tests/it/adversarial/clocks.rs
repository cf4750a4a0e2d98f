//! D36: clocks that were set back, where stamps are compared. `disks::clocks` has the whole program.

use sandboxer_fs::stamp::Stamp;

/// D36 where stamps are compared: one that is earlier than the base is as different as one that is later.
#[test]
fn d36_an_earlier_stamp_counts_as_changed() {
    let base = Stamp { ino: 7, size: 3, ctime: 1_000, mtime: 1_000, ..Stamp::default() };
    for ctime in [0, 999, 1_001] {
        assert!(!base.untouched(&Stamp { ctime, ..base }), "ctime {ctime} against 1000 passed as untouched");
    }
    assert!(base.untouched(&base));
}
