//! Which part of a tree is in the sandbox.

use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Patterns as they were given; what they leave out is neither copied nor diffed nor committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Patterns {
    /// Only paths that match one of these; empty means all.
    pub include: Vec<String>,
    /// Not paths that match one of these, nor anything below them.
    pub exclude: Vec<String>,
    /// Not these exact paths: the state directory, where it is inside the resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<RelPath>,
    /// Only this one name at the top: how a single file is isolated, through its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<RelPath>,
}

/// What a difference leaves out by another rule than patterns. It has to be sure: what it cannot tell is shown.
pub trait Screen: Send + Sync {
    /// Whether the entry at `path` is left out; for a directory, with everything below it. It is asked for the directories above first.
    fn hides(&self, path: &RelPath, is_dir: bool) -> bool;

    /// Why the entry at `path`, which is shown, can never be committed.
    fn refuses(&self, _path: &RelPath) -> Option<String> {
        None
    }
}

/// Compiled patterns.
#[derive(Clone)]
pub struct Filter {
    screen: Option<Arc<dyn Screen>>,
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    skip: Vec<RelPath>,
    only: Option<RelPath>,
}

/// Names that begin so are ours: never copied, never diffed.
pub const RESERVED: &[u8] = b".sandboxer-";

impl Filter {
    /// Compiles `patterns`. `*` stays within a component, `**` crosses; a pattern without a slash matches at any depth.
    pub fn new(patterns: &Patterns) -> Result<Self> {
        Ok(Self {
            screen: None,
            include: compile(&patterns.include)?,
            exclude: compile(&patterns.exclude)?,
            skip: patterns.skip.clone(),
            only: patterns.only.clone(),
        })
    }

    /// A filter that lets everything through.
    pub fn all() -> Self {
        Self { screen: None, include: None, exclude: None, skip: Vec::new(), only: None }
    }

    /// Why the entry at `path` can never be committed.
    pub fn refuses(&self, path: &RelPath) -> Option<String> {
        self.screen.as_ref().and_then(|screen| screen.refuses(path))
    }

    /// The same filter, with a screen before it.
    pub fn screened(&self, screen: Arc<dyn Screen>) -> Self {
        Self { screen: Some(screen), ..self.clone() }
    }

    /// Whether the screen leaves out the entry at `path`, or a directory above it. Without a screen nothing is.
    pub fn hides(&self, path: &RelPath, is_dir: bool) -> bool {
        let Some(screen) = &self.screen else { return false };
        let mut above: Vec<RelPath> = std::iter::successors(path.parent(), RelPath::parent).collect();
        above.reverse();
        above.iter().any(|dir| screen.hides(dir, true)) || screen.hides(path, is_dir)
    }

    /// Whether there is a screen.
    pub fn is_screened(&self) -> bool {
        self.screen.is_some()
    }

    /// Whether everything passes, so that no path need be built to ask.
    pub fn is_all(&self) -> bool {
        let no_patterns = self.include.is_none() && self.exclude.is_none();
        no_patterns && self.skip.is_empty() && self.only.is_none() && self.screen.is_none()
    }

    /// Whether the entry at `path` is in the sandbox. Directories pass `include`: what they hold decides.
    pub fn passes(&self, path: &RelPath, is_dir: bool) -> bool {
        if self.only.as_ref().is_some_and(|only| path != only) || self.skip.contains(path) {
            return false;
        }
        if path.name().starts_with(RESERVED) {
            return false;
        }
        if self.exclude.as_ref().is_some_and(|set| set.is_match(path.as_path())) {
            return false;
        }
        if self.screen.as_ref().is_some_and(|screen| screen.hides(path, is_dir)) {
            return false;
        }
        is_dir || self.include.as_ref().is_none_or(|set| set.is_match(path.as_path()))
    }

    /// Whether the entry and each directory above it pass.
    pub fn passes_all(&self, path: &RelPath, is_dir: bool) -> bool {
        let mut above = path.parent();
        while let Some(dir) = above {
            if !self.passes(&dir, true) {
                return false;
            }
            above = dir.parent();
        }
        self.passes(path, is_dir)
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("skip", &self.skip).field("only", &self.only).finish_non_exhaustive()
    }
}

fn compile(patterns: &[String]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let trimmed = pattern.trim_end_matches('/');
        let anchored = trimmed.strip_prefix('/').map(str::to_owned);
        let wide = anchored.unwrap_or_else(|| {
            if trimmed.contains('/') { trimmed.to_owned() } else { format!("**/{trimmed}") }
        });
        for glob in [wide.clone(), format!("{wide}/**")] {
            set.add(
                GlobBuilder::new(&glob)
                    .literal_separator(true)
                    .build()
                    .map_err(|e| bad_pattern(pattern, &e))?,
            );
        }
    }
    set.build().map(Some).map_err(|e| bad_pattern(&patterns.join(", "), &e))
}

fn bad_pattern(pattern: &str, error: &globset::Error) -> Error {
    Error::Usage {
        message: format!("pattern {pattern:?} is not valid: {}", error.kind()),
        hint: Some("patterns are globs such as `target`, `*.log`, `src/**/*.rs` or `/build`".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let own = |list: &[&str]| list.iter().map(|p| (*p).to_owned()).collect();
        Filter::new(&Patterns { include: own(include), exclude: own(exclude), ..Patterns::default() })
            .unwrap()
    }

    fn rel(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn a_bare_name_is_excluded_at_any_depth() {
        let filter = filter(&[], &["target", "*.log", "/build"]);
        for out in ["target", "a/target", "x.log", "a/b/x.log", "build"] {
            assert!(!filter.passes(&rel(out), false), "{out}");
        }
        for kept in ["a/build", "targets", "log"] {
            assert!(filter.passes(&rel(kept), false), "{kept}");
        }
        assert!(!filter.passes_all(&rel("a/target/debug/x"), false));
    }

    #[test]
    fn include_lets_directories_through() {
        let filter = filter(&["src/**/*.rs"], &[]);
        assert!(filter.passes(&rel("src"), true));
        assert!(filter.passes(&rel("src/a/b.rs"), false));
        assert!(!filter.passes(&rel("src/a/b.txt"), false));
        assert!(!filter.is_all() && Filter::all().is_all());
    }

    #[test]
    fn a_single_file_hides_its_neighbours() {
        let filter = Filter::new(&Patterns { only: Some(rel("one")), ..Patterns::default() }).unwrap();
        assert!(filter.passes(&rel("one"), false));
        assert!(!filter.passes(&rel("two"), false));
    }

    #[test]
    fn our_own_directories_are_never_part_of_a_tree() {
        let filter = Filter::new(&Patterns { skip: vec![rel("state")], ..Patterns::default() }).unwrap();
        assert!(!filter.passes(&rel("state"), true));
        assert!(!filter.passes(&rel("a/.sandboxer-0"), true));
        assert!(filter.passes(&rel("a/state"), true));
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let error = Filter::new(&Patterns { exclude: vec!["a[".into()], ..Patterns::default() }).unwrap_err();
        assert!(error.to_string().contains("a["), "{error}");
    }
}
