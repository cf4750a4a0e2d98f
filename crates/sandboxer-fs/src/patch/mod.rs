//! Differences as text that other tools take: one file's part of a git-style patch, and the hunks it is made of.
//!
//! Everything here is a pure function over bytes; nothing opens a file. [`render_entry`] turns one entry of a diff and its
//! two contents into what `git apply` (either way round) and, for text, `patch -p1` accept; patches of several entries are
//! made by writing one after the other. [`hunks`] and [`apply_hunks`] are the seam for choosing part of a file's changes;
//! [`parse_files`], [`apply_exactly`] and [`check_part_of`] take such a choice back in as text.
//! The comparison itself is in `align`: `imara-diff`, kept to pieces of bounded size so that no input makes it slow.

mod align;
mod anchors;
mod entry;
mod exact;
mod hunk;
mod literal;
mod parse;
mod quote;
mod split;
mod text;
mod within;

pub(crate) use align::{LineDiff, Span};
pub use entry::render_entry;
pub use exact::apply_exactly;
pub use hunk::{Hunk, Line, apply_hunks, hunks, line_stat, render_hunk};
pub use parse::{FilePatch, FilePatchKind, parse_files};
pub use split::split;
pub use text::{PatchError, hunk_texts, reverse_hunks};
pub use within::check_part_of;

/// How far into a content a NUL byte is looked for; git's figure.
const SNIFFED_BYTES: usize = 8000;
/// Content beyond this is never compared line by line.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Nor is content of more lines than this, however short: every line costs memory.
const MAX_TEXT_LINES: usize = 4 << 20;

/// Whether a content is not text: it has a NUL byte near its beginning, or is too large to be compared by lines.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.len() > MAX_TEXT_BYTES
        || bytes[..bytes.len().min(SNIFFED_BYTES)].contains(&0)
        || bytes.len() > MAX_TEXT_LINES && imara_diff::sources::byte_lines(bytes).count() > MAX_TEXT_LINES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_near_the_beginning_makes_it_binary() {
        assert!(!is_binary(b""));
        assert!(!is_binary("text, even \u{1b} or \u{e9}\n".as_bytes()));
        assert!(is_binary(b"a\0b"));
        let mut late = vec![b'x'; 9000];
        late[8000] = 0;
        assert!(!is_binary(&late));
        late[7999] = 0;
        assert!(is_binary(&late));
    }

    #[test]
    fn what_is_too_large_for_lines_is_binary() {
        assert!(!is_binary(&vec![b'x'; MAX_TEXT_BYTES]));
        assert!(is_binary(&vec![b'x'; MAX_TEXT_BYTES + 1]));
        assert!(!is_binary(&vec![b'\n'; MAX_TEXT_LINES]));
        assert!(is_binary(&vec![b'\n'; MAX_TEXT_LINES + 1]));
    }
}
