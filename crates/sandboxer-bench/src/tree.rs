//! The tree that everything is measured on: many small text files in many directories, the same bytes on every machine
//! and in every run. Each file's size and content come from a generator seeded with its number, so no order of writing
//! and no option changes them; directories hang below one another ten at a time, as source trees do.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::{During, Result};
use crate::interrupt::Interrupt;

const FANOUT: usize = 10;
const TEXTS: Sizes = Sizes { smallest: 4 * 1024, largest: 12 * 1024 };
const SOURCES: Sizes = Sizes { smallest: 100, largest: 4 * 1024 };
const TINY: Sizes = Sizes { smallest: 40, largest: 40 };
/// How many contents a tree of tiny files has: a repository of half a million of them need not keep half a million.
const TINY_CONTENTS: usize = 1_000;
const PAGE: u64 = 4 * 1024;
const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _";
const LINE: usize = 72;
/// A prime, so that stepping by it meets every file and every directory once before it meets one again.
const STRIDE: usize = 7_919;

/// How large a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSpec {
    /// Number of files.
    pub files: usize,
    /// Number of directories, the root not counted.
    pub directories: usize,
    sizes: Sizes,
}

/// How large a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    smallest: u64,
    largest: u64,
}

impl TreeSpec {
    /// What the kept table is measured on: about 400 MB.
    pub const FULL: Self = Self::texts(50_000, 5_000);
    /// A tenth of it, for trying things out.
    pub const QUICK: Self = Self::texts(5_000, 500);

    /// Text files of 4 to 12 KB, no two alike.
    pub const fn texts(files: usize, directories: usize) -> Self {
        Self { files, directories, sizes: TEXTS }
    }

    /// Text files of 100 bytes to 4 KB, no two alike: what a repository is full of.
    pub const fn sources(files: usize, directories: usize) -> Self {
        Self { files, directories, sizes: SOURCES }
    }

    /// Files of 40 bytes, ten to a directory: for what is about the number of files alone. Their contents recur.
    pub const fn tiny(files: usize) -> Self {
        Self { files, directories: files / 10, sizes: TINY }
    }

    /// Writes the tree below `root`, which must not exist.
    pub fn write(&self, root: &Path, interrupt: &Interrupt) -> Result<()> {
        fs::create_dir(root).during("create directory", root)?;
        for number in 1..=self.directories {
            let directory = root.join(directory_path(number));
            fs::create_dir(&directory).during("create directory", &directory)?;
        }
        let mut content = Vec::with_capacity(self.sizes.largest as usize);
        for number in 0..self.files {
            interrupt.check()?;
            let path = root.join(self.file_path(number));
            self.fill(&mut content, number);
            fs::write(&path, &content).during("write", &path)?;
        }
        Ok(())
    }

    /// Replaces `content` by that of file `number`.
    pub fn fill(&self, content: &mut Vec<u8>, number: usize) {
        fill(content, self.content_of(number), self.sizes);
    }

    /// Where file `number` is, below the root.
    pub fn file_path(&self, number: usize) -> PathBuf {
        directory_path(number % self.directories + 1).join(format!("file{number:05}.txt"))
    }

    /// `count` files spread over the tree, each in a directory of its own where there are enough.
    pub fn spread(&self, count: usize) -> Vec<PathBuf> {
        (0..count.min(self.files)).map(|i| self.file_path(i * STRIDE % self.files)).collect()
    }

    /// The first `count` files: in a tree of another number of tiny files they are at the same paths, where both have
    /// a directory for each.
    pub fn first(&self, count: usize) -> Vec<PathBuf> {
        (0..count.min(self.files)).map(|number| self.file_path(number)).collect()
    }

    /// What the files take on a filesystem with blocks of one page.
    pub fn bytes_on_disk(&self) -> u64 {
        let middle = self.sizes.smallest.midpoint(self.sizes.largest);
        let blocks = if middle < PAGE { PAGE } else { middle + PAGE / 2 };
        self.files as u64 * blocks + self.directories as u64 * PAGE
    }

    /// How many inodes it takes.
    pub fn inodes(&self) -> u64 {
        (self.files + self.directories) as u64
    }

    fn content_of(&self, number: usize) -> usize {
        if self.sizes == TINY { number % TINY_CONTENTS } else { number }
    }
}

/// Adds one line to each of `paths` below `root`; another `round` adds another line.
pub fn edit(root: &Path, paths: &[PathBuf], round: usize) -> Result<()> {
    for relative in paths {
        let path = root.join(relative);
        let mut file = fs::OpenOptions::new().append(true).open(&path).during("open", &path)?;
        writeln!(file, "edited in round {round}").during("append to", &path)?;
    }
    Ok(())
}

/// Puts one line before the first of each of `paths` below `root`: a change that is nowhere near that of [`edit`].
pub fn edit_top(root: &Path, paths: &[PathBuf]) -> Result<()> {
    for relative in paths {
        let path = root.join(relative);
        let content = fs::read(&path).during("read", &path)?;
        fs::write(&path, [b"edited at the top\n", &content[..]].concat()).during("write", &path)?;
    }
    Ok(())
}

/// Directory `number` counted from 1; number 0 is the root.
fn directory_path(number: usize) -> PathBuf {
    let mut names = Vec::new();
    let mut at = number;
    while at > 0 {
        names.push(format!("dir{at:04}"));
        at = (at - 1) / FANOUT;
    }
    names.iter().rev().collect()
}

/// Replaces `content` by the content of that number: lines of text.
fn fill(content: &mut Vec<u8>, number: usize, sizes: Sizes) {
    let mut random = SplitMix(number as u64);
    let size = (sizes.smallest + random.next() % (sizes.largest - sizes.smallest + 1)) as usize;
    content.clear();
    while content.len() < size {
        let bits = random.next();
        content.extend((0..10).map(|i| ALPHABET[(bits >> (6 * i)) as usize & 63]));
    }
    content.truncate(size);
    content.iter_mut().skip(LINE).step_by(LINE + 1).for_each(|byte| *byte = b'\n');
    content[size - 1] = b'\n';
}

/// The splitmix64 generator: small, fast, and good enough to defeat compression and deduplication.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    const SMALL: TreeSpec = TreeSpec::texts(120, 30);

    fn content_of(number: usize) -> Vec<u8> {
        let mut content = Vec::new();
        fill(&mut content, number, TEXTS);
        content
    }

    #[test]
    fn two_trees_are_equal_byte_for_byte() {
        let scratch = tempfile::tempdir().unwrap();
        let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
        SMALL.write(&one, &Interrupt::default()).unwrap();
        SMALL.write(&two, &Interrupt::default()).unwrap();
        for number in 0..SMALL.files {
            let path = SMALL.file_path(number);
            assert_eq!(fs::read(one.join(&path)).unwrap(), fs::read(two.join(&path)).unwrap());
        }
    }

    #[test]
    fn content_is_pinned() {
        // If this changes, every kept number was measured on another tree.
        let content = content_of(0);
        assert_eq!(content.len(), 8_177);
        assert_eq!(&content[..16], b"0xwUHQMN45pvucaI");
    }

    #[test]
    fn files_are_text_of_about_eight_kilobytes() {
        let sizes: Vec<usize> = (0..2_000).map(|n| content_of(n).len()).collect();
        assert!(sizes.iter().all(|&s| (4_096..=12_288).contains(&s)));
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((8_000..8_400).contains(&mean), "{mean}");
        let content = content_of(7);
        assert!(content.split(|&b| b == b'\n').all(|line| line.len() <= LINE));
        assert!(content.is_ascii() && content.ends_with(b"\n"));
    }

    #[test]
    fn every_directory_has_a_parent_and_its_share_of_files() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("tree");
        SMALL.write(&root, &Interrupt::default()).unwrap();
        let directories: BTreeSet<PathBuf> = (1..=SMALL.directories).map(directory_path).collect();
        assert_eq!(directories.len(), SMALL.directories);
        let files_in = |d: &PathBuf| {
            let entries = fs::read_dir(root.join(d)).unwrap();
            entries.filter(|e| e.as_ref().unwrap().file_type().unwrap().is_file()).count()
        };
        assert!(directories.iter().all(|d| files_in(d) == SMALL.files / SMALL.directories));
    }

    #[test]
    fn spread_files_are_distinct_and_in_distinct_directories() {
        for spec in [TreeSpec::FULL, TreeSpec::QUICK] {
            let paths = spec.spread(100);
            let parents: BTreeSet<_> = paths.iter().map(|p| p.parent().unwrap()).collect();
            assert_eq!((paths.len(), parents.len()), (100, 100));
        }
    }

    #[test]
    fn trees_of_tiny_files_share_their_first_paths_and_their_contents() {
        let (small, large) = (TreeSpec::tiny(1_000), TreeSpec::tiny(500_000));
        assert_eq!(small.first(100), large.first(100));
        let parents: BTreeSet<_> = small.first(100).iter().map(|p| p.parent().unwrap().to_owned()).collect();
        assert_eq!(parents.len(), 100);
        assert_eq!((small.bytes_on_disk(), small.inodes()), (1_100 * PAGE, 1_100));
        assert_eq!(large.content_of(1_007), small.content_of(7));
        let mut content = Vec::new();
        fill(&mut content, 7, TINY);
        assert_eq!(content.len(), 40);
    }

    #[test]
    fn an_edit_adds_a_line_each_round() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("tree");
        SMALL.write(&root, &Interrupt::default()).unwrap();
        let paths = SMALL.spread(3);
        let size = |p: &PathBuf| fs::metadata(root.join(p)).unwrap().len();
        let before: Vec<u64> = paths.iter().map(size).collect();
        edit(&root, &paths, 1).unwrap();
        edit(&root, &paths, 2).unwrap();
        let line = "edited in round 1\n".len() as u64;
        assert!(paths.iter().zip(before).all(|(p, b)| size(p) == b + 2 * line));
    }
}
