use serde_json::json;

use super::TargetArg;
use crate::cli::output;
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Remove a sandbox and everything in it; the original is not touched
///
/// What was not committed is gone for good: look with `sandbox diff` first.
#[derive(clap::Args)]
#[command(
    visible_alias = "rm",
    after_help = "\
Examples:
  sandbox destroy try"
)]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find_any(&args.target.id)?;
    session.manager.destroy(&target)?;
    let sandbox = &target.sandbox;
    if app.ui.json {
        app.ui.document(&json!({ "sandbox_id": sandbox.id, "name": sandbox.name, "state": "destroyed" }))?;
    } else {
        let what = if sandbox.state.is_live() { "removed sandbox" } else { "gone already: sandbox" };
        app.ui.line(format_args!("{what} {} ({})", output::name(&sandbox.name), sandbox.id))?;
    }
    Ok(exit::OK)
}
