//! A patch of several files, taken apart: which file, what becomes of it, and the text of its hunks.
//!
//! It reads what `sandbox diff --patch`, `git diff`, `git format-patch` and `diff -u` write, and what is left of that after
//! somebody has deleted lines in an editor. Whatever stands between the files is passed over, as git does. Names are
//! checked here: a [`RelPath`] cannot leave the tree it is used in.

use sandboxer_core::model::RelPath;

use super::quote::{read_name, read_word};
use super::text::{Header, PatchError, bad_header, ended};

/// What becomes of a file, as its part of a patch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePatchKind {
    /// It appears.
    Created,
    /// It goes.
    Deleted,
    /// Its lines change, and perhaps its mode.
    Modified,
    /// It moves, and perhaps changes.
    Renamed,
    /// Its content changes, and is not text.
    Binary,
    /// Nothing but its mode changes.
    ModeOnly,
}

/// One file's part of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// The file, where it is afterwards; where it was, if it is deleted.
    pub path: RelPath,
    /// Where it was, if it is renamed.
    pub from: Option<RelPath>,
    /// What becomes of it.
    pub kind: FilePatchKind,
    /// Whether its mode changes too.
    pub mode_changed: bool,
    /// Its hunks as they stand in the patch, headers included; empty where it has none.
    pub hunks: Vec<u8>,
}

/// Takes a patch apart. Text without any patch in it has no files; a patch that breaks off or names a path outside the
/// tree is an error that says where.
pub fn parse_files(patch: &[u8]) -> Result<Vec<FilePatch>, PatchError> {
    let text = ended(patch);
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let mut reader = Reader { lines: &lines, at: 0 };
    let mut files = Vec::new();
    while let Some(draft) = reader.next_file()? {
        files.push(draft.finish()?);
    }
    Ok(files)
}

/// A name with its prefix; `None` for `/dev/null`.
type FileName = Option<Vec<u8>>;

/// What is known of a file so far.
#[derive(Default)]
struct Draft {
    /// The line that it begins at, from 1.
    line: usize,
    git_line: Option<(Vec<u8>, Vec<u8>)>,
    /// The names on `---` and `+++`; `None` until they are read.
    old: Option<FileName>,
    new: Option<FileName>,
    rename: (Option<Vec<u8>>, Option<Vec<u8>>),
    created: bool,
    deleted: bool,
    mode_changed: bool,
    binary: bool,
    hunks: Vec<u8>,
}

/// Goes through the lines of a patch.
struct Reader<'p> {
    lines: &'p [&'p [u8]],
    at: usize,
}

const GIT_LINE: &[u8] = b"diff --git ";

impl<'p> Reader<'p> {
    fn line(&self, ahead: usize) -> Option<&'p [u8]> {
        self.lines.get(self.at + ahead).copied()
    }

    /// Passes over everything up to the next file, and reads that.
    fn next_file(&mut self) -> Result<Option<Draft>, PatchError> {
        while let Some(line) = self.line(0) {
            let mut draft = Draft { line: self.at + 1, ..Draft::default() };
            if let Some(names) = line.strip_prefix(GIT_LINE) {
                draft.git_line = git_names(trimmed(names));
                self.at += 1;
                self.read_git_headers(&mut draft)?;
                return Ok(Some(draft));
            }
            if self.is_file_header(0) {
                self.read_names_and_hunks(&mut draft)?;
                return Ok(Some(draft));
            }
            if Header::parse(line).is_some() {
                return Err(PatchError::new(
                    self.at + 1,
                    "a hunk without a file: `---` and `+++` lines are missing",
                ));
            }
            self.at += 1;
        }
        Ok(None)
    }

    /// Whether `---` and `+++` lines stand here, with a hunk after them: so much no prose has by accident.
    fn is_file_header(&self, ahead: usize) -> bool {
        let starts = |ahead: usize, mark: &[u8]| self.line(ahead).is_some_and(|line| line.starts_with(mark));
        starts(ahead, b"--- ") && starts(ahead + 1, b"+++ ") && starts(ahead + 2, b"@@ -")
    }

    fn read_git_headers(&mut self, draft: &mut Draft) -> Result<(), PatchError> {
        while let Some(line) = self.line(0) {
            if self.is_file_header(0) {
                return self.read_names_and_hunks(draft);
            }
            let line = trimmed(line);
            if !draft.take_header(line) {
                if is_binary_mark(line) {
                    draft.binary = true;
                    self.pass_binary();
                }
                return Ok(());
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Passes over a binary patch: its blocks end with empty lines, and nothing in them looks like a header.
    fn pass_binary(&mut self) {
        self.at += 1;
        while self.line(0).is_some_and(|line| !line.starts_with(b"diff ") && !self.is_file_header(0)) {
            self.at += 1;
        }
    }

    fn read_names_and_hunks(&mut self, draft: &mut Draft) -> Result<(), PatchError> {
        for (mark, mine) in [(&b"--- "[..], true), (b"+++ ", false)] {
            let line = self.line(0).unwrap_or_default();
            let name = file_name(trimmed(line.strip_prefix(mark).unwrap_or(line)))
                .ok_or_else(|| PatchError::new(self.at + 1, "the name in quotes does not end"))?;
            *(if mine { &mut draft.old } else { &mut draft.new }) = Some(name);
            self.at += 1;
        }
        while self.line(0).is_some_and(|line| line.starts_with(b"@@")) {
            self.read_hunk(draft)?;
        }
        Ok(())
    }

    fn read_hunk(&mut self, draft: &mut Draft) -> Result<(), PatchError> {
        let line = self.line(0).unwrap_or_default();
        let header = Header::parse(line).ok_or_else(|| bad_header(self.at + 1))?;
        let start = self.at;
        self.at += 1;
        let mut left = Left { old: header.old.1, new: header.new.1 };
        while self.belongs(&left) {
            left.count(self.line(0).unwrap_or_default()[0]);
            self.at += 1;
        }
        draft.hunks.extend_from_slice(&self.lines[start..self.at].concat());
        Ok(())
    }

    /// Whether the next line is one of the hunk's. Its counts may be wrong, so they are believed only where nothing else
    /// can tell: a removed line `-- x` from the header of the next file.
    fn belongs(&self, left: &Left) -> bool {
        let Some(line) = self.line(0) else { return false };
        match line[0] {
            b'\\' => true,
            b' ' | b'+' => true,
            b'\n' => !left.is_nothing(),
            b'-' if self.is_file_header(0) => *left == Left { old: 1, new: 1 },
            b'-' => !(left.is_nothing() && self.is_signature()),
            _ => false,
        }
    }

    /// The `-- ` and a version, with which `git format-patch` ends a mail.
    fn is_signature(&self) -> bool {
        let ends = self.line(2).is_none_or(|line| trimmed(line).is_empty());
        self.line(0) == Some(b"-- \n") && ends
    }
}

/// How many lines are left of a hunk, if its header is right.
#[derive(PartialEq)]
struct Left {
    old: usize,
    new: usize,
}

impl Left {
    fn count(&mut self, sign: u8) {
        self.old = self.old.saturating_sub(usize::from(matches!(sign, b' ' | b'-' | b'\n')));
        self.new = self.new.saturating_sub(usize::from(matches!(sign, b' ' | b'+' | b'\n')));
    }

    fn is_nothing(&self) -> bool {
        (self.old, self.new) == (0, 0)
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn is_binary_mark(line: &[u8]) -> bool {
    line == b"GIT binary patch" || line.starts_with(b"Binary files ") && line.ends_with(b" differ")
}

impl Draft {
    /// Takes one of git's extended header lines; `false` if it is none.
    fn take_header(&mut self, line: &[u8]) -> bool {
        let after = |words: &str| line.strip_prefix(words.as_bytes());
        if after("new file mode ").is_some() {
            self.created = true;
        } else if after("deleted file mode ").is_some() {
            self.deleted = true;
        } else if after("old mode ").is_some() || after("new mode ").is_some() {
            self.mode_changed = true;
        } else if let Some(name) = after("rename from ") {
            self.rename.0 = read_name(name);
        } else if let Some(name) = after("rename to ") {
            self.rename.1 = read_name(name);
        } else {
            let others = ["index ", "similarity index ", "dissimilarity index ", "copy from ", "copy to "];
            return others.iter().any(|words| after(words).is_some());
        }
        true
    }

    fn finish(self) -> Result<FilePatch, PatchError> {
        let (path, from) = self.places()?;
        let kind = self.kind(from.is_some());
        Ok(FilePatch { path, from, kind, mode_changed: self.mode_changed, hunks: self.hunks })
    }

    fn kind(&self, renamed: bool) -> FilePatchKind {
        let gone = |name: &Option<FileName>| matches!(name, Some(None));
        match () {
            () if self.binary => FilePatchKind::Binary,
            () if renamed => FilePatchKind::Renamed,
            () if self.created || gone(&self.old) => FilePatchKind::Created,
            () if self.deleted || gone(&self.new) => FilePatchKind::Deleted,
            () if self.hunks.is_empty() => FilePatchKind::ModeOnly,
            () => FilePatchKind::Modified,
        }
    }

    /// The file, and where it was if it is renamed.
    fn places(&self) -> Result<(RelPath, Option<RelPath>), PatchError> {
        if let (Some(from), Some(to)) = &self.rename {
            return Ok((self.checked(to)?, Some(self.checked(from)?)));
        }
        let (old, new) =
            self.names().ok_or_else(|| PatchError::new(self.line, "the patch does not name its file"))?;
        let name = match (old, new) {
            (Some(old), Some(new)) => in_tree(&old, &new),
            (Some(only), None) | (None, Some(only)) => without_prefix(&only).unwrap_or(&only).to_vec(),
            (None, None) => return Err(PatchError::new(self.line, "both sides are /dev/null")),
        };
        Ok((self.checked(&name)?, None))
    }

    /// The names of both sides with their prefixes, from the lines that are surest.
    fn names(&self) -> Option<(FileName, FileName)> {
        if let (Some(old), Some(new)) = (&self.old, &self.new) {
            return Some((old.clone(), new.clone()));
        }
        let (old, new) = self.git_line.clone()?;
        Some((Some(old), Some(new)))
    }

    fn checked(&self, name: &[u8]) -> Result<RelPath, PatchError> {
        RelPath::from_bytes(name).map_err(|error| PatchError::new(self.line, error.to_string()))
    }
}

/// A name without `a/` or `b/`, or what git's `diff.mnemonicPrefix` puts there.
fn without_prefix(name: &[u8]) -> Option<&[u8]> {
    let (letter, rest) = name.split_first()?;
    let rest = rest.strip_prefix(b"/")?;
    (!rest.is_empty() && b"abciow12".contains(letter)).then_some(rest)
}

/// The name inside the tree, from that of either side: without `a/` and `b/`, or without the two directories that
/// `diff -r old new` was given. Otherwise it is the new one as it stands.
fn in_tree(old: &[u8], new: &[u8]) -> Vec<u8> {
    let below = |name: &[u8]| name.iter().position(|byte| *byte == b'/').map(|cut| name[cut + 1..].to_vec());
    if old != new && below(old).is_some() && below(old) == below(new) {
        return below(new).unwrap_or_default();
    }
    match (without_prefix(old), without_prefix(new)) {
        (Some(_), Some(name)) if old != new => name.to_vec(),
        _ => new.to_vec(),
    }
}

/// The name on a `---` or `+++` line: `Some(None)` is `/dev/null`, `None` cannot be read.
fn file_name(text: &[u8]) -> Option<FileName> {
    if text.starts_with(b"\"") {
        return read_word(text).map(|(name, _)| Some(name));
    }
    // A timestamp, or nothing, stands behind a tab.
    let name = text.split(|byte| *byte == b'\t').next().unwrap_or(text);
    Some((name != b"/dev/null").then(|| name.to_vec()))
}

/// Both names on a `diff --git` line. Bare ones may hold spaces; then they are told apart by being equal.
fn git_names(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if text.starts_with(b"\"") {
        let (old, rest) = read_word(text)?;
        return Some((old, read_name(rest.strip_prefix(b" ")?)?));
    }
    if text.ends_with(b"\"") {
        let cut = text.windows(2).position(|pair| pair == b" \"")?;
        return Some((text[..cut].to_vec(), read_name(&text[cut + 1..])?));
    }
    let same = |cut: &usize| {
        let (old, new) = (&text[..*cut], &text[cut + 1..]);
        old == new || without_prefix(old).is_some_and(|old| without_prefix(new) == Some(old))
    };
    // Equal names with prefixes of equal length: the space is in the middle.
    let middle = text.len() / 2;
    let cut = (text.get(middle) == Some(&b' ')).then_some(middle).filter(same);
    let cut = cut.or_else(|| the_only_space(text))?;
    Some((text[..cut].to_vec(), text[cut + 1..].to_vec()))
}

fn the_only_space(text: &[u8]) -> Option<usize> {
    let mut spaces = (0..text.len()).filter(|at| text[*at] == b' ');
    spaces.next().filter(|_| spaces.next().is_none())
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
