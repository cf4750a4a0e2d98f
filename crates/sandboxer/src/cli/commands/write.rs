use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};

use sandboxer_core::Error;
use sandboxer_core::model::DiffKind;
use sandboxer_documents::PathText;
use serde::Serialize;

use super::{TargetArg, rel_path};
use crate::cli::output::{self, Ui};
use crate::cli::session::{App, typed};
use crate::cli::{Outcome, exit};

/// Replace a file in the sandbox by what comes from stdin
///
/// Directories above it are made. The original is not touched until you commit.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  echo hello | sandbox write try greeting.txt
  sandbox write try config/app.yaml < new.yaml")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Path inside the workspace
    pub path: OsString,
}

#[derive(Serialize)]
struct Document<'a> {
    sandbox_id: &'a str,
    #[serde(flatten)]
    path: PathText,
    kind: DiffKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_size: Option<u64>,
    new_size: u64,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let path = rel_path(&args.path)?;
    // Read before the signals are taken over and before anything is locked: the other end may be slow.
    let content = read_stdin(app)?;
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let change = session.manager.write(&target, &path, &content)?;
    if app.ui.json {
        app.ui.document(&Document {
            sandbox_id: target.sandbox.id.as_str(),
            path: PathText::of(&change.path),
            kind: change.kind,
            old_size: change.old_size,
            new_size: change.new_size,
        })?;
        return Ok(exit::OK);
    }
    tell(&app.ui, change.path.as_bytes(), change.kind, change.new_size, &typed(&target));
    Ok(exit::OK)
}

/// What was written, for people; `typed` is what is typed for the sandbox.
pub fn tell(ui: &Ui, path: &[u8], kind: DiffKind, size: u64, typed: &str) {
    let what = if kind == DiffKind::Created { "created" } else { "replaced" };
    ui.note(format_args!("{} {what} in the sandbox, {}", output::name(path), output::size(size)));
    ui.next("next:", &format!("sandbox diff {typed}"));
}

/// All of standard input.
pub fn read_stdin(app: &App) -> Result<Vec<u8>, Error> {
    if io::stdin().is_terminal() {
        app.ui.note("type the content, then Ctrl-D");
    }
    let mut content = Vec::new();
    io::stdin().lock().read_to_end(&mut content).map_err(|e| Error::io("read", "standard input", e))?;
    Ok(content)
}
