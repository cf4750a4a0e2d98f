//! Which attempts were writes outside, and not heard of before.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use nix::libc::PATH_MAX;

use super::calls::Intent;
use super::process::Attempt;

/// No more are told of one runtime. Who reads them has seen enough by then, and who tries more may do so to fill memory.
pub(super) const MOST: usize = 1000;

/// Never told of: writing there has effects of its own, if any.
const KERNEL: [&str; 2] = ["/proc", "/dev"];

pub(super) struct Judge {
    writable: Vec<PathBuf>,
    told: HashSet<PathBuf>,
}

impl Judge {
    pub(super) fn new(writable: Vec<PathBuf>) -> Self {
        Self {
            writable: writable.iter().map(|path| resolved(Path::new("/"), path)).collect(),
            told: HashSet::new(),
        }
    }

    /// The path, if it has to be told of.
    pub(super) fn refused(&mut self, attempt: &Attempt) -> Option<PathBuf> {
        let base = attempt.base.as_deref().unwrap_or(Path::new("/"));
        let path = resolved(base, &attempt.path);
        let is_new = self.told.len() < MOST && !self.told.contains(&path);
        if !is_new || !self.is_outside(&path) || !is_refusal(&path, attempt.intent) {
            return None;
        }
        self.told.insert(path.clone());
        Some(path)
    }

    fn is_outside(&self, path: &Path) -> bool {
        let inside = self.writable.iter().any(|root| path.starts_with(root));
        let is_told = path.is_absolute() && path.as_os_str().len() < PATH_MAX as usize;
        is_told && !inside && !KERNEL.iter().any(|root| path.starts_with(root))
    }
}

/// Whether it is a refusal what the call got for an answer, and not that the file is there, or that it is not. The root inside looks
/// like the one outside but for what is covered, so it is looked at from here, where nobody moves it for us.
fn is_refusal(path: &Path, intent: Intent) -> bool {
    let is_there = || fs::symlink_metadata(path).is_ok();
    let can_be = || path.parent().is_some_and(Path::is_dir);
    match intent {
        Intent::Make => can_be() && !is_there(),
        Intent::Change => is_there(),
        Intent::Put => can_be(),
    }
}

/// By its words alone: symbolic links are not followed.
fn resolved(base: &Path, path: &Path) -> PathBuf {
    let mut words: Vec<OsString> = Vec::new();
    for component in base.join(path).components() {
        match component {
            Component::Normal(word) => words.push(word.to_owned()),
            Component::ParentDir => drop(words.pop()),
            _ => {}
        }
    }
    Path::new("/").join(words.iter().collect::<PathBuf>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(writable: &Path, base: &str, path: &str, intent: Intent) -> Option<PathBuf> {
        let attempt = Attempt { base: Some(base.into()), path: path.into(), intent };
        Judge::new(vec![writable.to_owned()]).refused(&attempt)
    }

    #[test]
    fn paths_are_resolved_by_their_words() {
        assert_eq!(resolved(Path::new("/a/b"), Path::new("../c/./d")), Path::new("/a/c/d"));
        assert_eq!(resolved(Path::new("/a/b"), Path::new("/c//d/")), Path::new("/c/d"));
        assert_eq!(resolved(Path::new("/a"), Path::new("../../../c")), Path::new("/c"));
        assert_eq!(resolved(Path::new("/"), Path::new("..")), Path::new("/"));
    }

    #[test]
    fn a_root_with_a_longer_name_is_another() {
        let work = Path::new("/usr/sh");
        assert_eq!(judged(work, "/", "/usr/share", Intent::Change), Some("/usr/share".into()));
        assert_eq!(judged(work, "/", "/usr/sh/are", Intent::Put), None);
        assert_eq!(judged(work, "/usr/sh", "../share", Intent::Change), Some("/usr/share".into()));
    }

    #[test]
    fn what_fails_for_another_reason_is_no_refusal() {
        let work = Path::new("/nowhere");
        assert_eq!(judged(work, "/usr", "none", Intent::Change), None);
        assert_eq!(judged(work, "/usr", "none/deeper", Intent::Make), None);
        assert_eq!(judged(work, "/usr", "none/deeper", Intent::Put), None);
        assert_eq!(judged(work, "/", "usr", Intent::Make), None);
        assert_eq!(judged(work, "/usr", "none", Intent::Make), Some("/usr/none".into()));
    }

    #[test]
    fn what_belongs_to_the_kernel_is_not_told() {
        for path in ["/proc/self/comm", "/dev/null"] {
            assert_eq!(judged(Path::new("/nowhere"), "/", path, Intent::Change), None);
        }
    }

    #[test]
    fn each_is_told_once_and_not_without_end() {
        let mut judge = Judge::new(Vec::new());
        let attempt = |number: usize| Attempt {
            base: None,
            path: format!("/none-{number}").into(),
            intent: Intent::Put,
        };
        let told = (0..MOST + 10)
            .flat_map(|number| [judge.refused(&attempt(number)), judge.refused(&attempt(number))]);
        assert_eq!(told.flatten().count(), MOST);
    }
}
