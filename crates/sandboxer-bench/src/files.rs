//! The table `files`: create, diff and commit of a tree of small files, on tmpfs, on XFS and on disk; and the same by
//! overlay, on trees of very different sizes.

use std::path::Path;

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::place::{Place, preflight};
use crate::report::Row;
use crate::rows::{
    Bench, Subject, apply, checkpoints, commit, create, diff, hunks, memory, merge, overlay, startup, undo,
};
use crate::tree::TreeSpec;

/// Create, diff and commit of 50,000 small files, on tmpfs, on an XFS loop mount (as root) and on disk.
#[derive(Args)]
pub struct FilesArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: copies, or overlay with all of overlay-create, overlay-user,
    /// overlay-copies, overlay-diff, overlay-checkpoint, overlay-work. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
}

/// The group of all rows of strategies that copy.
const COPIES: &str = "copies";

/// The beginning of at least one group's name.
fn group(word: &str) -> Result<String, String> {
    beginning(std::iter::once(COPIES).chain(overlay::GROUPS), word)
}

impl FilesArguments {
    fn wants(&self, group: &str) -> bool {
        is_wanted(&self.only, group)
    }
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &FilesArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let spec = if options.quick { TreeSpec::QUICK } else { TreeSpec::FULL };
    if arguments.wants(COPIES) {
        preflight(&options.disk, room(&spec))?;
    }
    let bench = options.bench(spec, interrupt)?;
    let mut rows = Vec::new();
    if arguments.wants(COPIES) {
        rows.extend(rows_of_copies(&bench, &options.disk)?);
    }
    rows.extend(rows_of_overlay(&bench, arguments)?);
    options.publish(&rows)
}

fn rows_of_overlay(bench: &Bench, arguments: &FilesArguments) -> Result<Vec<Row>> {
    if !overlay::GROUPS.iter().any(|group| arguments.wants(group)) {
        return Ok(Vec::new());
    }
    let scale = if arguments.options.quick { overlay::Scale::QUICK } else { overlay::Scale::FULL };
    let place = Place::ext4(&arguments.options.disk, scale.room(), scale.inodes())?;
    overlay::rows(bench, scale, place, |group| arguments.wants(group))
}

/// The rows of the strategies that copy, in the order of the table.
fn rows_of_copies(bench: &Bench, disk: &Path) -> Result<Vec<Row>> {
    let mut creates = Vec::new();
    let mut diffs = Vec::new();
    let mut commits = Vec::new();
    let needed = room(&bench.spec);

    let tmpfs = Subject::new(bench, Place::tmpfs(needed)?)?;
    creates.push(create::filesystem_copy(bench, &tmpfs, Some(create::TMPFS_GOAL))?);
    diffs.push(diff::row(bench, &tmpfs, Some(diff::GOAL))?);
    let mut merges = vec![merge::row(bench, &tmpfs, Some(merge::GOAL))?];
    drop(tmpfs);

    let disk = Subject::new(bench, Place::disk(disk, needed)?)?;
    creates.push(create::filesystem_copy(bench, &disk, None)?);
    diffs.push(diff::row(bench, &disk, None)?);
    commits.push(commit::row(bench, &disk)?);
    commits.push(undo::row(bench, &disk)?);
    merges.push(merge::row(bench, &disk, None)?);
    merges.push(hunks::row(bench, &disk)?);
    merges.push(checkpoints::row(bench, &disk)?);
    let startup = startup::row(bench, &disk)?;

    creates.push(create::copy_on_write(bench, Place::xfs(needed))?);
    // The peaks are read before the library works inside this very process and makes it larger.
    let memory = memory::rows(bench);
    commits.insert(0, apply::row(bench, &disk)?);
    Ok([creates, diffs, commits, merges, memory, vec![startup]].concat())
}

/// The tree, one copy of it, one checkpoint, and what a sandbox keeps beside its copy.
fn room(spec: &TreeSpec) -> u64 {
    spec.bytes_on_disk() * 32 / 10 + (256 << 20)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        files: FilesArguments,
    }

    fn wanted(words: &[&str]) -> Vec<&'static str> {
        let line = Line::try_parse_from([&["files"], words].concat()).unwrap();
        let groups = std::iter::once(COPIES).chain(overlay::GROUPS);
        groups.filter(|group| line.files.wants(group)).collect()
    }

    #[test]
    fn groups_are_chosen_by_the_beginning_of_their_names() {
        assert_eq!(wanted(&[]).len(), 7);
        assert_eq!(wanted(&["--only", "overlay"]), overlay::GROUPS);
        assert_eq!(wanted(&["--only", "copies", "--only", "overlay-diff"]), ["copies", "overlay-diff"]);
        assert!(Line::try_parse_from(["files", "--only", "overlai"]).is_err());
    }
}
