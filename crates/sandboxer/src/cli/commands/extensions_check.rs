use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer::wiring;
use sandboxer_core::Error;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::environment::{ExtensionContext, ExtensionDefinition, Provider};
use sandboxer_core::verification::CheckResult;
use sandboxer_plugin::check::{
    AnotherExtension, Outcome as StepOutcome, Report, Step, Trial, check_extension,
};
use sandboxer_plugin::extension::{last_check, log_path, save_check};
use serde::Serialize;

use super::strategies::check::{quoted, sentence, tell_log, tell_steps};
use super::strategies::ground::Place;
use crate::cli::error::{CliError, Kind};
use crate::cli::output;
use crate::cli::session::App;
use crate::cli::signals::Signals;
use crate::cli::{Outcome, exit};

/// Try whether an extension does what it says
///
/// It is asked to make an environment for a sandbox that nobody has, waited for, looked for by its label, asked once more, and asked to
/// remove it. What it says it removed is looked for. Whatever was made is torn down in any case. Exit code 1 means that a step failed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox extensions check ext.team-vm
  sandbox extensions check ext.team-vm --json")]
pub struct Args {
    /// Its id
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Serialize)]
struct Document<'a> {
    extension: &'a str,
    origin: &'a str,
    steps: &'a [Step],
    passed: usize,
    failed: usize,
    check: CheckResult,
    /// The last that a plugin wrote to its standard error, where a step failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let definition = app.catalogue()?.extension(&args.id)?.clone();
    if definition.provider == Provider::Local {
        let message =
            format!("{} makes nothing that could be tried: it runs commands where they are", args.id);
        return Err(
            CliError::new(Kind::Usage, message).hint("`sandbox doctor` says what works here".to_owned())
        );
    }
    if definition.provider == Provider::ComposeSsh {
        let message =
            format!("{} makes stacks of repositories, on hosts: those are what can be tried", args.id);
        return Err(CliError::new(Kind::Usage, message).hint("`sandbox hosts check`".to_owned()));
    }
    let signals = Signals::install().map_err(|error| Error::io("watch signals for", "/", error))?;
    // Dropped last: the plugin's process works in it.
    let place = Place::make()?;
    let report = tried(&definition, &place.home(), &signals.cancel_flag())?;
    if signals.cancel_flag().is_cancelled() {
        return Err(Error::Cancelled.into());
    }
    let result = match last_check(&place.home(), &definition) {
        Some(invalid @ CheckResult::Broken { .. }) => invalid,
        _ => report.result(),
    };
    if let Err(error) = save_check(&app.places.home, &definition, result.clone()) {
        app.ui.warn(format_args!("the result of this check was not saved: {}", error.in_full()));
    }
    tell(app, &definition, &report, result, &place)
}

/// The check itself. Its state is nobody's.
fn tried(
    definition: &ExtensionDefinition,
    home: &Path,
    cancel: &CancelFlag,
) -> sandboxer_core::Result<Report> {
    let open =
        |definition: &ExtensionDefinition, home: &Path, program: Option<PathBuf>, cancel: &CancelFlag| {
            let quiet = ExtensionContext::quiet(home);
            wiring::extensions(ExtensionContext { program, cancel: cancel.clone(), ..quiet }).open(definition)
        };
    let program = std::env::current_exe().ok();
    let extension = open(definition, home, program.clone(), cancel)?;
    let another = {
        let (definition, home, cancel) = (definition.clone(), home.to_path_buf(), cancel.clone());
        AnotherExtension(Arc::new(move || open(&definition, &home, program.clone(), &cancel)))
    };
    let trial = Trial { another: Some(another), ..Trial::of(definition, cancel.clone()) };
    Ok(check_extension(&*extension, &trial))
}

fn tell(
    app: &mut App,
    definition: &ExtensionDefinition,
    report: &Report,
    check: CheckResult,
    place: &Place,
) -> Outcome {
    let (passed, failed) = (report.count(StepOutcome::Ok), report.count(StepOutcome::Failed));
    let log = if failed > 0 { quoted(&log_path(&place.home(), &definition.id)) } else { Vec::new() };
    if app.ui.json {
        let (extension, origin, steps) = (&definition.id, &definition.origin, &report.steps);
        app.ui.document(&Document { extension, origin, steps, passed, failed, check, log })?;
    } else {
        tell_steps(app, report)?;
        app.ui.line(sentence(&output::name(&definition.id), report))?;
        tell_log(app, &log)?;
    }
    Ok(if failed > 0 { exit::ERROR } else { exit::OK })
}
