//! The same commands, done by a `sandbox serve`: `sandbox --server URL CMD …`.
//!
//! One small function for each operation: it refuses what cannot travel, asks, and shows the document that comes back as the local
//! command shows its own. A flag that a server would not hear of is refused by its name, and never dropped.

mod catalogue;
mod changes;
mod checkpoints;
mod client;
mod document;
mod documents;
mod events;
mod exec;
mod files;
mod problem;
mod sandboxes;
mod server;
mod socket;
mod usage;

use std::ffi::OsStr;

use clap::CommandFactory;

use client::Client;
use document::Document;

use super::commands::Command;
use super::error::CliError;
use super::session::App;
use super::{Cli, Outcome, exit};

pub use server::Server;

/// Has a server do what was typed.
pub fn run(app: &mut App, server: &Server, command: &Command) -> Outcome {
    if app.places.home_reason == "--home" {
        return Err(CliError::usage(
            "--home is a state directory of this machine, and the server has its own",
        )
        .hint("leave out --home, or --server"));
    }
    let mut remote = Remote { client: Client::new(server), server, app };
    match command {
        Command::Create(args) => sandboxes::create(&mut remote, args),
        Command::List(args) => sandboxes::list(&mut remote, args),
        Command::Get(args) => sandboxes::get(&mut remote, args),
        Command::Extend(args) => sandboxes::extend(&mut remote, args),
        Command::Recreate(args) => sandboxes::recreate(&mut remote, args),
        Command::Destroy(args) => sandboxes::destroy(&mut remote, args),
        Command::Unpark(args) => sandboxes::unpark(&mut remote, args),
        Command::Diff(args) => changes::diff(&mut remote, args),
        Command::Commit(args) => changes::commit(&mut remote, args),
        Command::Undo(args) => changes::undo(&mut remote, args),
        Command::Rollback(args) => checkpoints::rollback(&mut remote, args),
        Command::Checkpoint(args) => checkpoints::take(&mut remote, args),
        Command::Checkpoints(args) => checkpoints::list(&mut remote, args),
        Command::Restore(args) => checkpoints::restore(&mut remote, args),
        Command::Read(args) => files::read(&mut remote, args),
        Command::Write(args) => files::write(&mut remote, args),
        Command::Exec(args) => exec::exec(&mut remote, args),
        Command::Events(args) => events::events(&mut remote, args),
        Command::Usage(args) => usage::usage(&mut remote, args),
        Command::Profiles(args) => catalogue::profiles(&mut remote, args),
        Command::Extensions(args) => catalogue::extensions(&mut remote, args),
        Command::Hosts(args) => catalogue::hosts(&mut remote, args),
        _ => Err(only_here(&typed_name())),
    }
}

/// A command that is sent.
struct Remote<'a> {
    app: &'a mut App,
    server: &'a Server,
    client: Client<'a>,
}

impl Remote<'_> {
    /// The document as it came, where documents are wanted; whether it was shown.
    fn shown(&mut self, document: &Document) -> Result<bool, CliError> {
        if self.app.ui.json {
            self.app.ui.line(document)?;
        }
        Ok(self.app.ui.json)
    }
}

/// The command's name as it was typed, or the one that it is another word for.
fn typed_name() -> String {
    let commands = Cli::command();
    let mut typed = std::env::args().skip(1);
    let found =
        typed.find_map(|word| commands.find_subcommand(word).map(|found| found.get_name().to_owned()));
    found.unwrap_or_else(|| "this command".to_owned())
}

fn only_here(command: &str) -> CliError {
    CliError::usage(format!("`sandbox {command}` works on this machine only; it cannot be sent to a server"))
        .hint("leave out --server and unset SANDBOXER_SERVER, or type it on the server's machine")
}

/// Refuses flags that a server would not hear of.
fn refuse(command: &str, flags: &[(&str, bool)]) -> Result<(), CliError> {
    let typed: Vec<&str> = flags.iter().filter(|(_, typed)| *typed).map(|(flag, _)| *flag).collect();
    if typed.is_empty() {
        return Ok(());
    }
    let message = format!(
        "`sandbox {command}` cannot send {} to a server: it works on this machine only",
        typed.join(", ")
    );
    Err(CliError::usage(message).hint("leave it out, or type the command on the server's machine"))
}

/// What travels in a document is text.
fn text(what: &str, typed: &OsStr) -> Result<String, CliError> {
    let odd = || {
        CliError::usage(format!("{what} {:?} cannot be sent to a server: it is not UTF-8", typed.display()))
    };
    typed.to_str().map(str::to_owned).ok_or_else(odd)
}

/// Done.
fn done() -> Outcome {
    Ok(exit::OK)
}
