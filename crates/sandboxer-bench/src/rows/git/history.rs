//! The repository that everything is measured in, the same objects on every machine: one stream for `git fast-import`, in
//! which each commit adds its share of the files and changes a few that are there already. The checkout also has what a
//! developer's has and git does not keep: two directories of ignored files.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::failure::{During, Failure, Result};
use crate::interrupt::Interrupt;
use crate::place::tool;
use crate::rows::git;
use crate::tree::TreeSpec;

/// Directories that git is told to ignore, with what is in each.
const IGNORED: [&str; 2] = ["node_modules", "target"];
const IGNORED_SPEC: TreeSpec = TreeSpec::tiny(1_000);
const IGNORE_FILE: &str = "node_modules/\ntarget/\n";
/// How many files a commit changes beside those that it adds.
const EDITS: usize = 5;
/// A prime, so that the changes of one commit are spread over what there is.
const APART: usize = 4_799;
/// The first commit's time; each is a minute after the one before.
const EPOCH: usize = 1_700_000_000;
/// The repository's own settings, so that they also count for whoever starts git in it by a shell.
const SETTINGS: [(&str, &str); 4] = [
    ("user.name", "bench"),
    ("user.email", "bench@localhost"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
];

/// How large a repository is.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The files of its last commit, the one with what is ignored not counted.
    pub spec: TreeSpec,
    commits: usize,
}

impl History {
    /// What the kept table is measured with: about 100 MB of text.
    pub const FULL: Self = Self { spec: TreeSpec::sources(50_000, 500), commits: 2_000 };
    /// To see that it works.
    pub const QUICK: Self = Self { spec: TreeSpec::sources(2_000, 500), commits: 50 };

    #[cfg(test)]
    pub const TINY: Self = Self { spec: TreeSpec::sources(200, 100), commits: 7 };

    /// What it takes on disk: the checkout, two worktrees, a sandbox that may be a copy, and what git packs.
    pub fn room(&self) -> u64 {
        self.spec.bytes_on_disk() * 5 + IGNORED_SPEC.bytes_on_disk() * 4 + (512 << 20)
    }

    /// How many inodes that takes, with room for loose objects.
    pub fn inodes(&self) -> u64 {
        self.spec.inodes() * 4 + IGNORED_SPEC.inodes() * 4 + 100_000
    }

    /// Makes the repository at `path`, which must not exist: packed, checked out on `main`, clean, its index fresh.
    pub fn make(&self, path: &Path, interrupt: &Interrupt) -> Result<()> {
        let above = path.parent().unwrap_or(path);
        tool(git(above, &["init", "--quiet", "--initial-branch=main", "--template="]).arg(path))?;
        for (name, value) in SETTINGS {
            tool(&mut git(path, &["config", name, value]))?;
        }
        self.import(path, interrupt)?;
        tool(&mut git(path, &["gc", "--quiet"]))?;
        tool(&mut git(path, &["reset", "--quiet", "--hard"]))?;
        IGNORED.iter().try_for_each(|name| IGNORED_SPEC.write(&path.join(name), interrupt))?;
        freshen(path)
    }

    fn import(&self, path: &Path, interrupt: &Interrupt) -> Result<()> {
        let mut import = git(path, &["fast-import", "--quiet", "--done"]);
        import.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = import.spawn().during("start git fast-import in", path)?;
        let written = self.feed(&mut child, path, interrupt);
        let ended = child.wait_with_output().during("wait for git fast-import in", path)?;
        if !ended.status.success() && written != Err(Failure::Interrupted) {
            let said = String::from_utf8_lossy(&ended.stderr);
            return Err(Failure::new(format!(
                "git fast-import ended with {}: {}",
                ended.status,
                said.trim()
            )));
        }
        written
    }

    /// Writes the stream; its pipe is closed at the end, which without a `done` git takes for a failure.
    fn feed(&self, child: &mut Child, path: &Path, interrupt: &Interrupt) -> Result<()> {
        let pipe = child.stdin.take().ok_or_else(|| Failure::new("git fast-import has no input"))?;
        let mut stream = BufWriter::with_capacity(1 << 16, pipe);
        for number in 0..self.commits {
            interrupt.check()?;
            self.write_commit(&mut stream, number).during("feed git fast-import in", path)?;
        }
        stream.write_all(b"done\n").and_then(|()| stream.flush()).during("feed git fast-import in", path)
    }

    fn write_commit(&self, stream: &mut impl Write, number: usize) -> std::io::Result<()> {
        let when = EPOCH + number * 60;
        writeln!(stream, "commit refs/heads/main\ncommitter bench <bench@localhost> {when} +0000")?;
        write_data(stream, format!("Commit {number}").as_bytes())?;
        if number == 0 {
            write_file(stream, Path::new(".gitignore"), IGNORE_FILE.as_bytes())?;
        }
        let mut content = Vec::new();
        let added = self.files_before(number)..self.files_before(number + 1);
        for file in added.clone() {
            self.spec.fill(&mut content, file);
            write_file(stream, &self.spec.file_path(file), &content)?;
        }
        for edit in 0..EDITS.min(added.start) {
            let file = (number * EDITS + edit) * APART % added.start;
            self.spec.fill(&mut content, file);
            writeln!(content, "changed by commit {number}")?;
            write_file(stream, &self.spec.file_path(file), &content)?;
        }
        Ok(())
    }

    /// How many files there are before that commit.
    fn files_before(&self, commit: usize) -> usize {
        self.spec.files * commit / self.commits
    }
}

/// Lets git trust its index. It does not trust what it stored about files of the very second in which it stored it, and
/// would read them all again each time; a status after that second mends it.
pub fn freshen(checkout: &Path) -> Result<()> {
    std::thread::sleep(Duration::from_millis(1_100));
    tool(&mut git(checkout, &["status"]))
}

fn write_file(stream: &mut impl Write, path: &Path, content: &[u8]) -> std::io::Result<()> {
    writeln!(stream, "M 100644 inline {}", path.display())?;
    write_data(stream, content)
}

fn write_data(stream: &mut impl Write, content: &[u8]) -> std::io::Result<()> {
    writeln!(stream, "data {}", content.len())?;
    stream.write_all(content)?;
    stream.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rows::need_git;

    fn answer(repository: &Path, arguments: &[&str]) -> String {
        let output = git(repository, arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    #[test]
    fn the_repository_is_the_same_every_time_and_clean() {
        if let Err(why) = need_git() {
            eprintln!("skipped: the_repository_is_the_same_every_time_and_clean: {why}");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let repository = scratch.path().join("repository");
        History::TINY.make(&repository, &Interrupt::default()).unwrap();
        // If this changes, every kept number was measured on another repository.
        assert_eq!(answer(&repository, &["rev-parse", "HEAD"]), "e4696020191f8ec726d3081f68009410858df8ab");
        assert_eq!(answer(&repository, &["rev-list", "--count", "main"]), "7");
        assert_eq!(answer(&repository, &["ls-files"]).lines().count(), 201);
        assert_eq!(answer(&repository, &["status", "--porcelain"]), "");
        let ignored = answer(&repository, &["ls-files", "--others", "--ignored", "--exclude-standard"]);
        assert_eq!(ignored.lines().count(), 2_000);
        assert!(answer(&repository, &["count-objects"]).starts_with("0 objects"));
    }

    #[test]
    fn every_file_is_added_once_and_later_commits_change_some() {
        for history in [History::FULL, History::QUICK, History::TINY] {
            assert_eq!(
                (history.files_before(0), history.files_before(history.commits)),
                (0, history.spec.files)
            );
        }
        let mut stream = Vec::new();
        History::TINY.write_commit(&mut stream, 3).unwrap();
        let text = String::from_utf8(stream).unwrap();
        let added = History::TINY.files_before(4) - History::TINY.files_before(3);
        assert_eq!(text.matches("\nM 100644 inline ").count(), added + EDITS);
        assert_eq!(text.matches("changed by commit 3\n").count(), EDITS);
    }
}
