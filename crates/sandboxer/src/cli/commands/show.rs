use std::path::PathBuf;

use sandboxer::wiring;
use sandboxer_core::Error;
use sandboxer_core::model::{Conflict, DiffKind, Notice, RelPath};
use sandboxer_core::service::{Operation, Sandbox};
use sandboxer_documents::{OperationDocument, PatchDocument, PathText, ShowDocument};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::diffs;
use crate::cli::error::{CliError, Kind};
use crate::cli::output::{self, Ui, count, moment, shell_word, style};
use crate::cli::session::{App, Session, conflict_sentence};
use crate::cli::{Outcome, exit};

/// Show what an operation did, with its diff
///
/// Without an argument it is the newest operation that did something. The diff is kept as long as the commit can be taken back.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox show
  sandbox show op_01jz8x             One from `sandbox log`, by the beginning of its id
  sandbox show --json | jq .details.paths")]
pub struct Args {
    /// An operation: its id or a unique beginning of it
    #[arg(value_name = "OP")]
    operation: Option<String>,
}

/// No more operations than this are looked through for one that did something.
const SEARCHED: usize = 1000;

/// A path as the log has it.
#[derive(Deserialize)]
struct LoggedPath {
    workspace: String,
    path: RelPath,
    kind: DiffKind,
}

/// Something that the log has on a path.
#[derive(Deserialize)]
struct Logged<T> {
    about: T,
}

/// An operation and what is still known of it.
struct Shown {
    operation: Operation,
    sandbox: Option<Sandbox>,
    patches: Vec<Patch>,
}

struct Patch {
    workspace: String,
    file: PathBuf,
    content: Vec<u8>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if !wiring::has_state(&app.places.home) {
        return Err(nothing_done(args.operation.as_deref()));
    }
    let session = app.open()?;
    let operation = match &args.operation {
        Some(text) => session.manager.find_operation(text)?,
        None => newest(&session)?,
    };
    let sandbox = session.manager.sandbox_by_id(&operation.sandbox_id)?;
    let patches = patches(&session, &operation)?;
    let shown = Shown { operation, sandbox, patches };
    if app.ui.json {
        app.ui.document(&shown.document())?;
    } else {
        shown.show(&mut app.ui)?;
    }
    Ok(exit::OK)
}

/// The newest operation that did something.
fn newest(session: &Session) -> Result<Operation, CliError> {
    // Nobody asked for making room.
    let asked_for = |operation: &Operation| operation.kind != "drop" && did_something(operation);
    let found = session.manager.log(None, SEARCHED)?.into_iter().find(asked_for);
    found.ok_or_else(|| nothing_done(None))
}

fn nothing_done(named: Option<&str>) -> CliError {
    match named {
        Some(operation) => Error::not_found("operation", operation).into(),
        None => CliError::new(Kind::NotFound, "nothing has been done yet"),
    }
}

fn did_something(operation: &Operation) -> bool {
    let ended_well = matches!(operation.state.as_str(), "done" | "recovered" | "undone");
    ended_well && !(has_paths(operation) && logged_paths(operation).is_empty())
}

/// Whether it is an operation whose paths are logged.
fn has_paths(operation: &Operation) -> bool {
    matches!(operation.kind.as_str(), "commit" | "undo")
}

fn patches(session: &Session, operation: &Operation) -> Result<Vec<Patch>, CliError> {
    let mut patches = Vec::new();
    for (workspace, file) in session.manager.patches_of(operation)? {
        // Whoever makes room may be quicker.
        if let Ok(content) = std::fs::read(&file) {
            patches.push(Patch { workspace, file, content });
        }
    }
    Ok(patches)
}

fn logged_paths(operation: &Operation) -> Vec<LoggedPath> {
    parsed(&operation.details["paths"])
}

/// What can be read of it: the log of an older version may lack it.
fn parsed<T: DeserializeOwned>(value: &Value) -> Vec<T> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}

impl Shown {
    fn document(&self) -> ShowDocument<'_> {
        let patch = |patch: &Patch| PatchDocument {
            workspace: patch.workspace.clone(),
            patch: String::from_utf8_lossy(&patch.content).into_owned(),
            path: PathText::new(patch.file.as_os_str().as_encoded_bytes()),
        };
        let name = self.sandbox.as_ref().map(|sandbox| sandbox.name.as_str());
        let consumer = self.sandbox.as_ref().map(|sandbox| &sandbox.consumer);
        let operation = OperationDocument { operation: &self.operation, name, consumer };
        ShowDocument { operation, patches: self.patches.iter().map(patch).collect() }
    }

    fn show(&self, ui: &mut Ui) -> Result<(), CliError> {
        let operation = &self.operation;
        let state = if operation.state == "done" { String::new() } else { format!(" ({})", operation.state) };
        let head = format!("{} {}", operation.kind, operation.id);
        ui.line(format_args!("{}{state}", ui.paint(style::HEAD, head)))?;
        for (what, text) in self.facts() {
            ui.line(format_args!("  {what:<8} {text}"))?;
        }
        self.show_paths(ui)?;
        self.show_patches(ui)
    }

    /// Who, when and what.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let (operation, details) = (&self.operation, &self.operation.details);
        let name = self.sandbox.as_ref().map_or("unknown".to_owned(), |sandbox| output::name(&sandbox.name));
        let mut facts = vec![
            ("sandbox", format!("{name} ({})", operation.sandbox_id)),
            ("time", moment(operation.started_at)),
        ];
        let text = |key: &str| details[key].as_str().map(output::sentence);
        facts.extend(text("message").map(|why| ("message", why)));
        facts.push(("did", output::sentence(&operation.summary)));
        facts.extend(text("undoes").map(|undone| ("undoes", undone)));
        facts.extend(text("digest").map(|digest| ("digest", digest)));
        let notice =
            |n: Notice| format!("{}: {}", output::name(n.path.as_bytes()), output::sentence(&n.message));
        let notices = parsed(&details["notices"]).into_iter();
        facts.extend(notices.map(|logged: Logged<Notice>| ("notice", notice(logged.about))));
        let conflicts = parsed(&details["conflicts"]).into_iter();
        facts.extend(conflicts.map(|c: Logged<Conflict>| ("conflict", conflict_sentence(&c.about))));
        facts
    }

    /// One line a path, with the workspace where there are several.
    fn show_paths(&self, ui: &mut Ui) -> Result<(), CliError> {
        let paths = logged_paths(&self.operation);
        let several = self.operation.details["workspaces"].as_array().is_some_and(|w| w.len() > 1);
        for (at, logged) in paths.iter().enumerate() {
            let first_of_its = at == 0 || paths[at - 1].workspace != logged.workspace;
            if at == 0 {
                ui.line("")?;
            }
            if several && first_of_its {
                ui.line(ui.paint(style::HEAD, output::name(&logged.workspace)))?;
            }
            ui.line(format_args!(
                "{} {}",
                diffs::mark(ui, logged.kind),
                output::name(logged.path.as_bytes())
            ))?;
        }
        let counts = self.operation.details["counts"].as_object().into_iter().flatten();
        let total: u64 = counts.filter_map(|(_, n)| n.as_u64()).sum();
        match (total as usize).saturating_sub(paths.len()) {
            0 => Ok(()),
            more => ui.line(format_args!("and {}, which the log does not name", count(more, "more path"))),
        }
    }

    fn show_patches(&self, ui: &mut Ui) -> Result<(), CliError> {
        let kept = || self.patches.iter().filter(|patch| !patch.content.is_empty());
        for patch in kept() {
            ui.line("")?;
            if self.patches.len() > 1 {
                ui.line(ui.paint(style::HEAD, output::name(&patch.workspace)))?;
            }
            diffs::show_rendered(ui, &patch.content)?;
        }
        ui.flush()?;
        self.tell_rest(ui, kept().count() > 0);
        Ok(())
    }

    /// What is not there any more, and what can be done.
    fn tell_rest(&self, ui: &Ui, has_diff: bool) {
        let operation = &self.operation;
        if !did_something(operation) || !has_paths(operation) {
            return;
        }
        if !has_diff {
            ui.note("its diff is no longer kept");
        } else if operation.state != "undone" {
            ui.next("take it back:", &format!("sandbox undo {}", shell_word(operation.id.as_str())));
        }
    }
}
