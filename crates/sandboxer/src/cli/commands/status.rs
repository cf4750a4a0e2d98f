use jiff::Timestamp;
use sandboxer::wiring;
use sandboxer_core::model::DiffEntry;
use sandboxer_core::service::{Operation, Sandbox, Target, TargetDiff};
use sandboxer_documents::notices;
use sandboxer_documents::{SandboxDocument, StatusDocument, Summary};
use serde::Serialize;

use crate::cli::diffs;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, age, count, expiry, shell_word, style};
use crate::cli::session::{App, Session};
use crate::cli::{Outcome, exit};

/// One screen: what is open, how old it is, how much is pending
#[derive(clap::Args)]
#[command(
    visible_alias = "st",
    after_help = "\
Examples:
  sandbox status
  sandbox status try
  sandbox status --json"
)]
pub struct Args {
    /// Only this sandbox
    #[arg(value_name = "ID")]
    id: Option<String>,
}

/// No more flagged paths than this are named.
const NAMED: usize = 3;

/// What is told of one sandbox.
struct Report {
    sandbox: Sandbox,
    pending: Option<Summary>,
    last: Option<Operation>,
    warnings: Vec<String>,
    /// Of each workspace.
    notices: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct Document<'a> {
    sandboxes: Vec<StatusDocument<'a>>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let reports = match &args.id {
        Some(id) => {
            let session = app.open()?;
            vec![report(&session, session.find(id)?.sandbox)?]
        }
        None if wiring::has_state(&app.places.home) => reports(&app.open()?)?,
        None => Vec::new(),
    };
    let now = Timestamp::now();
    if app.ui.json {
        let sandboxes = reports.iter().map(|report| report.document(now)).collect();
        app.ui.document(&Document { sandboxes })?;
    } else if reports.is_empty() {
        app.ui.next("no open sandboxes; make one with", "sandbox create");
    } else {
        reports.iter().try_for_each(|report| report.show(&mut app.ui, now))?;
        app.ui.flush()?;
        tell_total(app, &reports);
    }
    Ok(exit::OK)
}

fn reports(session: &Session) -> Result<Vec<Report>, CliError> {
    session.manager.list(false)?.into_iter().map(|sandbox| report(session, sandbox)).collect()
}

fn report(session: &Session, sandbox: Sandbox) -> Result<Report, CliError> {
    let last = session.manager.log(Some(&sandbox), 1)?.into_iter().next();
    let mut warnings = Vec::new();
    let mut pending = None;
    if sandbox.state.is_open() {
        let target = Target { workspaces: sandbox.workspaces.clone(), sandbox: sandbox.clone() };
        match session.manager.diff(&target, &[]) {
            Ok(diff) => {
                warnings.extend(diff_warnings(&diff));
                pending = Some(diffs::summary(&diff));
            }
            // One sandbox that cannot be looked at must not hide the others.
            Err(error) => warnings.push(format!("cannot be compared: {}", CliError::from(error).message)),
        }
    }
    // After the comparison, which may have brought it up again.
    let notices = notices::of(&sandbox);
    Ok(Report { sandbox, pending, last, warnings, notices })
}

fn diff_warnings(diff: &TargetDiff) -> Vec<String> {
    let entries = || diff.workspaces.iter().flat_map(|w| &w.entries);
    let told = [
        (entries().filter(|e| e.moved).count(), "changed in the original too: a commit would conflict"),
        (entries().filter(|e| e.refused.is_some()).count(), "cannot be committed"),
    ];
    let told = told.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(*n, "path")));
    told.chain(flagged(entries().filter(|e| !e.flags.is_empty()).collect())).collect()
}

/// How many paths are flagged, and the first of them.
fn flagged(entries: Vec<&DiffEntry>) -> Option<String> {
    let named = |entry: &&DiffEntry| format!("{} ({})", entry.path, entry.flags.join(", "));
    let mut names: Vec<String> = entries.iter().take(NAMED).map(named).collect();
    if entries.len() > NAMED {
        names.push(format!("{} more", entries.len() - NAMED));
    }
    let head = format!("{} to look at before a commit", count(entries.len(), "path"));
    (!entries.is_empty()).then(|| format!("{head}: {}", names.join(", ")))
}

impl Report {
    fn document(&self, now: Timestamp) -> StatusDocument<'_> {
        StatusDocument {
            sandbox: SandboxDocument::with_notices(&self.sandbox, &self.notices),
            age_seconds: (now.as_second() - self.sandbox.created_at.as_second()).max(0),
            pending: self.pending,
            last_operation: self.last.as_ref(),
            warnings: &self.warnings,
        }
    }

    fn show(&self, ui: &mut Ui, now: Timestamp) -> Result<(), CliError> {
        let sandbox = &self.sandbox;
        let name = ui.paint(style::HEAD, output::name(&sandbox.name));
        let state = format!("{:?}", sandbox.state).to_lowercase();
        let (age, expiry) = (age(sandbox.created_at, now), expiry(sandbox.expires_at, now));
        ui.line(format_args!("{name}  {state}, age {age}, expires {expiry}"))?;
        for workspace in &sandbox.workspaces {
            let strategy = &workspace.sandbox_ref.strategy_name;
            ui.line(format_args!("  over     {} ({strategy})", output::name(&workspace.resource.location)))?;
        }
        ui.line(format_args!(
            "  pending  {}",
            self.pending.map_or_else(|| "unknown".to_owned(), |p| p.text())
        ))?;
        if let Some(last) = &self.last {
            let ago = output::age(last.started_at, now);
            ui.line(format_args!("  last     {}, {ago}: {}", last.kind, output::sentence(&last.summary)))?;
        }
        for notice in self.notices.iter().flatten() {
            ui.line(format_args!("  notice   {}", output::sentence(notice)))?;
        }
        for warning in &self.warnings {
            ui.line(format_args!("  {}  {}", ui.paint(style::WARN, "warning"), output::sentence(warning)))?;
        }
        Ok(())
    }
}

fn tell_total(app: &App, reports: &[Report]) {
    let pending = reports.iter().find(|report| report.pending.is_some_and(|p| p.total > 0));
    app.ui.note(count(reports.len(), "open sandbox"));
    if let Some(report) = pending {
        app.ui
            .next("look at what is pending:", &format!("sandbox diff {}", shell_word(&report.sandbox.name)));
    }
}
