//! One rule: what it asks for, and what it finds among the changes.

use std::collections::HashSet;
use std::fmt;

use serde_json::json;

use super::FailedPath;
use super::globs::Globs;
use crate::model::{DiffEntry, DiffKind, NodeType, RelPath};

/// A permission bit that lets somebody execute a file.
const EXECUTE: u32 = 0o111;

/// What must hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rule {
    Paths(Globs),
    NotPaths(Globs),
    MaxFiles(u64),
    /// The limit, and how it was written.
    MaxBytes(u64, String),
    Kinds(Vec<DiffKind>),
    NoDeletes,
    NoBinary,
    NoFlags,
    NoExec,
    NoLinks,
}

/// What is about to be committed, over all workspaces.
pub(super) struct Changes<'a> {
    entries: Vec<(&'a str, &'a DiffEntry)>,
    /// Directories that hold something that differs.
    parents: HashSet<(&'a str, RelPath)>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(entries: impl IntoIterator<Item = (&'a str, &'a DiffEntry)>) -> Self {
        let entries: Vec<_> = entries.into_iter().collect();
        let parents = entries.iter().filter_map(|(name, entry)| Some((*name, entry.path.parent()?)));
        Self { parents: parents.collect(), entries }
    }

    /// What a careful person should look at, and why.
    pub(super) fn flagged(&self) -> impl Iterator<Item = FailedPath> {
        let flagged = self.entries.iter().filter(|(_, entry)| !entry.flags.is_empty());
        flagged.map(|(workspace, entry)| failed(workspace, &entry.path, Some(entry.flags.join(", "))))
    }

    /// The entries for which `breaks` says what is wrong with them.
    fn breaking(&self, breaks: impl Fn(&DiffEntry) -> Option<Option<String>>) -> Vec<FailedPath> {
        let of = |(workspace, entry): &(&str, &DiffEntry)| {
            breaks(entry).map(|reason| failed(workspace, &entry.path, reason))
        };
        self.entries.iter().filter_map(of).collect()
    }

    /// The entries that are so.
    fn that(&self, is: impl Fn(&DiffEntry) -> bool) -> Vec<FailedPath> {
        self.breaking(|entry| is(entry).then_some(None))
    }

    /// Every place that differs for which `wrong` says yes: where an entry is, and where it came from.
    fn places(&self, wrong: impl Fn(&str, &DiffEntry, &RelPath) -> bool) -> Vec<FailedPath> {
        let mut found = Vec::new();
        for (workspace, entry) in &self.entries {
            let places = [Some(&entry.path), entry.from.as_ref()];
            for path in places.into_iter().flatten().filter(|path| wrong(workspace, entry, path)) {
                found.push(failed(workspace, path, None));
            }
        }
        found
    }

    fn files(&self) -> u64 {
        self.entries.iter().filter(|(_, entry)| !is_all_directory(entry)).count() as u64
    }

    fn bytes(&self) -> u64 {
        let sizes = self.entries.iter().filter_map(|(_, entry)| entry.new.as_ref()).map(|node| node.size);
        sizes.fold(0, u64::saturating_add)
    }
}

fn failed(workspace: &str, path: &RelPath, reason: Option<String>) -> FailedPath {
    FailedPath { workspace: workspace.to_owned(), path: path.clone(), reason }
}

/// Whether it is a directory, and was one.
fn is_all_directory(entry: &DiffEntry) -> bool {
    let mut sides = [&entry.old, &entry.new].into_iter().flatten().peekable();
    sides.peek().is_some() && sides.all(|node| node.node_type == NodeType::Directory)
}

/// Whether a file can be executed in a way in which it could not before.
fn became_executable(entry: &DiffEntry) -> bool {
    let bits = |node: &Option<crate::model::Node>| {
        node.as_ref().filter(|n| n.node_type == NodeType::File).map_or(0, |n| n.mode & EXECUTE)
    };
    bits(&entry.new) & !bits(&entry.old) != 0
}

/// Whether something is not any more where it was.
fn goes_away(entry: &DiffEntry) -> bool {
    matches!(entry.kind, DiffKind::Deleted | DiffKind::Renamed | DiffKind::Type)
}

fn becomes_link(entry: &DiffEntry) -> bool {
    entry.new.as_ref().is_some_and(|node| node.node_type == NodeType::Symlink)
}

impl Rule {
    /// What is wrong and on which paths; nothing where the rule holds.
    pub(super) fn check(&self, changes: &Changes<'_>) -> Option<(String, Vec<FailedPath>)> {
        let too_much = |found: u64, most: u64, detail: String| (found > most).then(|| (detail, Vec::new()));
        match self {
            Self::MaxFiles(most) => {
                let files = changes.files();
                too_much(files, *most, format!("{} changed", counted(files, "file")))
            }
            Self::MaxBytes(most, _) => {
                let bytes = changes.bytes();
                too_much(bytes, *most, format!("what changed has {} together", counted(bytes, "byte")))
            }
            _ => self.complain(self.offenders(changes)),
        }
    }

    fn complain(&self, paths: Vec<FailedPath>) -> Option<(String, Vec<FailedPath>)> {
        let (one, several) = self.complaint();
        let detail = match paths.len() {
            0 => return None,
            1 => format!("1 path {one}"),
            many => format!("{many} paths {several}"),
        };
        Some((detail, paths))
    }

    fn offenders(&self, changes: &Changes<'_>) -> Vec<FailedPath> {
        match self {
            Self::Paths(globs) => changes.places(|workspace, entry, path| {
                !globs.matches(path.as_path()) && !allows_directory(globs, changes, workspace, entry)
            }),
            Self::NotPaths(globs) => changes.places(|_, _, path| globs.matches(path.as_path())),
            Self::Kinds(kinds) => {
                changes.breaking(|entry| (!kinds.contains(&entry.kind)).then(|| Some(kind_name(entry.kind))))
            }
            Self::NoDeletes => {
                changes.breaking(|entry| goes_away(entry).then(|| Some(kind_name(entry.kind))))
            }
            Self::NoBinary => changes.that(|entry| entry.binary),
            Self::NoFlags => changes.flagged().collect(),
            Self::NoExec => changes.that(became_executable),
            Self::NoLinks => changes.that(becomes_link),
            Self::MaxFiles(_) | Self::MaxBytes(..) => Vec::new(),
        }
    }

    /// What is said of one path, and of several.
    fn complaint(&self) -> (&'static str, &'static str) {
        match self {
            Self::Paths(_) => ("matches none of these", "match none of these"),
            Self::NotPaths(_) => ("matches one of these", "match one of these"),
            Self::Kinds(_) => ("is changed in another way", "are changed in another way"),
            Self::NoDeletes => ("goes away", "go away"),
            Self::NoBinary => ("is not text", "are not text"),
            Self::NoFlags => ("is flagged", "are flagged"),
            Self::NoExec => ("becomes executable", "become executable"),
            Self::NoLinks => ("is a symbolic link", "are symbolic links"),
            Self::MaxFiles(_) | Self::MaxBytes(..) => ("is too much", "are too many"),
        }
    }
}

/// Whether a directory that came or went belongs to what `globs` allow: `src/**` allows `src` itself as a directory, and
/// a directory whose content is judged path by path needs no pattern of its own. A file or link in its place does.
fn allows_directory(globs: &Globs, changes: &Changes<'_>, workspace: &str, entry: &DiffEntry) -> bool {
    let came_or_went = matches!(entry.kind, DiffKind::Created | DiffKind::Deleted);
    let holds_changes = || changes.parents.contains(&(workspace, entry.path.clone()));
    let everything_below = || globs.matches(entry.path.join(b"\x01").as_path());
    came_or_went && is_all_directory(entry) && (holds_changes() || everything_below())
}

/// The word for a kind, as in JSON.
pub(super) fn kind_name(kind: DiffKind) -> String {
    json!(kind).as_str().unwrap_or_default().to_owned()
}

fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paths(globs) => write!(f, "paths={globs}"),
            Self::NotPaths(globs) => write!(f, "not-paths={globs}"),
            Self::MaxFiles(most) => write!(f, "max-files={most}"),
            Self::MaxBytes(_, written) => write!(f, "max-bytes={written}"),
            Self::Kinds(kinds) => {
                let names: Vec<String> = kinds.iter().map(|kind| kind_name(*kind)).collect();
                write!(f, "kinds={}", names.join(","))
            }
            Self::NoDeletes => f.write_str("no-deletes"),
            Self::NoBinary => f.write_str("no-binary"),
            Self::NoFlags => f.write_str("no-flags"),
            Self::NoExec => f.write_str("no-exec"),
            Self::NoLinks => f.write_str("no-links"),
        }
    }
}
