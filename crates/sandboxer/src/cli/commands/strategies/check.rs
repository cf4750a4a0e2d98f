use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer::wiring;
use sandboxer_core::Error;
use sandboxer_core::config::{CustomStrategy, Settings};
use sandboxer_core::contract::{CancelFlag, Capabilities, NoProgress};
use sandboxer_core::registry::{StrategyContext, StrategyEntry, StrategyRegistry};
use sandboxer_core::resolve::choose_strategy;
use sandboxer_documents::Told;
use sandboxer_plugin::CheckRecord;
use sandboxer_plugin::check::{Again, Bench, Outcome as StepOutcome, Report, Step, check};
use sandboxer_plugin::strategy::{check_record, log_path};
use serde::Serialize;

use super::ground::{self, Place};
use super::log::lines_of;
use crate::cli::commands::create::location;
use crate::cli::error::{CliError, Kind};
use crate::cli::output::{self, count, shell_word, style, table};
use crate::cli::session::{App, current_dir};
use crate::cli::signals::Signals;
use crate::cli::{Outcome, exit};

/// No more lines than this of a plugin's log are quoted.
const QUOTED_LINES: usize = 6;

/// Try whether a strategy does what it says
///
/// Every promise is one step: reading, writing, leaving the resource alone until commit, checkpoints, conflicts, cleaning up. What
/// the strategy says it did is not believed but looked at. It is tried on a directory, checkout or file that is thrown away, with
/// a state directory that is thrown away too. Exit code 1 means that a step failed. `sandbox strategies` shows the last result.
///
/// With --on it is tried on something real: the check commits to it, below a name of its own that starts with
/// `sandboxer-check-`, and takes that out again where the strategy has files.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox strategies check filesystem_copy
  sandbox strategies check mine --json
  sandbox strategies check bucket --on s3://scratch/area --yes")]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// A directory or URL that may be written to, instead of something that is thrown away
    #[arg(long, value_name = "LOCATION")]
    on: Option<PathBuf>,
    /// Yes, it may be written to
    #[arg(long, requires = "on")]
    yes: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    strategy: &'a str,
    origin: &'a str,
    capabilities: &'a Capabilities,
    steps: &'a [Step],
    passed: usize,
    failed: usize,
    declared_untried: &'a [&'static str],
    /// The last that a plugin wrote to its standard error, where a step failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let signals = Signals::install().map_err(|error| Error::io("watch signals for", "/", error))?;
    // Dropped last: the plugin's process works in it.
    let place = Place::make()?;
    // Workspaces go away with the check, so they do not go where the user's are.
    let settings = Settings { scratch: None, ..app.settings(&current_dir()?)? };
    let modules = app.places.modules();
    let registry = wiring::registry(&settings, &place.home(), modules.as_deref(), &signals.cancel_flag())?;
    let said = |error| without_log_file(error, &place, &args.name);
    let record = record(app, &settings, &args.name);
    let found = registry.get(&args.name);
    record.iter().for_each(|record| record.save_verification(&found));
    let entry = found.map_err(said)?;
    let mut bench = args.bench(app, &place, &registry, entry, signals.cancel_flag())?;
    bench.again = Some(once_more(&args.name, settings, &place, modules, signals.cancel_flag()));
    let report = tried(entry, &place, &bench).map_err(said)?;
    if signals.cancel_flag().is_cancelled() {
        return Err(interrupted(&bench, args));
    }
    if let Some(Err(error)) = record.map(|record| record.save(report.result())) {
        app.ui.warn(format_args!("the result of this check was not saved: {}", error.in_full()));
    }
    tell(app, entry, &report, &place)
}

/// Where the result is kept: in the state directory of the user, unlike everything else of a check. Only plugins have one.
fn record(app: &App, settings: &Settings, name: &str) -> Option<CheckRecord> {
    let is_plugin = |custom: &&CustomStrategy| custom.builtin().is_none() && custom.invalid.is_none();
    let custom = settings.custom_strategies.get(name).filter(is_plugin)?;
    Some(check_record(&app.places.home, name, custom, app.places.modules().as_deref()))
}

/// What starts the strategy a second time, in a process of its own where it has one.
fn once_more(
    name: &str,
    settings: Settings,
    place: &Place,
    modules: Option<PathBuf>,
    cancel: CancelFlag,
) -> Again {
    let (name, home) = (name.to_owned(), place.home());
    Again(Arc::new(move || {
        let registry = wiring::registry(&settings, &home, modules.as_deref(), &cancel)?;
        registry.open(&name, &context(home.clone(), &cancel))
    }))
}

/// A check of something real has committed to it by then, perhaps.
fn interrupted(bench: &Bench, args: &Args) -> CliError {
    match &args.on {
        None => Error::Cancelled.into(),
        Some(location) => {
            let message =
                format!("interrupted; files named {}… may be left in {}", bench.name, location.display());
            CliError::new(Kind::Interrupted, message)
        }
    }
}

impl Args {
    fn bench(
        &self,
        app: &App,
        place: &Place,
        registry: &StrategyRegistry,
        entry: &StrategyEntry,
        cancel: CancelFlag,
    ) -> Result<Bench, CliError> {
        let Some(on) = &self.on else { return place.throw_away(entry, cancel) };
        let types = wiring::resource_types(&app.places.type_files()?)?;
        let bench = place.on(&types, &location(on)?, cancel)?;
        let resource_type = types.get(&bench.resource.type_name)?;
        let settings = app.settings(&current_dir()?)?;
        choose_strategy(Some(&entry.name), None, &bench.resource, resource_type, &settings, registry)?;
        if !self.yes {
            return Err(commits_to(&bench, &self.name));
        }
        // What has a history gets its first file by commit too: one that nobody committed is another matter there.
        if !entry.capabilities.branches {
            ground::seed(&bench)?;
        }
        Ok(bench)
    }
}

fn commits_to(bench: &Bench, name: &str) -> CliError {
    let (location, below) = (&bench.resource.location, &bench.name);
    let message =
        format!("the check commits to {location}: it writes {below} there, and something may stay of it");
    let again = format!("sandbox strategies check {} --on {} --yes", shell_word(name), shell_word(location));
    CliError::new(Kind::Refused, message).hint(format!("if it may be written to: `{again}`"))
}

/// The check itself. Its state is nobody's.
fn tried(entry: &StrategyEntry, place: &Place, bench: &Bench) -> sandboxer_core::Result<Report> {
    let context = context(place.home(), &bench.cancel);
    let strategy = (entry.factory)(&entry.name, &entry.options, &context)?;
    check(&*strategy, &entry.capabilities, bench)
}

fn context(home: PathBuf, cancel: &CancelFlag) -> StrategyContext {
    let (progress, program) = (Arc::new(NoProgress), std::env::current_exe().ok());
    StrategyContext { home, progress, cancel: cancel.clone(), program }
}

/// The log goes away with everything else, so its end is told instead of its place.
fn without_log_file(error: Error, place: &Place, name: &str) -> CliError {
    if !matches!(error, Error::Plugin { .. }) {
        return error.into();
    }
    let hints = quoted(&log_path(&place.home(), name)).into_iter().map(|line| format!("it wrote: {line}"));
    Told::with_hints(&error, hints.collect()).into()
}

/// The end of what the plugin wrote to its standard error, without the times.
pub fn quoted(log: &Path) -> Vec<String> {
    let lines = lines_of(log).unwrap_or_default();
    let last = lines.iter().skip(lines.len().saturating_sub(QUOTED_LINES));
    last.map(|line| line.split_once(' ').map_or(line.as_str(), |(_, said)| said).to_owned()).collect()
}

fn tell(app: &mut App, entry: &StrategyEntry, report: &Report, place: &Place) -> Outcome {
    let (passed, failed) = (report.count(StepOutcome::Ok), report.count(StepOutcome::Failed));
    let log = if failed > 0 { quoted(&log_path(&place.home(), &entry.name)) } else { Vec::new() };
    if app.ui.json {
        let (strategy, origin, capabilities) = (&entry.name, &entry.origin, &entry.capabilities);
        app.ui.document(&Document {
            strategy,
            origin,
            capabilities,
            steps: &report.steps,
            passed,
            failed,
            declared_untried: &report.declared_untried,
            log,
        })?;
    } else {
        tell_steps(app, report)?;
        app.ui.line(sentence(&output::name(&entry.name), report))?;
        tell_log(app, &log)?;
    }
    Ok(if failed > 0 { exit::ERROR } else { exit::OK })
}

pub fn tell_steps(app: &mut App, report: &Report) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = report.steps.iter().map(row).collect();
    let text = table(&["STEP", "OUTCOME", "MS", "DETAIL"], &rows);
    let mut lines = text.lines();
    app.ui.line(lines.next().unwrap_or_default())?;
    for (line, step) in lines.zip(&report.steps) {
        let shown = if step.outcome == StepOutcome::Failed {
            app.ui.paint(style::BAD, line)
        } else {
            line.to_owned()
        };
        app.ui.line(shown)?;
    }
    Ok(())
}

fn row(step: &Step) -> Vec<String> {
    let outcome = match step.outcome {
        StepOutcome::Ok => "ok",
        StepOutcome::Failed => "FAILED",
        StepOutcome::NotTried => "not tried",
        StepOutcome::NotOffered => "not offered",
    };
    vec![
        step.name.to_owned(),
        outcome.to_owned(),
        step.took.as_millis().to_string(),
        output::sentence(&step.detail),
    ]
}

pub fn sentence(name: &str, report: &Report) -> String {
    let others = [(StepOutcome::NotTried, "not tried"), (StepOutcome::NotOffered, "not offered")];
    let others = others.map(|(outcome, word)| (report.count(outcome), word));
    let others: String = others
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!(", {number} {word}"))
        .collect();
    let passed = count(report.count(StepOutcome::Ok), "step");
    let untried = untried(report);
    match report.count(StepOutcome::Failed) {
        0 if untried.is_empty() => format!("{name} does what it says: {passed} passed{others}"),
        0 => format!("{name} does what was tried: {passed} passed{others}{untried}"),
        failed => format!(
            "{name} does not do what it says: {} failed, {passed} passed{others}{untried}",
            count(failed, "step")
        ),
    }
}

/// What nobody can say anything about.
fn untried(report: &Report) -> String {
    match &report.declared_untried[..] {
        [] => String::new(),
        claims => format!("; declared and not tried: {}", claims.join(", ")),
    }
}

pub fn tell_log(app: &mut App, log: &[String]) -> Result<(), CliError> {
    if !log.is_empty() {
        app.ui.line("the last that it wrote to its standard error:")?;
    }
    log.iter().try_for_each(|line| app.ui.line(format_args!("  {}", output::content(line.as_bytes()))))
}
