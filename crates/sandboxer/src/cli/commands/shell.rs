use std::ffi::OsString;
use std::io::{self, IsTerminal};

use sandboxer_core::service::Target;

use super::TargetArg;
use super::exec::{Entered, ours};
use crate::cli::Outcome;
use crate::cli::contain::{Begun, ContainArgs, told};
use crate::cli::environments;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::session::App;

/// Open a shell in a sandbox that is there
///
/// It is $SHELL, contained as `sandbox exec` has it: what you type changes the sandbox and nothing else. The exit code is the shell's.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox shell try
  sandbox shell try --network host          With everything that this machine reaches")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    #[command(flatten)]
    contain: ContainArgs,
    /// In this service of a stack
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let asked = args.contain.read()?;
    if !io::stdin().is_terminal() {
        return Err(CliError::usage("a shell needs a terminal to be typed in")
            .hint("to run a command: `sandbox exec ID -- CMD`"));
    }
    let mut entered = Entered::new(app, &args.target.id, &asked).map_err(ours)?;
    entered.service.clone_from(&args.service);
    let name = output::name(&entered.target().sandbox.name);
    let path = output::name(&entered.workspace()?.resource.location);
    let ui = app.ui.teller();
    let say = move |begun: Begun| {
        let held = match &begun {
            Begun::Contained(ready, _) => told::held(&ready.spec),
            Begun::Files => "nothing but its files isolated".to_owned(),
        };
        ui(&format!("in sandbox {name}, at {path}, with {held}; leave with `exit`"));
    };
    entered.work(app, &asked, &[shell(entered.target())], None, say)
}

/// The user's shell, or one that is everywhere: as in an environment that has its own programs.
fn shell(target: &Target) -> OsString {
    if environments::is_elsewhere(&target.sandbox) {
        return "/bin/sh".into();
    }
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}
