//! The same through the command line, where what is shown comes from git too.

use std::process::Command;

use sandboxer_testkit::faults::binary;

use super::plants::{IN_ITS_PLACE, PLANTS, Plant};
use super::world::World;

/// Ends a command that hangs with this code.
const TIMED_OUT: i32 = 124;

fn endure(name: &str, plants: &[&Plant]) {
    let (world, cli, created) = World::of_command_line(name);
    world.edit();
    plants.iter().for_each(|plant| (plant.plant)(&world));
    world.wipe_markers();
    let id = created.id.as_str();
    let kept = world.kept();
    let steps: [&[&str]; 18] = [
        &["get", id],
        &["status"],
        &["list"],
        &["diff", id],
        &["diff", "--patch", id],
        &["diff", "--stat", id],
        &["checkpoint", id, "one"],
        &["commit", id, "--dry-run", "--accept-flags"],
        &["commit", id, "--accept-flags", "-m", "as it is"],
        &["log"],
        &["show", "@last"],
        &["undo", id],
        &["restore", id, "one"],
        &["commit", id, "a.txt", "-m", "one file"],
        &["destroy", id],
        &["unpark", id],
        &["rollback", id],
        &["destroy", "--discard", id],
    ];
    for step in steps {
        let mut command = Command::new("timeout");
        command.arg("120").arg(binary()).args(step);
        cli.prepare(&mut command);
        let output = command.output().unwrap();
        let context = format!("{name}: sandbox {} ({})", step.join(" "), output.status);
        assert_ne!(output.status.code(), Some(TIMED_OUT), "{context}: hangs");
        assert_eq!(world.markers(), Vec::<String>::new(), "{context}: something ran");
        assert_eq!(world.kept(), kept, "{context}: something else was changed");
        println!("{context}: {}", String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default());
    }
    world.assert_whole();
}

#[test]
fn d19_no_command_runs_what_is_planted() {
    let (obstacles, others): (Vec<_>, Vec<_>) = PLANTS.iter().partition(|plant| plant.stops_commits);
    endure("settings and hooks", &others);
    endure("attributes and nested repositories", &obstacles);
    endure("all at once", &PLANTS.iter().collect::<Vec<_>>());
}

#[test]
fn d18_no_command_runs_another_repository_in_its_place() {
    for plant in &IN_ITS_PLACE[..5] {
        endure(plant.name, &[plant]);
    }
}
