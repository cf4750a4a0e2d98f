//! Peak memory of the commands, over every run of every other row. `wait4` counts what a child had before its `exec`
//! too, which is this process's own memory: a figure not above that is a bound, and says so.

use std::fs;

use super::{Bench, Peak};
use crate::failure::Failure;
use crate::report::Row;

const GOAL_MB: f64 = 24.0;

/// One row for each command.
pub fn rows(bench: &Bench) -> Vec<Row> {
    let own = own_peak().unwrap_or(0);
    let peaks =
        [("create", &bench.peaks.create), ("diff", &bench.peaks.diff), ("commit", &bench.peaks.commit)];
    peaks.map(|(command, peak)| row(command, peak, own)).into()
}

fn row(command: &str, peak: &Peak, own: u64) -> Row {
    let name = format!("peak memory of {command}");
    let (bytes, runs) = peak.largest();
    if runs == 0 {
        let why = Failure::new(format!("no {command} was measured"));
        return Row::without(&name, Some(GOAL_MB), "MB", &why);
    }
    let row = Row::memory(&name, GOAL_MB, bytes, runs);
    if bytes > own { row } else { row.noting("at most: not above the benchmark's own memory") }
}

fn own_peak() -> Option<u64> {
    peak_in_status(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_in_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::measure::Sample;

    #[test]
    fn a_peak_hidden_by_our_own_is_called_a_bound() {
        let peak = Peak::default();
        assert!(row("diff", &peak, 0).has_failed());
        peak.note(Sample { peak: 5_000_000, ..Sample::default() });
        assert_eq!(row("diff", &peak, 4_000_000).note, "");
        assert!(row("diff", &peak, 5_000_000).note.starts_with("at most"));
    }

    #[test]
    fn our_own_peak_is_known() {
        assert!(own_peak().unwrap() > 100_000);
        assert_eq!(peak_in_status("VmPeak: 1 kB\n"), None);
    }
}
