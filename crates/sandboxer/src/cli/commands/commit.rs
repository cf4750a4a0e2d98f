use std::ffi::OsString;

use sandboxer_core::model::CommitRequest;
use sandboxer_core::service::{Sandbox, TargetCommit};

use super::{TargetArg, rel_paths};
use crate::cli::error::CliError;
use crate::cli::hunks::{self, Purpose, SelectionArgs};
use crate::cli::json::{CommitDocument, Summary};
use crate::cli::output::{self, Ui, count, shell_word};
use crate::cli::rules::{self, RuleArgs};
use crate::cli::session::{App, conflict_sentence};
use crate::cli::{Outcome, exit};

/// Make the difference real: all of it, some paths, or some hunks
///
/// Refuses with exit code 3, and writes nothing, where the original has changed since the sandbox was made. Either
/// everything that was selected is written or nothing is, also when the machine stops in the middle. The sandbox stays
/// open, and what was committed is its new base. Paths that a careful person should look at first are flagged, and refused
/// with exit code 5 unless you say --accept-flags.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox commit try
  sandbox commit try src/main.rs docs -m 'fix the parser'
  sandbox commit try -p src                            Choose hunk by hunk
  sandbox commit try --digest \"$(sandbox diff try --json | jq -r .digest)\"   Only what was reviewed
  sandbox commit try --if 'paths=src/**; max-files=50; no-flags'      Only what is harmless")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Only these paths and what lies below them
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Why; kept in the log
    #[arg(short, long)]
    message: Option<String>,
    /// Refuse (exit 5) unless this is the digest of exactly what is to be committed
    #[arg(long)]
    digest: Option<String>,
    #[command(flatten)]
    rules: RuleArgs,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let mut request = CommitRequest {
        paths: rel_paths(&args.paths)?,
        message: args.message.clone(),
        digest: args.digest.clone(),
        ..CommitRequest::default()
    };
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let rules = args.rules.read(&session.settings)?;
    let chosen = hunks::choose(app, &session, &target, &args.selection, &request.paths, Purpose::Commit)?;
    if let Some(chosen) = chosen {
        if chosen.is_nothing() {
            app.ui.line("nothing selected; nothing committed")?;
            return Ok(exit::OK);
        }
        chosen.put_into(&mut request);
    }
    let commit = rules::commit(app, &session, &target, &request, &rules)?;
    if app.ui.json {
        app.ui.document(&CommitDocument::new(&target.sandbox, &commit))?;
    } else {
        tell(&mut app.ui, &target.sandbox, &commit)?;
    }
    Ok(exit_code(&commit))
}

/// Somebody edited what was being written, after the point of no return: their edit stands, ours is put aside.
fn exit_code(commit: &TargetCommit) -> u8 {
    let parked = commit.workspaces.iter().any(|(_, result)| !result.conflicts.is_empty());
    if parked { exit::CONFLICT } else { exit::OK }
}

/// What was committed, for people.
fn tell(ui: &mut Ui, sandbox: &Sandbox, commit: &TargetCommit) -> Result<(), CliError> {
    ui.line(sentence(sandbox, commit))?;
    ui.flush()?;
    tell_notices(ui, commit);
    if summary(commit).total > 0 {
        ui.next(
            "the sandbox stays open; remove it with",
            &format!("sandbox destroy {}", shell_word(&sandbox.name)),
        );
    }
    Ok(())
}

/// One sentence on what was committed.
pub fn sentence(sandbox: &Sandbox, commit: &TargetCommit) -> String {
    let (summary, name) = (summary(commit), output::name(&sandbox.name));
    match summary.total {
        0 => format!("nothing to commit in {name}"),
        total => format!("committed {} of {name}: {}", count(total, "change"), summary.text()),
    }
}

/// What was left out or altered on the way, and what was left alone.
pub fn tell_notices(ui: &Ui, commit: &TargetCommit) {
    for notice in commit.workspaces.iter().flat_map(|(_, result)| &result.notices) {
        ui.warn(format_args!(
            "{}: {}",
            output::name(notice.path.as_bytes()),
            output::sentence(&notice.message)
        ));
    }
    for conflict in commit.workspaces.iter().flat_map(|(_, result)| &result.conflicts) {
        ui.warn(conflict_sentence(conflict));
    }
}

fn summary(commit: &TargetCommit) -> Summary {
    Summary::of(commit.workspaces.iter().flat_map(|(_, result)| &result.entries))
}
