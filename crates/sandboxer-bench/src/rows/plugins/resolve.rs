//! A strategy by its name, among a thousand, against a look-up in a hash table of the same names.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use sandboxer_core::Error;
use sandboxer_core::registry::{Declaration, StrategyEntry, StrategyRegistry};
use sandboxer_core::verification::CheckResult;
use sandboxer_strategies::filesystem_copy;

use super::timed;
use crate::failure::{During, Result};
use crate::measure::interleave;
use crate::report::Row;
use crate::rows::Bench;

const NAME: &str = "resolution by name among 1,000 vs a hash table";
/// Microseconds.
const GOAL: f64 = 1.0;
const STRATEGIES: usize = 1_000;
/// How many rounds of all names one sample is of.
const TIMES: usize = 20;

/// The comparison. Half of the names are registered, half declared, as plugins that nobody asked for are.
pub fn row(bench: &Bench) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        let names: Vec<String> = (0..STRATEGIES).map(|number| format!("strategy_{number:04}")).collect();
        let registry = registry(&names)?;
        let table: HashMap<&str, usize> =
            names.iter().enumerate().map(|(n, name)| (name.as_str(), n)).collect();
        let asked: Vec<&str> = names.iter().step_by(2).map(String::as_str).collect();
        let all = |look: &dyn Fn(&str) -> bool| {
            for name in asked.iter().cycle().take(asked.len() * TIMES) {
                black_box(look(black_box(name)));
            }
            Ok(())
        };
        let ours = || timed(|| all(&|name| registry.get(name).is_ok()));
        let theirs = || timed(|| all(&|name| table.contains_key(name)));
        let sides = interleave(bench.rounds * 10, &bench.interrupt, ours, theirs)?;
        Ok(Row::latency(NAME, GOAL, asked.len() * TIMES, &sides))
    })
}

fn registry(names: &[String]) -> Result<StrategyRegistry> {
    let mut registry = StrategyRegistry::new();
    for (number, name) in names.iter().enumerate() {
        let added = if number % 2 == 0 {
            registry.register(StrategyEntry { name: name.clone(), ..filesystem_copy::entry() })
        } else {
            registry.declare(declaration(name))
        };
        added.during("register", std::path::Path::new(name))?;
    }
    Ok(registry)
}

fn declaration(name: &str) -> Declaration {
    Declaration {
        name: name.to_owned(),
        origin: "bench".to_owned(),
        resource_types: Vec::new(),
        verify: Arc::new(|| Err(Error::usage("nobody asks for it"))),
        last_check: Arc::new(CheckResult::default),
    }
}
