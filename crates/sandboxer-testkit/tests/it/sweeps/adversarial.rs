//! D35: edits between a killed commit and its recovery.

use std::fs;
use std::path::PathBuf;

use sandboxer_testkit::faults::{Cli, Point, Scenario, Trace};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::skip;

use crate::adversarial::told;

const STRATEGY_NAME: &str = "filesystem_copy";

/// A commit killed half-way: its journal is there, some of it is done, some is not.
fn half_committed() -> Scenario {
    let first = Scenario::new(STRATEGY_NAME);
    let points = Trace::new(&first.cli).on_one_processor().points(&first.commit_arguments());
    let renames: Vec<Point> = points.into_iter().filter(|p| p.name.starts_with("rename")).collect();
    for at in (0..renames.len()).map(|i| (i + renames.len() / 2) % renames.len()) {
        let scenario = Scenario::new(STRATEGY_NAME);
        Trace::new(&scenario.cli).on_one_processor().kill(&renames[at], &scenario.commit_arguments());
        let now = Manifest::capture(&scenario.resource);
        let torn = !scenario.old.same(&now, Facets::CONTENT) && !scenario.new.same(&now, Facets::CONTENT);
        if torn && still_old(&scenario).is_some() {
            return scenario;
        }
    }
    panic!("no kill point leaves a commit half done, among {}", renames.len());
}

/// A file that the commit is to modify and has not yet.
fn still_old(scenario: &Scenario) -> Option<PathBuf> {
    let now = Manifest::capture(&scenario.resource);
    let modified = |path: &&PathBuf| {
        let both = scenario.old.entries.get(*path).zip(scenario.new.entries.get(*path));
        both.is_some_and(|(old, new)| old.hash.is_some() && new.hash.is_some() && old.hash != new.hash)
    };
    let untouched =
        |path: &&PathBuf| now.entries.get(*path).is_some_and(|e| e.hash == scenario.old.entry(path).hash);
    scenario.old.entries.keys().filter(modified).find(untouched).cloned()
}

#[test]
fn d35_an_edit_between_a_killed_commit_and_recovery_is_kept() {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    let scenario = half_committed();
    let edited = still_old(&scenario).unwrap();
    let wanted = fs::read(scenario.sandbox.path.join(&edited)).unwrap();
    fs::write(scenario.resource.join(&edited), "by hand, after the crash\n").unwrap();
    let recovery = scenario.cli.run(&["list"]);
    let told = told(&recovery);
    assert!(
        told.contains("conflict") || told.contains(edited.to_str().unwrap()),
        "no word of the conflict: {told}"
    );
    let kept = fs::read_to_string(scenario.resource.join(&edited)).unwrap();
    assert_eq!(kept, "by hand, after the crash\n");
    let mut now = Manifest::capture(&scenario.resource);
    now.entries.insert(edited.clone(), scenario.new.entry(&edited).clone());
    scenario.new.assert_same(&now, Facets::WRITTEN, "everything but the edited file");
    assert!(parked(&scenario.cli, &wanted), "the new content of {edited:?} is parked nowhere");
    scenario.cli.ok(&["list"]);
    scenario.cli.ok(&["destroy", &scenario.sandbox.id]);
}

/// Whether some file of the state directory, outside the sandbox's tree, has this content.
fn parked(cli: &Cli, content: &[u8]) -> bool {
    let is_it = |path: &PathBuf| fs::read(cli.home().join(path)).is_ok_and(|found| found == content);
    cli.inventory().iter().any(is_it)
}
