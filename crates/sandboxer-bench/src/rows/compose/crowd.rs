//! Many stacks at once on one host, against one, and against as many by hand at once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::scene::made;
use super::{Program, Scale, Scene};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave_cold};
use crate::report::Row;
use crate::rows::Bench;

const GOAL: f64 = 3.0;
/// A round is long.
const ROUNDS: usize = 3;

/// Both comparisons.
pub fn rows(bench: &Bench, scene: &Result<Scene>, program: Program, scale: &Scale) -> Result<Vec<Row>> {
    let crowd = scale.crowd;
    let rounds = bench.rounds.min(ROUNDS);
    let one = format!("{crowd} stacks at once on one host{} vs one", program.by());
    let one = bench.row(&one, Some(GOAL), || {
        let scene = scene.as_ref().map_err(Failure::again)?;
        let sides = interleave_cold(rounds, &bench.interrupt, || ours(scene, crowd), || ours(scene, 1))?;
        Ok(Row::timed(&one, Some(GOAL), &sides).noting("until all are ready; both sides are ours"))
    })?;
    let line = program.line();
    let hand = format!("{crowd} stacks at once on one host vs {crowd} times {line} up by hand at once");
    let hand = bench.row(&hand, None, || {
        let scene = scene.as_ref().map_err(Failure::again)?;
        let theirs = || by_hand(scene, crowd);
        let sides = interleave_cold(rounds, &bench.interrupt, || ours(scene, crowd), theirs)?;
        Ok(Row::timed(&hand, None, &sides).noting("what the engine and the processors of the host allow"))
    })?;
    Ok(vec![one, hand])
}

/// Times as many creates at once until the last of them is ready; removes what they have made.
fn ours(scene: &Scene, crowd: usize) -> Result<Sample> {
    scene.disconnect()?;
    let outputs: Vec<PathBuf> = (0..crowd).map(|_| scene.output()).collect();
    let sample = at_once(outputs.iter().map(|output| (scene.creating(), output.as_path())));
    let removed: Result<Vec<Sample>> =
        outputs.iter().filter_map(|output| made(output).ok()).map(|id| scene.destroy(&id)).collect();
    removed.and(sample)
}

fn by_hand(scene: &Scene, crowd: usize) -> Result<Sample> {
    let stacks = (0..crowd).map(|_| scene.by_hand()).collect::<Result<Vec<_>>>()?;
    let outputs: Vec<PathBuf> = (0..crowd).map(|_| scene.output()).collect();
    let typed = stacks.iter().zip(&outputs);
    let sample = at_once(typed.map(|(stack, output)| (scene.typed(&stack.up()), output.as_path())));
    let removed: Result<()> = stacks.iter().try_for_each(|stack| scene.clean_up(stack));
    removed.and(sample)
}

/// Starts all of them, and waits for all of them.
fn at_once<'a>(commands: impl Iterator<Item = (Command, &'a Path)>) -> Result<Sample> {
    let started = Instant::now();
    let children: Result<Vec<(Child, &Path)>> =
        commands.map(|(command, output)| start(command, output)).collect();
    let ended: Vec<Result<()>> = children?.into_iter().map(|(child, output)| finish(child, output)).collect();
    let wall = started.elapsed();
    ended.into_iter().collect::<Result<()>>()?;
    Ok(Sample::in_process(wall))
}

fn start(mut command: Command, output: &Path) -> Result<(Child, &Path)> {
    let errors = output.with_extension("stderr");
    let stdout = File::create(output).during("create", output)?;
    let stderr = File::create(&errors).during("create", &errors)?;
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
    Ok((child.during("start", Path::new(command.get_program()))?, output))
}

fn finish(mut child: Child, output: &Path) -> Result<()> {
    let status = child.wait().during("wait for what writes", output)?;
    if status.success() {
        return Ok(());
    }
    let said = std::fs::read_to_string(output.with_extension("stderr")).unwrap_or_default();
    Err(Failure::new(format!("one of several ended with {status}: {}", said.trim())))
}
