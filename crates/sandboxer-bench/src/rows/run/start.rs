//! `sandbox run` of nothing against `bwrap` of nothing: the same namespaces and much the same mounts. Ours also makes a
//! sandbox, looks for changes, and removes it.

use std::process::Command;

use super::yard::{Project, Who, Yard};
use super::{RUNS_A_ROUND, need_tool};
use crate::failure::Result;
use crate::measure::{interleave, run};
use crate::report::Row;

const GOAL: f64 = 2.0;

/// As root and as an ordinary user.
pub fn rows(yard: &Yard<'_>) -> Result<Vec<Row>> {
    Who::ALL.map(|who| row(yard, who)).into_iter().collect()
}

fn row(yard: &Yard<'_>, who: Who) -> Result<Row> {
    let name = format!("run of true vs bwrap of true, as {}", who.name());
    yard.bench.row(&name, Some(GOAL), || {
        need_tool("bwrap")?;
        let project = yard.project(&format!("start-{who:?}"), who)?;
        project.need_strategy()?;
        let output = project.beside("output");
        let measure = |mut command: Command| {
            project.settle()?;
            run(&mut command, &output, &[0])
        };
        let ours = || measure(project.run(&[], &["true"]));
        let theirs = || measure(bubblewrap(&project));
        let sides = interleave(yard.bench.rounds * RUNS_A_ROUND, &yard.bench.interrupt, ours, theirs)?;
        Ok(Row::timed(&name, Some(GOAL), &sides))
    })
}

/// What a person would type to contain a command that works in this directory.
fn bubblewrap(project: &Project<'_>) -> Command {
    let mut bwrap = project.plainly("bwrap");
    bwrap.args(["--unshare-all", "--new-session", "--die-with-parent", "--ro-bind", "/", "/"]);
    bwrap.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]);
    bwrap.arg("--bind").arg(&project.directory).arg(&project.directory);
    bwrap.arg("--chdir").arg(&project.directory).arg("true");
    bwrap
}
