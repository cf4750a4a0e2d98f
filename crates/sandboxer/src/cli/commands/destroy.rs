use sandboxer_core::service::{Ended, SandboxState, Uncommitted};
use serde_json::json;

use super::TargetArg;
use crate::cli::output::{self, count, shell_word};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Remove a sandbox; uncommitted work is parked
///
/// The original is not touched. What was not committed is put away and can be brought back with `sandbox unpark`, unless
/// --discard says that it can go.
#[derive(clap::Args)]
#[command(
    visible_alias = "rm",
    after_help = "\
Examples:
  sandbox destroy try
  sandbox destroy try --discard    Throw uncommitted work away, parked work too"
)]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Throw uncommitted work away for good
    #[arg(long)]
    discard: bool,
}

impl Args {
    fn uncommitted(&self) -> Uncommitted {
        if self.discard { Uncommitted::Discard } else { Uncommitted::Park }
    }
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find_any(&args.target.id)?;
    let ended = session.manager.destroy(&target, args.uncommitted())?;
    let sandbox = &target.sandbox;
    let state = match ended {
        Ended::Parked { .. } => SandboxState::Parked,
        Ended::Destroyed => SandboxState::Destroyed,
        Ended::Already(state) => state,
    };
    if app.ui.json {
        let changes = if let Ended::Parked { changes } = ended { changes } else { 0 };
        let document = json!({
            "sandbox_id": sandbox.id, "name": sandbox.name, "state": state, "parked_changes": changes,
        });
        app.ui.document(&document)?;
        return Ok(exit::OK);
    }
    let who = format!("{} ({})", output::name(&sandbox.name), sandbox.id);
    match ended {
        Ended::Destroyed => app.ui.line(format_args!("removed sandbox {who}"))?,
        Ended::Already(SandboxState::Parked) => app.ui.line(format_args!("parked already: sandbox {who}"))?,
        Ended::Already(_) => app.ui.line(format_args!("gone already: sandbox {who}"))?,
        Ended::Parked { changes } => {
            app.ui
                .line(format_args!("parked sandbox {who} with {}", count(changes, "uncommitted change")))?;
        }
    }
    app.ui.flush()?;
    if state == SandboxState::Parked {
        let id = shell_word(sandbox.id.as_str());
        app.ui.next("bring it back:", &format!("sandbox unpark {id}"));
        app.ui.next("throw it away:", &format!("sandbox destroy {id} --discard"));
    }
    Ok(exit::OK)
}
