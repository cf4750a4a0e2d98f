use sandboxer_core::service::{Ended, SandboxState, Target, Uncommitted};
use serde_json::json;

use super::TargetArg;
use crate::cli::output::{self, count, shell_word};
use crate::cli::session::{App, Session};
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
  sandbox destroy try --discard    Throw uncommitted work away, parked work too
  sandbox destroy try --force      The same, where its custom strategy is gone or cannot clean up"
)]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Throw uncommitted work away for good
    #[arg(long)]
    pub discard: bool,
    /// Throw it away even where its strategy cannot clean up; says what may be left
    #[arg(long)]
    pub force: bool,
}

impl Args {
    fn uncommitted(&self) -> Uncommitted {
        if self.discard { Uncommitted::Discard } else { Uncommitted::Park }
    }
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find_any(&args.target.id)?;
    if args.force {
        return abandon(app, &session, &target);
    }
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

fn abandon(app: &mut App, session: &Session, target: &Target) -> Outcome {
    let left = session.manager.abandon(target)?;
    let sandbox = &target.sandbox;
    if app.ui.json {
        let document = json!({"sandbox_id": sandbox.id, "name": sandbox.name, "state": SandboxState::Destroyed, "left": left});
        app.ui.document(&document)?;
        return Ok(exit::OK);
    }
    app.ui.line(format_args!("removed sandbox {} ({})", output::name(&sandbox.name), sandbox.id))?;
    app.ui.flush()?;
    for reason in &left {
        app.ui.warn(format_args!(
            "what was made outside its own directories may be left; {}",
            output::sentence(reason)
        ));
    }
    Ok(exit::OK)
}
