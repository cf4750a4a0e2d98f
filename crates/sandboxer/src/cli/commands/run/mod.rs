mod settle;

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sandboxer_core::config::Isolation;
use sandboxer_core::model::{OnConflict, PlanId};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{CreateRequest, InUse, Input, Target, Workspace};
use sandboxer_core::types::is_url;
use sandboxer_documents::git::about;
use sandboxer_extensions::local::Called;

use super::create::{ConsumerArgs, location};
use crate::cli::conflicts::ConflictArgs;
use crate::cli::contain::{
    Asked, Begun, ContainArgs, Done, Wanted, Work, check, check_place, runtimes, spec, told,
};
use crate::cli::databases::{self, DatabaseArgs};
use crate::cli::error::{CliError, Kind};
use crate::cli::git::{self, CheckoutArgs};
use crate::cli::output;
use crate::cli::rules::RuleArgs;
use crate::cli::session::{App, Session, current_dir};
use crate::cli::{Outcome, exit};

/// Run a command in a sandbox, show what it changed, and ask
///
/// It works in a sandbox of a directory, at that directory's own path, and is contained: it can write there and nowhere else, finds no credentials, and reaches no
/// network unless you say so. Afterwards the difference is shown, and you decide what becomes of it. Without a terminal the sandbox is kept, and what to type next is
/// printed. The exit code is the command's own (128+n if signal n ended it); 124 is a time-out, 125 our failure, 126 not executable, 127 not found, 3 a conflict of
/// --commit, 5 a rule that refused it, and 6 that the command cannot be contained here.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox run -- make test                  Run, look, decide
  sandbox run --commit -- cargo fmt         Commit if it succeeds and nothing else changed meanwhile
  sandbox run --commit --on-conflict merge -- ./long-job.sh
  sandbox run --commit --if 'paths=src/**; no-flags' -- ./agent.sh
  sandbox run --discard -- ./try-it.sh      Look at the difference and forget it
  sandbox run --allow-host crates.io,static.crates.io -- cargo fetch
  sandbox run --memory 2G --timeout 10m -- ./agent.sh
  sandbox run --database env:DATABASE_URL -- pytest
  sandbox run -C ~/proj --keep --name try -- sh")]
pub struct Args {
    /// The directory to make a sandbox of [default: the current one]
    #[arg(short = 'C', value_name = "DIR")]
    directory: Option<PathBuf>,
    /// A database that it works on, in a transaction or a clone: a URL, env:NAME or a SQLite file; can be repeated
    #[arg(long, value_name = "RESOURCE")]
    database: Vec<PathBuf>,
    /// How to isolate the directory; see `sandbox strategies`
    #[arg(short, long)]
    strategy: Option<String>,
    /// Commit the changes if the command succeeds, else keep the sandbox
    #[arg(long, group = "afterwards")]
    commit: bool,
    /// Throw the sandbox away afterwards
    #[arg(long, group = "afterwards")]
    discard: bool,
    /// Keep the sandbox, whatever happens
    #[arg(long, group = "afterwards")]
    keep: bool,
    /// The sandbox's name [default: from the directory]
    #[arg(short, long)]
    name: Option<String>,
    /// The piece of work it belongs to; its open sandbox of this directory is used again
    #[arg(long)]
    plan: Option<String>,
    #[command(flatten)]
    contain: ContainArgs,
    #[command(flatten)]
    checkout: CheckoutArgs,
    #[command(flatten)]
    opening: DatabaseArgs,
    #[command(flatten)]
    conflicts: ConflictArgs,
    #[command(flatten)]
    rules: RuleArgs,
    #[command(flatten)]
    consumer: ConsumerArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Tells of settings that cannot have the effect that somebody hopes for.
fn tell_of_settings_in_vain(app: &App, session: &Session, wanted: &Wanted) {
    let unenforced = wanted.unenforced();
    if !unenforced.is_empty() {
        app.ui.warn(format_args!(
            "isolation `files` enforces no limits: {} is left out",
            unenforced.join(", ")
        ));
    }
    for place in spec::shown_in_vain(&session.settings.run) {
        let place = output::name(place.as_os_str().as_encoded_bytes());
        app.ui.warn(format_args!(
            "run.show: {place} lies in something that is hidden as a whole, and stays hidden"
        ));
    }
}

/// One run: its sandbox, and whether it may go when it is not needed any more.
struct Run {
    session: Session,
    target: Target,
    asked: Asked,
    rules: CommitRules,
    on_conflict: OnConflict,
    disposable: bool,
    /// Keeps the sandbox from ending while the command runs and while somebody is asked what becomes of it.
    in_use: Cell<Option<InUse>>,
    /// A supervisor that waits for a runtime to hold.
    called: Cell<Option<Called>>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let asked = args.contain.read()?;
    let directory = args.directory.as_deref().unwrap_or(Path::new("."));
    let session = open(app, directory).map_err(ours)?;
    let wanted = asked.over(&session.settings.run)?;
    tell_of_settings_in_vain(app, &session, &wanted);
    let request = request(args, &session).map_err(ours)?;
    session.manager.require_paths(&request).map_err(|e| ours(e.into()))?;
    check_place(&request.inputs[0].location, wanted.isolation)?;
    let run = prepare(app, args, session, asked, &wanted, &request).map_err(ours)?;
    let name = run.target.sandbox.name.clone();
    let outcome = run.execute(app, args).and_then(|done| run.settle(app, args, done));
    outcome.map_err(|error| error.aimed_at(&name))
}

/// Our own failure, as opposed to the command's.
fn ours(error: CliError) -> CliError {
    error.exiting(exit::RUN_FAILED)
}

fn open(app: &App, directory: &Path) -> Result<Session, CliError> {
    if directory.to_str().is_some_and(is_url) {
        return app.open_at(&current_dir()?);
    }
    if directory.exists() && !directory.is_dir() {
        let message = format!("{} is not a directory", directory.display());
        return Err(CliError::usage(message)
            .on(directory)
            .hint("a file can be isolated with `sandbox create FILE`"));
    }
    app.open_at(directory)
}

fn request(args: &Args, session: &Session) -> Result<CreateRequest, CliError> {
    let directory = args.directory.as_deref().unwrap_or(Path::new("."));
    let mut properties = args.checkout.properties();
    // Databases have strategies of their own: with some, the flag is for the directory alone.
    let (of_all, of_directory) =
        if args.database.is_empty() { (args.strategy.clone(), None) } else { (None, args.strategy.clone()) };
    properties.extend(of_directory.map(|name| ("strategy".to_owned(), name.into())));
    let mut inputs = vec![Input { name: None, location: location(directory)?, properties }];
    for database in &args.database {
        let (location, reference) = databases::located(&location(database)?)?;
        let properties = args.opening.properties(&location, reference)?;
        inputs.push(Input { name: None, location, properties });
    }
    Ok(CreateRequest {
        inputs,
        strategy: of_all,
        no_fallback: false,
        plan: args.plan.as_deref().map(PlanId::from_string),
        name: args.name.clone(),
        ttl: None,
        consumer: args.consumer.consumer(&session.settings),
        disposable: args.discard && args.plan.is_none(),
        environment: None,
    })
}

fn prepare(
    app: &App,
    args: &Args,
    session: Session,
    asked: Asked,
    wanted: &Wanted,
    request: &CreateRequest,
) -> Result<Run, CliError> {
    let on_conflict = args.conflicts.read()?;
    let rules = args.rules.read(&session.settings)?;
    // It starts while the sandbox is made.
    let called = match wanted.isolation {
        Isolation::Files => None,
        Isolation::Standard | Isolation::Strict => Some(runtimes(&session)?.call()?),
    };
    let created = session.manager.get_or_create_sandbox(request)?;
    let target = session.find(created.sandbox.id.as_str())?;
    let disposable = created.created && args.plan.is_none() && !args.keep;
    let in_use = Cell::new(Some(session.manager.use_sandbox(&target)?));
    let called = Cell::new(called);
    let run = Run { session, target, asked, rules, on_conflict, disposable, in_use, called };
    run.refuse_to_pretend(app, args)?;
    run.refuse_without_path(wanted)?;
    Ok(run)
}

impl Run {
    /// A strategy that isolates nothing has to be asked for by name.
    fn refuse_to_pretend(&self, app: &App, args: &Args) -> Result<(), CliError> {
        let workspace = self.workspace();
        let strategy = &workspace.sandbox_ref.strategy_name;
        if self.isolates()? {
            return Ok(());
        }
        if args.strategy.is_none() {
            self.remove_if_disposable()?;
            let message = format!("strategy {strategy} ({}) isolates nothing", workspace.reason);
            return Err(CliError::new(Kind::Refused, message)
                .hint("choose one that isolates: --strategy filesystem_copy")
                .hint("or say that you mean it: --strategy none"));
        }
        app.ui.warn(format_args!(
            "strategy {strategy}: files are not isolated, the command changes the original"
        ));
        Ok(())
    }

    /// A strategy may say that it gives a path, and give none.
    fn refuse_without_path(&self, wanted: &Wanted) -> Result<(), CliError> {
        let checked = check(self.workspace(), wanted.isolation);
        if checked.is_err() {
            self.remove_if_disposable()?;
        }
        checked
    }

    fn isolates(&self) -> Result<bool, CliError> {
        let strategy = &self.workspace().sandbox_ref.strategy_name;
        Ok(self.session.manager.registry().get(strategy)?.capabilities.isolates)
    }

    fn workspace(&self) -> &Workspace {
        // The directory is the first resource, and the manager makes a workspace of each.
        &self.target.workspaces[0]
    }

    /// Runs the command. Where it cannot be started, what was made for it goes again.
    fn execute(&self, app: &App, args: &Args) -> Result<Done, CliError> {
        let done = self.work(app, args);
        // A Ctrl-C was for the command, which has heard it.
        self.session.signals.forget();
        if done.is_err() {
            self.remove_if_disposable()?;
        }
        done
    }

    fn work(&self, app: &App, args: &Args) -> Result<Done, CliError> {
        let manager = &self.session.manager;
        manager.bring_up(&self.target).map_err(|e| ours(e.into()))?;
        manager.mark_active(&self.target).map_err(|e| ours(e.into()))?;
        let isolates = self.isolates().map_err(ours)?;
        let work = Work {
            service: None,
            session: &self.session,
            target: &self.target,
            workspace: self.workspace(),
            run: &self.session.settings.run,
            asked: &self.asked,
            command: &args.command,
            directory: None,
            output_to_stderr: app.ui.json,
            called: Cell::new(self.called.take()),
        };
        work.run(|begun| self.say_what_holds(app, begun, isolates))
    }

    /// Says what the command can and cannot harm.
    fn say_what_holds(&self, app: &App, begun: Begun, isolates: bool) {
        let strategy = Some(self.workspace().sandbox_ref.strategy_name.as_str()).filter(|_| isolates);
        match (begun, strategy) {
            (Begun::Contained(ready, dropped), strategy) => {
                told::before(&app.ui, ready, strategy);
                told::secrets(&app.ui, dropped);
            }
            (Begun::Files, Some(strategy)) => {
                app.ui.note(format_args!(
                    "isolated by {strategy}: files below this directory only, nothing else"
                ));
                if about(self.workspace()).is_some() {
                    app.ui.note(git::NOT_CONTAINED);
                }
            }
            (Begun::Files, None) => {}
        }
    }

    fn remove_if_disposable(&self) -> Result<(), CliError> {
        if self.disposable { self.destroy() } else { Ok(()) }
    }
}
