//! Two trees in a temporary directory, one of which is taken to be elsewhere.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_core::contract::{CancelFlag, NoProgress};
use sandboxer_core::{Error, Result};
use sandboxer_testkit::manifest::{Facets, Manifest};
use tempfile::TempDir;

use crate::shell::{Answer, Call, Here, Running, Shell};
use crate::tree::{Mirror, Moved, scripts};

pub struct World {
    pub temp: TempDir,
    pub compress: bool,
    pub cancel: CancelFlag,
}

impl World {
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("here")).unwrap();
        Self { temp, compress: false, cancel: CancelFlag::default() }
    }

    pub fn here(&self, path: &str) -> PathBuf {
        self.temp.path().join("here").join(path)
    }

    pub fn there(&self, path: &str) -> PathBuf {
        self.temp.path().join("there").join(path)
    }

    pub fn send(&self) -> Result<Moved> {
        self.with(&Here, |m| m.send())
    }

    pub fn fetch(&self) -> Result<Moved> {
        self.with(&Here, |m| m.fetch())
    }

    pub fn with<T>(&self, shell: &dyn Shell, act: impl FnOnce(&Mirror<'_>) -> T) -> T {
        self.at(shell, &self.here(""), &self.there(""), act)
    }

    pub fn at<T>(
        &self,
        shell: &dyn Shell,
        local: &Path,
        remote: &Path,
        act: impl FnOnce(&Mirror<'_>) -> T,
    ) -> T {
        let (lists, record) = (self.temp.path().join("lists"), self.temp.path().join("record"));
        act(&Mirror {
            shell,
            local,
            remote: remote.to_str().unwrap().trim_end_matches('/'),
            lists: lists.to_str().unwrap(),
            record: &record,
            compress: self.compress,
            progress: &NoProgress,
            cancel: &self.cancel,
        })
    }

    #[track_caller]
    pub fn assert_equal(&self, what: &str) {
        let (here, there) = (Manifest::capture(&self.here("")), Manifest::capture(&self.there("")));
        here.assert_same(&there, Facets::COPY, what);
    }
}

/// Fills a directory with one of everything that is carried: no ACLs, and attributes of files alone.
pub fn fill(dir: &Path) {
    sandboxer_testkit::manifest::rich_tree(dir, Path::new("/etc"));
    fs::remove_file(dir.join("attributes/acl")).unwrap();
    fs::remove_dir(dir.join("attributes/dir")).unwrap();
}

/// A shell that cuts a stream to the host after so many bytes.
pub struct Cutting(pub u64);

impl Shell for Cutting {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        Here.run(call)
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        let cut =
            r#"n=$1 s=$2; shift 2; head -c "$n" | sh -c "$s" sh "$@"; cat > /dev/null; echo cut >&2; exit 1"#;
        through(cut, self.0, script, arguments)
    }

    fn name(&self) -> &str {
        "the cutting host"
    }
}

/// Starts a script by way of another one, whose `$1` is a number, `$2` the script, and the rest its arguments.
pub fn through(way: &str, number: u64, script: &str, arguments: &[&OsStr]) -> Result<Running> {
    let number = number.to_string();
    let mut all = vec![OsStr::new(&number), OsStr::new(script)];
    all.extend(arguments);
    Here.start(way, &all)
}

/// A shell that cuts a stream from the host after so many bytes, and is gone when the host is to remember.
pub struct CutBack(pub u64);

impl Shell for CutBack {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        match call.script == scripts::ACCEPT {
            true => Err(Error::refused("the connection was cut")),
            false => Here.run(call),
        }
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        let cut = r#"n=$1 s=$2; shift 2; sh -c "$s" sh "$@" | head -c "$n"; echo cut >&2; exit 1"#;
        through(cut, self.0, script, arguments)
    }

    fn name(&self) -> &str {
        "the host that is cut off"
    }
}

/// What an error says, with its source.
pub fn said(error: &Error) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}
