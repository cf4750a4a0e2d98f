//! The command line: one file a command, one place for errors, one for the screen, one for JSON.
//!
//! Handlers are thin. They parse, call the manager, and convert; whatever can fail comes back as a [`CliError`], is
//! told once, here, and becomes the exit code.

mod catalogue;
mod child;
mod commands;
mod conflicts;
mod contain;
mod databases;
mod diffs;
mod environments;
mod error;
mod exit;
mod git;
#[cfg(feature = "server")]
mod hub;
mod hunks;
mod output;
mod places;
mod plans;
mod progress;
#[cfg(feature = "server")]
mod remote;
mod rows;
mod rules;
#[cfg(feature = "server")]
mod serving;
mod session;
mod signals;
mod tunnels;
#[cfg(not(feature = "server"))]
mod without_server;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use error::CliError;
use output::{ColorWhen, Ui};
use places::Places;
use remote::Server;
use session::App;
#[cfg(not(feature = "server"))]
use without_server::{hub, remote, serving};

/// What a command returns: its exit code, or why it failed.
type Outcome = Result<u8, CliError>;

/// Change anything; nothing real changes until you have seen the difference and said commit
///
/// A sandbox is an isolated copy of a directory or a file. Work in it, look at what differs, then commit the
/// difference, or throw it away.
#[derive(Parser)]
#[command(name = "sandbox", version, max_term_width = 100, after_help = FIRST_STEPS)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

const FIRST_STEPS: &str = "\
Examples:
  sandbox run -- make test           Run a command in a sandbox of this directory, then decide
  sandbox create --name try          Make a sandbox of this directory
  sandbox exec try -- make           Run a command in it
  cd \"$(sandbox path try)\"           Work in it by hand
  sandbox diff try                   See what differs
  sandbox commit try                 Make it real
  sandbox destroy try                Throw the sandbox away

Exit codes: 0 fine, 1 error, 2 usage, 3 conflict, 4 not found, 5 refused, 6 isolation unavailable.";

/// Flags that every command has.
#[derive(clap::Args)]
#[command(next_help_heading = "Global options")]
struct Globals {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,
    /// State directory [env: SANDBOXER_HOME]
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Configuration file [env: SANDBOXER_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Have a `sandbox serve` do it: unix:PATH, http://HOST:PORT or https://HOST [env: SANDBOXER_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// File with the token for that server [env: SANDBOXER_TOKEN is the token itself]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// When to colour; NO_COLOR is honoured
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    #[arg(help = "When to colour: auto, always or never")]
    color: ColorWhen,
    /// Say nothing on stderr but errors and warnings
    #[arg(short, long, global = true)]
    quiet: bool,
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => return ExitCode::from(tell_refusal(&refusal)),
    };
    let mut ui = Ui::new(cli.globals.json, cli.globals.quiet, cli.globals.color);
    let places = match Places::of_process(cli.globals.home.as_deref(), cli.globals.config.as_deref()) {
        Ok(places) => places,
        Err(error) => return ExitCode::from(finish(&mut ui, Err(error))),
    };
    let server = match server(&cli, &mut ui) {
        Ok(server) => server,
        Err(error) => return ExitCode::from(finish(&mut ui, Err(error))),
    };
    let is_here = server.is_none();
    let mut app = App { ui, places, quiet: cli.globals.quiet, server };
    let outcome = cli.command.run(&mut app);
    if is_here && cli.command.is_about_sandboxes() {
        hub::send_courier(&app.places);
    }
    ExitCode::from(finish(&mut app.ui, outcome))
}

/// The server that the command is for, if it is not for this machine.
fn server(cli: &Cli, ui: &mut Ui) -> Result<Option<Server>, CliError> {
    let globals = &cli.globals;
    let named = places::server(globals.server.as_deref())?.filter(|_| !cli.command.is_about_the_program());
    let Some(name) = named else {
        return match &globals.token_file {
            Some(_) => {
                Err(CliError::usage("--token-file is for a server, and none is named").hint("--server URL"))
            }
            None => Ok(None),
        };
    };
    if globals.server.is_some() {
        ui.aim_at(&name, globals.token_file.as_deref());
    }
    Server::new(&name, globals.token_file.as_deref(), places::token().as_deref()).map(Some)
}

/// Help and version go to stdout and are fine; anything else is a usage error, as JSON where JSON was asked for.
fn tell_refusal(refusal: &clap::Error) -> u8 {
    if !refusal.use_stderr() {
        let _ = refusal.print();
        return exit::OK;
    }
    if std::env::args_os().any(|arg| arg == "--json") {
        usage_error(&refusal.render().to_string()).report(&Ui::new(true, false, ColorWhen::Never));
    } else {
        let _ = refusal.print();
    }
    exit::USAGE
}

/// What the parser says, without its decoration: the first paragraph is the message, a tip is a hint.
fn usage_error(text: &str) -> CliError {
    let mut paragraphs = text.split("\n\n");
    let lines = paragraphs.next().unwrap_or_default().lines().map(str::trim);
    let message = lines.collect::<Vec<_>>().join(" ");
    let tips = paragraphs.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
    let error = CliError::usage(message.trim_start_matches("error: "));
    tips.fold(error, |error, tip| error.hint(tip)).hint("`sandbox --help` shows the commands")
}

/// Writes out what is left, tells the error, and gives the exit code.
fn finish(ui: &mut Ui, outcome: Outcome) -> u8 {
    let flushed = ui.flush();
    match outcome.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(error) => {
            error.report(ui);
            error.exit
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_parsers_words_become_a_message_and_hints() {
        let refusal = Cli::try_parse_from(["sandbox", "creat"]).err().unwrap();
        let error = usage_error(&refusal.render().to_string());
        assert_eq!(error.message, "unrecognized subcommand 'creat'");
        assert!(error.hints[0].contains("'create'"), "{:?}", error.hints);
    }

    #[test]
    fn every_command_says_what_it_does_and_how() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no description");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n  "), "{name} has no examples");
            assert!(help.contains(&format!("sandbox {name}")), "the examples of {name} do not show it");
        }
    }
}
