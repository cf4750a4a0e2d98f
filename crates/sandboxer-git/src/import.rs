//! Making one commit by one `git fast-import`.
//!
//! What the commit changes is written to git's standard input byte by byte, from memory or from files that the caller has opened: git opens no
//! file of the tree, asks no attributes and runs no filter. The objects land in the ledger's incoming store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use crate::ledger::{Ledger, c_quoted};
use crate::objects::{DIRECTORY, LINK};
use crate::oid::Oid;

/// The branch that git wants a commit to be on; it is gone when the commit is made.
const BRANCH: &str = "refs/sandboxer/made";

/// Blobs above this are passed through by git instead of being held whole.
const STREAMED: &str = "core.bigFileThreshold=4m";

/// Above this many bytes in all, what is made stays one pack: to make loose objects of it git would read it whole.
const LOOSE_AT_MOST: u64 = 4 << 20;

/// What happens at one path.
pub enum FileChange {
    /// It goes; that it is not there is fine. A directory goes with all that is in it.
    Remove(RelPath),
    /// It is there afterwards, in place of whatever was.
    Put {
        /// Where.
        path: RelPath,
        /// As git knows modes: `100644`, `100755`, `120000`, `160000` or `040000`, in octal.
        mode: u32,
        /// What.
        content: Content,
    },
}

/// What a path holds.
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes of this file from where it stands; they are never all in memory.
    File(File, u64),
    /// An object that is there already.
    Blob(Oid),
}

/// A commit to be made.
pub struct NewCommit<'a> {
    /// What it comes after. Its files start as the first one's; without any it starts empty.
    pub parents: &'a [Oid],
    /// What is different in it. Removals count before all else, whatever their place.
    pub changes: Vec<FileChange>,
    /// A commit to take the files from instead of the first parent.
    pub tree_of: Option<Oid>,
    /// `Name <mail>`.
    pub author: &'a str,
    /// `Name <mail>`.
    pub committer: &'a str,
    /// When, since 1970.
    pub seconds: i64,
    /// Where on earth: `+0000`.
    pub offset: &'a str,
    /// Why.
    pub message: &'a str,
}

/// A commit that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its name.
    pub commit: Oid,
    /// The name of its top directory.
    pub tree: Oid,
    /// The mode and the object of everything that was put.
    pub blobs: BTreeMap<RelPath, (u32, Oid)>,
}

/// Makes a commit. Nothing but the ledger's incoming store knows of it.
pub fn commit(ledger: &Ledger, new: NewCommit<'_>) -> Result<Made> {
    let header = header(ledger, &new)?;
    let plan = Plan::of(new.changes)?;
    let limit =
        if plan.bytes > LOOSE_AT_MOST { "fastimport.unpackLimit=0" } else { "fastimport.unpackLimit=100" };
    let git = ledger.git_into_incoming().set(STREAMED).set(limit);
    let git = git.args(["fast-import", "--quiet", "--force", "--done", "--date-format=raw"]);
    let Plan { blobs, commands, mut known, marks, .. } = plan;
    let zero = ledger.format().zero();
    let told = git.feed_with(move |pipe| {
        let mut to = std::io::BufWriter::new(pipe);
        for (mark, content) in (1..).zip(blobs) {
            write_blob(&mut to, mark, content)?;
        }
        to.write_all(&header)?;
        to.write_all(&commands)?;
        finish(&mut to, marks, &zero)?;
        to.flush()
    });
    let told = told.inspect_err(|_| remove_reports(ledger))?;
    read_names(&told, &mut known)
        .ok_or_else(|| Error::corrupt(ledger.dir(), "`git fast-import` said something unknown"))
}

/// The changes, in the words of `fast-import`.
struct Plan {
    /// What has to be written, in the order of its marks from 1.
    blobs: Vec<Content>,
    /// How many bytes that is.
    bytes: u64,
    /// The removals and then the rest.
    commands: Vec<u8>,
    /// How many blobs were written, again.
    marks: usize,
    /// What was put: the mode, and the object or the mark that it has.
    known: BTreeMap<RelPath, (u32, Result<Oid, usize>)>,
}

impl Plan {
    fn of(changes: Vec<FileChange>) -> Result<Self> {
        let mut plan =
            Self { blobs: Vec::new(), bytes: 0, commands: Vec::new(), marks: 0, known: BTreeMap::new() };
        let mut puts = Vec::new();
        for change in changes {
            match change {
                FileChange::Remove(path) => plan.command("D", &path),
                FileChange::Put { path, mode, content } => puts.push((path, mode, content)),
            }
        }
        for (path, mode, content) in puts {
            plan.put(path, mode, content)?;
        }
        plan.marks = plan.blobs.len();
        Ok(plan)
    }

    fn put(&mut self, path: RelPath, mode: u32, content: Content) -> Result<()> {
        refuse_unsafe(&path, mode)?;
        self.bytes += match &content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(_, size) => *size,
            Content::Blob(_) => 0,
        };
        let object = match content {
            Content::Blob(oid) => Ok(oid),
            other => {
                self.blobs.push(other);
                Err(self.blobs.len())
            }
        };
        let shown = object.as_ref().map_or_else(|mark| format!(":{mark}"), Oid::to_string);
        self.command(&format!("M {mode:06o} {shown}"), &path);
        self.known.insert(path, (mode, object));
        Ok(())
    }

    fn command(&mut self, words: &str, path: &RelPath) {
        self.commands.extend(words.bytes().chain([b' ']));
        self.commands.extend(c_quoted(path.as_path()));
        self.commands.push(b'\n');
    }
}

/// Refuses what no checkout of git's takes: a tree with a `.git` in it would make a repository of whatever checks it out, and a link
/// called `.gitmodules` leads it elsewhere. `fast-import` would take both.
pub(crate) fn refuse_unsafe(path: &RelPath, mode: u32) -> Result<()> {
    let reason = if path.components().any(is_git_dir) {
        "has a component that git keeps to itself"
    } else if mode == LINK && path.name().eq_ignore_ascii_case(b".gitmodules") {
        "must not be a link"
    } else {
        return Ok(());
    };
    Err(Error::refused(format!("{path} {reason}")))
}

/// Whether a name is `.git` on some filesystem: letters of either case, the short name, and what Windows cuts off.
fn is_git_dir(name: &[u8]) -> bool {
    name.split(|b| *b == b'\\').any(|part| {
        let part = part.split(|b| *b == b':').next().unwrap_or_default();
        let kept = part.iter().rposition(|b| !matches!(b, b' ' | b'.')).map_or(0, |last| last + 1);
        [&b".git"[..], b"git~1"].iter().any(|taken| part[..kept].eq_ignore_ascii_case(taken))
    })
}

/// All of the commit before its changes.
fn header(ledger: &Ledger, new: &NewCommit<'_>) -> Result<Vec<u8>> {
    let when = when(new.seconds, new.offset)?;
    let message = clean_message(new.message);
    let mut text = format!("commit {BRANCH}\nmark :{COMMIT}\n");
    text += &format!("author {} {when}\n", person(new.author));
    text += &format!("committer {} {when}\n", person(new.committer));
    text += &format!("data {}\n{message}\n", message.len());
    for (place, parent) in new.parents.iter().enumerate() {
        text += &format!("{} {parent}\n", if place == 0 { "from" } else { "merge" });
    }
    if let Some(commit) = &new.tree_of {
        let git = ledger.git().args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]);
        text += &format!("M {DIRECTORY:06o} {} \"\"\n", git.line()?);
    }
    Ok(text.into_bytes())
}

/// The mark of the commit, out of the way of the blobs'.
const COMMIT: &str = "1000000000";

/// Asks for the names of what was made, and takes the branch away again.
fn finish(to: &mut impl Write, marks: usize, zero: &Oid) -> std::io::Result<()> {
    writeln!(to, "get-mark :{COMMIT}\nls :{COMMIT} \"\"")?;
    for mark in 1..=marks {
        writeln!(to, "get-mark :{mark}")?;
    }
    write!(to, "reset {BRANCH}\nfrom {zero}\n\ndone\n")
}

fn write_blob(to: &mut impl Write, mark: usize, content: Content) -> std::io::Result<()> {
    write!(to, "blob\nmark :{mark}\n")?;
    match content {
        Content::Bytes(bytes) => {
            writeln!(to, "data {}", bytes.len())?;
            to.write_all(&bytes)?;
        }
        Content::File(file, size) => {
            writeln!(to, "data {size}")?;
            if std::io::copy(&mut file.take(size), to)? != size {
                return Err(std::io::Error::other("a file to be committed has become shorter"));
            }
        }
        Content::Blob(_) => return Err(std::io::ErrorKind::InvalidInput.into()),
    }
    writeln!(to)
}

/// Reads what [`finish`] asked for.
fn read_names(told: &[u8], known: &mut BTreeMap<RelPath, (u32, Result<Oid, usize>)>) -> Option<Made> {
    let told = std::str::from_utf8(told).ok()?;
    let mut lines = told.lines();
    let commit = lines.next()?.parse().ok()?;
    let tree = lines.next()?.split_ascii_whitespace().nth(2)?.parse().ok()?;
    let marks: Vec<Oid> = lines.map(str::parse).collect::<Result<_>>().ok()?;
    let mut blobs = BTreeMap::new();
    for (path, (mode, object)) in std::mem::take(known) {
        let oid = match object {
            Ok(oid) => oid,
            Err(mark) => marks.get(mark - 1)?.clone(),
        };
        blobs.insert(path, (mode, oid));
    }
    Some(Made { commit, tree, blobs })
}

/// `Name <mail>` with nothing in it that could end it early.
fn person(text: &str) -> String {
    let (name, mail) = text.split_once('<').unwrap_or((text, ""));
    let clean = |text: &str| {
        let kept: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
        kept.trim().to_owned()
    };
    let (name, mail) = (clean(name), clean(mail));
    if name.is_empty() { format!("<{mail}>") } else { format!("{name} <{mail}>") }
}

/// A moment as git keeps it; git knows none before 1970.
fn when(seconds: i64, offset: &str) -> Result<String> {
    let digits = offset.strip_prefix(['+', '-']).unwrap_or_default();
    let valid = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()) && digits <= "1400";
    if !valid {
        return Err(Error::usage(format!("{offset:?} is not an offset from UTC such as +0000")));
    }
    Ok(format!("{} {offset}", seconds.max(0)))
}

/// A message with one line's end at its end and no NUL, at which git would stop reading it.
fn clean_message(message: &str) -> String {
    let kept: String = message.chars().filter(|c| *c != '\0').collect();
    format!("{}\n", kept.trim_end())
}

/// A git that fails leaves a report in the ledger, which nobody reads.
fn remove_reports(ledger: &Ledger) {
    for entry in std::fs::read_dir(ledger.dir()).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(b"fast_import_crash_") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
