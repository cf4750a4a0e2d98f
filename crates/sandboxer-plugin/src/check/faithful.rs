//! Whether the tree of a sandbox keeps what a filesystem has.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sandboxer_core::model::{DiffKind, PlanId, SandboxRef};
use serde_json::json;

use super::commits::done_with;
use super::report::Verdict;
use super::{Check, Ground, expect_entries};

/// What is put into the resource by hand: one file with two names, and one that the patterns leave out.
const FIRST_NAME: &str = "linked-1";
const SECOND_NAME: &str = "linked-2";
const LEFT_OUT: &str = "left.out";
/// Long ago, so that nothing has this time by chance.
const THEN: Duration = Duration::from_secs(1_000_000_000);

impl Check<'_> {
    pub(super) fn keep_everything(&mut self) -> Verdict {
        let planted = self.plant()?;
        let mut resource = self.bench.resource.clone();
        resource.properties.insert("exclude".to_owned(), json!([format!("**/{LEFT_OUT}")]));
        let sandbox = self.open_as(&PlanId::generate(), &resource)?;
        let tree = sandbox.sandbox_path().ok_or("its ref has no `path`")?.join(&self.bench.name);
        if planted.is_some() {
            self.expect_planted(&tree)?;
        }
        self.tell_a_rename(&sandbox, &tree)?;
        done_with(self, &sandbox)?;
        planted.map_or(Ok(()), |directory| take_out(&directory))?;
        Ok("a rename is told; patterns, times and links between files where they can be made".to_owned())
    }

    /// Makes the files by hand, where that can be done: what has a history would show them as changes of somebody else.
    fn plant(&self) -> Result<Option<PathBuf>, String> {
        let Ground::Directory(root) = &self.bench.ground else { return Ok(None) };
        if self.can.branches {
            return Ok(None);
        }
        let directory = root.join(&self.bench.name);
        let made = fs::write(directory.join(LEFT_OUT), "left out\n")
            .and_then(|()| fs::File::create_new(directory.join(FIRST_NAME)))
            .and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH + THEN))
            .and_then(|()| fs::hard_link(directory.join(FIRST_NAME), directory.join(SECOND_NAME)));
        made.map_err(|error| format!("{} cannot be written to: {error}", directory.display()))?;
        Ok(Some(directory))
    }

    fn expect_planted(&self, tree: &Path) -> Result<(), String> {
        let (first, second) = (look(&tree.join(FIRST_NAME))?, look(&tree.join(SECOND_NAME))?);
        if first.mtime() != THEN.as_secs() as i64 {
            return Err(format!("{FIRST_NAME} in the sandbox has another time than in the resource"));
        }
        if (first.dev(), first.ino()) != (second.dev(), second.ino()) {
            return Err(format!("{FIRST_NAME} and {SECOND_NAME} are one file, and two in the sandbox"));
        }
        if !self.can.looks_through && tree.join(LEFT_OUT).exists() {
            return Err(format!("the pattern **/{LEFT_OUT} leaves {LEFT_OUT} out, and it is in the sandbox"));
        }
        Ok(())
    }

    fn tell_a_rename(&self, sandbox: &SandboxRef, tree: &Path) -> Result<(), String> {
        let moved = self.bench.below("moved.txt").map_err(|error| error.to_string())?;
        fs::rename(tree.join("kept.txt"), tree.join("moved.txt"))
            .map_err(|error| format!("{} cannot be renamed: {error}", tree.join("kept.txt").display()))?;
        expect_entries(&self.diff(sandbox)?, &[(&moved, DiffKind::Renamed)])
    }
}

fn look(file: &Path) -> Result<Metadata, String> {
    fs::symlink_metadata(file).map_err(|error| format!("{} in the sandbox: {error}", file.display()))
}

fn take_out(directory: &Path) -> Result<(), String> {
    [FIRST_NAME, SECOND_NAME, LEFT_OUT].into_iter().try_for_each(|name| {
        fs::remove_file(directory.join(name)).map_err(|error| format!("{name} cannot be removed: {error}"))
    })
}
