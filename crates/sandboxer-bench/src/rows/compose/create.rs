//! A stack made and ready, against `up -d` of a compose program by hand with its files already there.

use super::{Program, Scene};
use crate::failure::{Failure, Result};
use crate::measure::interleave;
use crate::report::Row;
use crate::rows::Bench;

const GOAL: f64 = 1.15;

/// The comparison. Either side connects anew.
pub fn row(bench: &Bench, scene: &Result<Scene>, program: Program) -> Result<Row> {
    let name = format!("create of a stack of three services vs {} up by hand", program.line());
    bench.row(&name, Some(GOAL), || {
        let scene = scene.as_ref().map_err(Failure::again)?;
        let ours = || {
            scene.disconnect()?;
            let (sample, id) = scene.create()?;
            scene.destroy(&id)?;
            Ok(sample)
        };
        let theirs = || {
            let stack = scene.by_hand()?;
            let sample = scene.run_typed(&stack.up())?;
            scene.clean_up(&stack)?;
            Ok(sample)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        let note =
            "until it is ready; each connects; by hand the same resolved file, with nothing to copy or check";
        Ok(Row::timed(&name, Some(GOAL), &sides).noting(note))
    })
}
