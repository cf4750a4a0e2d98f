use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use super::TargetArg;
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Print the path to work in
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cd \"$(sandbox path try)\"
  sandbox path try:app")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
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
