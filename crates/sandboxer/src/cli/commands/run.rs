use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, OnConflict, PlanId};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{CreateRequest, InUse, Input, Target, TargetCommit, TargetDiff, Uncommitted};
use serde::Serialize;

use super::commit;
use super::create::{ConsumerArgs, location};
use crate::cli::child::Ended;
use crate::cli::conflicts::{self, Attempt, ConflictArgs};
use crate::cli::contained;
use crate::cli::diffs;
use crate::cli::error::{CliError, Kind};
use crate::cli::git::{self, CheckoutArgs};
use crate::cli::json::DiffDocument;
use crate::cli::output::{self, count, style};
use crate::cli::rules::{self, RuleArgs};
use crate::cli::session::{App, Session, typed};
use crate::cli::{Outcome, exit};

/// Run a command in a sandbox, show what it changed, and ask
///
/// It works in a sandbox of a directory; afterwards the difference is shown, and you decide what becomes of it. Only files are isolated: the command has your network, your processes and everything outside the directory. Without
/// a terminal the sandbox is kept, and what to type next is printed. The exit code is the command's own (128+n if signal n
/// ended it); 125 is our failure, 126 not executable, 127 not found, 3 a conflict of --commit and 5 a rule that refused it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox run -- make test                  Run, look, decide
  sandbox run --commit -- cargo fmt         Commit if it succeeds and nothing else changed meanwhile
  sandbox run --commit --on-conflict merge -- ./long-job.sh
  sandbox run --commit --if 'paths=src/**; no-flags' -- ./agent.sh
  sandbox run --discard -- ./try-it.sh      Look at the difference and forget it
  sandbox run -C ~/proj --keep --name try -- sh")]
pub struct Args {
    /// The directory to make a sandbox of [default: the current one]
    #[arg(short = 'C', value_name = "DIR")]
    directory: Option<PathBuf>,
    /// How to isolate; see `sandbox strategies`
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
    checkout: CheckoutArgs,
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

/// What became of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Fate {
    /// Nothing differs; the sandbox is gone.
    Unchanged,
    /// The difference is real now.
    Committed,
    /// The difference is gone.
    Discarded,
    /// The sandbox is still there.
    Kept,
}

#[derive(Serialize)]
struct Document<'a> {
    outcome: Fate,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_path: Option<&'a str>,
    #[serde(flatten)]
    diff: DiffDocument<'a>,
}

/// One run: its sandbox, and whether it may go when it is not needed any more.
struct Run {
    session: Session,
    target: Target,
    rules: CommitRules,
    on_conflict: OnConflict,
    disposable: bool,
    /// Keeps the sandbox from ending while the command runs and while somebody is asked what becomes of it.
    in_use: Cell<Option<InUse>>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let run = prepare(app, args).map_err(ours)?;
    let name = run.target.sandbox.name.clone();
    let outcome = run.execute(app, args).and_then(|ended| run.settle(app, args, ended));
    outcome.map_err(|error| error.aimed_at(&name))
}

/// Our own failure, as opposed to the command's.
fn ours(error: CliError) -> CliError {
    error.exiting(exit::RUN_FAILED)
}

fn prepare(app: &App, args: &Args) -> Result<Run, CliError> {
    let directory = args.directory.as_deref().unwrap_or(Path::new("."));
    if directory.exists() && !directory.is_dir() {
        let message = format!("{} is not a directory", directory.display());
        return Err(CliError::usage(message)
            .on(directory)
            .hint("a file can be isolated with `sandbox create FILE`"));
    }
    let on_conflict = args.conflicts.read()?;
    let session = app.open_at(directory)?;
    let rules = args.rules.read(&session.settings)?;
    let request = CreateRequest {
        inputs: vec![Input {
            name: None,
            location: location(directory)?,
            properties: args.checkout.properties(),
        }],
        strategy: args.strategy.clone(),
        no_fallback: false,
        plan: args.plan.as_deref().map(PlanId::from_string),
        name: args.name.clone(),
        ttl: None,
        consumer: args.consumer.consumer(&session),
        disposable: args.discard && args.plan.is_none(),
    };
    let created = session.manager.get_or_create_sandbox(&request)?;
    let target = session.find(created.sandbox.id.as_str())?;
    let disposable = created.created && args.plan.is_none() && !args.keep;
    let in_use = Cell::new(Some(session.manager.use_sandbox(&target)?));
    let run = Run { session, target, rules, on_conflict, disposable, in_use };
    run.say_what_is_isolated(app, args)?;
    Ok(run)
}

impl Run {
    /// Says what the command can and cannot harm, and refuses to pretend.
    fn say_what_is_isolated(&self, app: &App, args: &Args) -> Result<(), CliError> {
        let workspace = self.workspace();
        let strategy = &workspace.sandbox_ref.strategy_name;
        if self.session.manager.registry().get(strategy)?.capabilities.isolates {
            app.ui
                .note(format_args!("isolated by {strategy}: files below this directory only, nothing else"));
            if git::about(workspace).is_some() {
                app.ui.note(git::NOT_CONTAINED);
            }
            return Ok(());
        }
        if args.strategy.is_none() {
            self.remove_if_disposable()?;
            let message = format!("strategy {strategy} ({}) isolates nothing", workspace.reason);
            return Err(CliError::new(Kind::Refused, message)
                .hint("choose one that isolates: --strategy filesystem_copy")
                .hint("or say that you mean it: --strategy none"));
        }
        app.ui
            .warn(format_args!("strategy {strategy}: nothing is isolated, the command changes the original"));
        Ok(())
    }

    fn workspace(&self) -> &sandboxer_core::service::Workspace {
        // `run` asks for exactly one resource, and the manager makes a workspace of each.
        &self.target.workspaces[0]
    }

    /// Runs the command. Where it cannot be started, what was made for it goes again.
    fn execute(&self, app: &mut App, args: &Args) -> Result<Ended, CliError> {
        let directory = self.session.manager.sandbox_path(&self.target).map_err(|e| ours(e.into()))?;
        self.session.manager.mark_active(&self.target).map_err(|e| ours(e.into()))?;
        let sandbox_id = self.target.sandbox.id.as_str();
        let _ = directory;
        let ended = self.execute_contained(app, args, sandbox_id);
        // A Ctrl-C was for the command, which has heard it.
        self.session.signals.forget();
        if ended.is_err() {
            self.remove_if_disposable()?;
        }
        ended
    }

    fn execute_contained(&self, app: &App, args: &Args, sandbox_id: &str) -> Result<Ended, CliError> {
        let spec = contained::spec(&self.session, &self.target)?;
        let program =
            std::env::current_exe().map_err(|e| ours(Error::io("find", "this program", e).into()))?;
        let attached = contained::attach(&self.session, &program, &spec)?;
        let directory = self.workspace().resource.path().to_path_buf();
        let mut environment: Vec<_> = std::env::vars_os().collect();
        environment.push(("SANDBOX_ID".into(), sandbox_id.into()));
        environment.push(("SANDBOX_PATH".into(), directory.clone().into()));
        environment.push(("PWD".into(), directory.clone().into()));
        let ended = contained::run(
            attached,
            &contained::Job {
                command: &args.command,
                directory: &directory,
                sandbox_id,
                output_to_stderr: app.ui.json,
                environment,
                timeout: None,
            },
        )?;
        let signal = match ended.end {
            sandboxer_extensions::local::End::Killed(signal) => Some(signal),
            _ => None,
        };
        Ok(Ended { code: ended.code(), signal, we_were_told_to_end: ended.we_were_told_to_end })
    }

    /// Shows the difference and does with it what the flags or the user say.
    fn settle(&self, app: &mut App, args: &Args, ended: Ended) -> Outcome {
        if let Some(signal) = ended.signal {
            app.ui.note(format_args!("the command was ended by signal {signal}"));
        }
        let diff = self.session.manager.diff(&self.target, &[]).map_err(|e| ours(e.into()))?;
        self.show(app, &diff);
        let fate = self.decide(app, args, &ended, &diff)?;
        if app.ui.json {
            let path = (fate == Fate::Kept).then(|| self.workspace().sandbox_ref.text("path")).flatten();
            app.ui.document(&Document {
                outcome: fate,
                exit_code: ended.code,
                signal: ended.signal,
                sandbox_path: path,
                diff: DiffDocument::new(&self.target.sandbox, &diff),
            })?;
        }
        Ok(ended.code)
    }

    /// The difference on stderr: stdout is the command's.
    fn show(&self, app: &App, diff: &TargetDiff) {
        let summary = diffs::summary(diff);
        if summary.total > 0 {
            for line in diffs::lines(diff) {
                app.ui.note(format_args!("  {line}"));
            }
            app.ui.note(format_args!("{}: {}", count(summary.total, "change"), summary.text()));
        }
    }

    fn decide(&self, app: &mut App, args: &Args, ended: &Ended, diff: &TargetDiff) -> Result<Fate, CliError> {
        let changed = diffs::summary(diff).total > 0;
        if !changed {
            return self.nothing_changed(app);
        }
        if args.discard {
            return self.discard(app);
        }
        if args.commit && ended.code == exit::OK {
            return self.commit(app, diff);
        }
        if args.commit {
            app.ui.note("the command failed, so nothing was committed");
        }
        let answers = io::stdin().is_terminal() && io::stderr().is_terminal() && !app.ui.json;
        if args.commit || args.keep || !answers || ended.we_were_told_to_end {
            return Ok(self.keep(app));
        }
        self.ask(app, diff)
    }

    fn nothing_changed(&self, app: &App) -> Result<Fate, CliError> {
        if !self.disposable {
            app.ui.note(format_args!(
                "nothing changed; sandbox {} is kept",
                output::name(&self.target.sandbox.name)
            ));
            return Ok(Fate::Kept);
        }
        self.remove_if_disposable()?;
        app.ui.note("nothing changed; the sandbox is removed");
        Ok(Fate::Unchanged)
    }

    /// Ends the sandbox. Nobody but us may have kept it from ending: another `run` of the same plan still does.
    fn destroy(&self) -> Result<(), CliError> {
        drop(self.in_use.take());
        let ended = self.session.manager.destroy(&self.target, Uncommitted::Discard);
        ended.map(drop).map_err(|e| ours(e.into()))
    }

    fn discard(&self, app: &App) -> Result<Fate, CliError> {
        self.destroy()?;
        app.ui.note("the changes are thrown away, the original is as it was");
        Ok(Fate::Discarded)
    }

    /// A conflict and a rule that fails keep their own exit codes; any other failure is ours. The sandbox is kept in either case.
    fn commit(&self, app: &mut App, shown: &TargetDiff) -> Result<Fate, CliError> {
        let attempt = Attempt::Commit { way: self.on_conflict, selection: String::new() };
        let commit = self.commit_as_shown(app, shown).map_err(|error| match error.root() {
            Error::Conflict { .. } | Error::RulesFailed { .. } | Error::Refused { .. } => {
                conflicts::explain(error, &attempt)
            }
            Error::DigestMismatch { .. } => changed_since_shown(),
            _ => ours(error.into()),
        })?;
        app.ui.note(commit::sentence(&self.target.sandbox, &commit));
        commit::tell_notices(&app.ui, &commit);
        if commit::leaves_something(self.on_conflict, &commit) {
            self.keep(app);
        } else if self.disposable {
            // What takes the commit back is kept, the rest goes.
            self.session.manager.put_away(&self.target, "run has committed").map_err(|e| ours(e.into()))?;
            app.ui.next("take it back with", "sandbox undo");
        }
        Ok(Fate::Committed)
    }

    /// Commits what was shown and nothing else: something that the command left running may still be writing.
    fn commit_as_shown(&self, app: &App, shown: &TargetDiff) -> Result<TargetCommit, Error> {
        let commit = |digest: &str| {
            let digest = Some(digest.to_owned());
            let request = CommitRequest { on_conflict: self.on_conflict, digest, ..CommitRequest::default() };
            rules::commit(app, &self.session, &self.target, &request, &self.rules)
        };
        let refusal = match commit(&shown.digest) {
            Err(refusal) => refusal,
            done => return done,
        };
        match refusal.root() {
            // Where the original has changed too, what is committed is not what differs in the sandbox: it is merged, or
            // left out. Then the sandbox has to be as it was shown, and the commit what was just made of that.
            Error::DigestMismatch { expected, found } if *expected == shown.digest => {
                let now = self.session.manager.diff(&self.target, &[])?;
                if now.digest == shown.digest { commit(found) } else { Err(refusal) }
            }
            _ => Err(refusal),
        }
    }

    fn keep(&self, app: &App) -> Fate {
        let name = typed(&self.target);
        app.ui.note(format_args!("the sandbox is kept as {}", output::name(&self.target.sandbox.name)));
        app.ui.next("see the content:", &format!("sandbox diff {name} --patch"));
        app.ui.next("make it real:   ", &format!("sandbox commit {name}"));
        app.ui.next("throw it away:  ", &format!("sandbox destroy {name} --discard"));
        Fate::Kept
    }

    fn ask(&self, app: &mut App, diff: &TargetDiff) -> Result<Fate, CliError> {
        loop {
            let question = app.ui.paint_err(style::HEAD, "[c]ommit, [d]iff, [k]eep (default), [x] discard?");
            let _ = write!(io::stderr(), "{question} ");
            match self.session.answer().as_deref() {
                Some("c" | "commit") => return self.commit(app, diff),
                Some("x" | "discard") => return self.discard(app),
                None | Some("" | "k" | "keep") => return Ok(self.keep(app)),
                Some("d" | "diff") => {
                    diffs::show_patch(&mut app.ui, &diff.workspaces[0])?;
                    app.ui.flush()?;
                }
                Some(_) => app.ui.note("type c, d, k or x"),
            }
        }
    }

    fn remove_if_disposable(&self) -> Result<(), CliError> {
        if self.disposable { self.destroy() } else { Ok(()) }
    }
}

/// What is in the sandbox is not what somebody was shown.
fn changed_since_shown() -> CliError {
    let message = "the sandbox has changed since its difference was shown; nothing was committed";
    CliError::new(Kind::Refused, message)
        .hint("the sandbox is kept; see what differs now with `sandbox diff ID --patch`")
        .hint("then make it real with `sandbox commit ID`")
}
