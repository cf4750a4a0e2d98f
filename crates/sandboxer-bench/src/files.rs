//! The table `files`: create, diff and commit of a tree of small files, on tmpfs, on XFS and on disk; and the same by
//! overlay, on trees of very different sizes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::binary;
use crate::failure::{During, Failure, Result};
use crate::interrupt::Interrupt;
use crate::place::{Place, preflight};
use crate::report::{Row, table};
use crate::rows::{
    Bench, Peaks, Subject, apply, checkpoints, commit, create, diff, hunks, memory, merge, overlay, startup,
    undo,
};
use crate::tree::TreeSpec;

/// Create, diff and commit of 50,000 small files, on tmpfs, on an XFS loop mount (as root) and on disk.
#[derive(Args)]
pub struct FilesArguments {
    /// Write the rows to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How many rounds of each comparison count (5; 3 with --quick).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// A directory on the disk to measure on.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    disk: PathBuf,
    /// A tenth of the tree and fewer rounds: to see that it works, not to keep.
    #[arg(long)]
    quick: bool,
    /// Only the groups of rows whose names begin with this: copies, or overlay with all of overlay-create, overlay-user,
    /// overlay-copies, overlay-diff, overlay-checkpoint, overlay-work. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
}

/// The group of all rows of strategies that copy.
const COPIES: &str = "copies";

/// The beginning of at least one group's name.
fn group(word: &str) -> Result<String, String> {
    let mut groups = std::iter::once(COPIES).chain(overlay::GROUPS);
    if groups.any(|group| group.starts_with(word)) {
        Ok(word.to_owned())
    } else {
        Err("no such group".to_owned())
    }
}

impl FilesArguments {
    fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| group.starts_with(word.as_str()))
    }
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &FilesArguments, interrupt: &Interrupt) -> Result<bool> {
    let spec = if arguments.quick { TreeSpec::QUICK } else { TreeSpec::FULL };
    if arguments.wants(COPIES) {
        preflight(&arguments.disk, room(&spec))?;
    }
    let bench = Bench {
        binary: binary::locate()?,
        spec,
        rounds: arguments.rounds.map_or(if arguments.quick { 3 } else { 5 }, usize::from),
        interrupt: interrupt.clone(),
        peaks: Peaks::default(),
    };
    warn_if_busy();
    let mut rows = Vec::new();
    if arguments.wants(COPIES) {
        rows.extend(rows_of_copies(&bench, &arguments.disk)?);
    }
    rows.extend(rows_of_overlay(&bench, arguments)?);
    print(&rows)?;
    arguments.json.as_deref().map_or(Ok(()), |path| write_json(path, &rows))?;
    Ok(!rows.iter().any(Row::has_failed))
}

fn rows_of_overlay(bench: &Bench, arguments: &FilesArguments) -> Result<Vec<Row>> {
    if !overlay::GROUPS.iter().any(|group| arguments.wants(group)) {
        return Ok(Vec::new());
    }
    let scale = if arguments.quick { overlay::Scale::QUICK } else { overlay::Scale::FULL };
    let place = Place::ext4(&arguments.disk, scale.room(), scale.inodes())?;
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

/// Two threads on two busy processors are no faster than one: ratios would tell of the neighbours.
fn warn_if_busy() {
    let load =
        fs::read_to_string("/proc/loadavg").ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(load) = load.filter(|load| *load > processors as f64 / 2.0) {
        crate::say(&format!(
            "this machine is busy (load {load} on {processors} processors): do not keep this table"
        ));
    }
}

/// The tree, one copy of it, one checkpoint, and what a sandbox keeps beside its copy.
fn room(spec: &TreeSpec) -> u64 {
    spec.bytes_on_disk() * 32 / 10 + (256 << 20)
}

fn print(rows: &[Row]) -> Result<()> {
    let written = std::io::stdout().write_all(table(rows).as_bytes());
    written.map_err(|error| Failure::new(format!("cannot print the table: {error}")))
}

fn write_json(path: &Path, rows: &[Row]) -> Result<()> {
    let mut json = serde_json::to_string_pretty(rows).during("describe the rows for", path)?;
    json.push('\n');
    fs::write(path, json).during("write", path)
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
