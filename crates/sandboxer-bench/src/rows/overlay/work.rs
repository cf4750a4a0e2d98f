//! Work inside the sandbox: unpacking many files against the same in a bare overlay, and a compile of the project's own
//! core crate against the same in a plain directory.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bare::BareOverlay;
use super::forest::Forest;
use super::{count, need_root};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, Sides, interleave, interleave_cold, run};
use crate::place::tool;
use crate::report::Row;
use crate::rows::remove;

const UNTAR_GOAL: f64 = 1.05;
const BUILD_GOAL: f64 = 1.15;
const BUILD: &str = "overlay cargo build of sandboxer-core inside vs in a plain directory";
/// A build takes a minute.
const BUILD_ROUNDS: usize = 2;
/// What one build writes, about.
const BUILD_BYTES: u64 = 1 << 30;

/// Both comparisons.
pub fn rows(forest: &Forest) -> Result<Vec<Row>> {
    Ok(vec![untar(forest)?, build(forest)?])
}

/// A mount by default flushes what `volatile` does not, so there are two mounts to compare with; the quicker counts.
fn untar(forest: &Forest) -> Result<Row> {
    let spec = forest.scale.unpacked;
    let name = format!("overlay untar of {} files inside vs in a bare mount -t overlay", count(spec.files));
    forest.bench.row(&name, Some(UNTAR_GOAL), || {
        need_root("mount -t overlay")?;
        let (tree, archive) = (forest.tree(forest.scale.small)?, archive(forest)?);
        let bare = |options: &str| {
            let (_, overlay) = BareOverlay::mount(forest, &tree, options)?;
            unpack(forest, &archive, &overlay.merged)
        };
        let ours = || {
            let (_, created) = forest.create(&tree)?;
            let sample = unpack(forest, &archive, &created.sandbox_path)?;
            forest.sandbox.destroy(&created)?;
            Ok(sample)
        };
        let by_default = RefCell::new(Vec::new());
        let theirs = || {
            by_default.borrow_mut().push(bare("")?);
            bare(",volatile")
        };
        let volatile = interleave(forest.bench.rounds, &forest.bench.interrupt, ours, theirs)?;
        let by_default = Sides { ours: volatile.ours.clone(), theirs: by_default.into_inner().split_off(1) };
        Ok(stricter(&name, ("volatile", &volatile), ("default options", &by_default)))
    })
}

/// The row of the larger ratio, with a word on the other.
fn stricter(name: &str, one: (&str, &Sides), two: (&str, &Sides)) -> Row {
    let row = |sides| Row::timed(name, Some(UNTAR_GOAL), sides);
    let (first, second) = (row(one.1), row(two.1));
    let ((kept, label), (other, other_label)) = if first.ratio >= second.ratio {
        ((first, one.0), (second, two.0))
    } else {
        ((second, two.0), (first, one.0))
    };
    let figure = other.ratio.unwrap_or(f64::INFINITY);
    kept.noting(&format!("against {label}; {figure:.2} against {other_label}"))
}

fn archive(forest: &Forest) -> Result<PathBuf> {
    let spec = forest.scale.unpacked;
    let (tree, archive) = (forest.tree(spec)?, forest.beside("files.tar"));
    tool(
        Command::new("tar")
            .arg("--create")
            .arg("--file")
            .arg(&archive)
            .arg("--directory")
            .arg(&tree)
            .arg("."),
    )?;
    Ok(archive)
}

fn unpack(forest: &Forest, archive: &Path, into: &Path) -> Result<Sample> {
    let directory = into.join("unpacked");
    fs::create_dir(&directory).during("create directory", &directory)?;
    forest.place.settle()?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(&directory);
    run(&mut tar, &forest.beside("output"), &[0])
}

fn build(forest: &Forest) -> Result<Row> {
    forest.bench.row(BUILD, Some(BUILD_GOAL), || {
        forest.place.need(BUILD_BYTES, 20_000)?;
        let [sources, plain] = ["sources", "plain"].map(|name| forest.beside(name));
        copy_sources(&sources)?;
        copy_sources(&plain)?;
        tool(cargo(&plain).args(["metadata", "--offline", "--locked", "--format-version", "1"]))
            .map_err(|why| Failure::Skipped(format!("no build without the network ({why})")))?;
        let ours = || {
            let (_, created) = forest.create(&sources)?;
            let sample = compile(forest, &created.sandbox_path)?;
            forest.sandbox.destroy(&created)?;
            Ok(sample)
        };
        let rounds = forest.bench.rounds.min(BUILD_ROUNDS);
        let sides = interleave_cold(rounds, &forest.bench.interrupt, ours, || compile(forest, &plain))?;
        Ok(Row::timed(BUILD, Some(BUILD_GOAL), &sides))
    })
}

/// The project's sources without its history and what was built of it.
fn copy_sources(to: &Path) -> Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::create_dir(to).during("create directory", to)?;
    for entry in fs::read_dir(&workspace).during("list", &workspace)? {
        let entry = entry.during("list", &workspace)?;
        if entry.file_name() != ".git" && entry.file_name() != "target" {
            tool(Command::new("cp").arg("-a").arg(entry.path()).arg(to))?;
        }
    }
    Ok(())
}

/// A debug build into a new target directory inside the tree, which is removed afterwards.
fn compile(forest: &Forest, tree: &Path) -> Result<Sample> {
    forest.place.settle()?;
    let mut build = cargo(tree);
    build.args(["build", "--offline", "--locked", "--quiet", "--package", "sandboxer-core"]);
    let sample = run(&mut build, &forest.beside("output"), &[0])?;
    remove(&tree.join("target"))?;
    Ok(sample)
}

/// Cargo with the registry as it is. What a `cargo run` of this benchmark or its user said about the target directory
/// does not count.
fn cargo(directory: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory).env("CARGO_TARGET_DIR", directory.join("target"));
    cargo.env_remove("RUSTFLAGS").env_remove("RUSTC_WRAPPER");
    cargo
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_larger_of_two_ratios_is_the_row() {
        let sides = |theirs| Sides {
            ours: vec![Sample::in_process(Duration::from_millis(100))],
            theirs: vec![Sample::in_process(Duration::from_millis(theirs))],
        };
        for (one, two, expected) in [
            (100, 200, "against volatile; 0.50 against default"),
            (200, 80, "against default; 0.50 against volatile"),
        ] {
            let row = stricter("untar", ("volatile", &sides(one)), ("default", &sides(two)));
            assert_eq!(row.theirs, Some(one.min(two) as f64));
            assert!(row.note.ends_with(expected), "{}", row.note);
        }
    }

    #[test]
    fn sources_come_without_history() {
        let scratch = tempfile::tempdir().unwrap();
        let copy = scratch.path().join("sources");
        copy_sources(&copy).unwrap();
        assert!(copy.join("crates/sandboxer-core/Cargo.toml").exists());
        assert!(!copy.join(".git").exists() && !copy.join("target").exists());
    }
}
