//! The peak memory of `sandbox read` while a large file comes through a plugin piece by piece.

use std::fs;

use super::Scale;
use super::scene::{self, LARGE, Language};
use crate::failure::{During, Result};
use crate::measure::run;
use crate::place::Place;
use crate::report::Row;
use crate::rows::Bench;
use crate::sandbox::SandboxCommand;

/// Megabytes: a few pieces, and the program.
const GOAL: f64 = 32.0;

/// The largest of all rounds.
pub fn row(bench: &Bench, place: &Place, language: Language, scale: &Scale) -> Result<Row> {
    let name =
        format!("peak memory, sandbox read of {} MiB through a plugin in {language}", scale.large >> 20);
    bench.row(&name, Some(GOAL), || {
        let directory = tempfile::tempdir_in(place.root()).during("create directory", place.root())?;
        let original = scene::original(directory.path(), scale)?;
        let config = directory.path().join("config.yaml");
        fs::write(&config, configuration(directory.path(), language)?).during("write", &config)?;
        let modules = directory.path().join("strategies");
        fs::create_dir(&modules).during("create directory", &modules)?;
        scene::custom(&modules, language)?;
        let sandbox = SandboxCommand::new(&bench.binary, directory.path());
        let output = directory.path().join("output");
        let command = |words: &[&str]| {
            let mut command = sandbox.command(words);
            command.current_dir(&original).env("SANDBOXER_CONFIG", &config);
            command
        };
        run(&mut command(&["create", "--strategy", "bench", "--name", "large", "."]), &output, &[0])?;
        let mut peak = 0;
        for _ in 0..bench.rounds {
            peak = peak.max(run(&mut command(&["read", "large", LARGE]), &output, &[0])?.peak);
        }
        run(&mut command(&["destroy", "large"]), &output, &[0])?;
        Ok(Row::memory(&name, GOAL, peak, bench.rounds))
    })
}

fn configuration(directory: &std::path::Path, language: Language) -> Result<String> {
    let custom = scene::custom(directory, language)?;
    let env: Vec<String> = custom.env.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    Ok(format!(
        "sandbox:\n  custom_strategies:\n    bench: {{module: '{}', env: {{{}}}}}\n",
        custom.module,
        env.join(", ")
    ))
}
