//! Reading a file in pieces.

use std::os::unix::fs::symlink;

use sandboxer_core::Error;

use super::fixture::{Fixture, Open, rel};

const CONTENT: &[u8] = b"0123456789";

impl Open<'_> {
    fn read_range(&self, path: &str, offset: u64, length: u64) -> sandboxer_core::Result<Vec<u8>> {
        self.strategy.read(&self.sandbox.clone().ranged(offset, length), &rel(path))
    }
}

/// A sandbox with ten digits in a file.
fn with_digits(fixture: &Fixture) -> Open<'_> {
    let open = fixture.open();
    open.strategy.write(&open.sandbox, &rel("digits"), CONTENT).unwrap();
    open
}

pub(super) fn pieces_add_up(fixture: &Fixture) {
    let open = with_digits(fixture);
    for length in [1, 3, 5, 10, 11, 4 << 20] {
        let mut whole = Vec::new();
        loop {
            let piece = open.read_range("digits", whole.len() as u64, length).unwrap();
            assert!(piece.len() as u64 <= length, "{} bytes for {length}", piece.len());
            whole.extend_from_slice(&piece);
            if (piece.len() as u64) < length {
                break;
            }
        }
        assert_eq!(whole, CONTENT, "in pieces of {length}");
    }
    assert_eq!(open.read_range("a.txt", 2, 3).unwrap(), b"pha", "of what was there before");
}

pub(super) fn past_the_end_is_nothing(fixture: &Fixture) {
    let open = with_digits(fixture);
    for (offset, length) in [(10, 1), (11, 4), (1 << 40, 4 << 20), (u64::MAX, 1), (4, 0)] {
        assert_eq!(open.read_range("digits", offset, length).unwrap(), b"", "{length} from {offset}");
    }
    open.write("nothing", "");
    assert_eq!(open.read_range("nothing", 0, 9).unwrap(), b"");
}

pub(super) fn missing_is_not_found(fixture: &Fixture) {
    let open = with_digits(fixture);
    for path in ["nowhere", "no/such/directory"] {
        for offset in [0, 100] {
            let error = open.read_range(path, offset, 4).unwrap_err();
            assert!(matches!(error, Error::NotFound { .. }), "{path}: {error:?}");
        }
    }
    assert!(open.read_range("dir", 0, 4).is_err(), "a directory was read");
}

pub(super) fn what_was_written_last(fixture: &Fixture) {
    let open = with_digits(fixture);
    assert_eq!(open.read_range("digits", 8, 4).unwrap(), b"89");
    open.write("digits", "abc");
    assert_eq!(open.read_range("digits", 1, 4).unwrap(), b"bc");
    assert_eq!(open.read("digits"), "abc", "without a range it is everything");
}

pub(super) fn no_link_is_followed(fixture: &Fixture) {
    let open = with_digits(fixture);
    symlink(fixture.outside().join("secret"), open.path("leak")).unwrap();
    let found = open.read_range("leak", 0, 4);
    assert!(found.is_err(), "the link was followed: {found:?}");
}
