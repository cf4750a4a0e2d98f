use std::collections::HashMap;

use jiff::Timestamp;
use sandboxer::wiring;
use sandboxer_core::model::SandboxId;
use sandboxer_core::service::{Operation, Sandbox};
use sandboxer_documents::OperationDocument;
use serde::Serialize;
use serde_json::Value;

use crate::cli::error::CliError;
use crate::cli::output::{self, age, table};
use crate::cli::session::{App, Session};
use crate::cli::{Outcome, exit};

/// Show what was done, newest first
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox log
  sandbox log try -n 5
  sandbox show op_01jz8x           One of them, with its diff
  sandbox log --json | jq '.operations[] | select(.kind == \"commit\")'")]
pub struct Args {
    /// Only this sandbox
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// At most so many
    #[arg(short = 'n', long, default_value_t = 50)]
    limit: usize,
}

#[derive(Serialize)]
struct Document<'a> {
    operations: Vec<OperationDocument<'a>>,
}

/// Part of the log, with the sandboxes that it is about.
#[derive(Default)]
struct Part {
    operations: Vec<Operation>,
    sandboxes: HashMap<SandboxId, Sandbox>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let found = part(app, args)?;
    if app.ui.json {
        app.ui.document(&found.document())?;
    } else if found.operations.is_empty() {
        app.ui.note("nothing has been done yet");
    } else {
        app.ui.bytes(found.table(Timestamp::now()).as_bytes())?;
    }
    Ok(exit::OK)
}

fn part(app: &App, args: &Args) -> Result<Part, CliError> {
    if args.id.is_none() && !wiring::has_state(&app.places.home) {
        return Ok(Part::default());
    }
    let session = app.open()?;
    let target = args.id.as_deref().map(|id| session.find_any(id)).transpose()?;
    let operations = session.manager.log(target.as_ref().map(|t| &t.sandbox), args.limit)?;
    let sandboxes = sandboxes(&session, &operations)?;
    Ok(Part { operations, sandboxes })
}

fn sandboxes(session: &Session, operations: &[Operation]) -> Result<HashMap<SandboxId, Sandbox>, CliError> {
    let mut sandboxes = HashMap::new();
    for operation in operations {
        let id = &operation.sandbox_id;
        if !sandboxes.contains_key(id)
            && let Some(sandbox) = session.manager.sandbox_by_id(id)?
        {
            sandboxes.insert(id.clone(), sandbox);
        }
    }
    Ok(sandboxes)
}

impl Part {
    fn document(&self) -> Document<'_> {
        let document = |operation| {
            let sandbox = self.sandbox_of(operation);
            let (name, consumer) = (sandbox.map(|s| s.name.as_str()), sandbox.map(|s| &s.consumer));
            OperationDocument { operation, name, consumer }
        };
        Document { operations: self.operations.iter().map(document).collect() }
    }

    fn sandbox_of(&self, operation: &Operation) -> Option<&Sandbox> {
        self.sandboxes.get(&operation.sandbox_id)
    }

    fn table(&self, now: Timestamp) -> String {
        let rows: Vec<Vec<String>> =
            self.operations.iter().map(|operation| self.row(operation, now)).collect();
        table(&["OPERATION", "AGE", "SANDBOX", "WHAT", "SUMMARY"], &rows)
    }

    fn row(&self, operation: &Operation, now: Timestamp) -> Vec<String> {
        vec![
            operation.id.to_string(),
            age(operation.started_at, now),
            output::name(self.sandbox_of(operation).map_or(operation.sandbox_id.as_str(), |s| &s.name)),
            what(operation),
            summary(operation),
        ]
    }
}

/// What it was, and how it stands where that is not as it should be.
fn what(operation: &Operation) -> String {
    match operation.state.as_str() {
        "done" => operation.kind.clone(),
        state => format!("{} ({state})", operation.kind),
    }
}

/// What was done, and why if somebody said.
fn summary(operation: &Operation) -> String {
    match operation.details.get("message").and_then(Value::as_str) {
        Some(why) => output::sentence(&format!("{}, \"{why}\"", operation.summary)),
        None => output::sentence(&operation.summary),
    }
}
