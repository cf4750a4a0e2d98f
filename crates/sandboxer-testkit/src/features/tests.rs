use std::path::Path;

use super::parser::parse;
use super::{DocString, Scenario, Steps, Table};

type Log = Vec<String>;

fn steps() -> Steps<Log> {
    Steps::new(|steps| {
        steps.given("a log", |log: &mut Log| assert!(log.is_empty(), "the world is not new"));
        steps.when("{string} is added", |log: &mut Log, text: String| log.push(text));
        steps.when("{string} is added {int} times", |log: &mut Log, text: String, times: u64| {
            (0..times).for_each(|_| log.push(text.clone()));
        });
        steps.when("these are added", |log: &mut Log, table: Table| log.extend(table.rows().concat()));
        steps.when("this is added", |log: &mut Log, text: DocString| log.push(text.0.replace('\n', "|")));
        steps.then("the log is {string}", |log: &mut Log, text: String| assert_eq!(log.join(","), text));
    })
}

fn parse_text(text: &str) -> Result<Vec<Scenario>, String> {
    parse(Path::new("f.feature"), text)
}

/// Puts the steps in a scenario; the first step is on line 6.
fn feature(steps: &str) -> Vec<Scenario> {
    parse_text(&format!(
        "Feature: F\nSome more text: see above\nBackground:\nGiven a log\nScenario: S\n{steps}"
    ))
    .unwrap()
}

fn run(text: &str) -> Result<usize, String> {
    steps().run(Log::new, &feature(text))
}

#[test]
fn steps_get_their_arguments() {
    let text = r#"
        When "a b" is added
        # a comment
        And "c" is added 2 times
        But these are added
          | one | two |
          | d   | e   |
          | f   |     |
        And this is added
          """
          # g
            h
          """
        Then the log is "a b,c,c,d,e,f,,# g|  h"
    "#;
    assert_eq!(run(text), Ok(6));
}

#[test]
fn outline_is_expanded_for_each_row() {
    let text = r#"Feature: F
        Rule: R
          Background:
            Given a log
          @slow @big
          Scenario Outline: Add <what>
            When "<what>" is added <times> times
            Then the log is "<log>"
            Examples:
              | what | times | log |
              | a    | 2     | a,a |
              | b    | 1     | b   |"#;
    let scenarios = parse_text(text).unwrap();
    let found: Vec<_> = scenarios.iter().map(|one| (one.line, &*one.name, one.steps.len())).collect();
    assert_eq!(found, [(11, "Add a", 3), (12, "Add b", 3)]);
    assert!(scenarios.iter().all(|one| one.rule == "R" && one.tags == ["slow", "big"]));
    assert_eq!(steps().run(Log::new, &scenarios), Ok(6));
}

#[test]
fn invalid_files_are_refused_with_file_and_line() {
    let scenario = "Feature: F\nScenario: S\nGiven a log\n";
    let outline = "Feature: F\nScenario Outline: S\nGiven a <x>\n";
    for (text, error) in [
        ("Feature: F\nScenaro: S".to_owned(), "2: unknown or misplaced keyword: Scenaro: S"),
        (format!("{scenario}Whenever a log"), "4: unknown or misplaced keyword: Whenever a log"),
        (format!("{scenario}Background:"), "4: unknown or misplaced keyword: Background:"),
        (format!("{scenario}Examples:"), "4: unknown or misplaced keyword: Examples:"),
        (format!("{scenario}\"\"\"yaml"), "4: unknown or misplaced keyword: \"\"\"yaml"),
        ("Scenario: S".to_owned(), "1: unknown or misplaced keyword: Scenario: S"),
        ("Feature: F\nScenario: S\nAnd a log".to_owned(), "3: \"And\" without an earlier step"),
        ("Feature: F\nScenario: S\n| a |".to_owned(), "3: expected a step before this line"),
        ("Feature: F\nScenario: S\n\nScenario: T".to_owned(), "2: the scenario has no steps"),
        ("@slow\nFeature: F".to_owned(), "2: expected a scenario after its tags"),
        (format!("{scenario}| a | b |\n| c |"), "5: expected 2 cells, got 1"),
        (format!("{scenario}| a"), "4: a table row has to end with \"|\""),
        (format!("{scenario}| \\n |"), "4: escapes in tables are not supported"),
        (format!("{scenario}\"\"\"\ntext"), "4: the doc string is not closed"),
        (format!("{outline}Examples:\n| x |"), "2: the scenario outline has no examples"),
        (format!("{outline}Examples:\n| y |\n| 1 |"), "2: the examples have no column \"x\""),
    ] {
        assert_eq!(parse_text(&text).unwrap_err(), format!("f.feature:{error}"));
    }
}

#[test]
fn steps_without_a_matching_function_fail() {
    for (step, error) in [
        ("When nothing", "undefined step"),
        ("Then \"a\" is added", "undefined step"),
        ("When \"a\" is added many times", "undefined step"),
        ("When \"a\" is added 99999999999999999999 times", "invalid number \"99999999999999999999\""),
        ("When these are added", "the step needs a table"),
        ("When this is added", "the step needs a doc string"),
        ("When \"a\" is added\n| a |", "the step has arguments that its function does not take"),
    ] {
        let report = run(step).unwrap_err();
        assert!(report.contains(error) && report.contains("f.feature:6: "), "{step}: {report}");
    }
}

#[test]
fn ambiguous_step_fails() {
    let mut steps = steps();
    steps.when("\"a\" is added", |_: &mut Log| ());
    let report = steps.run(Log::new, &feature("When \"a\" is added")).unwrap_err();
    assert!(report.contains("ambiguous step"), "{report}");
}

#[test]
fn report_names_each_failed_scenario_and_its_step() {
    let report = run("Then the log is \"a\"\nScenario: T\nGiven a log\nScenario: U\nThen the log is \"c\"");
    let report = report.unwrap_err();
    assert!(report.starts_with("2 of 3 scenarios failed\nf.feature:5: scenario \"S\"\n"), "{report}");
    assert!(report.contains("\n  f.feature:6: Then the log is \"a\"\n    assertion"), "{report}");
    assert!(report.contains("\nf.feature:9: scenario \"U\"\n  f.feature:10: Then"), "{report}");
}

#[test]
fn function_that_no_scenario_uses_is_reported() {
    let report = steps().check_usage(&feature("When \"a\" is added")).unwrap_err();
    assert!(report.contains("Then the log is {string}") && !report.contains("Given"), "{report}");
}
