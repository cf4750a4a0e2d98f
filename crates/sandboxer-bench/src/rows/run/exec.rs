//! `sandbox exec` into a runtime that is there already, against `nsenter` of all the namespaces that it has.

use super::processes::Sleeper;
use super::yard::{Who, Yard};
use super::{RUNS_A_ROUND, need_tool};
use crate::failure::Result;
use crate::measure::{interleave, run};
use crate::report::Row;

const NAME: &str = "exec of true in a live runtime vs nsenter of all its namespaces";
const GOAL: f64 = 1.5;

/// The comparison. An ordinary user may not enter the namespaces that are still the host's (of time).
pub fn row(yard: &Yard<'_>) -> Result<Row> {
    yard.bench.row(NAME, Some(GOAL), || {
        need_tool("nsenter")?;
        let project = yard.project("exec", Who::Root)?;
        project.need_strategy()?;
        let created = project.create()?;
        let mut sleeper = Sleeper::start(|argument| {
            project.sandbox(&["exec", &created.sandbox_id, "--", "sleep", argument])
        })?;
        let pid = sleeper.asleep(&yard.bench.interrupt)?.to_string();
        let output = project.beside("output");
        let ours = || run(&mut project.sandbox(&["exec", &created.sandbox_id, "--", "true"]), &output, &[0]);
        let theirs = || run(project.plainly("nsenter").args(["-t", &pid, "-a", "true"]), &output, &[0]);
        let sides = interleave(yard.bench.rounds * RUNS_A_ROUND, &yard.bench.interrupt, ours, theirs)?;
        Ok(Row::timed(NAME, Some(GOAL), &sides))
    })
}
