use sandboxer::wiring;
use sandboxer_core::Error;
use sandboxer_core::service::{Operation, Sandbox, SandboxState, TargetCommit};
use sandboxer_documents::conflicts::{Attempt, no_commit};
use sandboxer_documents::{Summary, UndoDocument};

use super::commit::{exit_code, tell_notices};
use crate::cli::Outcome;
use crate::cli::conflicts;
use crate::cli::error::{CliError, Kind};
use crate::cli::output::{self, Ui, count, shell_word};
use crate::cli::session::{App, Session};

/// Take a commit back; its changes are pending again
///
/// Without an argument it is the newest commit of all; with a sandbox, the newest of that sandbox. Refuses with exit code 3,
/// names every path and writes nothing, where something has changed on top of it. An undo is logged like a commit and can be taken back
/// itself, by its id. What takes a commit back is kept with the sandbox, and goes when that is destroyed or room is short.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox undo                  The newest commit
  sandbox undo try              The newest commit of a sandbox
  sandbox undo op_01jz8x        One from `sandbox log`, by the beginning of its id")]
pub struct Args {
    /// An operation: its id or a unique beginning of it; or a sandbox, for its newest commit
    #[arg(value_name = "OP|ID")]
    pub what: Option<String>,
}

/// No more operations than this are looked through for one that can be taken back.
const SEARCHED: usize = 1000;

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if !wiring::has_state(&app.places.home) {
        return Err(CliError::new(Kind::NotFound, "there is no commit to take back"));
    }
    let session = app.open()?;
    let operation = match &args.what {
        Some(what) => named(&session, what)?,
        None => newest(&session)?,
    };
    let undone = session.manager.undo(&operation);
    let undone = undone.map_err(|error| conflicts::explain(error, &Attempt::Undo(&operation.id)))?;
    if app.ui.json {
        app.ui.document(&UndoDocument::new(&undone))?;
    } else {
        let line = sentence(&undone.sandbox.name, &operation.kind, operation.id.as_str(), &undone.commit);
        let pending = is_pending_again(&session, &operation)?;
        tell(&mut app.ui, &undone.sandbox.name, &line, &undone.commit, pending)?;
    }
    Ok(exit_code(&undone.commit))
}

/// What an undo takes back.
fn undoes(operation: &Operation) -> Option<&str> {
    operation.details["undoes"].as_str()
}

fn is_done(operation: &Operation) -> bool {
    matches!(operation.state.as_str(), "done" | "recovered")
}

/// Whether taking `operation` back leaves changes pending: so it is for a commit, the other way round for an undo, and
/// again the other way round for the undo of an undo.
fn is_pending_again(session: &Session, operation: &Operation) -> Result<bool, CliError> {
    let mut pending = true;
    let mut earlier = undoes(operation).map(str::to_owned);
    while let Some(id) = earlier {
        pending = !pending;
        earlier = undoes(&session.manager.find_operation(&id)?).map(str::to_owned);
    }
    Ok(pending)
}

/// What was typed: an operation, or a sandbox for its last commit.
fn named(session: &Session, what: &str) -> Result<Operation, CliError> {
    let as_operation = || session.manager.find_operation(what);
    let is_missing = |error: &Error| matches!(error.root(), Error::NotFound { .. });
    if what.starts_with("op_") {
        return match as_operation() {
            Err(error) if is_missing(&error) => last_of(session, what).map_err(|_| error.into()),
            found => Ok(found?),
        };
    }
    match session.manager.find_any(what) {
        // Only the beginning of an id, without what every id begins with.
        Err(error) if is_missing(&error) => match as_operation() {
            Err(error) if is_missing(&error) => last_of(session, what),
            found => Ok(found?),
        },
        _ => last_of(session, what),
    }
}

fn last_of(session: &Session, selector: &str) -> Result<Operation, CliError> {
    let target = session.find_any(selector)?;
    if selector.contains(':') {
        let name = shell_word(&target.sandbox.name);
        return Err(CliError::usage("a commit is taken back in all its workspaces")
            .hint(format!("`sandbox undo {name}`, or an operation from `sandbox log {name}`")));
    }
    let last = session.manager.last_commit(Some(&target.sandbox));
    last.map_err(|error| no_commit(error, Some(&target.sandbox.name)).into())
}

/// The newest commit of all. Where its sandbox is gone, an older one is not taken for it.
fn newest(session: &Session) -> Result<Operation, CliError> {
    let operation = session.manager.last_commit(None).map_err(|error| no_commit(error, None))?;
    if kept_in(session, &operation)?.is_some() {
        return Ok(operation);
    }
    let gone = Error::Refused {
        reason: format!("the newest commit, {}, cannot be taken back: its sandbox is gone", operation.id),
        hint: None,
    };
    Err(match newest_kept(session)? {
        Some((older, sandbox)) => CliError::from(gone).hint(format!(
            "the newest that can be is of {}: `sandbox undo {}`",
            output::name(&sandbox.name),
            older.id
        )),
        None => CliError::from(gone).hint("change the files back by hand, or in a new sandbox"),
    })
}

/// The sandbox in which what takes an operation back is kept: one that is open, or put away.
fn kept_in(session: &Session, operation: &Operation) -> Result<Option<Sandbox>, CliError> {
    let sandbox = session.manager.sandbox_by_id(&operation.sandbox_id)?;
    Ok(sandbox.filter(|s| s.state.is_open() || s.state == SandboxState::Parked))
}

/// The newest commit of a sandbox that is still there.
fn newest_kept(session: &Session) -> Result<Option<(Operation, Sandbox)>, CliError> {
    for operation in session.manager.log(None, SEARCHED)?.into_iter().filter(is_in_effect) {
        if let Some(sandbox) = kept_in(session, &operation)? {
            return Ok(Some((operation, sandbox)));
        }
    }
    Ok(None)
}

fn is_in_effect(operation: &Operation) -> bool {
    let did_something = operation.details["paths"].as_array().is_some_and(|paths| !paths.is_empty());
    let only_a_branch = operation.details["branch"].is_string();
    operation.kind == "commit" && is_done(operation) && did_something && !only_a_branch
}

/// What was taken back, for people.
pub fn tell(
    ui: &mut Ui,
    sandbox: &str,
    sentence: &str,
    commit: &TargetCommit,
    pending: bool,
) -> Result<(), CliError> {
    ui.line(sentence)?;
    ui.flush()?;
    tell_notices(ui, commit);
    let name = shell_word(sandbox);
    if pending {
        ui.next("its changes are pending again:", &format!("sandbox diff {name}"));
    } else {
        ui.next(
            "what it had taken back is committed again; take that back:",
            &format!("sandbox undo {}", commit.op_id),
        );
    }
    Ok(())
}

/// What was taken back: counted as it was done, not as it was undone.
pub fn sentence(sandbox: &str, kind: &str, operation: &str, commit: &TargetCommit) -> String {
    let entries = commit.workspaces.iter().flat_map(|(_, result)| &result.entries);
    let summary = Summary::of(entries).inverse();
    let (name, operation) = (output::name(sandbox), output::name(operation));
    let changes = count(summary.total, "change");
    format!("took back {kind} {operation} of {name}, {changes}: {}", summary.text())
}
