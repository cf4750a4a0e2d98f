use sandboxer::wiring::left_out;
use sandboxer_core::contract::Capabilities;
use sandboxer_core::registry::{Declaration, StrategyEntry, StrategyRegistry};
use sandboxer_core::verification::{CheckResult, join_problems};
use serde::Serialize;

use crate::cli::output::{self, shell_word, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

#[derive(Serialize)]
struct Document {
    strategies: Vec<Strategy>,
}

/// A strategy, as far as it is known.
#[derive(Serialize)]
struct Strategy {
    name: String,
    summary: String,
    origin: String,
    /// `None` where it would have to be started first.
    capabilities: Option<Capabilities>,
    /// Whether the configuration alone speaks for it.
    declared: bool,
    /// The result of the last check; `None` for what is built in.
    check: Option<CheckResult>,
}

pub fn run(app: &mut App) -> Outcome {
    let registry = super::registry(app)?;
    let strategies = known(&registry);
    if app.ui.json {
        app.ui.document(&Document { strategies })?;
    } else {
        let rows: Vec<Vec<String>> = strategies.iter().map(row).collect();
        app.ui.bytes(
            table(&["NAME", "ISOLATES", "CHECKPOINTS", "CHECK", "ORIGIN", "SUMMARY"], &rows).as_bytes(),
        )?;
    }
    Ok(exit::OK)
}

/// All of them by name; nothing is started.
fn known(registry: &StrategyRegistry) -> Vec<Strategy> {
    let mut all: Vec<Strategy> = registry.entries().map(registered).collect();
    all.extend(registry.declared().map(declared));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn registered(entry: &StrategyEntry) -> Strategy {
    Strategy {
        name: entry.name.clone(),
        summary: entry.summary.clone(),
        origin: entry.origin.clone(),
        capabilities: Some(entry.capabilities.clone()),
        declared: false,
        check: None,
    }
}

fn declared(declaration: &Declaration) -> Strategy {
    let is_left_out = declaration.origin == left_out::ORIGIN;
    let check = (!is_left_out).then(|| (declaration.last_check)());
    Strategy {
        name: declaration.name.clone(),
        summary: check.as_ref().map_or(left_out::HINT.to_owned(), |check| describe(&declaration.name, check)),
        origin: declaration.origin.clone(),
        capabilities: None,
        declared: true,
        check,
    }
}

fn describe(name: &str, check: &CheckResult) -> String {
    let command = format!("`sandbox strategies check {}`", shell_word(name));
    match check {
        CheckResult::Ok => format!("passed its last check; {command} repeats it"),
        CheckResult::Broken { problems } => join_problems(problems),
        CheckResult::NotChecked => format!("not started yet; {command} tries it"),
    }
}

fn row(strategy: &Strategy) -> Vec<String> {
    let can = |able: fn(&Capabilities) -> bool| match strategy.capabilities.as_ref().map(able) {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => "-".to_owned(),
    };
    vec![
        output::name(&strategy.name),
        can(|capabilities| capabilities.isolates),
        can(|capabilities| capabilities.checkpoints),
        strategy.check.as_ref().map_or("-".to_owned(), ToString::to_string),
        output::name(&strategy.origin),
        output::sentence(&strategy.summary),
    ]
}
