//! The apply phase of a durable commit against an in-process loop that copies the same files and makes each durable.
//!
//! Both sides run inside this process, through the library: `commit` in its phases prepare and finish, less a `diff` of
//! the same state, which leaves staging, hashing, journal, apply and every fsync.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{CommitRequest, Phase, PlanId, Resource, SandboxRef};
use sandboxer_core::registry::{StrategyContext, StrategyRegistry};
use sandboxer_strategies::filesystem_copy;

use super::{Bench, CHANGED, Subject, copy_and_fsync};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave};
use crate::report::Row;
use crate::tree::edit;

const NAME: &str = "commit's apply phase vs copy-and-fsync loop, disk";
const GOAL: f64 = 2.0;

/// The comparison on the subject's place.
pub fn row(bench: &Bench, subject: &Subject) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        let workspace = Workspace::create(subject)?;
        let row = compare(bench, subject, &workspace);
        workspace.strategy.cleanup(&workspace.handle).during("clean up", &subject.tree)?;
        row
    })
}

fn compare(bench: &Bench, subject: &Subject, workspace: &Workspace) -> Result<Row> {
    let paths = bench.spec.spread(CHANGED);
    let round = Cell::new(0);
    let ours = || {
        round.set(round.get() + 1);
        edit(&workspace.path, &paths, round.get())?;
        subject.place.settle()?;
        let diff = workspace.diff()?;
        subject.place.settle()?;
        let commit = workspace.commit()?;
        Ok(Sample::in_process(commit.saturating_sub(diff)))
    };
    let theirs = || {
        subject.place.settle()?;
        copy_and_fsync(&workspace.path, &paths, &subject.beside("loop")).map(Sample::in_process)
    };
    let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
    Ok(Row::timed(NAME, Some(GOAL), &sides))
}

/// One workspace, held by the library in this process.
struct Workspace {
    strategy: Arc<dyn SandboxStrategy>,
    handle: SandboxRef,
    path: PathBuf,
}

impl Workspace {
    fn create(subject: &Subject) -> Result<Self> {
        let mut registry = StrategyRegistry::new();
        let home = subject.beside("library");
        registry.register(filesystem_copy::entry()).during("register the strategy for", &home)?;
        let context = StrategyContext::quiet(&home);
        let strategy = registry.open("filesystem_copy", &context).during("open the strategy in", &home)?;
        let resource = Resource::at_path("fs-directory", &subject.tree);
        let handle = strategy.create(&PlanId::generate(), &resource).during("isolate", &subject.tree)?;
        let path = handle.sandbox_path().ok_or_else(|| Failure::new("the sandbox has no path"))?;
        Ok(Self { strategy, handle, path })
    }

    fn diff(&self) -> Result<Duration> {
        let started = Instant::now();
        let view = self.strategy.diff(&self.handle).during("diff", &self.path)?;
        let taken = started.elapsed();
        expect_all(view.entries.len())?;
        Ok(taken)
    }

    fn commit(&self) -> Result<Duration> {
        let phase = |phase| CommitRequest { phase, ..CommitRequest::default() };
        let started = Instant::now();
        let prepared =
            self.strategy.commit(&self.handle, &phase(Phase::Prepare)).during("prepare", &self.path)?;
        self.strategy.commit(&self.handle, &phase(Phase::Finish)).during("finish", &self.path)?;
        let taken = started.elapsed();
        expect_all(prepared.entries.len())?;
        Ok(taken)
    }
}

fn expect_all(found: usize) -> Result<()> {
    if found == CHANGED { Ok(()) } else { Err(Failure::new(format!("{found} entries instead of {CHANGED}"))) }
}
