//! What a person waits for when nothing is to be done: `sandbox list` with an empty state against `/bin/true`, each as a
//! process.

use std::fs;
use std::process::Command;

use super::{Bench, Subject};
use crate::failure::{During, Result};
use crate::measure::{interleave, run};
use crate::report::Row;
use crate::sandbox::SandboxCommand;

const NAME: &str = "list of an empty state vs /bin/true";
const GOAL: f64 = 4.0;
/// A process is over in a millisecond, so it takes many for a steady median.
const RUNS_A_ROUND: usize = 60;

/// The comparison, with a state directory of its own beside the subject's.
pub fn row(bench: &Bench, subject: &Subject) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        let directory = subject.beside("empty");
        fs::create_dir(&directory).during("create directory", &directory)?;
        let sandbox = SandboxCommand::new(&bench.binary, &directory);
        let nothing = || run(Command::new("/bin/true").env_clear(), &subject.beside("output"), &[0]);
        let runs = bench.rounds * RUNS_A_ROUND;
        let sides = interleave(runs, &bench.interrupt, || sandbox.list(), nothing)?;
        // Among hundreds of runs of a millisecond the extremes tell of the scheduler alone.
        Ok(Row { note: String::new(), ..Row::timed(NAME, Some(GOAL), &sides) })
    })
}
