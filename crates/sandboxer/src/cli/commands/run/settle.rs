//! What becomes of the sandbox when its command has ended: by the flags, or by what somebody answers.

use std::io::{self, IsTerminal, Write};

use sandboxer_core::Error;
use sandboxer_core::model::CommitRequest;
use sandboxer_core::service::{TargetCommit, TargetDiff, Uncommitted};
use sandboxer_documents::DiffDocument;
use sandboxer_documents::conflicts::Attempt;
use sandboxer_extensions::local::End;
use serde::Serialize;

use super::{Args, Run, ours};
use crate::cli::commands::commit;
use crate::cli::conflicts;
use crate::cli::contain::told::{self, ContainedDocument};
use crate::cli::contain::{Done, Ended};
use crate::cli::diffs;
use crate::cli::error::{CliError, Kind};
use crate::cli::output::{self, count, style};
use crate::cli::rules;
use crate::cli::session::{App, typed};
use crate::cli::{Outcome, exit};

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
    contained: ContainedDocument,
    #[serde(flatten)]
    diff: DiffDocument<'a>,
}

impl Run {
    /// Shows the difference and does with it what the flags or the user say.
    pub(super) fn settle(&self, app: &mut App, args: &Args, done: Done) -> Outcome {
        let diff = self.session.manager.diff(&self.target, &[]).map_err(|e| ours(e.into()))?;
        self.show(app, &diff);
        for line in told::after(&done.ended, &done.limits, &done.events) {
            app.ui.note(line);
        }
        let fate = self.decide(app, args, &done.ended, &diff)?;
        let code = done.ended.code();
        if app.ui.json {
            let path = (fate == Fate::Kept).then(|| self.workspace().sandbox_ref.text("path")).flatten();
            app.ui.document(&Document {
                outcome: fate,
                exit_code: code,
                signal: done.ended.signal(),
                sandbox_path: path,
                contained: ContainedDocument::new(&done),
                diff: DiffDocument::new(&self.target.sandbox, &diff),
            })?;
        }
        Ok(code)
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
        if ended.end == End::TimedOut && !args.discard {
            // What it was at may be worth a look, whether or not there is anything yet.
            return Ok(self.keep(app));
        }
        if !changed {
            return self.nothing_changed(app);
        }
        if args.discard {
            return self.discard(app);
        }
        if args.commit && ended.code() == exit::OK {
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
    pub(super) fn destroy(&self) -> Result<(), CliError> {
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
        app.ui.note(commit::sentence(&self.target.sandbox.name, &commit));
        commit::tell_notices(&app.ui, &commit);
        if commit::leaves_something(self.on_conflict, &commit) {
            self.keep(app);
        } else if self.disposable {
            // What takes the commit back is kept, the rest goes.
            self.session.manager.put_away(&self.target, "run has committed").map_err(|e| ours(e.into()))?;
            if commit.workspaces.iter().all(|(_, result)| result.undo_bytes.is_some()) {
                app.ui.next("take it back with", "sandbox undo");
            }
        }
        Ok(Fate::Committed)
    }

    /// Commits what was shown and nothing else: something that the command left running may still be writing.
    fn commit_as_shown(&self, app: &App, shown: &TargetDiff) -> Result<TargetCommit, Error> {
        let commit = |digest: &str| {
            let digest = Some(digest.to_owned());
            let request = CommitRequest { on_conflict: self.on_conflict, digest, ..CommitRequest::default() };
            rules::commit_target(app, &self.session, &self.target, &request, &self.rules)
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
}

/// What is in the sandbox is not what somebody was shown.
fn changed_since_shown() -> CliError {
    let message = "the sandbox has changed since its difference was shown; nothing was committed";
    CliError::new(Kind::Refused, message)
        .hint("the sandbox is kept; see what differs now with `sandbox diff ID --patch`")
        .hint("then make it real with `sandbox commit ID`")
}
