//! Custom strategies: each is started and verified.

use sandboxer::wiring::{self, left_out};
use sandboxer_core::config::Settings;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::registry::Declaration;
use sandboxer_core::verification::{CheckResult, join_problems};
use serde::Serialize;

use super::mark;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui};
use crate::cli::session::App;

#[derive(Serialize)]
pub struct CustomStrategyCheck {
    strategy: String,
    origin: String,
    check: CheckResult,
}

/// Verifies every strategy that the settings declare. Those of an untrusted project are not among them.
pub fn check_all(app: &App, settings: &Settings) -> Result<Vec<CustomStrategyCheck>, CliError> {
    let modules = app.places.modules();
    let registry = wiring::registry(settings, &app.places.home, modules.as_deref(), &CancelFlag::default())?;
    let declared = registry.declared().filter(|declaration| declaration.origin != left_out::ORIGIN);
    Ok(declared.map(verify).collect())
}

fn verify(declaration: &Declaration) -> CustomStrategyCheck {
    let verified = (declaration.verify)();
    let check = match verified {
        // A full check may have found more than a verification can.
        Ok(_) => {
            Some((declaration.last_check)()).filter(CheckResult::has_failed_steps).unwrap_or(CheckResult::Ok)
        }
        Err(error) => CheckResult::from_error(&error).unwrap_or_default(),
    };
    CustomStrategyCheck { strategy: declaration.name.clone(), origin: declaration.origin.clone(), check }
}

pub fn show(ui: &mut Ui, found: &CustomStrategyCheck) -> Result<(), CliError> {
    let (strategy, origin) = (output::name(&found.strategy), output::name(&found.origin));
    let reason = match &found.check {
        CheckResult::Ok => "every method is there".to_owned(),
        CheckResult::Broken { problems } => output::sentence(&join_problems(problems)),
        CheckResult::NotChecked => found.check.to_string(),
    };
    let mark = mark(ui, found.check == CheckResult::Ok);
    ui.line(format_args!("{mark}  {strategy:<16} {origin}: {reason}"))
}
