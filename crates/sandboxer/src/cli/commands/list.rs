use jiff::Timestamp;
use sandboxer::wiring;
use sandboxer_core::environment::{SandboxStatus, StatusWorkspace};
use sandboxer_core::service::Sandbox;
use sandboxer_documents::{SandboxDocument, SandboxesDocument};

use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, age, expiry, instant, table};
use crate::cli::session::{ADOPT, App};
use crate::cli::{Outcome, exit};

/// List the sandboxes, newest first
#[derive(clap::Args)]
#[command(
    visible_alias = "ls",
    after_help = "\
Examples:
  sandbox list
  sandbox list --all
  sandbox list --json | jq -r '.sandboxes[].name'"
)]
pub struct Args {
    /// Those that are gone or failed too
    #[arg(short, long)]
    pub all: bool,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let (found, lost) = look(app, args)?;
    if app.ui.json {
        app.ui.document(&SandboxesDocument::new(&found))?;
    } else if found.is_empty() && lost {
        app.ui.note(format_args!("no sandboxes; {ADOPT}"));
    } else if found.is_empty() {
        app.ui.next("no sandboxes; make one with", "sandbox create");
    } else {
        let told = found.iter().map(|sandbox| SandboxDocument::of(sandbox).to_status());
        let told: Vec<SandboxStatus> =
            told.collect::<Result<_, _>>().map_err(|e| CliError::output(e.into()))?;
        show(&mut app.ui, &told)?;
    }
    Ok(exit::OK)
}

/// One row for each.
pub fn show(ui: &mut Ui, sandboxes: &[SandboxStatus]) -> Result<(), CliError> {
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = sandboxes.iter().map(|sandbox| row(sandbox, now)).collect();
    let text = table(&["NAME", "ID", "STATE", "AGE", "EXPIRES", "STRATEGY", "RESOURCE"], &rows);
    ui.bytes(text.as_bytes())
}

/// The sandboxes; and, where there are none, whether some are on disk that the state has lost.
fn look(app: &App, args: &Args) -> Result<(Vec<Sandbox>, bool), CliError> {
    let home = &app.places.home;
    // Nothing was ever made here: answer without opening a thing.
    if !wiring::has_state(home) && !home.join("sandboxes").exists() {
        return Ok((Vec::new(), false));
    }
    let manager = app.open()?.manager;
    let found = manager.list(args.all)?;
    let lost = found.is_empty() && manager.count_adoptable()? > 0;
    Ok((found, lost))
}

fn row(sandbox: &SandboxStatus, now: Timestamp) -> Vec<String> {
    let of_each = |part: fn(&StatusWorkspace) -> String| {
        let mut parts: Vec<String> = sandbox.workspaces.iter().map(part).collect();
        parts.dedup();
        parts.join(", ")
    };
    vec![
        output::name(&sandbox.name),
        output::name(&sandbox.sandbox_id),
        format!("{:?}", sandbox.state).to_lowercase(),
        age(instant(&sandbox.created_at), now),
        if sandbox.state.is_live() {
            expiry(sandbox.expires_at.as_deref().map(instant), now)
        } else {
            "-".to_owned()
        },
        of_each(|w| output::name(&w.strategy)),
        of_each(|w| output::name(&w.resource.location)),
    ]
}
