use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sandboxer_core::config::RunSettings;
use sandboxer_core::service::{InUse, Target, Workspace};
use serde::Serialize;

use super::TargetArg;
use crate::cli::contain::told::ContainedDocument;
use crate::cli::contain::{self, Asked, Begun, ContainArgs, Done, Work};
use crate::cli::environments;
use crate::cli::error::{CliError, Kind};
use crate::cli::places::handed_variables;
use crate::cli::session::{App, Session};
use crate::cli::{Outcome, exit};

/// Run a command in a sandbox that is there
///
/// It joins what runs in the sandbox already, and sees the same processes; otherwise it starts afresh, contained as `sandbox run` has it. Nothing is asked or shown
/// afterwards. The exit codes are those of `sandbox run`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox exec try -- make test
  sandbox exec try -w src -- ls             In a directory of the workspace
  sandbox exec both:conf -- sh -c 'cat *'   In one of several workspaces
  sandbox exec try --network host -- npm ci
  sandbox exec try --service web -- env     In a service of a stack")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Work in this directory, relative to the workspace
    #[arg(short = 'w', long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// In this service of a stack
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    #[command(flatten)]
    pub contain: ContainArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    sandbox_id: &'a str,
    name: &'a str,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(flatten)]
    contained: ContainedDocument,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let mut asked = args.contain.read()?;
    asked.env.extend(handed_variables());
    let mut entered = Entered::new(app, &args.target.id, &asked).map_err(ours)?;
    entered.service.clone_from(&args.service);
    entered.work(app, &asked, &args.command, args.directory.as_deref(), |_| {})
}

/// Our own failure, as opposed to the command's.
pub fn ours(error: CliError) -> CliError {
    error.exiting(exit::RUN_FAILED)
}

/// A sandbox that somebody works in, and that does not end meanwhile.
pub struct Entered {
    session: Session,
    target: Target,
    /// Those of the place that was isolated, wherever the command was typed.
    settings: RunSettings,
    /// The service of a stack that is meant.
    pub service: Option<String>,
    _in_use: InUse,
}

impl Entered {
    /// Enters what `ID` or `ID:WORKSPACE` names, for work that is contained as asked.
    pub fn new(app: &App, selector: &str, asked: &Asked) -> Result<Self, CliError> {
        let session = app.open()?;
        let target = session.find(selector)?;
        let first = worked_in(&target);
        let settings = match first.and_then(|workspace| workspace.resource.path()) {
            Some(path) => app.settings(path)?.run,
            None => session.settings.run.clone(),
        };
        let settings = environments::over(settings, &target.sandbox)?;
        if let Some(workspace) = first {
            contain::check(workspace, asked.over(&settings)?.isolation)?;
        }
        let in_use = session.manager.use_sandbox(&target)?;
        session.manager.mark_active(&target)?;
        let sandbox = &target.sandbox;
        // A runtime shows every workspace, whichever is worked in.
        let all = Target { workspaces: sandbox.workspaces.clone(), sandbox: sandbox.clone() };
        session.manager.bring_up(&all)?;
        Ok(Self { session, target, settings, service: None, _in_use: in_use })
    }

    /// What was entered.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The workspace that is worked in: the one that was named, or the first with a path.
    pub fn workspace(&self) -> Result<&Workspace, CliError> {
        let message = "the sandbox has no workspace to work in";
        worked_in(&self.target).ok_or_else(|| CliError::new(Kind::Error, message))
    }

    /// Runs a command there and waits for its end.
    pub fn work(
        &self,
        app: &mut App,
        asked: &Asked,
        command: &[OsString],
        directory: Option<&Path>,
        begin: impl FnOnce(Begun),
    ) -> Outcome {
        let work = Work {
            session: &self.session,
            target: &self.target,
            workspace: self.workspace()?,
            run: &self.settings,
            asked,
            command,
            directory,
            service: self.service.as_deref(),
            output_to_stderr: app.ui.json,
            called: Cell::default(),
        };
        let done = work.run(begin)?;
        self.session.signals.forget();
        if app.ui.json {
            app.ui.document(&self.document(&done))?;
        }
        Ok(done.ended.code())
    }

    fn document(&self, done: &Done) -> Document<'_> {
        Document {
            sandbox_id: self.target.sandbox.id.as_str(),
            name: &self.target.sandbox.name,
            exit_code: done.ended.code(),
            signal: done.ended.signal(),
            contained: ContainedDocument::new(done),
        }
    }
}

/// The first workspace with a path; one that programs only connect to where there is no other.
fn worked_in(target: &Target) -> Option<&Workspace> {
    let with_path = target.workspaces.iter().find(|workspace| workspace.sandbox_ref.sandbox_path().is_some());
    with_path.or(target.workspaces.first())
}
