//! Commands that verify a strategy, and the result that a listing shows.

use std::fs;
use std::process::Command;

use sandboxer_core::registry::StrategyRegistry;
use sandboxer_plugin::strategy::{Surroundings, declaration};
use sandboxer_testkit::faults::binary;
use sandboxer_testkit::features::{DocString, Steps};
use serde_json::Value;

use super::Extending;

pub fn register(steps: &mut Steps<Extending>) {
    steps.given("the untrusted project says of {string}", project_says);
    steps.given("the class {string} was edited", edit_class);
    steps.when("{string} is run", run_command);
    steps.when("{string} is registered through the library", register_through_library);
    steps.then("it prints {string}", prints);
    steps.then("the last check of {string} is {string}", assert_last_check);
    steps.then("the last check of {string} names the methods {string}", assert_problems);
}

fn project_says(world: &mut Extending, name: String, entry: DocString) {
    let text = format!("sandbox:\n  custom_strategies:\n    {name}: {}\n", entry.0.trim());
    fs::write(world.original().join("sandboxer.yaml"), text).unwrap();
}

fn edit_class(world: &mut Extending, class: String) {
    let module = world.module("company");
    let text = fs::read_to_string(&module).unwrap();
    assert!(text.contains(&class));
    fs::write(&module, text + "\n").unwrap();
}

fn run_command(world: &mut Extending, line: String) {
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("sandbox"));
    let mut command = Command::new(binary());
    command.args(words).current_dir(world.original()).env("HOME", world.dir.path());
    command.env("SANDBOXER_HOME", world.at("home")).env("SANDBOXER_CONFIG", world.write_configuration());
    let output = command.output().unwrap();
    world.printed = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
}

fn register_through_library(world: &mut Extending, name: String) {
    let custom = world.settings().unwrap().custom_strategies[&name].clone();
    let around =
        Surroundings { modules: Some(world.at("strategies")), ..Surroundings::of_home(world.at("home")) };
    let mut registry = StrategyRegistry::new();
    let result = registry.register_verified(&declaration(&name, &custom, &around).unwrap());
    assert_eq!(registry.is_registered(&name), result.is_ok());
    world.remember(result);
}

fn prints(world: &mut Extending, words: String) {
    assert!(world.printed.contains(&words), "{words:?} is not in {}", world.printed);
}

fn last_check(world: &mut Extending, name: &str) -> Value {
    run_command(world, "sandbox strategies list --json".to_owned());
    let document: Value =
        serde_json::from_str(&world.printed).unwrap_or_else(|error| panic!("{error}: {}", world.printed));
    let listed = document["strategies"].as_array().unwrap().iter().find(|listed| listed["name"] == name);
    listed.unwrap_or_else(|| panic!("{name} is not listed: {document}"))["check"].clone()
}

fn assert_last_check(world: &mut Extending, name: String, status: String) {
    let printed = world.printed.clone();
    assert_eq!(last_check(world, &name)["status"], status, "{printed}");
}

fn assert_problems(world: &mut Extending, name: String, methods: String) {
    let check = last_check(world, &name);
    let problems = check["problems"].as_array().unwrap().iter();
    let named: Vec<&str> = problems.map(|found| found["method"].as_str().unwrap()).collect();
    assert_eq!(named.join(", "), methods, "{check}");
}
