use jiff::Timestamp;
use sandboxer_core::environment::{SandboxStatus, StatusWorkspace};
use sandboxer_documents::SandboxDocument;
use sandboxer_documents::git::about_all;
use sandboxer_documents::notices;
use sandboxer_strategies::git_worktree::About;

use super::TargetArg;
use crate::cli::environments;
use crate::cli::error::CliError;
use crate::cli::git;
use crate::cli::output::{self, Ui, age, expiry, instant, style};
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
    let document = SandboxDocument::with_notices(&sandbox, &notices).with_git(about_all(&sandbox));
    match app.ui.json {
        true => app.ui.document(&document)?,
        false => describe(&mut app.ui, &document.to_status().map_err(|e| CliError::output(e.into()))?)?,
    }
    Ok(exit::OK)
}

/// Everything about a sandbox, for people.
pub fn describe(ui: &mut Ui, sandbox: &SandboxStatus) -> Result<(), CliError> {
    let now = Timestamp::now();
    let (name, id) = (output::name(&sandbox.name), output::name(&sandbox.sandbox_id));
    ui.line(format_args!("{}  {id}", ui.paint(style::HEAD, name)))?;
    let state = format!("{:?}", sandbox.state).to_lowercase();
    field(ui, "state", format!("{state}, made {}", ago(age(instant(&sandbox.created_at), now))))?;
    field(ui, "expires", expiry(sandbox.expires_at.as_deref().map(instant), now))?;
    field(ui, "plan", output::name(&sandbox.plan_id))?;
    let consumer = &sandbox.consumer;
    field(ui, "consumer", output::name(format!("{} {}", consumer.actor_type, consumer.project)))?;
    if let Some(principal) = &sandbox.principal {
        field(ui, "principal", output::name(principal))?;
    }
    for (name, value) in sandbox.environment.iter().flat_map(environments::lines) {
        field(ui, name, value)?;
    }
    let several = sandbox.workspaces.len() > 1;
    sandbox.workspaces.iter().try_for_each(|workspace| describe_workspace(ui, workspace, several))
}

fn ago(age: String) -> String {
    if age == "just now" { age } else { format!("{age} ago") }
}

fn describe_workspace(ui: &mut Ui, workspace: &StatusWorkspace, named: bool) -> Result<(), CliError> {
    if named {
        field(ui, "workspace", output::name(&workspace.name))?;
    }
    let resource = &workspace.resource;
    let type_name = output::name(&resource.type_name);
    field(ui, "resource", format!("{} ({type_name})", output::name(&resource.location)))?;
    field(ui, "path", workspace.sandbox_path.as_deref().map_or_else(|| "none".to_owned(), output::name))?;
    let strategy = output::name(&workspace.strategy);
    field(ui, "strategy", format!("{strategy} ({})", output::sentence(&workspace.reason)))?;
    let about = workspace.git.clone().and_then(|git| serde_json::from_value::<About>(git).ok());
    for (name, value) in about.iter().flat_map(git::lines) {
        field(ui, name, value)?;
    }
    for notice in workspace.notices.iter().flatten() {
        field(ui, "notice", output::sentence(notice))?;
    }
    Ok(())
}

fn field(ui: &mut Ui, name: &str, value: String) -> Result<(), CliError> {
    ui.line(format_args!("  {name:<9} {value}"))
}
