use jiff::Timestamp;
use sandboxer_core::service::{Sandbox, Workspace};
use sandboxer_documents::SandboxDocument;
use sandboxer_documents::git::about_all;
use sandboxer_documents::notices;

use super::TargetArg;
use crate::cli::environments;
use crate::cli::error::CliError;
use crate::cli::git;
use crate::cli::output::{self, Ui, age, expiry, style};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Show one sandbox: where it is, what it isolates, and how
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox get try
  sandbox get @last --json")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let sandbox = session.find_any(&args.target.id)?.sandbox;
    let notices = notices::brought_up(&session.manager, &sandbox);
    if app.ui.json {
        let document = SandboxDocument::with_notices(&sandbox, &notices);
        app.ui.document(&document.with_git(about_all(&sandbox)))?;
    } else {
        describe(&mut app.ui, &sandbox, &notices)?;
    }
    Ok(exit::OK)
}

/// Everything about a sandbox, for people; `notices` are those of each workspace.
pub fn describe(ui: &mut Ui, sandbox: &Sandbox, notices: &[Vec<String>]) -> Result<(), CliError> {
    let now = Timestamp::now();
    ui.line(format_args!("{}  {}", ui.paint(style::HEAD, output::name(&sandbox.name)), sandbox.id))?;
    let state = format!("{:?}", sandbox.state).to_lowercase();
    field(ui, "state", format!("{state}, made {}", ago(age(sandbox.created_at, now))))?;
    field(ui, "expires", expiry(sandbox.expires_at, now))?;
    field(ui, "plan", output::name(sandbox.plan_id.as_str()))?;
    let consumer = &sandbox.consumer;
    field(ui, "consumer", output::name(format!("{} {}", consumer.actor_type, consumer.project)))?;
    for (name, value) in environments::lines(sandbox) {
        field(ui, name, value)?;
    }
    let abouts = about_all(sandbox);
    for (index, workspace) in sandbox.workspaces.iter().enumerate() {
        describe_workspace(ui, workspace, sandbox.workspaces.len() > 1)?;
        for (name, value) in abouts.get(index).into_iter().flatten().flat_map(git::lines) {
            field(ui, name, value)?;
        }
        for notice in notices.get(index).into_iter().flatten() {
            field(ui, "notice", output::sentence(notice))?;
        }
    }
    Ok(())
}

fn ago(age: String) -> String {
    if age == "just now" { age } else { format!("{age} ago") }
}

fn describe_workspace(ui: &mut Ui, workspace: &Workspace, named: bool) -> Result<(), CliError> {
    if named {
        field(ui, "workspace", output::name(&workspace.name))?;
    }
    let resource = &workspace.resource;
    field(ui, "resource", format!("{} ({})", output::name(&resource.location), resource.type_name))?;
    field(ui, "path", workspace.sandbox_ref.text("path").map_or_else(|| "none".to_owned(), output::name))?;
    let strategy = &workspace.sandbox_ref.strategy_name;
    field(ui, "strategy", format!("{strategy} ({})", output::sentence(&workspace.reason)))
}

fn field(ui: &mut Ui, name: &str, value: String) -> Result<(), CliError> {
    ui.line(format_args!("  {name:<9} {value}"))
}
