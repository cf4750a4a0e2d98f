//! What many sandboxes at once take of memory: everything that is ours while a command sleeps in each of them, divided by their
//! number.

use super::processes::{Sleeper, Tally};
use super::yard::{Project, Who, Yard};
use crate::failure::{Failure, Result};
use crate::place::is_root;
use crate::report::Row;

const GOAL_MB: f64 = 4.0;
/// So many start at once: a machine of two processors is not helped by more.
const BATCH: usize = 10;

/// As root and as an ordinary user.
pub fn rows(yard: &Yard<'_>, crowd: usize) -> Result<Vec<Row>> {
    Who::ALL.map(|who| row(yard, who, crowd)).into_iter().collect()
}

fn row(yard: &Yard<'_>, who: Who, crowd: usize) -> Result<Row> {
    let name = format!("memory of ours for each of {crowd} sandboxes at once, as {}", who.name());
    yard.bench.row(&name, Some(GOAL_MB), || {
        if !is_root() {
            return Err(Failure::Skipped("the memory of what is contained is for root to see".to_owned()));
        }
        let project = yard.project(&format!("crowd-{who:?}"), who)?;
        project.need_strategy()?;
        let sleepers = asleep(&project, crowd)?;
        let tally = Tally::of(project.binary())?;
        // Whatever runs in a sandbox has a process 1 of ours; where it is not seen nothing was measured.
        if tally.count("init") < crowd {
            return Err(Failure::new(format!("{crowd} sandboxes, and of ours {}", tally.describe())));
        }
        // All of them before the first is waited for.
        sleepers.iter().for_each(Sleeper::tell_to_end);
        drop(sleepers);
        Ok(Row::memory(&name, GOAL_MB, tally.bytes() / crowd as u64, 1).noting(&tally.describe()))
    })
}

/// As many sandboxes, in each of which a command sleeps.
fn asleep(project: &Project<'_>, crowd: usize) -> Result<Vec<Sleeper>> {
    let mut sleepers = Vec::with_capacity(crowd);
    while sleepers.len() < crowd {
        let started = sleepers.len();
        for _ in started..crowd.min(started + BATCH) {
            sleepers.push(Sleeper::start(|argument| project.run(&[], &["sleep", argument]))?);
        }
        for sleeper in &mut sleepers[started..] {
            sleeper.asleep(&project.yard.bench.interrupt)?;
        }
    }
    Ok(sleepers)
}
