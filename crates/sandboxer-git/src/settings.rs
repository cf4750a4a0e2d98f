//! What the user's own configuration says of files: which are ignored, and how line ends are kept.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use sandboxer_core::Result;

use crate::git::{Git, Place};
use crate::repository::Repository;

/// Files of ignore rules and attributes larger than this are nobody's.
const LIMIT: u64 = 1 << 20;

/// The settings that matter for files, as the user, the system and the repository have them together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSettings {
    /// What `core.excludesFile`, or the file that stands for it, says.
    pub excludes: Vec<u8>,
    /// What `core.attributesFile`, or the file that stands for it, says.
    pub attributes: Vec<u8>,
    /// `core.ignoreCase`.
    pub ignore_case: bool,
    /// `core.fileMode`.
    pub file_mode: bool,
    /// `core.autocrlf`.
    pub autocrlf: Option<String>,
    /// `core.eol`.
    pub eol: Option<String>,
}

impl FileSettings {
    /// Those for `repository`, by one question.
    pub fn of(repository: &Repository) -> Result<Self> {
        let told = Git::asking(Place::Dir(&repository.git_dir)).args(["config", "-z", "--list"]).output()?;
        let settings = parse(&told);
        let get = |key: &str| settings.get(key).cloned();
        let work_tree = &repository.work_tree;
        Ok(Self {
            excludes: content_of(get("core.excludesfile"), "ignore", work_tree),
            attributes: content_of(get("core.attributesfile"), "attributes", work_tree),
            ignore_case: get("core.ignorecase").is_some_and(|value| is_true(&value)),
            file_mode: get("core.filemode").is_none_or(|value| is_true(&value)),
            autocrlf: get("core.autocrlf"),
            eol: get("core.eol"),
        })
    }
}

/// The same, as settings for a git that does not read the user's configuration.
pub fn to_pass_on(repository: &Repository) -> Result<Vec<OsString>> {
    let told = Git::asking(Place::Dir(&repository.git_dir)).args(["config", "-z", "--list"]).output()?;
    let settings = parse(&told);
    let mut passed = Vec::new();
    let excludes = file_of(settings.get("core.excludesfile").cloned(), "ignore", &repository.work_tree);
    passed.extend(excludes.map(|path| setting("core.excludesFile", path.as_os_str())));
    for key in ["core.autocrlf", "core.eol"] {
        passed.extend(settings.get(key).map(|value| setting(key, value.as_ref())));
    }
    Ok(passed)
}

fn setting(key: &str, value: &OsStr) -> OsString {
    let mut text = OsString::from(key);
    text.push("=");
    text.push(value);
    text
}

/// The last value of a key counts. A key without a value is true.
fn parse(told: &[u8]) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let settings = told.split(|b| *b == 0).filter(|setting| !setting.is_empty());
    settings
        .map(|setting| match setting.iter().position(|b| *b == b'\n') {
            Some(end) => (text(&setting[..end]), text(&setting[end + 1..])),
            None => (text(setting), "true".to_owned()),
        })
        .collect()
}

/// The content of the file that is configured, or of the one called `name` where git looks by itself; nothing where there is none.
fn content_of(configured: Option<String>, name: &str, work_tree: &Path) -> Vec<u8> {
    let path = file_of(configured, name, work_tree);
    let small = |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.len() <= LIMIT);
    path.filter(small).and_then(|path| std::fs::read(path).ok()).unwrap_or_default()
}

/// To git, which works there, a path is relative to the work tree.
fn file_of(configured: Option<String>, name: &str, work_tree: &Path) -> Option<PathBuf> {
    match configured {
        Some(path) => expanded(&path).map(|path| work_tree.join(path)),
        None => configuration_dir().map(|dir| dir.join("git").join(name)),
    }
}

/// As git reads a boolean.
fn is_true(value: &str) -> bool {
    let is = |word: &&str| value.eq_ignore_ascii_case(word);
    ["true", "yes", "on"].iter().any(is) || value.parse::<i64>().is_ok_and(|number| number != 0)
}

fn configuration_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))
}

fn expanded(path: &str) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(rest) => Some(PathBuf::from(std::env::var_os("HOME")?).join(rest)),
        None => Some(PathBuf::from(path)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_a_bare_key_is_true() {
        let settings = parse(b"core.eol\nlf\0core.ignorecase\0core.eol\ncrlf\0user.name\nA\nB\0");
        assert_eq!(settings["core.eol"], "crlf");
        assert_eq!(settings["core.ignorecase"], "true");
        assert_eq!(settings["user.name"], "A\nB");
    }

    #[test]
    fn files_that_are_named_are_read() {
        let dir = tempfile::tempdir().unwrap();
        Git::at(Place::From(dir.path())).args(["init", "-q", "."]).output().unwrap();
        std::fs::write(dir.path().join("rules"), "*.o\n").unwrap();
        let rules = dir.path().join("rules");
        let git_dir = dir.path().join(".git");
        for (key, value) in [("core.excludesFile", rules.to_str().unwrap()), ("core.autocrlf", "input")] {
            Git::at(Place::Dir(&git_dir)).args(["config", key, value]).output().unwrap();
        }
        let repository = Repository::find(dir.path()).unwrap();
        let settings = FileSettings::of(&repository).unwrap();
        assert_eq!(settings.excludes, b"*.o\n");
        assert_eq!(settings.autocrlf.as_deref(), Some("input"));
        assert_eq!(content_of(Some("/nonexistent/x".to_owned()), "ignore", dir.path()), b"");
        let set = |key, value| Git::at(Place::Dir(&git_dir)).args(["config", key, value]).output().unwrap();
        // Relative to the work tree, whatever git was started in.
        set("core.excludesFile", "rules");
        set("core.attributesFile", "rules");
        let told = to_pass_on(&repository).unwrap();
        assert_eq!(told[0], setting("core.excludesFile", repository.work_tree.join("rules").as_os_str()));
        for (value, meant) in [("Yes", true), ("on", true), ("1", true), ("off", false), ("0", false)] {
            set("core.ignoreCase", value);
            let settings = FileSettings::of(&repository).unwrap();
            assert_eq!(settings.ignore_case, meant, "{value}");
            assert_eq!((settings.excludes, settings.attributes), (b"*.o\n".to_vec(), b"*.o\n".to_vec()));
        }
    }
}
