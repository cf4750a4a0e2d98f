use std::path::PathBuf;

use clap::CommandFactory;
use sandboxer_core::Error;
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::session::App;
use crate::cli::{Cli, Outcome, exit};

/// Print the man page, or write one for each command
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox man | man -l -
  sandbox man ~/.local/share/man/man1")]
pub struct Args {
    /// Write sandbox.1, sandbox-create.1 and so on into this directory
    dir: Option<PathBuf>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    match &args.dir {
        Some(directory) => write_all(app, directory),
        None => print(app),
    }
}

fn write_all(app: &mut App, directory: &PathBuf) -> Outcome {
    let failed = |e| Error::io("write man pages to", directory, e);
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(failed)?;
    if app.ui.json {
        app.ui.document(&json!({ "directory": directory.to_string_lossy() }))?;
    } else {
        app.ui.note(format_args!("man pages are in {}", directory.display()));
    }
    Ok(exit::OK)
}

fn print(app: &mut App) -> Outcome {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(CliError::output)?;
    if app.ui.json {
        app.ui.document(&json!({ "page": String::from_utf8_lossy(&page) }))?;
    } else {
        app.ui.bytes(&page)?;
    }
    Ok(exit::OK)
}
