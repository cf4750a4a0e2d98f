//! The hundred changes that are made in a sandbox and in a worktree alike: most files modified, some new, some deleted, some
//! renamed, each in a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{During, Result};
use crate::rows::CHANGED;
use crate::tree::{TreeSpec, edit};

const MODIFIED: usize = 60;
const CREATED: usize = 20;
const DELETED: usize = 10;
const RENAMED: usize = 10;
const _: () = assert!(MODIFIED + CREATED + DELETED + RENAMED == CHANGED);

/// Which files are changed, and how.
pub struct Changes {
    modified: Vec<PathBuf>,
    created: Vec<PathBuf>,
    deleted: Vec<PathBuf>,
    renamed: Vec<(PathBuf, PathBuf)>,
}

impl Changes {
    /// Those of a tree.
    pub fn of(spec: TreeSpec) -> Self {
        let mut paths = spec.spread(CHANGED).into_iter();
        let mut take = |count: usize| paths.by_ref().take(count).collect::<Vec<_>>();
        let (modified, deleted) = (take(MODIFIED), take(DELETED));
        let renamed = take(RENAMED).into_iter().map(|path| (path.clone(), beside(&path, "renamed")));
        let renamed = renamed.collect();
        let created = take(CREATED).iter().map(|path| beside(path, "created")).collect();
        Self { modified, created, deleted, renamed }
    }

    /// Makes them below `root`; another `round` leaves other content, so that no object of an earlier one will do.
    pub fn make(&self, root: &Path, round: usize) -> Result<()> {
        edit(root, &self.modified, round)?;
        for relative in &self.created {
            let path = root.join(relative);
            let text = format!("{}\ncreated in round {round}\n", relative.display());
            fs::write(&path, text).during("write", &path)?;
        }
        for path in self.deleted.iter().map(|relative| root.join(relative)) {
            fs::remove_file(&path).during("remove", &path)?;
        }
        for (from, to) in &self.renamed {
            let from = root.join(from);
            fs::rename(&from, root.join(to)).during("rename", &from)?;
        }
        Ok(())
    }

    /// The paths that were not there before.
    pub fn new_paths(&self) -> impl Iterator<Item = &Path> {
        let renamed = self.renamed.iter().map(|(_, to)| to);
        self.created.iter().chain(renamed).map(PathBuf::as_path)
    }
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{what}-{name}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;
    use crate::interrupt::Interrupt;
    use crate::rows::git::History;

    fn files_below(root: &Path, spec: TreeSpec) -> usize {
        let parents: BTreeSet<PathBuf> =
            (0..spec.files).map(|n| spec.file_path(n).parent().unwrap().to_owned()).collect();
        let files_in = |dir: &PathBuf| {
            let entries = fs::read_dir(root.join(dir)).unwrap();
            entries.filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
        };
        parents.iter().map(files_in).sum()
    }

    #[test]
    fn each_change_is_of_another_file_in_another_directory() {
        for spec in [History::FULL.spec, History::QUICK.spec] {
            let changes = Changes::of(spec);
            let old = changes.modified.iter().chain(&changes.deleted);
            let paths: Vec<&Path> = old.map(PathBuf::as_path).chain(changes.new_paths()).collect();
            let parents: BTreeSet<_> = paths.iter().map(|path| path.parent()).collect();
            assert_eq!((paths.len(), parents.len()), (CHANGED, CHANGED));
        }
    }

    #[test]
    fn rounds_differ_in_content_and_in_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let spec = TreeSpec::sources(200, 100);
        let changes = Changes::of(spec);
        let roots = [1, 2].map(|round| {
            let root = scratch.path().join(round.to_string());
            spec.write(&root, &Interrupt::default()).unwrap();
            changes.make(&root, round).unwrap();
            root
        });
        for root in &roots {
            assert_eq!(files_below(root, spec), spec.files + CREATED - DELETED);
            assert!(
                changes.renamed.iter().all(|(from, to)| !root.join(from).exists() && root.join(to).exists())
            );
        }
        let differs =
            |path: &PathBuf| fs::read(roots[0].join(path)).unwrap() != fs::read(roots[1].join(path)).unwrap();
        assert!(changes.modified.iter().chain(&changes.created).all(differs));
    }
}
