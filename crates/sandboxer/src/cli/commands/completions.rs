use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::cli::session::App;
use crate::cli::{Cli, Outcome, exit};

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox completions bash > ~/.local/share/bash-completion/completions/sandbox
  sandbox completions zsh > ~/.zfunc/_sandbox
  sandbox completions fish > ~/.config/fish/completions/sandbox.fish")]
pub struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sandbox", &mut script);
    if app.ui.json {
        let text = String::from_utf8_lossy(&script);
        app.ui.document(&json!({ "shell": args.shell.to_string(), "script": text }))?;
    } else {
        app.ui.bytes(&script)?;
    }
    Ok(exit::OK)
}
