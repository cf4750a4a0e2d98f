use jiff::Timestamp;
use sandboxer_core::service::CheckpointRecord;
use sandboxer_documents::CheckpointsDocument;

use super::TargetArg;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, age, moment, table};
use crate::cli::session::{App, typed};
use crate::cli::{Outcome, exit};

/// List a sandbox's checkpoints, oldest first
///
/// Budgets remove the oldest when room is short, and say so; a pinned one stays.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox checkpoints try
  sandbox checkpoints try --pin half-way")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Have budgets leave this checkpoint alone
    #[arg(long, value_name = "NAME", conflicts_with = "unpin")]
    pub pin: Option<String>,
    /// Let budgets remove this checkpoint again
    #[arg(long, value_name = "NAME")]
    pub unpin: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    if let Some(name) = args.pin.as_ref().or(args.unpin.as_ref()) {
        session.manager.checkpoint_service().pin(&target, name, args.pin.is_some())?;
    }
    let found = session.manager.checkpoints(&target)?;
    if app.ui.json {
        app.ui.document(&CheckpointsDocument::new(&target.sandbox, &found))?;
    } else if found.is_empty() {
        app.ui.next("no checkpoints; take one with", &format!("sandbox checkpoint {}", typed(&target)));
    } else {
        show(&mut app.ui, &found)?;
    }
    Ok(exit::OK)
}

/// One row for each.
pub fn show(ui: &mut Ui, checkpoints: &[CheckpointRecord]) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = checkpoints.iter().map(row).collect();
    ui.bytes(table(&["#", "NAME", "AGE", "TIME", "WORKSPACES"], &rows).as_bytes())
}

fn row(record: &CheckpointRecord) -> Vec<String> {
    let pinned = if record.pinned { " (pinned)" } else { "" };
    vec![
        record.sequence.to_string(),
        format!("{}{pinned}", output::name(record.id.as_str())),
        age(record.created_at, Timestamp::now()),
        moment(record.created_at),
        output::name(record.workspaces.join(", ")),
    ]
}
