//! The choice of an extension and a host for a profile, among many hosts, against one look at each of them for the extension. A half of the
//! hosts qualifies and has to be put in order, the others are refused for two reasons, and each has a capacity that is compared with its load.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use sandboxer_core::environment::{Catalogue, RouteQuestion, route};
use tempfile::TempDir;

use super::Scale;
use super::scene::{AllIsWell, timed};
use crate::failure::{During, Failure, Result};
use crate::measure::interleave;
use crate::report::Row;
use crate::rows::{Bench, count};

/// Microseconds.
const GOAL: f64 = 1_000.0;
/// How many questions one sample is of.
const CALLS: usize = 20;
const EXTENSION: &str = "ext.container";
const PROFILE: &str = "profile.small";
/// A container by the cheapest extension, which leaves the choice to the router.
const SMALL: &str = "id: profile.small
summary: A small container
extension:
  policy: lowest-cost
isolation: container
network: none
resources:
  cpus: 1
  memory: 512M
";

/// The comparison.
pub fn row(bench: &Bench, scale: &Scale) -> Result<Row> {
    let name = format!("route among {} hosts vs a look at each", count(scale.hosts));
    bench.row(&name, Some(GOAL), || {
        let directory =
            tempfile::tempdir().map_err(|e| Failure::new(format!("cannot create directory: {e}")))?;
        let catalogue = catalogue(&directory, scale.hosts)?;
        let profile = catalogue.profile(PROFILE).during("find the profile in", directory.path())?;
        let question = RouteQuestion { profile, extension: None, host: None };
        let ask = || route(black_box(&question), &catalogue, &AllIsWell).during("ask", directory.path());
        let look =
            || catalogue.hosts().filter(|host| host.extensions.iter().any(|id| id == EXTENSION)).count();
        let ours = || timed(|| (0..CALLS).try_for_each(|_| ask().map(|route| drop(black_box(route)))));
        let theirs = || {
            timed(|| {
                (0..CALLS).for_each(|_| _ = black_box(look()));
                Ok(())
            })
        };
        let sides = interleave(bench.rounds * 10, &bench.interrupt, ours, theirs)?;
        Ok(Row::latency(&name, GOAL, CALLS, &sides).noting("half of them qualify"))
    })
}

/// The embedded catalogue, with the profile and all but one of the hosts added from files: this machine is one of them.
fn catalogue(directory: &TempDir, hosts: usize) -> Result<Catalogue> {
    let root = directory.path();
    write(&root.join("profiles"), "small", SMALL)?;
    (1..hosts).try_for_each(|number| write(&root.join("hosts"), &format!("h{number:04}"), &host(number)))?;
    let embedded = Catalogue::embedded().during("read the catalogue for", root)?;
    embedded.with_directory(root).during("read", root)
}

/// Every second host takes part; of the others, one is drained and one is another machine, in turn.
fn host(number: usize) -> String {
    let (address, drained) = match number % 4 {
        1 => ("ssh://build@example.org", false),
        3 => ("local", true),
        _ => ("local", false),
    };
    format!(
        "id: h{number:04}\naddress: {address}\nextensions: [ext.local, ext.container]\ndrained: {drained}\n\
         capacity:\n  sandboxes: 10\n  cpus: 8\n  memory: 16G\n"
    )
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    fs::create_dir_all(directory).during("create directory", directory)?;
    fs::write(directory.join(name).with_extension("yaml"), text).during("write into", directory)
}
