//! Content hashes.

use serde::{Deserialize, Serialize};

/// Files larger than this are hashed by their non-zero blocks, so that a huge sparse file costs what it holds.
const PLAIN_LIMIT: u64 = 1 << 30;

/// Size of the blocks of large files.
pub const BLOCK: usize = 64 * 1024;

/// A hash of some content. Which of the two schemes is used follows from the size alone, so equal content has equal
/// hashes however its holes are laid out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of bytes at hand.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Hexadecimal digits, for file names.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// As it is shown: `blake3:…`, which `b3sum` confirms, or `blake3-blocks:…` for files above 1 GiB.
    pub fn to_text(self, size: u64) -> String {
        let scheme = if size > PLAIN_LIMIT { "blake3-blocks" } else { "blake3" };
        format!("{scheme}:{}", self.to_hex())
    }
}

impl std::fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex()[..12])
    }
}

/// Hashes content that arrives in order, with holes skipped.
pub struct ContentHasher {
    hasher: blake3::Hasher,
    by_blocks: bool,
    offset: u64,
}

impl ContentHasher {
    /// A hasher for content of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self { hasher: blake3::Hasher::new(), by_blocks: size > PLAIN_LIMIT, offset: 0 }
    }

    /// Whether holes may be skipped instead of fed as zeros.
    pub fn skips_holes(&self) -> bool {
        self.by_blocks
    }

    /// More content. In the scheme for large files every piece but the last is a whole, aligned block.
    pub fn update(&mut self, bytes: &[u8]) {
        if self.by_blocks {
            bytes.chunks(BLOCK).for_each(|block| self.update_block(block));
        } else {
            self.hasher.update(bytes);
        }
    }

    fn update_block(&mut self, block: &[u8]) {
        if !is_zero(block) {
            self.hasher.update(&self.offset.to_le_bytes());
            self.hasher.update(block);
        }
        self.offset += block.len() as u64;
    }

    /// A hole of `len` bytes.
    pub fn skip(&mut self, len: u64) {
        if self.by_blocks {
            self.offset += len;
            return;
        }
        let zeros = [0; 4096];
        let mut left = len;
        while left > 0 {
            let piece = left.min(zeros.len() as u64);
            self.hasher.update(&zeros[..piece as usize]);
            left -= piece;
        }
    }

    /// The hash of everything so far.
    pub fn finish(mut self) -> ContentHash {
        if self.by_blocks {
            self.hasher.update(&self.offset.to_le_bytes());
        }
        ContentHash(*self.hasher.finalize().as_bytes())
    }
}

/// Whether a block holds nothing but zeros.
pub fn is_zero(block: &[u8]) -> bool {
    let words = block.chunks_exact(16);
    words.remainder().iter().all(|b| *b == 0) && words.into_iter().all(|w| w == [0; 16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_content_hashes_as_b3sum_does() {
        let mut hasher = ContentHasher::new(10);
        hasher.update(b"abcde");
        hasher.skip(5);
        assert_eq!(hasher.finish(), ContentHash::of(b"abcde\0\0\0\0\0"));
    }

    #[test]
    fn large_content_hashes_alike_however_its_holes_lie() {
        let data = vec![7; BLOCK];
        let mut with_holes = ContentHasher::new(PLAIN_LIMIT + 1);
        with_holes.update(&data);
        with_holes.skip(2 * BLOCK as u64);
        with_holes.update(&data);
        let mut written_out = ContentHasher::new(PLAIN_LIMIT + 1);
        written_out.update(&[data.clone(), vec![0; 2 * BLOCK], data.clone()].concat());
        assert_eq!(with_holes.finish(), written_out.finish());
        let mut elsewhere = ContentHasher::new(PLAIN_LIMIT + 1);
        elsewhere.skip(BLOCK as u64);
        elsewhere.update(&data);
        let mut first = ContentHasher::new(PLAIN_LIMIT + 1);
        first.update(&data);
        first.skip(BLOCK as u64);
        assert_ne!(elsewhere.finish(), first.finish());
    }

    #[test]
    fn text_names_the_scheme() {
        let hash = ContentHash::of(b"");
        assert!(hash.to_text(5).starts_with("blake3:"));
        assert!(hash.to_text(PLAIN_LIMIT + 1).starts_with("blake3-blocks:"));
        assert!(is_zero(&[0; 33]) && !is_zero(&[[0; 32].as_slice(), &[1]].concat()));
        assert_eq!(format!("{hash:?}").len(), 12);
    }
}
