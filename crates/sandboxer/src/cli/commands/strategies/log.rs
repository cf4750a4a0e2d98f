use std::fs;
use std::io;
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::registry::StrategyRegistry;
use sandboxer_plugin::strategy::log_path;
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::output::{self, shell_word};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Show what a custom strategy wrote to its standard error
///
/// Values that its configuration puts into its environment are left out of it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox strategies log mine")]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let registry = super::registry(app)?;
    refuse_built_in(&registry, &args.name)?;
    let file = log_path(&app.places.home, &args.name);
    let lines = lines_of(&file)?;
    if app.ui.json {
        app.ui.document(&json!({ "strategy": args.name, "log": file.to_string_lossy(), "lines": lines }))?;
        return Ok(exit::OK);
    }
    for line in &lines {
        app.ui.line(output::content(line.as_bytes()))?;
    }
    if lines.is_empty() {
        let name = output::name(&args.name);
        app.ui.note(format_args!("{name} has written nothing to its standard error, or was never started"));
        app.ui.next("try it:", &format!("sandbox strategies check {}", shell_word(&args.name)));
    }
    Ok(exit::OK)
}

/// Only a plugin has a log; it need not be started for it to be read.
fn refuse_built_in(registry: &StrategyRegistry, name: &str) -> Result<(), CliError> {
    if registry.declared().any(|declaration| declaration.name == name) {
        return Ok(());
    }
    let entry = registry.get(name)?;
    Err(CliError::usage(format!("{name} is {}, and has no process that could write a log", entry.origin)))
}

/// Every line of a log, the older file first; none where there is no log.
pub fn lines_of(file: &Path) -> Result<Vec<String>, CliError> {
    let mut older = file.as_os_str().to_owned();
    older.push(".1");
    let mut lines = Vec::new();
    for file in [Path::new(&older), file] {
        match fs::read(file) {
            Ok(bytes) => lines.extend(String::from_utf8_lossy(&bytes).lines().map(str::to_owned)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", file, error).into()),
        }
    }
    Ok(lines)
}
