use std::os::unix::ffi::OsStrExt;

use sandboxer_core::service::{Target, Workspace};
use serde_json::json;

use super::TargetArg;
use crate::cli::databases;
use crate::cli::error::CliError;
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Print the path to work in, or the URL to connect to
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cd \"$(sandbox path try)\"
  sandbox path try:app
  psql \"$(sandbox path try:db)\"")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    if let Some(workspace) = the_only(&target)
        && let Some(connection) = databases::connection(&session.manager, &target, workspace)?
    {
        tell_connection(app, &target, workspace, &connection.url)?;
        session.manager.mark_active(&target)?;
        return Ok(exit::OK);
    }
    let path = session.manager.sandbox_path(&target)?;
    if app.ui.json {
        let workspace = target.workspaces.first().map(|w| w.name.as_str());
        let id = &target.sandbox.id;
        app.ui.document(
            &json!({ "sandbox_id": id, "workspace": workspace, "sandbox_path": path.to_string_lossy() }),
        )?;
    } else {
        // Exact bytes: this line is there for scripts.
        app.ui.bytes(path.as_os_str().as_bytes())?;
        app.ui.line("")?;
    }
    session.manager.mark_active(&target)?;
    Ok(exit::OK)
}

fn the_only(target: &Target) -> Option<&Workspace> {
    match &target.workspaces[..] {
        [only] => Some(only),
        _ => None,
    }
}

fn tell_connection(app: &mut App, target: &Target, workspace: &Workspace, url: &str) -> Result<(), CliError> {
    if app.ui.json {
        let id = &target.sandbox.id;
        return app.ui.document(&json!({ "sandbox_id": id, "workspace": workspace.name, "url": url }));
    }
    app.ui.line(url)
}
