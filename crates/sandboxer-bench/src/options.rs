//! What every table has in common on the command line, and what becomes of its rows.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::binary;
use crate::failure::{During, Failure, Result};
use crate::interrupt::Interrupt;
use crate::report::{Row, table};
use crate::rows::{Bench, Peaks};
use crate::tree::TreeSpec;

/// The options of every table.
#[derive(Args)]
pub struct Options {
    /// Write the rows to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How many rounds of each comparison count (5; 3 with --quick).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// A directory on the disk to measure on.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub disk: PathBuf,
    /// A tenth of the tree or less, and fewer rounds: to see that it works, not to keep.
    #[arg(long)]
    pub quick: bool,
    /// The `sandbox` to measure instead of the release build; for trying out the benchmark itself.
    #[arg(long, value_name = "FILE", hide = true)]
    binary: Option<PathBuf>,
}

impl Options {
    /// The settings of a run over trees like `spec`; says so where the machine is busy.
    pub fn bench(&self, spec: TreeSpec, interrupt: &Interrupt) -> Result<Bench> {
        let bench = Bench {
            binary: self.binary.clone().map_or_else(binary::locate, Ok)?,
            spec,
            rounds: self.rounds.map_or(if self.quick { 3 } else { 5 }, usize::from),
            interrupt: interrupt.clone(),
            peaks: Peaks::default(),
        };
        warn_if_busy();
        Ok(bench)
    }

    /// Prints the table and writes the file; false where a row failed.
    pub fn publish(&self, rows: &[Row]) -> Result<bool> {
        print(rows)?;
        self.json.as_deref().map_or(Ok(()), |path| write_json(path, rows))?;
        Ok(!rows.iter().any(Row::has_failed))
    }
}

/// A word that is the beginning of at least one group's name.
pub fn beginning<'g>(mut groups: impl Iterator<Item = &'g str>, word: &str) -> Result<String, String> {
    if groups.any(|group| group.starts_with(word)) {
        Ok(word.to_owned())
    } else {
        Err("no such group".to_owned())
    }
}

/// Whether a group is among those that begin with one of `words`; no word stands for all.
pub fn is_wanted(words: &[String], group: &str) -> bool {
    words.is_empty() || words.iter().any(|word| group.starts_with(word.as_str()))
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

fn print(rows: &[Row]) -> Result<()> {
    let written = std::io::stdout().write_all(table(rows).as_bytes());
    written.map_err(|error| Failure::new(format!("cannot print the table: {error}")))
}

fn write_json(path: &Path, rows: &[Row]) -> Result<()> {
    let mut json = serde_json::to_string_pretty(rows).during("describe the rows for", path)?;
    json.push('\n');
    fs::write(path, json).during("write", path)
}
