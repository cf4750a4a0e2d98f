//! Reading what is in a repository: trees, blobs, what two commits have apart.
//!
//! All of it goes through a ledger, so that no configuration of the repository has a say. Trees are walked by the names of objects, one
//! directory at a time, through one git that stays: a path is never part of what is asked, so that no path can be misread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout};
use std::sync::Arc;

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use crate::ledger::Ledger;
use crate::oid::{ObjectFormat, Oid};

/// The mode of a directory in a tree.
pub const DIRECTORY: u32 = 0o040000;

/// The mode of a symbolic link in a tree.
pub const LINK: u32 = 0o120000;

/// What a tree has under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// `100644`, `100755`, `120000` (a link), `160000` (another repository's commit) or `040000`, in octal.
    pub mode: u32,
    /// Its blob, tree or commit.
    pub oid: Oid,
}

/// The entries of one directory, by name.
pub type Names = BTreeMap<Vec<u8>, TreeEntry>;

/// What a commit has at exactly these paths; what it does not have is left out. A directory is there as its tree.
pub fn tree_entries(
    ledger: &Ledger,
    commit: &Oid,
    paths: &[RelPath],
) -> Result<BTreeMap<RelPath, TreeEntry>> {
    let mut trees = Trees::of(ledger, commit)?;
    let mut found = BTreeMap::new();
    for path in paths {
        let names = trees.names(path.parent().as_ref())?;
        if let Some(entry) = names.as_ref().and_then(|names| names.get(path.name())) {
            found.insert(path.clone(), entry.clone());
        }
    }
    Ok(found)
}

/// The content of these blobs, in this order.
pub fn read_blobs(ledger: &Ledger, oids: &[Oid]) -> Result<Vec<Vec<u8>>> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let asked: String = oids.iter().map(|oid| format!("{oid}\n")).collect();
    let told = ledger.git().args(["cat-file", "--batch"]).feed(asked.as_bytes())?;
    let mut told = told.as_slice();
    let damaged = |why: String| Error::corrupt(ledger.objects(), why);
    oids.iter()
        .map(|oid| {
            match answer(&mut told).map_err(|e| Error::io("read objects of", ledger.objects(), e))? {
                Some(object) if object.kind == "blob" => Ok(object.content),
                Some(object) => Err(damaged(format!("{oid} is a {}, not a blob", object.kind))),
                None => Err(damaged(format!("there is no object {oid}"))),
            }
        })
        .collect()
}

/// The paths that are not the same in two commits.
pub fn changed_paths(ledger: &Ledger, from: &Oid, to: &Oid) -> Result<Vec<RelPath>> {
    let git = ledger.git().args(["diff-tree", "-r", "-z", "--name-only", "--no-renames"]);
    let told = git.args([from.as_str(), to.as_str(), "--"]).output()?;
    let paths = told.split(|b| *b == 0).filter(|path| !path.is_empty());
    paths.map(|path| Ok(RelPath::from_bytes(path)?)).collect()
}

/// The files that `commit` has below the directory `dir`, at any depth.
pub fn files_below(ledger: &Ledger, commit: &Oid, dir: &RelPath) -> Result<Vec<RelPath>> {
    let git = ledger.git().args(["ls-tree", "-r", "-z", "--name-only", "--full-tree", commit.as_str(), "--"]);
    let told = git.arg(dir.as_path()).output()?;
    let paths = told.split(|b| *b == 0).filter(|path| !path.is_empty());
    paths.map(|path| RelPath::from_bytes(path).map_err(Error::from)).collect()
}

/// The paths that any of these commits makes otherwise than one of its parents has them.
pub fn touched_paths<'a>(
    ledger: &Ledger,
    commits: impl IntoIterator<Item = &'a Oid>,
) -> Result<BTreeSet<RelPath>> {
    let input: String = commits.into_iter().map(|commit| format!("{commit}\n")).collect();
    let words = ["diff-tree", "--stdin", "-m", "--root", "-r", "-z", "--name-only", "--no-renames"];
    let told = ledger.git().args(words).arg("--no-commit-id").feed(input.as_bytes())?;
    let paths = told.split(|b| *b == 0).filter(|path| !path.is_empty());
    paths.map(|path| Ok(RelPath::from_bytes(path)?)).collect()
}

/// Whether `new` has `old` in its history, or is it.
pub fn is_ancestor(ledger: &Ledger, old: &Oid, new: &Oid) -> Result<bool> {
    let git = ledger.git().args(["merge-base", "--is-ancestor", old.as_str(), new.as_str()]);
    Ok(git.output_unless_no()?.is_some())
}

/// An object as `cat-file --batch` gives it.
pub(crate) struct Object {
    oid: String,
    pub(crate) kind: String,
    pub(crate) content: Vec<u8>,
}

/// Reads one answer of `cat-file --batch`; `None` where there is no such object.
pub(crate) fn answer(from: &mut impl BufRead) -> std::io::Result<Option<Object>> {
    let mut head = String::new();
    from.read_line(&mut head)?;
    let words: Vec<&str> = head.split_ascii_whitespace().collect();
    let &[oid, kind, size] = words.as_slice() else {
        return match words.last() {
            Some(&"missing") => Ok(None),
            _ => Err(std::io::Error::other(format!("`git cat-file` said {head:?}"))),
        };
    };
    let size: u64 = size.parse().map_err(std::io::Error::other)?;
    let mut content = Vec::new();
    // The end of the line after it belongs to the answer.
    if from.take(size + 1).read_to_end(&mut content)? as u64 != size + 1 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    content.pop();
    Ok(Some(Object { oid: oid.to_owned(), kind: kind.to_owned(), content }))
}

/// The directories of one commit, read as they are asked for and kept. Holds a git that waits, and ends it when dropped.
pub struct Trees {
    child: Child,
    from: BufReader<ChildStdout>,
    format: ObjectFormat,
    /// What is read, for messages.
    store: PathBuf,
    root: Oid,
    known: HashMap<Oid, Arc<Names>>,
}

impl Trees {
    /// The directories of `commit`.
    pub fn of(ledger: &Ledger, commit: &Oid) -> Result<Self> {
        let mut child = ledger.git().args(["cat-file", "--batch"]).talk()?;
        let store = ledger.objects().to_path_buf();
        let Some(from) = child.stdout.take().map(BufReader::new) else {
            return Err(Error::io("talk to git on", store, std::io::ErrorKind::BrokenPipe));
        };
        let root = commit.clone();
        let mut trees = Self { child, from, format: ledger.format(), store, root, known: HashMap::new() };
        trees.root = trees.load(&format!("{commit}^{{tree}}"))?;
        Ok(trees)
    }

    /// The entries of a directory (`None` is the top); `None` where the commit has no such directory.
    pub fn names(&mut self, dir: Option<&RelPath>) -> Result<Option<Arc<Names>>> {
        let mut names = self.tree(&self.root.clone())?;
        for name in dir.into_iter().flat_map(RelPath::components) {
            names = match names.get(name) {
                Some(entry) if entry.mode == DIRECTORY => self.tree(&entry.oid.clone())?,
                _ => return Ok(None),
            };
        }
        Ok(Some(names))
    }

    /// What the commit has at a path.
    pub fn entry(&mut self, path: &RelPath) -> Result<Option<TreeEntry>> {
        let names = self.names(path.parent().as_ref())?;
        Ok(names.and_then(|names| names.get(path.name()).cloned()))
    }

    /// The content of a blob, by the same git.
    pub fn blob(&mut self, oid: &Oid) -> Result<Vec<u8>> {
        let told = self.ask(oid.as_str()).map_err(|e| Error::io("read objects of", &self.store, e))?;
        match told {
            Some(object) if object.kind == "blob" => Ok(object.content),
            Some(object) => Err(self.damaged(format!("{oid} is a {}, not a blob", object.kind))),
            None => Err(self.damaged(format!("there is no object {oid}"))),
        }
    }

    fn tree(&mut self, oid: &Oid) -> Result<Arc<Names>> {
        if let Some(names) = self.known.get(oid) {
            return Ok(names.clone());
        }
        let read = self.load(oid.as_str())?;
        self.known.get(&read).cloned().ok_or_else(|| self.damaged(format!("{oid} was read as {read}")))
    }

    /// Reads a tree and keeps it under its name.
    fn load(&mut self, asked: &str) -> Result<Oid> {
        let told = self.ask(asked).map_err(|e| Error::io("read objects of", &self.store, e))?;
        let object = told.ok_or_else(|| self.damaged(format!("there is no object {asked}")))?;
        if object.kind != "tree" {
            return Err(self.damaged(format!("{asked} is a {}, not a tree", object.kind)));
        }
        let names = parse_tree(&object.content, self.format);
        let names = names.ok_or_else(|| self.damaged(format!("{asked} is no tree that can be read")))?;
        let oid: Oid = object.oid.parse()?;
        self.known.insert(oid.clone(), Arc::new(names));
        Ok(oid)
    }

    fn ask(&mut self, asked: &str) -> std::io::Result<Option<Object>> {
        if let Some(to) = &mut self.child.stdin {
            to.write_all(format!("{asked}\n").as_bytes())?;
        }
        answer(&mut self.from)
    }

    fn damaged(&self, why: String) -> Error {
        Error::corrupt(&self.store, why)
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        // It only reads: there is nothing that it could leave half done.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tree is a row of `MODE SP NAME NUL OID`, with the name of the object in bytes.
fn parse_tree(mut bytes: &[u8], format: ObjectFormat) -> Option<Names> {
    let length = match format {
        ObjectFormat::Sha1 => 20,
        ObjectFormat::Sha256 => 32,
    };
    let mut names = Names::new();
    while !bytes.is_empty() {
        let (mode, rest) = cut(bytes, b' ')?;
        let (name, rest) = cut(rest, 0)?;
        let (oid, rest) = rest.split_at_checked(length)?;
        let mode = u32::from_str_radix(std::str::from_utf8(mode).ok()?, 8).ok()?;
        let oid: String = oid.iter().map(|byte| format!("{byte:02x}")).collect();
        names.insert(name.to_vec(), TreeEntry { mode, oid: oid.parse().ok()? });
        bytes = rest;
    }
    Some(names)
}

/// What is before and after the first `byte`.
fn cut(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == byte)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::{Checkout, ODD_NAMES, rel, word};

    fn with_odd_names(format: ObjectFormat) -> Checkout {
        let checkout = Checkout::new(format);
        for name in ODD_NAMES {
            checkout.write(word(name), name);
        }
        checkout.write("deep/er/file", "deep");
        checkout.commit_all("odd names");
        checkout
    }

    #[test]
    fn entries_are_found_whatever_their_names() {
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let checkout = with_odd_names(format);
            let ledger = checkout.ledger();
            let mut asked: Vec<RelPath> = ODD_NAMES.iter().map(rel).collect();
            asked.extend([rel("nothing"), rel("a/below"), rel("deep"), rel("deep/er/file")]);
            let found = tree_entries(&ledger, &checkout.oid("HEAD"), &asked).unwrap();
            assert_eq!(found.len(), ODD_NAMES.len() + 2);
            for name in ODD_NAMES {
                assert_eq!(found[&rel(name)], TreeEntry { mode: 0o100644, oid: format.blob(name) });
            }
            assert_eq!(found[&rel("deep")], TreeEntry { mode: DIRECTORY, oid: checkout.oid("HEAD:deep") });
            assert_eq!(found[&rel("deep/er/file")].oid, format.blob(b"deep"));
        }
    }

    #[test]
    fn a_directory_is_listed_or_is_none() {
        let checkout = with_odd_names(ObjectFormat::Sha1);
        let ledger = checkout.ledger();
        let mut trees = Trees::of(&ledger, &checkout.oid("HEAD")).unwrap();
        let top = trees.names(None).unwrap().unwrap();
        assert!(top.contains_key(&b"new\nline"[..]) && top.contains_key(&b"deep"[..]));
        let deep = trees.names(Some(&rel("deep/er"))).unwrap().unwrap();
        assert_eq!(deep.keys().collect::<Vec<_>>(), [b"file"]);
        assert!(Arc::ptr_eq(&deep, &trees.names(Some(&rel("deep/er"))).unwrap().unwrap()));
        for none in ["a", "nothing", "deep/er/file/x"] {
            assert!(trees.names(Some(&rel(none))).unwrap().is_none(), "{none}");
        }
        assert_eq!(trees.entry(&rel("a")).unwrap().unwrap().oid, checkout.oid("HEAD:a"));
        assert_eq!(trees.blob(&checkout.oid("HEAD:deep/er/file")).unwrap(), b"deep");
        assert!(trees.blob(&checkout.oid("HEAD")).is_err());
        assert!(Trees::of(&ledger, &ObjectFormat::Sha1.blob(b"no such commit")).is_err());
    }

    #[test]
    fn the_git_that_waits_ends_with_what_holds_it() {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let trees = Trees::of(&checkout.ledger(), &checkout.oid("HEAD")).unwrap();
        let process = PathBuf::from(format!("/proc/{}", trees.child.id()));
        assert!(process.exists());
        drop(trees);
        assert!(!process.exists());
    }

    #[test]
    fn blobs_come_back_byte_by_byte_and_in_order() {
        let checkout = with_odd_names(ObjectFormat::Sha256);
        let ledger = checkout.ledger();
        let oids: Vec<Oid> = ODD_NAMES.iter().map(|name| ObjectFormat::Sha256.blob(name)).collect();
        assert_eq!(read_blobs(&ledger, &oids).unwrap(), ODD_NAMES);
        assert!(read_blobs(&ledger, &[]).unwrap().is_empty());
        let error = read_blobs(&ledger, &[checkout.oid("HEAD")]).unwrap_err().to_string();
        assert!(error.contains("is a commit, not a blob"), "{error}");
        let error = read_blobs(&ledger, &[ObjectFormat::Sha256.blob(b"none")]).unwrap_err().to_string();
        assert!(error.contains("there is no object"), "{error}");
    }

    #[test]
    fn what_two_commits_have_apart_is_named() {
        let checkout = with_odd_names(ObjectFormat::Sha1);
        let ledger = checkout.ledger();
        let (old, new) = (checkout.oid("HEAD^"), checkout.oid("HEAD"));
        let mut changed = changed_paths(&ledger, &old, &new).unwrap();
        changed.sort();
        let mut expected: Vec<RelPath> = ODD_NAMES.iter().map(rel).collect();
        expected.push(rel("deep/er/file"));
        expected.sort();
        assert_eq!(changed, expected);
        assert!(is_ancestor(&ledger, &old, &new).unwrap() && is_ancestor(&ledger, &new, &new).unwrap());
        assert!(!is_ancestor(&ledger, &new, &old).unwrap());
        assert!(is_ancestor(&ledger, &ObjectFormat::Sha1.blob(b"none"), &new).is_err());
    }

    #[test]
    fn a_cut_off_tree_is_not_read() {
        assert_eq!(parse_tree(b"", ObjectFormat::Sha1).unwrap(), Names::new());
        for bad in [&b"100644"[..], b"100644 a", b"100644 a\0short", b"x a\0aaaaaaaaaaaaaaaaaaaa"] {
            assert!(parse_tree(bad, ObjectFormat::Sha1).is_none());
        }
    }
}
