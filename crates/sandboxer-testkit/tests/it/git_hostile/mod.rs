//! D18 to D21: an agent makes of the repository in its sandbox what it likes, and nothing of that runs when the host looks, commits or cleans up.
//!
//! Whatever is planted leaves a marker when it runs. A test that plants it also runs git by hand on the same tree, so that a marker which
//! nothing could leave does not pass for one that nobody left. By default what is planted is tried in groups; `SANDBOXER_TEST_FULL=1` tries each by
//! itself.

mod command_line;
mod kinds;
mod plants;
mod world;

use plants::PLANTS;
use sandboxer_testkit::faults::sample_of;
use sandboxer_testkit::full;
use world::{Way, World, ways};

/// Plants that leave a repository which git can work with.
#[test]
fn d19_settings_hooks_and_attributes_run_nothing() {
    for way in Way::available() {
        if full() {
            PLANTS.iter().for_each(|plant| World::of(way, plant.name).endure(&[plant]));
        }
        let (with_attributes, without): (Vec<_>, Vec<_>) = PLANTS.iter().partition(|p| p.stops_commits);
        World::of(way, "all but attributes").endure(&without);
        World::of(way, "attributes").endure(&with_attributes);
        World::of(way, "all at once").endure(&PLANTS.iter().collect::<Vec<_>>());
    }
}

/// The same plants do run where git is started by hand: otherwise nothing above would mean anything.
#[test]
fn what_is_planted_runs_where_git_is_started_by_hand() {
    for way in Way::available() {
        let world = World::of(way, "by hand");
        let planted = ["settings", "attributes", "hooks"];
        PLANTS.iter().filter(|plant| planted.contains(&plant.name)).for_each(|plant| (plant.plant)(&world));
        world.edit();
        let git = |arguments: &[&str]| drop(world.inside().command(arguments).output().unwrap());
        let expect = |markers: &[&str]| {
            let left = world.markers();
            let is_left = |marker: &&str| left.iter().any(|name| name == marker);
            assert!(markers.iter().all(is_left), "{way:?}: not all of {markers:?}: {left:?}");
            world.wipe_markers();
        };
        git(&["status"]);
        expect(&["fsmonitor"]);
        git(&["diff"]);
        expect(&["clean", "process", "command"]);
        git(&["diff", "--no-ext-diff"]);
        expect(&["textconv"]);
        git(&["add", "--all", "."]);
        git(&["-c", "filter.x.required=false", "commit", "--no-edit", "-m", "by hand"]);
        expect(&["pre-commit", "commit-msg", "program"]);
        git(&["checkout", "-b", "other"]);
        expect(&["post-checkout", "reference-transaction"]);
        let promisor = PLANTS.iter().find(|plant| plant.name == "a promisor").unwrap();
        (promisor.plant)(&world);
        git(&["cat-file", "-e", &"12".repeat(20)]);
        expect(&["ext"]);
        world.plant_other();
        git(&["-C", world.other().to_str().unwrap(), "status"]);
        expect(&["fsmonitor"]);
    }
}

/// D18: another thing in the place of `.git`.
#[test]
fn d18_another_repository_in_its_place_runs_nothing() {
    for (turn, plant) in plants::IN_ITS_PLACE.iter().enumerate() {
        for way in ways(turn) {
            World::of(way, plant.name).endure(&[plant]);
        }
    }
}

/// Files of git's that are no files, or of another size than anybody expects.
#[test]
fn d18_odd_files_in_a_repository_hang_nobody() {
    for (turn, (file, kind)) in sample_of(&kinds::matrix(), 14).into_iter().enumerate() {
        for way in ways(turn) {
            let world = World::of(way, &format!("{file} as {kind:?}"));
            world.edit();
            kinds::put(&world, file, kind);
            world.endure(&[]);
        }
    }
}

/// D21: hooks of the original itself, planted by whoever could, are not run by a commit; by hand they are.
#[test]
fn d21_hooks_of_the_original_do_not_run() {
    for way in Way::available() {
        let world = World::of(way, "hooks of the original");
        let hooks = world.git_dir().join("hooks");
        plants::plant_hooks(&world, &hooks);
        world.original().git(&["config", "core.fsmonitor", &world.mark("original-fsmonitor")]);
        world.wipe_markers();
        world.endure(&[]);
        world.original().write("a.txt", "by hand\n");
        drop(world.original().command(&["commit", "-am", "by hand"]).output().unwrap());
        let left = world.markers();
        assert!(left.iter().any(|name| name == "pre-commit"), "git by hand ran no hook: {left:?}");
    }
}
