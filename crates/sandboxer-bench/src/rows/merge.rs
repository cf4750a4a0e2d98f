//! `sandbox commit --on-conflict merge` of files that changed on both sides against a shell loop that runs `git
//! merge-file` on the same texts. The tree has these files and no others, for the loop is told which ones to merge. Ours
//! finds them, merges, and makes the result durable; the loop merges. Both must come to the same bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Bench, CHANGED, Subject, need_git, remove};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave, run};
use crate::report::Row;
use crate::tree::{TreeSpec, edit, edit_top};

/// Goal of the merge.
pub const GOAL: f64 = 2.0;

const TREE: TreeSpec = TreeSpec::texts(CHANGED, CHANGED);
/// Reads the paths from `list`, since a name in the script would be a word of the shell.
const LOOP: &str = r#"while read -r path; do
    git merge-file -q "ours/$path" "base/$path" "theirs/$path" || exit 1
done < list"#;

/// The comparison on the subject's place.
pub fn row(bench: &Bench, subject: &Subject, goal: Option<f64>) -> Result<Row> {
    let name =
        format!("commit that merges {CHANGED} files vs git merge-file in a loop, {}", subject.place.name);
    bench.row(&name, goal, || {
        need_git()?;
        let texts = Texts::new(bench, subject.beside("merge"))?;
        let ours = || merge_by_commit(bench, subject, &texts);
        let theirs = || {
            texts.renew_sides()?;
            subject.place.settle()?;
            let sample = run(&mut texts.git_loop(), &subject.beside("output"), &[0])?;
            texts.expect_same_bytes()?;
            Ok(sample)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        remove(&texts.directory)?;
        Ok(Row::timed(&name, goal, &sides))
    })
}

/// A new sandbox of a new tree; only the commit is timed.
fn merge_by_commit(bench: &Bench, subject: &Subject, texts: &Texts<'_>) -> Result<Sample> {
    let tree = texts.renew("tree")?;
    let (sample, created) = subject.sandbox.create(&tree, "filesystem_copy")?;
    bench.peaks.create.note(sample);
    edit_top(&tree, &texts.paths)?;
    edit(&created.sandbox_path, &texts.paths, 0)?;
    subject.place.settle()?;
    let sample = bench.peaks.commit.note(subject.sandbox.commit_merging(&created, CHANGED)?);
    subject.sandbox.destroy(&created)?;
    Ok(sample)
}

/// The directory with the texts of a round: `tree` is what the sandbox was made of, and for git there are `base`, `ours`
/// and `theirs`.
struct Texts<'b> {
    directory: PathBuf,
    paths: Vec<PathBuf>,
    bench: &'b Bench,
}

impl<'b> Texts<'b> {
    fn new(bench: &'b Bench, directory: PathBuf) -> Result<Self> {
        fs::create_dir(&directory).during("create directory", &directory)?;
        let paths = TREE.spread(CHANGED);
        let list: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
        let list_path = directory.join("list");
        fs::write(&list_path, list).during("write", &list_path)?;
        Ok(Self { directory, paths, bench })
    }

    /// The tree `name` as nobody has changed it yet.
    fn renew(&self, name: &str) -> Result<PathBuf> {
        let tree = self.directory.join(name);
        if tree.exists() {
            remove(&tree)?;
        }
        TREE.write(&tree, &self.bench.interrupt)?;
        Ok(tree)
    }

    fn renew_sides(&self) -> Result<()> {
        self.renew("base")?;
        edit_top(&self.renew("ours")?, &self.paths)?;
        edit(&self.renew("theirs")?, &self.paths, 0)
    }

    fn git_loop(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", LOOP]).current_dir(&self.directory);
        command.env_clear().env("HOME", &self.directory).env("PATH", "/usr/bin:/bin");
        // No repository around the place may be looked for.
        command.env("GIT_CEILING_DIRECTORIES", self.directory.parent().unwrap_or(Path::new("/")));
        command
    }

    /// Numbers of two different results would say nothing.
    fn expect_same_bytes(&self) -> Result<()> {
        let read = |tree: &str, path: &Path| {
            let path = self.directory.join(tree).join(path);
            fs::read(&path).during("read", &path)
        };
        for path in &self.paths {
            if read("tree", path)? != read("ours", path)? {
                return Err(Failure::new(format!(
                    "{} was merged in another way than by git",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::interrupt::Interrupt;
    use crate::rows::Peaks;

    fn bench() -> Bench {
        let (binary, interrupt, peaks) = (PathBuf::new(), Interrupt::default(), Peaks::default());
        Bench { binary, spec: TREE, rounds: 1, interrupt, peaks }
    }

    #[test]
    fn the_loop_merges_every_file_and_its_result_is_looked_at() {
        if let Err(why) = need_git() {
            eprintln!("{why}");
            return;
        }
        let (scratch, bench) = (tempfile::tempdir().unwrap(), bench());
        let texts = Texts::new(&bench, scratch.path().join("merge")).unwrap();
        texts.renew_sides().unwrap();
        run(&mut texts.git_loop(), &scratch.path().join("output"), &[0]).unwrap();
        let tree = texts.renew("tree").unwrap();
        assert!(texts.expect_same_bytes().is_err());
        edit_top(&tree, &texts.paths).unwrap();
        edit(&tree, &texts.paths, 0).unwrap();
        texts.expect_same_bytes().unwrap();
        assert_eq!(texts.paths.len(), CHANGED);
    }
}
