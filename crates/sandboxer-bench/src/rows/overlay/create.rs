//! `sandbox create` by overlay: against the `mount` program, against itself on a tree of another size and as another
//! user, and against the two ways in which a person gets a second tree.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::bare::BareOverlay;
use super::forest::Forest;
use super::{RUNS_A_ROUND, STRATEGY, count, need_root};
use crate::failure::{During, Result};
use crate::measure::{Sample, interleave, run};
use crate::place::tool;
use crate::report::Row;
use crate::rows::remove;
use crate::sandbox::{SandboxCommand, Tidy};
use crate::tree::TreeSpec;

const MOUNT_GOAL: f64 = 3.0;
const GROWTH_GOAL: f64 = 1.3;
const USER_GOAL: f64 = 3.0;
const COPY_GOAL: f64 = 0.01;
/// A copy of the whole tree takes seconds.
const COPY_ROUNDS: usize = 3;
/// Whoever this is on the machine, nothing but the tree belongs to them.
const ORDINARY_USER: u32 = 65_534;

/// Create on each tree against a bare mount, and on the largest against the smallest.
pub fn rows(forest: &Forest) -> Result<Vec<Row>> {
    let scale = forest.scale;
    let trees = [scale.small, scale.middle, scale.large];
    let mut rows = trees.map(|spec| against_mount(forest, spec)).into_iter().collect::<Result<Vec<_>>>()?;
    rows.push(growth(forest)?);
    Ok(rows)
}

fn against_mount(forest: &Forest, spec: TreeSpec) -> Result<Row> {
    let name = format!("overlay create of {} files vs mount -t overlay, each a process", count(spec.files));
    forest.bench.row(&name, Some(MOUNT_GOAL), || {
        need_root("mount -t overlay")?;
        let tree = forest.tree(spec)?;
        let theirs = || BareOverlay::mount(forest, &tree, "").map(|(sample, _)| sample);
        let runs = forest.bench.rounds * RUNS_A_ROUND;
        let sides = interleave(runs, &forest.bench.interrupt, || forest.create_and_destroy(&tree), theirs)?;
        Ok(Row::timed(&name, Some(MOUNT_GOAL), &sides))
    })
}

fn growth(forest: &Forest) -> Result<Row> {
    let (large, small) = (forest.scale.large, forest.scale.small);
    let name = format!("overlay create of {} files vs of {}", count(large.files), count(small.files));
    forest.bench.row(&name, Some(GROWTH_GOAL), || {
        let (large, small) = (forest.tree(large)?, forest.tree(small)?);
        let create = |tree| move || forest.create_and_destroy(tree);
        let runs = forest.bench.rounds * RUNS_A_ROUND;
        let sides = interleave(runs, &forest.bench.interrupt, create(&large), create(&small))?;
        Ok(Row::timed(&name, Some(GROWTH_GOAL), &sides))
    })
}

/// Create as an ordinary user, who owns the tree, against create as root on the same tree.
pub fn by_an_ordinary_user(forest: &Forest) -> Result<Row> {
    let spec = forest.scale.small;
    let name = format!("overlay create of {} files as an ordinary user vs as root", count(spec.files));
    forest.bench.row(&name, Some(USER_GOAL), || {
        need_root("running a command as another user")?;
        let tree = forest.beside("user").join("tree");
        let (user, root) = (command_of(forest, "user", ORDINARY_USER)?, command_of(forest, "root", 0)?);
        spec.write(&tree, &forest.bench.interrupt)?;
        give(&forest.beside("user"))?;
        let create_by = |sandbox: &Tidy| create_and_destroy(forest, sandbox, &tree);
        let runs = forest.bench.rounds * RUNS_A_ROUND;
        let sides = interleave(runs, &forest.bench.interrupt, || create_by(&user), || create_by(&root))?;
        Ok(Row::timed(&name, Some(USER_GOAL), &sides))
    })
}

/// A command with its state in a directory of its own. The binary is copied, because the build's directory need not be
/// open to everybody.
fn command_of(forest: &Forest, name: &str, user: u32) -> Result<Tidy> {
    let directory = forest.beside(name);
    fs::create_dir(&directory).during("create directory", &directory)?;
    forest.place.open_to_all()?;
    let binary = directory.join("sandbox");
    tool(Command::new("install").args(["-m", "755"]).arg(&forest.bench.binary).arg(&binary))?;
    Ok(Tidy(SandboxCommand::new(&binary, &directory).run_by(user)))
}

fn give(directory: &Path) -> Result<()> {
    let owner = format!("{ORDINARY_USER}:{ORDINARY_USER}");
    tool(Command::new("chown").args(["--recursive", &owner]).arg(directory))
}

fn create_and_destroy(forest: &Forest, sandbox: &SandboxCommand, tree: &Path) -> Result<Sample> {
    forest.place.settle()?;
    let (sample, created) = sandbox.create_by(tree, STRATEGY)?;
    sandbox.destroy(&created)?;
    Ok(sample)
}

/// Create against `cp -a` and against `git worktree add`.
pub fn against_copies(forest: &Forest) -> Result<Vec<Row>> {
    let spec = forest.scale.middle;
    let copy = forest.beside("copy");
    let cp = |tree: &Path| {
        let sample = run(Command::new("cp").arg("-a").arg(tree).arg(&copy), &forest.beside("output"), &[0])?;
        remove(&copy)?;
        Ok(sample)
    };
    let worktree = |tree: &Path| {
        let mut add = forest.git(tree, &["worktree", "add", "--quiet", "--detach"]);
        let sample = run(add.arg(&copy), &forest.beside("output"), &[0])?;
        tool(forest.git(tree, &["worktree", "remove", "--force"]).arg(&copy))?;
        Ok(sample)
    };
    Ok(vec![
        against_copy(forest, spec, "cp -a", cp)?,
        against_copy(forest, spec, "git worktree add", worktree)?,
    ])
}

fn against_copy(
    forest: &Forest,
    spec: TreeSpec,
    other: &str,
    copy: impl Fn(&Path) -> Result<Sample>,
) -> Result<Row> {
    let name = format!("overlay create of {} files vs {other}", count(spec.files));
    forest.bench.row(&name, Some(COPY_GOAL), || {
        let tree = forest.repository(spec)?;
        let theirs = || {
            forest.place.settle()?;
            copy(&tree)
        };
        let rounds = forest.bench.rounds.min(COPY_ROUNDS);
        let sides = interleave(rounds, &forest.bench.interrupt, || forest.create_and_destroy(&tree), theirs)?;
        Ok(Row::timed(&name, Some(COPY_GOAL), &sides))
    })
}
