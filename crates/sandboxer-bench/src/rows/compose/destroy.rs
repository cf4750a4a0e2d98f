//! A stack removed, against `down` of a compose program by hand, and against the engine told what to remove.

use super::scene::ByHand;
use super::{Program, Scene};
use crate::failure::{Failure, Result};
use crate::measure::interleave;
use crate::report::Row;
use crate::rows::Bench;

/// Both comparisons.
pub fn rows(bench: &Bench, scene: &Result<Scene>, program: Program) -> Result<Vec<Row>> {
    let by_compose = format!("destroy of a stack of three services vs {} down by hand", program.line());
    let by_engine = format!(
        "destroy of a stack of three services{} vs docker rm and docker network rm by hand",
        program.by()
    );
    let down = "by hand nothing is looked for, and no directory removed";
    let remove = "by hand all names are known, and nobody looks whether something is left";
    Ok(vec![
        row(bench, scene, &by_compose, 1.0, ByHand::down, down)?,
        row(bench, scene, &by_engine, 1.15, ByHand::remove, remove)?,
    ])
}

fn row(
    bench: &Bench,
    scene: &Result<Scene>,
    name: &str,
    goal: f64,
    line: fn(&ByHand) -> String,
    note: &str,
) -> Result<Row> {
    bench.row(name, Some(goal), || {
        let scene = scene.as_ref().map_err(Failure::again)?;
        let ours = || {
            let (_, id) = scene.create()?;
            scene.disconnect()?;
            scene.destroy(&id)
        };
        let theirs = || {
            let stack = scene.by_hand()?;
            scene.run_typed(&stack.up())?;
            scene.run_typed(&line(&stack))
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        Ok(Row::timed(name, Some(goal), &sides).noting("each connects").noting(note))
    })
}
