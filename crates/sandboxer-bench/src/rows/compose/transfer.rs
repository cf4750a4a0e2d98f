//! Trees of files to the host and back, against `tar` over `ssh` by hand. Both sides have a connection that is already there.

use std::cell::Cell;
use std::path::Path;

use sandboxer_remote::Moved;

use super::Scale;
use super::wire::Wire;
use crate::failure::{Failure, Result};
use crate::measure::{Sample, interleave};
use crate::report::Row;
use crate::rows::{Bench, CHANGED, count, remove};
use crate::tree::edit;

const FIRST: f64 = 1.2;
const SECOND: f64 = 0.1;

/// A first send, a second one, and the way back.
pub fn rows(bench: &Bench, disk: &Path, scale: &Scale) -> Result<Vec<Row>> {
    let wire = Wire::new(bench, disk);
    let files = count(scale.tree.files);
    Ok(vec![
        first(bench, &wire, &format!("send of {files} files vs tar over ssh by hand"))?,
        second(bench, &wire, &format!("send of {CHANGED} changed files among {files} vs the first send"))?,
        back(
            bench,
            &wire,
            &format!("fetch of {CHANGED} changed files among {files} vs all of them by tar over ssh"),
        )?,
    ])
}

fn first(bench: &Bench, wire: &Result<Wire>, name: &str) -> Result<Row> {
    bench.row(name, Some(FIRST), || {
        let wire = wire.as_ref().map_err(Failure::again)?;
        let theirs = || {
            let copy = wire.nothing();
            let sample = wire.tar_there(&copy)?;
            wire.expect_whole(&wire.seen_from_here(&copy))?;
            wire.forget(&copy)?;
            Ok(sample)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, || whole(wire), theirs)?;
        Ok(Row::timed(name, Some(FIRST), &sides)
            .noting("ours ends with a list of both sides, by which the next is short"))
    })
}

/// Times a send to where nothing is.
fn whole(wire: &Wire) -> Result<Sample> {
    let copy = wire.nothing();
    let (sample, _) = wire.send(&copy)?;
    wire.expect_whole(&wire.seen_from_here(&copy))?;
    wire.forget(&copy)?;
    Ok(sample)
}

fn second(bench: &Bench, wire: &Result<Wire>, name: &str) -> Result<Row> {
    bench.row(name, Some(SECOND), || {
        let wire = wire.as_ref().map_err(Failure::again)?;
        let (copy, round) = (wire.nothing(), Cell::new(0));
        wire.send(&copy)?;
        let ours = || {
            edit(&wire.tree(), &bench.spec.spread(CHANGED), round.replace(round.get() + 1))?;
            let (sample, moved) = wire.send(&copy)?;
            expect_changed(&moved)?;
            Ok(sample)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, || whole(wire))?;
        wire.forget(&copy)?;
        Ok(Row::timed(name, Some(SECOND), &sides).noting("both sides are ours"))
    })
}

fn back(bench: &Bench, wire: &Result<Wire>, name: &str) -> Result<Row> {
    bench.row(name, None, || {
        let wire = wire.as_ref().map_err(Failure::again)?;
        let (copy, round) = (wire.nothing(), Cell::new(100));
        wire.send(&copy)?;
        let ours = || {
            edit(&wire.seen_from_here(&copy), &bench.spec.spread(CHANGED), round.replace(round.get() + 1))?;
            let (sample, moved) = wire.fetch(&copy)?;
            expect_changed(&moved)?;
            Ok(sample)
        };
        let theirs = || {
            let into = wire.tree().with_file_name("back");
            let sample = wire.tar_back(&copy, &into)?;
            wire.expect_whole(&into)?;
            remove(&into)?;
            Ok(sample)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        wire.forget(&copy)?;
        Ok(Row::timed(name, None, &sides))
    })
}

fn expect_changed(moved: &Moved) -> Result<()> {
    // Directories that something is written into may come along.
    if (CHANGED as u64..=2 * CHANGED as u64).contains(&moved.entries) {
        return Ok(());
    }
    Err(Failure::new(format!("{} entries were carried over where {CHANGED} had changed", moved.entries)))
}
