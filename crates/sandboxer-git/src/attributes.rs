//! From the content of a file to the content of its blob, without running anything.
//!
//! Attributes say where the two are not the same: line ends, encodings, `$Id$`, filters. Git works out the first three, in a git directory of ours
//! that has no filter and over copies of the `.gitattributes` and files in question, so it opens nothing that an agent wrote. What is under a
//! filter is only reported.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::root::Root;

use crate::git::Git;
use crate::hostile::{self, Found};
use crate::objects::answer;
use crate::oid::{ObjectFormat, Oid};
use crate::scratch::{Scratch, write};
use crate::screen::names_git;

/// Attribute files larger than this are refused.
const ATTRIBUTES_LIMIT: u64 = 1 << 20;

/// The attributes that change content.
const ASKED: [&str; 6] = ["filter", "text", "crlf", "eol", "ident", "working-tree-encoding"];

/// What the attributes of a path mean for its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The filter that it is under, which is not run.
    pub filter: Option<String>,
    /// Whether its blob can differ from it, filters aside.
    pub converts: bool,
    /// Whether that is so without a carriage return in it, too.
    always: bool,
}

impl Rules {
    /// Whether a file of this content has to go through [`Attributes::stored`].
    pub fn change(&self, content: &[u8]) -> bool {
        self.converts && (self.always || content.contains(&b'\r'))
    }
}

/// Where `.gitattributes` are read.
pub trait AttributeFiles {
    /// The content of the file at `path`; nothing where there is none, or what is there is no file.
    fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>>;
}

/// The files of a tree, as they are now.
impl AttributeFiles for Root {
    fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        match hostile::read(self, path, ATTRIBUTES_LIMIT) {
            Found::Whole(content) => Ok(Some(content)),
            Found::Nothing => Ok(None),
            Found::Unreadable => {
                Err(Error::refused(format!("{path} cannot be read, or is larger than 1 MiB")))
            }
        }
    }
}

/// A file that becomes a blob.
#[derive(Clone, Copy, Debug)]
pub struct ToStore<'a> {
    /// Where it is.
    pub path: &'a RelPath,
    /// What it holds.
    pub content: &'a [u8],
    /// The blob that is there so far.
    pub before: Option<&'a Oid>,
}

impl ToStore<'_> {
    fn index_info(&self) -> Option<Vec<u8>> {
        let before = self.before?;
        Some([format!("100644 {before}\t").as_bytes(), self.path.as_bytes(), b"\0"].concat())
    }
}

/// What the attributes of files are found out from.
pub struct Attributes<'a> {
    /// Where `.gitattributes` are read.
    pub files: &'a dyn AttributeFiles,
    /// A directory of ours for what is needed meanwhile.
    pub work: &'a Path,
    /// The original's objects.
    pub objects: &'a Path,
    /// How they are named.
    pub format: ObjectFormat,
    /// What the original's `info/attributes` says; see [`of_repository`].
    pub repository: &'a [u8],
    /// What the user's `core.attributesFile` says.
    pub user: &'a [u8],
    /// The user's `core.autocrlf`.
    pub autocrlf: Option<&'a str>,
    /// The user's `core.eol`.
    pub eol: Option<&'a str>,
}

/// What `info/attributes` of a repository says; nothing where there is none.
pub fn of_repository(common_dir: &Path) -> Result<Vec<u8>> {
    let path = common_dir.join("info/attributes");
    match std::fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|e| Error::io("read", path, e)),
    }
}

impl Attributes<'_> {
    /// The rules of each path. Where nobody has written attributes, git is not asked.
    pub fn of(&self, paths: &[RelPath]) -> Result<BTreeMap<RelPath, Rules>> {
        let files = self.files_above(paths)?;
        if files.is_empty() && self.repository.is_empty() && self.user.is_empty() {
            let rules = self.rules(&BTreeMap::new());
            return Ok(paths.iter().map(|path| (path.clone(), rules.clone())).collect());
        }
        let desk = Desk::set(self, &files)?;
        let asked: Vec<u8> = paths.iter().flat_map(|path| [path.as_bytes(), b"\0"].concat()).collect();
        let told = desk.git().args(["check-attr", "-z", "--stdin"]).args(ASKED).feed(&asked)?;
        Ok(self.parse(&told))
    }

    /// What git would store of `content` at `path`; `before` is the blob that is at this path so far.
    pub fn stored(&self, path: &RelPath, content: &[u8], before: Option<&Oid>) -> Result<Vec<u8>> {
        let one = self.convert(&[ToStore { path, content, before }]).map_err(|e| not_converted(path, e))?;
        one.into_iter().next().ok_or_else(|| Error::refused(format!("git stores nothing of {path}")))
    }

    /// The same of several files of one commit, by as many calls of git as for one.
    pub fn stored_all(&self, files: &[ToStore<'_>]) -> Result<Vec<Vec<u8>>> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        // One by one it shows whose fault it is.
        let one_by_one = |_| files.iter().map(|f| self.stored(f.path, f.content, f.before)).collect();
        self.convert(files).or_else(one_by_one)
    }

    fn convert(&self, files: &[ToStore<'_>]) -> Result<Vec<Vec<u8>>> {
        if let Some(file) = files.iter().find(|file| names_git(file.path)) {
            return Err(Error::refused(format!("{} is a name that git does not track", file.path)));
        }
        let paths: Vec<RelPath> = files.iter().map(|file| file.path.clone()).collect();
        let desk = Desk::set(self, &self.files_above(&paths)?)?;
        files.iter().try_for_each(|file| desk.put(file.path, file.content))?;
        // Line ends that are in the repository already are left as they are.
        let before: Vec<u8> = files.iter().filter_map(ToStore::index_info).flatten().collect();
        if !before.is_empty() {
            desk.git().args(["update-index", "-z", "--index-info"]).feed(&before)?;
        }
        let names: Vec<u8> = paths.iter().flat_map(|path| [path.as_bytes(), b"\0"].concat()).collect();
        desk.git().args(["update-index", "--add", "-z", "--stdin"]).feed(&names)?;
        desk.blobs(&paths)
    }

    /// The `.gitattributes` of the directories above `paths`.
    fn files_above(&self, paths: &[RelPath]) -> Result<Vec<(RelPath, Vec<u8>)>> {
        let above = |path: &RelPath| std::iter::successors(path.parent(), RelPath::parent);
        let dirs: BTreeSet<RelPath> = paths.iter().flat_map(above).collect();
        let top = RelPath::from_bytes(".gitattributes")?;
        let places = std::iter::once(top).chain(dirs.iter().map(|dir| dir.join(b".gitattributes")));
        let mut files = Vec::new();
        for place in places {
            let content = self.files.read(&place)?;
            files.extend(content.map(|content| (place, content)));
        }
        Ok(files)
    }

    /// Triples of a path, an attribute and its value.
    fn parse(&self, told: &[u8]) -> BTreeMap<RelPath, Rules> {
        let fields: Vec<&[u8]> = told.split(|b| *b == 0).collect();
        let mut values: BTreeMap<RelPath, BTreeMap<&[u8], &[u8]>> = BTreeMap::new();
        for triple in fields.chunks_exact(3) {
            if let Some(path) = hostile::below(triple[0]) {
                values.entry(path).or_default().insert(triple[1], triple[2]);
            }
        }
        values.into_iter().map(|(path, values)| (path, self.rules(&values))).collect()
    }

    fn rules(&self, values: &BTreeMap<&[u8], &[u8]>) -> Rules {
        let value = |name: &str| match values.get(name.as_bytes()) {
            None | Some(&b"unspecified") => None,
            Some(value) => Some(*value),
        };
        let is_on = |name: &str| value(name).filter(|value| *value != b"unset");
        let always = is_on("ident").is_some() || is_on("working-tree-encoding").is_some();
        let by_setting = self.autocrlf.is_some_and(|text| !matches!(text, "false" | "no" | "off" | "0" | ""));
        let line_ends = match value("text").or(value("crlf")) {
            Some(value) => value != b"unset",
            None => value("eol").is_some() || by_setting,
        };
        let filter = is_on("filter").map(|name| String::from_utf8_lossy(name).into_owned());
        Rules { filter, converts: line_ends || always, always }
    }
}

/// What git could not do is the fault of the attributes; what was refused before it was asked is told as it is.
fn not_converted(path: &RelPath, error: Error) -> Error {
    if matches!(error, Error::Refused { .. }) {
        return error;
    }
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    Error::Refused {
        reason: format!("git cannot convert {path} as its attributes ask: {cause}"),
        hint: Some("look at `working-tree-encoding` and `eol` in .gitattributes".to_owned()),
    }
}

/// A git directory and a work tree of ours, with copies of the attribute files.
struct Desk {
    scratch: Scratch,
    files: PathBuf,
    settings: Vec<OsString>,
}

impl Desk {
    fn set(from: &Attributes<'_>, files: &[(RelPath, Vec<u8>)]) -> Result<Self> {
        let scratch = Scratch::make(&from.work.join("attributes-scratch"), from.format, &[from.objects])?;
        write(&scratch.dir().join("info/attributes"), from.repository)?;
        let user = scratch.dir().join("user-attributes");
        write(&user, from.user)?;
        let mut settings: Vec<OsString> = vec!["core.safecrlf=false".into(), "core.bare=false".into()];
        settings.push([OsStr::new("core.attributesFile="), user.as_os_str()].into_iter().collect());
        settings.extend(from.autocrlf.map(|value| format!("core.autocrlf={value}").into()));
        settings.extend(from.eol.map(|value| format!("core.eol={value}").into()));
        let desk = Self { files: scratch.dir().join("files"), scratch, settings };
        make_dirs(&desk.files)?;
        for (path, content) in files {
            desk.put(path, content)?;
        }
        Ok(desk)
    }

    /// A file of the work tree, which holds no links: nothing leads out of it.
    fn put(&self, path: &RelPath, content: &[u8]) -> Result<()> {
        let path = self.files.join(path.as_path());
        make_dirs(path.parent().unwrap_or(&self.files))?;
        write(&path, content)
    }

    /// What the index has at these paths, in this order.
    fn blobs(&self, paths: &[RelPath]) -> Result<Vec<Vec<u8>>> {
        let listed = self.git().args(["ls-files", "-s", "-z"]).output()?;
        let rows = listed.split(|b| *b == 0).filter_map(|row| {
            let tab = row.iter().position(|b| *b == b'\t')?;
            Some((&row[tab + 1..], row[..tab].split(|b| *b == b' ').nth(1)?))
        });
        let rows: BTreeMap<&[u8], &[u8]> = rows.collect();
        let failed = |e| Error::io("read objects of", self.scratch.dir(), e);
        let unknown = || failed(std::io::ErrorKind::InvalidData.into());
        let mut asked = Vec::new();
        for path in paths {
            asked.extend_from_slice(rows.get(path.as_bytes()).ok_or_else(unknown)?);
            asked.push(b'\n');
        }
        let told = self.git().args(["cat-file", "--batch"]).feed(&asked)?;
        let mut told = told.as_slice();
        let blob = |_| answer(&mut told).map_err(failed)?.map(|object| object.content).ok_or_else(unknown);
        paths.iter().map(blob).collect()
    }

    fn git(&self) -> Git {
        let git = self.scratch.git().env("GIT_WORK_TREE", &self.files);
        // Paths that git is given are relative to where it is.
        let git = git.arg("-C").arg(&self.files);
        self.settings.iter().fold(git, |git, setting| git.set(setting))
    }
}

fn make_dirs(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| Error::io("create directory", path, e))
}

/// Whether this is what Git LFS stores in place of a file.
pub fn is_lfs_pointer(content: &[u8]) -> bool {
    let starts =
        [b"version https://git-lfs.github.com/spec/".as_slice(), b"version https://hawser.github.com/spec/"];
    let is_line = |line: &[u8]| line.starts_with(b"oid sha256:") && line.len() == "oid sha256:".len() + 64;
    content.len() < 1024
        && starts.iter().any(|start| content.starts_with(start))
        && content.split(|b| *b == b'\n').any(is_line)
        && content.split(|b| *b == b'\n').any(|line| line.starts_with(b"size "))
}

#[cfg(test)]
#[path = "attributes_tests.rs"]
mod tests;
