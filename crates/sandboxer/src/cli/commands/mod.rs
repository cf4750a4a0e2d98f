//! Every command, one file each: an args struct whose doc comment is the help, then one function.

mod adopt;
pub mod checkpoint;
pub mod checkpoints;
pub mod commit;
mod completions;
pub mod create;
pub mod destroy;
pub mod diff;
mod doctor;
pub mod events;
pub mod exec;
pub mod extend;
pub mod extensions;
mod extensions_check;
mod forward;
mod gc;
pub mod get;
pub mod hosts;
#[cfg(feature = "containers")]
mod hosts_check;
#[cfg(not(feature = "containers"))]
#[path = "hosts_check_left_out.rs"]
mod hosts_check;
mod hosts_sweep;
pub mod list;
mod log;
mod logs;
mod man;
mod parked;
mod path;
pub mod profiles;
mod ps;
pub mod read;
mod reconcile;
pub mod recreate;
mod refresh;
pub mod restore;
pub mod rollback;
mod route;
mod run;
#[cfg(feature = "server")]
mod serve;
mod shell;
mod show;
mod status;
mod strategies;
mod token;
mod trust;
mod types;
pub mod undo;
pub mod unpark;
pub mod usage;
pub mod write;

use sandboxer_core::model::RelPath;

use super::Outcome;
use super::error::CliError;
use super::remote;
use super::session::App;
#[cfg(not(feature = "server"))]
use super::without_server::serve;

/// The commands, in the order of a day's work.
#[derive(clap::Subcommand)]
pub enum Command {
    Run(run::Args),
    Exec(exec::Args),
    Shell(shell::Args),
    Ps(ps::Args),
    Logs(logs::Args),
    Forward(forward::Args),
    Events(events::Args),
    Create(create::Args),
    List(list::Args),
    Get(get::Args),
    Extend(extend::Args),
    Recreate(recreate::Args),
    Status(status::Args),
    Path(path::Args),
    Read(read::Args),
    Write(write::Args),
    Diff(diff::Args),
    Commit(commit::Args),
    Undo(undo::Args),
    Refresh(refresh::Args),
    Rollback(rollback::Args),
    Checkpoint(checkpoint::Args),
    Checkpoints(checkpoints::Args),
    Restore(restore::Args),
    Log(log::Args),
    Show(show::Args),
    Destroy(destroy::Args),
    Parked(parked::Args),
    Unpark(unpark::Args),
    Usage(usage::Args),
    Gc(gc::Args),
    Reconcile(reconcile::Args),
    Adopt(adopt::Args),
    Serve(serve::Args),
    Token(token::Args),
    Trust(trust::Args),
    Strategies(strategies::Args),
    Types(types::Args),
    Profiles(profiles::Args),
    Extensions(extensions::Args),
    Hosts(hosts::Args),
    Route(route::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Runs it. An error's hints name the sandbox as it was typed.
    pub fn run(&self, app: &mut App) -> Outcome {
        let outcome = match app.server.take() {
            Some(server) => remote::run(app, &server, self),
            None => self.dispatch(app),
        };
        match self.named() {
            Some(Named::Sandbox(selector)) => outcome.map_err(|error| error.aimed_at(selector)),
            Some(Named::Plan(plan)) => outcome.map_err(|error| error.aimed_at_plan(plan)),
            None => outcome,
        }
    }

    /// Whether it may have done anything that somebody wants to be told of.
    pub fn is_about_sandboxes(&self) -> bool {
        !matches!(
            self,
            Self::Completions(_) | Self::Man(_) | Self::Doctor(_) | Self::Types(_) | Self::Trust(_)
        )
    }

    /// Whether it is about this very program, wherever commands are sent: shells start with it.
    pub fn is_about_the_program(&self) -> bool {
        matches!(self, Self::Completions(_) | Self::Man(_))
    }

    fn dispatch(&self, app: &mut App) -> Outcome {
        match self {
            Self::Run(args) => run::run(app, args),
            Self::Exec(args) => exec::run(app, args),
            Self::Shell(args) => shell::run(app, args),
            Self::Ps(args) => ps::run(app, args),
            Self::Logs(args) => logs::run(app, args),
            Self::Forward(args) => forward::run(app, args),
            Self::Events(args) => events::run(app, args),
            Self::Create(args) => create::run(app, args),
            Self::List(args) => list::run(app, args),
            Self::Get(args) => get::run(app, args),
            Self::Extend(args) => extend::run(app, args),
            Self::Recreate(args) => recreate::run(app, args),
            Self::Status(args) => status::run(app, args),
            Self::Path(args) => path::run(app, args),
            Self::Read(args) => read::run(app, args),
            Self::Write(args) => write::run(app, args),
            Self::Diff(args) => diff::run(app, args),
            Self::Commit(args) => commit::run(app, args),
            Self::Undo(args) => undo::run(app, args),
            Self::Refresh(args) => refresh::run(app, args),
            Self::Rollback(args) => rollback::run(app, args),
            Self::Checkpoint(args) => checkpoint::run(app, args),
            Self::Checkpoints(args) => checkpoints::run(app, args),
            Self::Restore(args) => restore::run(app, args),
            Self::Log(args) => log::run(app, args),
            Self::Show(args) => show::run(app, args),
            Self::Destroy(args) => destroy::run(app, args),
            Self::Parked(args) => parked::run(app, args),
            Self::Unpark(args) => unpark::run(app, args),
            Self::Usage(args) => usage::run(app, args),
            Self::Gc(args) => gc::run(app, args),
            Self::Reconcile(args) => reconcile::run(app, args),
            Self::Adopt(args) => adopt::run(app, args),
            Self::Serve(args) => serve::run(app, args),
            Self::Token(args) => token::run(app, args),
            Self::Trust(args) => trust::run(app, args),
            Self::Strategies(args) => strategies::run(app, args),
            Self::Types(args) => types::run(app, args),
            Self::Profiles(args) => profiles::run(app, args),
            Self::Extensions(args) => extensions::run(app, args),
            Self::Hosts(args) => hosts::run(app, args),
            Self::Route(args) => route::run(app, args),
            Self::Doctor(args) => doctor::run(app, args),
            Self::Completions(args) => completions::run(app, args),
            Self::Man(args) => man::run(app, args),
        }
    }

    /// What it is about.
    fn named(&self) -> Option<Named<'_>> {
        match self {
            Self::Diff(args) => Some(args.named()),
            Self::Commit(args) => Some(args.target.named()),
            Self::Rollback(args) => Some(args.target.named()),
            _ => self.selector().map(Named::Sandbox),
        }
    }

    /// What was typed for `ID`.
    fn selector(&self) -> Option<&str> {
        match self {
            Self::Exec(args) => Some(&args.target.id),
            Self::Shell(args) => Some(&args.target.id),
            Self::Ps(args) => Some(&args.target.id),
            Self::Logs(args) => Some(&args.target.id),
            Self::Forward(args) => Some(&args.target.id),
            Self::Get(args) => Some(&args.target.id),
            Self::Extend(args) => Some(&args.target.id),
            Self::Recreate(args) => Some(&args.target.id),
            Self::Path(args) => Some(&args.target.id),
            Self::Read(args) => Some(&args.target.id),
            Self::Write(args) => Some(&args.target.id),
            Self::Refresh(args) => Some(&args.target.id),
            Self::Checkpoint(args) => Some(&args.target.id),
            Self::Checkpoints(args) => Some(&args.target.id),
            Self::Restore(args) => Some(&args.target.id),
            Self::Destroy(args) => Some(&args.target.id),
            Self::Undo(args) => args.what.as_deref(),
            Self::Unpark(args) => Some(&args.id),
            Self::Log(args) => args.id.as_deref(),
            Self::Events(args) => args.id.as_deref(),
            _ => None,
        }
    }
}

/// The sandbox that a command is about.
#[derive(clap::Args)]
pub struct TargetArg {
    /// Sandbox: its name, its id, a unique prefix of the id, or @last; with :WORKSPACE for one of several
    #[arg(value_name = "ID")]
    pub id: String,
}

/// A sandbox, or all of a plan.
#[derive(clap::Args)]
pub struct TargetOrPlan {
    /// Sandbox: its name, its id, a unique prefix of the id, or @last; with :WORKSPACE for one of several
    #[arg(value_name = "ID", required_unless_present = "plan")]
    pub id: Option<String>,
    /// All open sandboxes of this plan, as one
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["id", "paths", "patch", "hunks"])]
    pub plan: Option<String>,
}

/// What was typed.
pub enum Named<'a> {
    /// One sandbox, or a workspace of it.
    Sandbox(&'a str),
    /// All of a plan.
    Plan(&'a str),
}

impl TargetOrPlan {
    fn named(&self) -> Named<'_> {
        match &self.plan {
            Some(plan) => Named::Plan(plan),
            None => Named::Sandbox(self.id.as_deref().unwrap_or_default()),
        }
    }
}

/// Paths inside a workspace, as they were typed.
pub fn rel_paths(typed: &[std::ffi::OsString]) -> Result<Vec<RelPath>, CliError> {
    typed.iter().map(rel_path).collect()
}

/// The same of one.
pub fn rel_path(typed: &std::ffi::OsString) -> Result<RelPath, CliError> {
    RelPath::parse(typed).map_err(|error| CliError::from(sandboxer_core::Error::from(error)))
}
