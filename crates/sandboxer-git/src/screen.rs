//! What git leaves out: `.git` itself, and what is ignored and tracked nowhere.
//!
//! Ignore files are the sandbox's own, read beneath its root. Whoever hides something by them only keeps it from being committed; but what cannot
//! be told, because an ignore file or a listing of the base cannot be read, is shown.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use sandboxer_core::model::RelPath;
use sandboxer_fs::durable;
use sandboxer_fs::filter::Screen;
use sandboxer_fs::root::Root;
use sandboxer_fs::stamp::Stamp;

use crate::agent;
use crate::hostile::{self, Found};
use crate::oid::ObjectFormat;
use crate::patterns::{Patterns, Verdict};

/// Ignore files larger than this are not read.
const IGNORE_LIMIT: u64 = 1 << 20;

/// What git keeps an eye on, whatever is ignored.
pub trait Tracked: Send + Sync {
    /// Whether the base commit has something at `path`. Where that cannot be told, it has.
    fn in_base(&self, path: &RelPath) -> bool;

    /// The paths in the index of the sandbox. Only asked for when it matters.
    fn in_index(&self) -> Arc<BTreeSet<RelPath>>;
}

/// Ignore rules that are not in the tree.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    /// What `info/exclude` of the original says.
    pub repository: Vec<u8>,
    /// What the user's `core.excludesFile` says.
    pub user: Vec<u8>,
    /// `core.ignoreCase`.
    pub ignore_case: bool,
}

/// The screen before the difference of a sandbox's tree.
pub struct GitScreen<T> {
    tree: Arc<Root>,
    tracked: T,
    everywhere: [Patterns; 2],
    ignore_case: bool,
    /// What was found out of each directory.
    dirs: RwLock<HashMap<Option<RelPath>, Arc<Rules>>>,
}

/// What holds for the entries of a directory.
struct Rules {
    /// The directory's path.
    dir: Option<RelPath>,
    above: Option<Arc<Rules>>,
    patterns: Patterns,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Patterns decide.
    Open,
    /// The directory is ignored, and everything in it.
    Ignored,
    /// It cannot be told, for everything in it.
    Unknown,
}

impl<T: Tracked> GitScreen<T> {
    /// A screen for `tree`, with the rules that are not in it.
    pub fn new(tree: Arc<Root>, excludes: &Excludes, tracked: T) -> Self {
        let read = |text: &[u8]| Patterns::parse(text, excludes.ignore_case);
        let everywhere = [read(&excludes.repository), read(&excludes.user)];
        let ignore_case = excludes.ignore_case;
        Self { tree, tracked, everywhere, ignore_case, dirs: RwLock::default() }
    }

    /// Whether git ignores `path`, were it not tracked.
    fn is_ignored(&self, path: &RelPath, is_dir: bool) -> bool {
        let rules = self.rules(path.parent());
        match rules.standing {
            Standing::Ignored => true,
            Standing::Unknown => false,
            Standing::Open => self.verdict(&rules, path, is_dir) == Some(Verdict::Ignored),
        }
    }

    /// The nearest ignore file that says something of `path` decides.
    fn verdict(&self, rules: &Rules, path: &RelPath, is_dir: bool) -> Option<Verdict> {
        let mut next = Some(rules);
        while let Some(rules) = next {
            let skip = rules.dir.as_ref().map_or(0, |dir| dir.as_bytes().len() + 1);
            if let Some(verdict) = rules.patterns.verdict(&path.as_bytes()[skip..], is_dir) {
                return Some(verdict);
            }
            next = rules.above.as_deref();
        }
        self.everywhere.iter().find_map(|patterns| patterns.verdict(path.as_bytes(), is_dir))
    }

    /// The rules of the directory, found out once, its ancestors' first.
    fn rules(&self, dir: Option<RelPath>) -> Arc<Rules> {
        if let Some(rules) = self.known(&dir) {
            return rules;
        }
        let mut missing = vec![dir];
        let mut above = None;
        while let Some(Some(lowest)) = missing.last() {
            let parent = lowest.parent();
            above = self.known(&parent);
            if above.is_some() {
                break;
            }
            missing.push(parent);
        }
        let mut last = above;
        while let Some(dir) = missing.pop() {
            last = Some(self.learn(dir, last));
        }
        last.unwrap_or_else(|| self.learn(None, None))
    }

    fn known(&self, dir: &Option<RelPath>) -> Option<Arc<Rules>> {
        self.dirs.read().unwrap_or_else(PoisonError::into_inner).get(dir).cloned()
    }

    fn learn(&self, dir: Option<RelPath>, above: Option<Arc<Rules>>) -> Arc<Rules> {
        let rules = Arc::new(self.look(dir.clone(), above));
        let mut dirs = self.dirs.write().unwrap_or_else(PoisonError::into_inner);
        dirs.entry(dir).or_insert(rules).clone()
    }

    fn look(&self, dir: Option<RelPath>, above: Option<Arc<Rules>>) -> Rules {
        let mut standing = above.as_ref().map_or(Standing::Open, |above| above.standing);
        if let (Standing::Open, Some(dir), Some(above)) = (standing, &dir, &above)
            && self.verdict(above, dir, true) == Some(Verdict::Ignored)
        {
            standing = Standing::Ignored;
        }
        let mut patterns = Patterns::default();
        if standing == Standing::Open {
            match self.ignore_file(dir.as_ref()) {
                Found::Whole(content) => patterns = Patterns::parse(&content, self.ignore_case),
                Found::Nothing => {}
                Found::Unreadable => standing = Standing::Unknown,
            }
        }
        // A directory without rules of its own need not be passed through.
        let above = above.map(|above| match above.patterns.is_empty() {
            true => above.above.clone().unwrap_or(above),
            false => above,
        });
        Rules { dir, above, patterns, standing }
    }

    fn ignore_file(&self, dir: Option<&RelPath>) -> Found<Vec<u8>> {
        let name = b".gitignore";
        let path = match dir {
            Some(dir) => dir.join(name),
            None => match hostile::below(name) {
                Some(path) => path,
                None => return Found::Nothing,
            },
        };
        hostile::read(&self.tree, &path, IGNORE_LIMIT)
    }

    fn is_tracked(&self, path: &RelPath, is_dir: bool) -> bool {
        self.tracked.in_base(path) || holds(&self.tracked.in_index(), path, is_dir)
    }
}

/// Whether `path` is among `paths`, or something below it.
fn holds(paths: &BTreeSet<RelPath>, path: &RelPath, is_dir: bool) -> bool {
    paths.contains(path) || (is_dir && holds_below(paths, path))
}

/// Whether something below `dir` is among `paths`.
pub(crate) fn holds_below(paths: &BTreeSet<RelPath>, dir: &RelPath) -> bool {
    // `a-b` comes between `a` and `a/b`, so the search begins at the first name that can be below.
    let first = dir.join(b"\x01");
    let mut next = paths.range::<RelPath, _>((Bound::Included(&first), Bound::Unbounded));
    next.next().is_some_and(|found| found.is_within(dir))
}

impl<T: Tracked> Screen for GitScreen<T> {
    fn hides(&self, path: &RelPath, is_dir: bool) -> bool {
        path.as_bytes() == b".git" || (self.is_ignored(path, is_dir) && !self.is_tracked(path, is_dir))
    }
}

/// The paths in the index of a sandbox's private repository, looked at when they are first asked for.
///
/// The index is the agent's, and seldom written between two questions: what git said of it is kept for as long as it is the same.
#[derive(Debug)]
pub struct PrivateIndex {
    tree: Arc<Root>,
    work: PathBuf,
    format: ObjectFormat,
    names: OnceLock<Arc<BTreeSet<RelPath>>>,
}

/// Where the paths are kept, after a line that says of which index.
const NAMES: &str = "index-names";

impl PrivateIndex {
    /// For `tree`; `work` is a directory of ours.
    pub fn new(tree: Arc<Root>, work: PathBuf, format: ObjectFormat) -> Self {
        Self { tree, work, format, names: OnceLock::new() }
    }

    /// The paths; none where there is no index, or it cannot be read.
    pub fn names(&self) -> Arc<BTreeSet<RelPath>> {
        self.names.get_or_init(|| Arc::new(self.load())).clone()
    }

    fn load(&self) -> BTreeSet<RelPath> {
        let Ok(Some(stamp)) = agent::index_stamp(&self.tree) else { return BTreeSet::new() };
        let title = title_of(&stamp);
        if let Some(names) = self.kept(&title) {
            return names;
        }
        let names: BTreeSet<RelPath> =
            agent::indexed(&self.tree, &self.work, self.format).unwrap_or_default().into_iter().collect();
        if agent::index_stamp(&self.tree).is_ok_and(|now| now.is_some_and(|now| stamp.untouched(&now))) {
            self.keep(&title, &names);
        }
        names
    }

    fn kept(&self, title: &str) -> Option<BTreeSet<RelPath>> {
        let text = std::fs::read(self.work.join(NAMES)).ok()?;
        let names = text.strip_prefix(title.as_bytes())?;
        Some(names.split(|b| *b == 0).filter_map(hostile::below).collect())
    }

    /// It only saves time: where it fails, git is asked again.
    fn keep(&self, title: &str, names: &BTreeSet<RelPath>) {
        let listed = names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat());
        let text: Vec<u8> = title.bytes().chain(listed).collect();
        let _ = durable::write_lazily(&self.work.join(NAMES), &text);
    }
}

fn title_of(stamp: &Stamp) -> String {
    format!("{} {} {} {}\n", stamp.ino, stamp.ctime, stamp.mtime, stamp.size)
}

/// The directory above `path`, not the top, that is a repository of its own which the base does not track.
pub fn nested_repository(
    tree: &Root,
    path: &RelPath,
    base_has: impl Fn(&RelPath) -> bool,
) -> Option<RelPath> {
    let mut above: Vec<RelPath> = std::iter::successors(path.parent(), RelPath::parent).collect();
    above.reverse();
    let is_repository = |dir: &RelPath| matches!(tree.stamp(&dir.join(b".git")), Ok(Some(_)));
    above.into_iter().find(|dir| is_repository(dir) && !base_has(dir))
}

/// Whether a component of `path` is one that git refuses to track, on this system or another: `.git` in any case, and what Windows and macOS
/// take for it.
pub fn names_git(path: &RelPath) -> bool {
    path.components().any(|name| is_windows_git(name) || is_mac_git(name))
}

fn is_windows_git(name: &[u8]) -> bool {
    // To Windows a backslash separates, and a colon, dots and spaces at the end are not part of a name.
    name.split(|b| *b == b'\\').any(|part| {
        let part = part.split(|b| *b == b':').next().unwrap_or(part);
        let end = part.iter().rposition(|b| !matches!(b, b'.' | b' ')).map_or(0, |last| last + 1);
        part[..end].eq_ignore_ascii_case(b".git") || part[..end].eq_ignore_ascii_case(b"git~1")
    })
}

fn is_mac_git(name: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(name) else { return false };
    let visible = text.chars().filter(|c| !is_invisible(*c));
    visible.map(|c| c.to_ascii_lowercase()).eq(".git".chars())
}

/// What HFS+ does not see in a name.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
