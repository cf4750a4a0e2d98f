//! Compares the table in docs/configuration.md (strategies by resource type) with how strategies are chosen and with the command.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sandboxer::wiring;
use sandboxer_core::config::Settings;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::Resource;
use sandboxer_core::registry::StrategyRegistry;
use sandboxer_core::resolve::choose_strategy;
use sandboxer_core::types::ResourceType;
use sandboxer_testkit::git::GitRepo;

use crate::common::World;
use crate::common::databases::sqlite;
use crate::common::doc_pages::repository;

/// Compatibility of a strategy with a resource type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Default,
    Compatible,
    Incompatible,
}

/// By type and strategy.
type Matrix = BTreeMap<(String, String), Fit>;

fn parse_fit(cell: &str) -> Fit {
    match cell {
        "default" => Fit::Default,
        "yes" => Fit::Compatible,
        "–" => Fit::Incompatible,
        other => panic!("the table of strategies has {other:?}: use default, yes or –"),
    }
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

/// The table of the page: one row for each type, one column for each strategy.
fn documented() -> Matrix {
    let page = fs::read_to_string(repository().join("docs/configuration.md")).unwrap();
    let mut table =
        page.lines().skip_while(|line| !line.starts_with("| type | `")).take_while(|l| l.starts_with('|'));
    let strategies = cells(table.next().expect("docs/configuration.md has no table of strategies"));
    let row = |line: &str| {
        let fits = cells(line);
        assert_eq!(fits.len(), strategies.len(), "{line}");
        let pairs = strategies.iter().zip(fits.clone()).skip(1);
        pairs
            .map(|(strategy, fit)| ((fits[0].clone(), strategy.clone()), parse_fit(&fit)))
            .collect::<Vec<_>>()
    };
    table.skip(1).flat_map(row).collect()
}

/// Compatibility as the choice for `--strategy` has it.
fn fit(resource_type: &ResourceType, strategy: &str, registry: &StrategyRegistry) -> Fit {
    let resource = Resource::at_path(&resource_type.name, Path::new("/tmp"));
    let choose = |flag| choose_strategy(flag, None, &resource, resource_type, &Settings::default(), registry);
    match choose(Some(strategy)) {
        Err(_) => Fit::Incompatible,
        Ok(_) if choose(None).unwrap().strategy == strategy => Fit::Default,
        Ok(_) => Fit::Compatible,
    }
}

#[test]
fn documented_table_is_how_strategies_are_chosen() {
    let types = wiring::resource_types(&[]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let registry = wiring::registry(&Settings::default(), home.path(), None, &CancelFlag::default()).unwrap();
    let of_type = |resource_type: &ResourceType| -> Vec<_> {
        let entry =
            |name: &str| ((resource_type.name.clone(), name.to_owned()), fit(resource_type, name, &registry));
        registry.entries().map(|strategy| entry(&strategy.name)).collect()
    };
    let chosen: Matrix = types.iter().flat_map(of_type).collect();
    assert_eq!(documented(), chosen);
}

/// A resource of each type that needs neither a server nor a mount, by the name of its type.
fn resources(world: &World) -> [(&'static str, &'static str); 4] {
    let checkout = GitRepo::new(world.path("project/checkout"));
    checkout.write("a", "a\n");
    checkout.commit_all("first");
    sqlite(world, "app.db");
    fs::create_dir(world.path("project/tree")).unwrap();
    world.file("project/note.txt", "a\n");
    [("fs-directory", "tree"), ("fs-file", "note.txt"), ("git-checkout", "checkout"), ("sqlite", "app.db")]
}

#[test]
fn sandbox_is_created_exactly_where_the_table_says_so() {
    let world = World::new();
    let matrix = documented();
    for (type_name, location) in resources(&world) {
        for ((_, strategy), fit) in matrix.iter().filter(|((name, _), _)| name == type_name) {
            let ran = world.run(&["create", location, "--strategy", strategy, "--name", "try"]);
            let pair = format!("{type_name} by {strategy}: {}", ran.stderr);
            if *fit == Fit::Incompatible {
                assert_eq!(ran.code, 2, "{pair}");
                assert!(
                    ran.stderr.contains(&format!("does not work on resource type {type_name}")),
                    "{pair}"
                );
            } else {
                assert_eq!(ran.code, 0, "{pair}");
                world.ok(&["destroy", "try", "--discard"]);
            }
        }
    }
}
