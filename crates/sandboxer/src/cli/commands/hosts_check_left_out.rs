use std::ffi::OsString;

use sandboxer::wiring::left_out;

use crate::cli::Outcome;
use crate::cli::session::App;

/// Check a host (not in this build)
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox hosts check build-1")]
pub struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

pub fn run(_app: &mut App, _args: &Args) -> Outcome {
    Err(left_out::error("container extensions").into())
}
