//! What ten checkpoints of the same tree take on disk against what one takes.

use std::path::Path;
use std::process::Command;

use super::{Bench, Subject};
use crate::failure::{During, Failure, Result};
use crate::report::Row;

const NAME: &str = "disk of ten checkpoints of one tree vs disk of one, disk";
const GOAL: f64 = 1.2;

/// The comparison on the subject's place.
pub fn row(bench: &Bench, subject: &Subject) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        let (sample, created) = subject.sandbox.create(&subject.tree, "filesystem_copy")?;
        bench.peaks.create.note(sample);
        let workspace = created.sandbox_path.parent().unwrap_or(&created.sandbox_path);
        let before = disk_use(workspace)?;
        subject.sandbox.checkpoint(&created)?;
        let one = disk_use(workspace)? - before;
        for _ in 1..10 {
            bench.interrupt.check()?;
            subject.sandbox.checkpoint(&created)?;
        }
        let ten = disk_use(workspace)? - before;
        subject.sandbox.destroy(&created)?;
        Ok(Row::disk(NAME, GOAL, ten, one))
    })
}

/// By `du`, which counts blocks and a file with several names once.
fn disk_use(path: &Path) -> Result<u64> {
    let output = Command::new("du").args(["-s", "-B1", "--"]).arg(path).output().during("run du on", path)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let bytes = text.split_whitespace().next().and_then(|figure| figure.parse().ok());
    bytes.ok_or_else(|| Failure::new(format!("du said {text:?} of {}", path.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_size_of_a_tree_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("file"), vec![1; 100_000]).unwrap();
        assert!(disk_use(scratch.path()).unwrap() >= 100_000);
        assert!(disk_use(&scratch.path().join("missing")).is_err());
    }
}
