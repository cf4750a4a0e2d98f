use sandboxer::wiring::left_out;
use sandboxer_core::contract::Capabilities;
use sandboxer_core::registry::{Declaration, StrategyEntry, StrategyRegistry};
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
}

pub fn run(app: &mut App) -> Outcome {
    let registry = super::registry(app)?;
    let strategies = known(&registry);
    if app.ui.json {
        app.ui.document(&Document { strategies })?;
    } else {
        let rows: Vec<Vec<String>> = strategies.iter().map(row).collect();
        app.ui.bytes(table(&["NAME", "ISOLATES", "CHECKPOINTS", "ORIGIN", "SUMMARY"], &rows).as_bytes())?;
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
    }
}

fn declared(declaration: &Declaration) -> Strategy {
    let name = declaration.name.clone();
    let summary = match declaration.origin.as_str() {
        left_out::ORIGIN => left_out::HINT.to_owned(),
        _ => format!("not started yet; `sandbox strategies check {}` tries it", shell_word(&name)),
    };
    Strategy { name, summary, origin: declaration.origin.clone(), capabilities: None, declared: true }
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
        output::name(&strategy.origin),
        output::sentence(&strategy.summary),
    ]
}
